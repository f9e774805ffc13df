"""Datasets: making them, and what is in them or in a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bigmc import budget
from bigmc.api.resolve import Size, is_folder, model_of
from bigmc.engine import EngineLike, opened
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

    Killed at any moment, the same call continues; after success it does nothing.

    Parameters
    ----------
    source : path, glob, folder, array, table, or a list of these
        CSV, TSV, JSONL, Parquet or svmlight files, named pipes, ``-`` for standard input; NumPy, SciPy
        sparse or dask arrays; Arrow tables, data frames, readers of batches, pyarrow datasets and scanners,
        DuckDB relations, iterators of dicts or batches. What can be read only once is written to disk first.
    to : path
        Dataset to make.
    text, categorical, numeric : str or sequence of str
        Columns hashed as text, as ``name=value``, and by name with the value as weight.
    date : str or sequence of str
        Columns of dates or times, or of texts like 2026-11-25 or 2026-11-25T08:30:00Z: each becomes the days
        since 2000, the month, the day of the week and the hour, after the dense features.
    written : mapping of str to str, or sequence of str
        How columns of numbers or dates are written where not as programs write them: an example by column,
        or texts such as ``price=$1,234.50``, ``share=12%`` and ``day=31/12/2026``.
    missing_text : str or sequence of str
        Texts, in any case, that stand for a missing number or date, such as ``n/a``.
    dense : str or sequence of str
        Numeric columns that keep a feature of their own.
    label : str or array
        Label column; for arrays the labels themselves. Labels are sets where the column holds lists (of
        Parquet, JSON arrays), or the array is an indicator of shape (n_samples, n_classes), also sparse, 1
        where a sample has the label of that number, or a list of Python sets. A set may be empty.
    label_separator : str, optional
        What stands between the labels of a row where the column is text and a row has several.
    weight : str, optional
        Column of numbers of at least 0: how much each row counts in training. Evaluation counts rows.
    keep : str or sequence of str
        Columns copied to ``rows.parquet``.
    hash_bits, ngrams, analyzer, lowercase
        By default 18, (1, 2), ``"word"`` and True; see :class:`bigmc.ingestion.hashing.hasher.TextHasher`.
    standardize : bool, optional
        Dense features become ``(x - mean) / deviation``; mean and population standard deviation are those
        of the first split, computed in an additional pass. Kept with the dataset, applied at prediction.
    fourier : int, optional
        Turn dense features, standardised, into so many random Fourier features, an even number.
    gamma : float, optional
        Of the Gaussian kernel they approximate; by default 1 / number of dense features.
    missing : {"refuse", "keep"}, optional
        Dense values that are null, empty or NaN: a bad row, as is the default, or kept as NaN, which boosting
        learns from and other learners refuse.
    weighting : {"counts", "binary", "l2", "tfidf"}, optional
        How values are weighted when read; by default ``"tfidf"`` for text, ``"l2"`` for other
        hashed columns or with these, else ``"counts"``.
    split : mapping or str, optional
        Shares of the splits, by default ``{"train": 0.8, "test": 0.2}``. A hash of a row's number decides.
    group : str, optional
        Column whose rows stay together in a split.
    seed : int, optional
        Seed of the assignment to splits, by default 0, and of random Fourier features.
    n_features : int, optional
        Width of svmlight data; by default the largest index says.
    names : bool, optional
        Keep the words behind hashed features, as is the default.
    append : bool, default=False
        Add the sources to the dataset that exists, which decides all options above; one that is given must
        be its own. Sources it has already are passed over, so that the same call adds nothing twice. Ids
        and splits of the rows are those of one ingest of all sources; classes not seen before are numbered
        after those that were. Open readers and models trained on it are unaffected.
    memory_limit : str or int, optional
        Bytes that ingest may use above the bare process; by default half of what there is.
    engine : Engine, distributed.Client or str, optional
        Runs the parts; by default a thread per processor. A client, which stays open, or the address of a
        Dask scheduler has the workers of a cluster run them, which must see the same files; the memory limit
        then holds for each process.
    on_bad_row : {"fail", "quarantine"}, default="fail"
        Stop at a row that cannot be used, or set it aside in ``rejects.parquet`` with the reason.
    format : str, optional
        Format of the files; by default their names say.
    delimiter : str, optional
        One character between the fields of delimited text, by default that of the format; also ``tab``.
    columns : str or sequence of str, optional
        Names of all columns of delimited text that has no header line.
    encoding : str, optional
        Of text files, as Python names it, such as ``"latin-1"``, ``"cp1252"`` or ``"utf-16"``; by default
        UTF-8.
    progress : callable, optional
        Called with :class:`bigmc.progress.Progress`.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        If the input cannot be used; the message names file, line and cure.
    """
    from bigmc.engine.processes import prepare_process

    with opened(engine, prepare_process) as workers:
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        return _ingest_job(source, to, options, append, limit).run(workers, progress)


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
    """Do a part of an ingest, beside other processes that do the others; :func:`ingest` completes it.

    Every process is given the same sources, target and options. The first cuts the sources, each writes its
    part aside, and the call of :func:`ingest` that follows does what is missing and publishes the dataset.

    Parameters
    ----------
    source, to, append, memory_limit, engine, progress, **options
        As for :func:`ingest`.
    part : (int, int)
        Which part, from 0, and of how many. The parts are about equal; with more parts than the sources
        have pieces (of some 60,000 rows) some hold nothing.

    Returns
    -------
    dict
        ``n_pieces`` of this part and the rows they hold: ``n_samples``.

    Raises
    ------
    DataError, BusyError
        As for :func:`ingest`; also if another process is at work on the same part.
    """
    number, count = part
    if not 0 <= number < count:
        raise DataError(f"part {number} of {count}", "count the parts from 0")
    from bigmc.engine.processes import prepare_process

    with opened(engine, prepare_process) as workers:
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        return _ingest_job(source, to, options, append, limit).run_part(number, count, workers, progress)


def open_dataset(path: str | Path) -> Dataset:
    """Open a finished dataset; ``dataset["train"]`` is one of its splits.

    Raises
    ------
    StoreError
        If there is none, it is unfinished, damaged or of another version.
    """
    from bigmc.store.dataset import Dataset

    return Dataset.open(path)


def doubts_about_labels(dataset: str | Path | Dataset) -> list[str]:
    """Return a sentence for each kind of label that may not have been meant, such as ``NA`` or ``"a "``."""
    from bigmc.ingestion.columns.doubtful_labels import doubts_about_labels as doubts
    from bigmc.store.dataset import Dataset

    return doubts(Dataset.open(dataset).classes)


def info(path: str | Path) -> Mapping[str, Any]:
    """Return what a dataset or a model holds."""
    return open_dataset(path).info() if is_folder(path) else model_of(path).info()


def verify(path: str | Path) -> list[str]:
    """Return what is wrong with a dataset or a model, one line a problem; empty if it is sound."""
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
    from bigmc.store.files.object_store import building_folder, is_remote

    asked = given_options(options)
    if append:
        return Append(str(to) if is_remote(to) else Path(to), source, asked, limit)
    folder = building_folder(str(to)) if is_remote(to) else Path(to)
    job = make_job(source, folder, IngestOptions().but(asked), limit)
    return Upload(job, str(to)) if is_remote(to) else job
