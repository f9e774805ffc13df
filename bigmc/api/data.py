"""Make, describe and verify datasets; describe and verify models."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bigmc.api.resolve import Size, is_folder, model_of, resources_of
from bigmc.engine import EngineLike
from bigmc.errors import DataError
from bigmc.options.ingest import IngestKeywords, IngestOptions, given_options
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.ingestion.append import Append
    from bigmc.ingestion.job import Job
    from bigmc.ingestion.upload import Upload
    from bigmc.store.dataset import Dataset


def ingest(
    source: Any,
    to: str | Path,
    *,
    append: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[IngestKeywords],
) -> Dataset:
    """Turn files or arrays into a dataset on disk.

    Killed at any moment, the same call resumes; after success it does nothing.

    Parameters
    ----------
    source : path, glob, folder, array, table, or a list of these
        CSV, TSV, JSONL, Parquet or svmlight files, named pipes, ``-`` for standard input; NumPy, SciPy
        sparse or dask arrays; Arrow tables, data frames, readers of batches, pyarrow datasets and scanners,
        DuckDB relations, iterators of dicts or batches. Streams are written to disk first.
    to : path
        Dataset to write.
    text, categorical, numeric : str or sequence of str
        Columns hashed as text, as ``name=value``, and by name with the value as weight.
    date : str or sequence of str
        Columns of dates or times, or of texts like 2026-11-25 or 2026-11-25T08:30:00Z. Each becomes the days
        since 2000, the month, the day of the week and the hour, after the dense features.
    value_format : mapping of str to str, or sequence of str
        How columns of numbers or dates are written where not as programs write them: an example by column,
        or texts such as ``price=$1,234.50``, ``share=12%`` and ``day=31/12/2026``.
    missing_text : str or sequence of str
        Texts, in any case, that stand for a missing number or date, such as ``n/a``.
    odd_as_missing : str or sequence of str
        Columns of numbers or dates in which whatever else is written counts as missing, also in predictions.
    dense : str or sequence of str
        Numeric columns, each its own feature.
    vector : str or sequence of str
        Columns of lists of numbers of one length, that of the first list, such as embeddings; each place is a
        feature.
    label : str or array
        Label column; for arrays the labels themselves. Labels are sets if the column holds lists (Parquet
        lists, JSON arrays), or if the labels are a list of Python sets or a 0/1 indicator of shape
        (n_samples, n_classes), also sparse. A set may be empty.
    label_separator : str, optional
        Separator between several labels of a row, in a text column.
    weight : str, optional
        Column of sample weights, numbers of at least 0, for training. Evaluation counts rows.
    keep : str or sequence of str
        Columns copied to ``rows.parquet``.
    hash_bits, ngrams, analyzer, lowercase
        By default 18, (1, 2), ``"word"`` and True; see :class:`bigmc.ingestion.hashing.hasher.TextHasher`.
    words_by_column : bool, optional
        Tell apart the same word in several text columns; by default the texts of a row add up to one.
    standardize : bool, optional
        Scale dense features: ``(x - mean) / deviation``, with the mean and population standard deviation
        of the first split, computed in an additional pass, stored in the dataset and applied at prediction.
    fourier : int, optional
        Replace the standardised dense features by this even number of random Fourier features.
    gamma : float, optional
        Parameter of their Gaussian kernel; by default 1 / number of dense features.
    missing : {"refuse", "keep", "fill"}, optional
        Dense values that are null, empty or NaN: by default a bad row; kept as NaN, for boosting only; or
        replaced by the mean, with an extra feature that marks them.
    weighting : {"counts", "binary", "l2", "tfidf"}, optional
        Weighting of values when they are read; by default ``"tfidf"`` for text, ``"l2"`` if other
        columns are hashed, else ``"counts"``.
    split : mapping or str, optional
        Shares of the splits, by default ``{"train": 0.8, "test": 0.2}``. A hash of row numbers assigns rows.
    group : str, optional
        Column of groups; rows of one group stay in one split.
    seed : int, optional
        Seed of the assignment to splits, by default 0, and of random Fourier features.
    n_features : int, optional
        Number of features of svmlight data; by default from the largest index.
    names : bool, optional
        Keep the words behind hashed features; the default.
    append : bool, default=False
        Add the sources to the existing dataset, with its options; given options must be equal to them.
        Sources that it already has are skipped, so the same call adds nothing twice. Ids
        and splits of the rows are those of one ingest of all sources; new classes are numbered
        after the known ones. Open readers and existing models are unaffected.
    memory_limit : str or int, optional
        Bytes that ingest may add to the bare process; by default half of the memory.
    engine : Engine, distributed.Client or str, optional
        Runs the parts; by default one thread per processor. With a client, which stays open, or the address
        of a Dask scheduler, the cluster's workers run them; they must see the same files, and the memory
        limit holds for each process.
    on_bad_row : {"fail", "quarantine"}, default="fail"
        Stop at an invalid row, or set it aside in ``rejects.parquet`` with the reason.
    format : str, optional
        Format of the files; by default known from their names.
    delimiter : str, optional
        Field separator of delimited text, one character or ``tab``; by default that of the format.
    columns : str or sequence of str, optional
        Names of all columns of delimited text without a header line.
    encoding : str, optional
        Encoding of text files, by its Python name, such as ``"latin-1"``, ``"cp1252"`` or ``"utf-16"``; by
        default UTF-8.
    progress : callable, optional
        Called with :class:`bigmc.progress.Progress`.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        If the input is invalid; the message names file, line and cure.
    """
    with resources_of(memory_limit, engine, progress) as resources:
        job = _ingest_job(source, to, options, append, resources.memory_limit)
        return job.run(resources.engine, progress)


def ingest_part(
    source: Any,
    to: str | Path,
    part: tuple[int, int],
    *,
    append: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[IngestKeywords],
) -> dict[str, int]:
    """Do one part of an ingest while other processes do the others; :func:`ingest` completes it.

    Every process gets the same sources, target and options. The first process splits the sources, and each
    writes its part. A final call of :func:`ingest` does missing parts and publishes the dataset.

    Parameters
    ----------
    source, to, append, memory_limit, engine, progress, **options
        As for :func:`ingest`.
    part : (int, int)
        Number of the part, from 0, and number of parts. Parts are about equal; some are empty if there are
        more parts than pieces of the sources (of some 60,000 rows).

    Returns
    -------
    dict
        ``n_pieces`` of this part and their rows, ``n_samples``.

    Raises
    ------
    DataError, BusyError
        As for :func:`ingest`; also if another process is working on the same part.
    """
    number, count = part
    if not 0 <= number < count:
        raise DataError(f"part {number} of {count}", "count the parts from 0")
    with resources_of(memory_limit, engine, progress) as resources:
        job = _ingest_job(source, to, options, append, resources.memory_limit)
        return job.run_part(number, count, resources.engine, progress)


def open_dataset(path: str | Path) -> Dataset:
    """Open a finished dataset; ``dataset["train"]`` is one of its splits.

    Raises
    ------
    StoreError
        If it is missing, unfinished, damaged or from another version.
    """
    from bigmc.store.dataset import Dataset

    return Dataset.open(path)


def doubts_about_labels(dataset: str | Path | Dataset) -> list[str]:
    """Return a sentence for each kind of suspicious label of a dataset, such as ``NA`` or ``"a "``."""
    from bigmc.ingestion.columns.doubtful_labels import doubts_about_labels as doubts
    from bigmc.store.dataset import Dataset

    return doubts(Dataset.open(dataset).classes)


def info(path: str | Path) -> Mapping[str, Any]:
    """Return the contents of a dataset, or of a model file, as JSON data.

    Raises
    ------
    StoreError, ModelError
        If it is damaged or from another version.
    DataError
        If there is nothing at the path.
    """
    return open_dataset(path).info() if is_folder(path) else model_of(path).info()


def verify(path: str | Path) -> list[str]:
    """Return the problems of a dataset or a model file, one line each; empty if every byte is intact.

    Raises
    ------
    DataError
        If there is nothing at the path.
    """
    from bigmc.model import verify_model
    from bigmc.store.files.object_store import local_file
    from bigmc.store.verify import verify as verify_dataset

    if is_folder(path):
        return verify_dataset(path)
    with local_file(path) as file:
        return verify_model(file)


def _ingest_job(
    source: Any, to: str | Path, options: IngestKeywords, append: bool, limit: int
) -> Job | Append | Upload:
    from bigmc.ingestion.append import Append
    from bigmc.ingestion.prepare import make_job
    from bigmc.ingestion.upload import Upload
    from bigmc.store.files.object_store import Address, is_remote

    asked = given_options(options, also=signature(ingest).parameters)
    if append:
        return Append(str(to) if is_remote(to) else Path(to), source, asked, limit)
    folder = Address(str(to)).building if is_remote(to) else Path(to)
    job = make_job(source, folder, IngestOptions().but(asked), limit)
    return Upload(job, str(to)) if is_remote(to) else job
