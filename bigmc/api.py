"""The commands as plain functions: what the command line and a notebook both call."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bigmc import budget
from bigmc.engine import EngineLike, opened
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.ingestion import Append, Upload
    from bigmc.ingestion.job import Job
    from bigmc.ingestion.rejects import OnBadRow
    from bigmc.model import Model
    from bigmc.store.dataset import Dataset

Size = str | int | None
Columns = str | Sequence[str] | None

REPORTED_CLASSES = 50
"""Classes whose features a report lists, at most."""
REPORTED_CONFUSION = 1000
"""Classes of model and dataset together up to which a report has their confusion, a dense matrix."""


def ingest(
    source: Any,
    to: str | Path,
    *,
    text: Columns = None,
    label: Any = None,
    label_separator: str | None = None,
    categorical: Columns = None,
    numeric: Columns = None,
    dense: Columns = None,
    keep: Columns = None,
    hash_bits: int | None = None,
    ngrams: tuple[int, int] | None = None,
    analyzer: str | None = None,
    lowercase: bool | None = None,
    standardize: bool | None = None,
    fourier: int | None = None,
    gamma: float | None = None,
    missing: Literal["refuse", "keep"] | None = None,
    weighting: str | None = None,
    split: Mapping[str, float] | str | None = None,
    group: str | None = None,
    seed: int | None = None,
    n_features: int | None = None,
    names: bool | None = None,
    append: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    on_bad_row: OnBadRow = "fail",
    format: str | None = None,
    progress: ProgressCallback = silent,
) -> Dataset:
    """Turn files or arrays into a dataset on disk.

    Killed at any moment, the same call continues; after success it does nothing.

    Parameters
    ----------
    source : path, glob, folder, array, table, or a list of these
        CSV, TSV, JSONL, Parquet or svmlight files; NumPy, SciPy sparse or dask arrays; Arrow tables.
    to : path
        Dataset to make.
    text, categorical, numeric : str or sequence of str
        Columns hashed as text, as ``name=value``, and by name with the value as weight.
    dense : str or sequence of str
        Numeric columns that keep a feature of their own.
    label : str or array
        Label column; for arrays the labels themselves. Labels are sets where the column holds lists (of
        Parquet, JSON arrays), or the array is an indicator of shape (n_samples, n_classes), also sparse, 1
        where a sample has the label of that number, or a list of Python sets. A set may be empty.
    label_separator : str, optional
        What stands between the labels of a row where the column is text and a row has several.
    keep : str or sequence of str
        Columns copied to ``rows.parquet``.
    hash_bits, ngrams, analyzer, lowercase
        By default 18, (1, 2), ``"word"`` and True; see :class:`bigmc.ingestion.hashing.TextHasher`.
    standardize : bool, optional
        Dense features become ``(x - mean) / deviation``; mean and population standard deviation are those
        of the first split, found by a pass of their own. Kept with the dataset, applied at prediction.
    fourier : int, optional
        Turn dense features, standardised, into so many random Fourier features, an even number.
    gamma : float, optional
        Of the Gaussian kernel they approximate; by default 1 / number of dense features.
    missing : {"refuse", "keep"}, optional
        Dense values that are null, empty or NaN: a bad row, as is the default, or kept as NaN, which boosting
        learns from and other learners refuse.
    weighting : {"counts", "binary", "l2", "tfidf"}, optional
        How values are weighted when read; by default ``"l2"`` for hashed columns, else ``"counts"``.
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
        after those that were. Whoever has the dataset open, and models trained on it, are not disturbed.
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
    asked = {
        "text": text,
        "label": label,
        "label_separator": label_separator,
        "categorical": categorical,
        "numeric": numeric,
        "dense": dense,
        "keep": keep,
        "hash_bits": hash_bits,
        "ngrams": ngrams,
        "analyzer": analyzer,
        "lowercase": lowercase,
        "standardize": standardize,
        "fourier": fourier,
        "gamma": gamma,
        "missing": missing,
        "weighting": weighting,
        "split": split,
        "group": group,
        "seed": seed,
        "n_features": n_features,
        "names": names,
    }
    from bigmc.ingestion import prepare_process

    with opened(engine, prepare_process) as workers:
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        job = _ingest_job(source, to, asked, append, limit, on_bad_row, format)
        return job.run(workers, progress)


def ingest_part(
    source: Any,
    to: str | Path,
    part: tuple[int, int],
    *,
    append: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    on_bad_row: OnBadRow = "fail",
    format: str | None = None,
    progress: ProgressCallback = silent,
    **options: Any,
) -> dict[str, int]:
    """Do a part of an ingest, beside other processes that do the others; :func:`ingest` completes it.

    Every process is given the same sources, target and options. The first cuts the sources, each writes its
    part aside, and the call of :func:`ingest` that follows does what is missing and publishes the dataset.

    Parameters
    ----------
    source, to, append, memory_limit, engine, on_bad_row, format, progress, **options
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
    from bigmc.ingestion import prepare_process

    with opened(engine, prepare_process) as workers:
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        job = _ingest_job(source, to, options, append, limit, on_bad_row, format)
        return job.run_part(number, count, workers, progress)


def _ingest_job(
    source: Any,
    to: str | Path,
    asked: Mapping[str, Any],
    append: bool,
    limit: int,
    on_bad_row: OnBadRow,
    format: str | None,
) -> Job | Append | Upload:
    from bigmc.ingestion import Append, Options, Upload, make_job
    from bigmc.store.remote import building_folder, is_remote

    columns = {"text", "categorical", "numeric", "dense", "keep"}
    given = {name: _columns(value) if name in columns else value for name, value in asked.items()}
    options = Options().asked(given)
    if append:
        return Append(str(to) if is_remote(to) else Path(to), source, given, limit, on_bad_row, format)
    folder = building_folder(str(to)) if is_remote(to) else Path(to)
    job = make_job(source, folder, options, limit=limit, on_bad_row=on_bad_row, format=format)
    return Upload(job, str(to)) if is_remote(to) else job


def open_dataset(path: str | Path) -> Dataset:
    """Open a finished dataset; ``dataset["train"]`` is one of its splits.

    Raises
    ------
    StoreError
        If there is none, it is unfinished, damaged or of another version.
    """
    from bigmc.store.dataset import Dataset

    return Dataset.open(path)


def load_model(path: str | Path) -> Any:
    """Return the classifier saved at ``path``, ready to predict.

    Raises
    ------
    ModelError
        If it is no model, damaged or of another version or kind.
    """
    from bigmc.estimators import LEARNERS

    model = _load(path)
    return LEARNERS[model.kind].from_model(model)


def train(
    learner: str,
    dataset: str | Path | Dataset,
    to: str | Path,
    *,
    split: str = "train",
    warm_start: str | Path | None = None,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Any,
) -> dict[str, Any]:
    """Train a learner on a split of a dataset and save the model.

    Killed at any moment, the same call continues from its checkpoint to the same model; after success
    it does nothing.

    Parameters
    ----------
    learner : str
        Name of a learner in `bigmc.estimators.LEARNERS`, such as ``"sparse"``.
    dataset : path or Dataset
        Data on disk.
    to : path
        Model to make; ``TO.wip/`` holds the checkpoint meanwhile.
    split : str, default="train"
        Split to train on.
    warm_start : path, optional
        Saved model to start from, such as that of yesterday's data.
    memory_limit, engine, progress
        As for :func:`ingest`.
    **options
        Parameters of the estimator, such as ``alpha`` and ``tol``.

    Returns
    -------
    dict
        ``objective``, ``certificate`` with ``lower``, ``upper`` and ``gap``, ``converged``, ``n_iter``,
        ``n_passes``, ``n_nonzero_features``, ``seconds`` and ``peak_memory_bytes`` of this call (resident
        bytes of the whole process), ``memory_limit_bytes``, and ``bytes_read``, by this process.
    """
    from bigmc import training
    from bigmc.estimators import LEARNERS
    from bigmc.ingestion import prepare_process

    if learner not in LEARNERS:
        known = ", ".join(LEARNERS)
        raise DataError(f"no learner is called {learner!r}", f"use one of {known}")
    from bigmc.store.remote import built, local_file

    with ExitStack() as held:
        workers = held.enter_context(opened(engine, prepare_process))
        trained = training.train(
            learner,
            _open(dataset),
            held.enter_context(built(to)),
            split=split,
            limit=budget.resolve_limit(memory_limit, workers.process_memory),
            engine=workers,
            progress=progress,
            options=options,
            start=None if warm_start is None else held.enter_context(local_file(warm_start)),
        )
    return trained | {"model": str(to)}


def sparse_path(
    dataset: str | Path | Dataset,
    to: str | Path,
    *,
    n_alphas: int = 10,
    alpha_ratio: float = 1e-2,
    alphas: Sequence[float] | None = None,
    split: str = "train",
    validation: str = "test",
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Any,
) -> dict[str, Any]:
    """Train the sparse learner along falling penalties, each model the start of the next, and choose one.

    Killed at any moment, the same call continues; after success it does nothing.

    Parameters
    ----------
    dataset : path or Dataset
        Data on disk.
    to : path
        Folder for the models, ``path.json`` with the table, ``path.png`` with the plot where matplotlib is
        installed, and ``best.model``.
    n_alphas : int, default=10
        Penalties, evenly spaced in their logarithm, from the largest that leaves any weight.
    alpha_ratio : float, default=0.01
        The smallest penalty relative to the largest.
    alphas : sequence of float, optional
        The penalties themselves, instead.
    split, validation : str
        Splits to train on and to choose by.
    memory_limit, engine, progress
        As for :func:`ingest`.
    **options
        Parameters of the estimator other than ``alpha``.

    Returns
    -------
    dict
        ``table``: for each penalty ``alpha``, ``n_nonzero_features``, ``objective``, ``gap``, ``accuracy``,
        ``macro_f1``, ``seconds``, ``n_passes`` and ``model``; ``best``: the row with the highest accuracy on
        the validation split, of equals the one with the fewest features; ``best_model``: its file.
    """
    from bigmc import selection

    folder = _local(to, "a path of models")
    with opened(engine) as workers:
        return selection.sparse_path(
            _open(dataset),
            folder,
            n_alphas=n_alphas,
            alpha_ratio=alpha_ratio,
            alphas=alphas,
            split=split,
            validation=validation,
            limit=budget.resolve_limit(memory_limit, workers.process_memory),
            engine=workers,
            progress=progress,
            options=options,
        )


def evaluate(
    model: str | Path | Model,
    dataset: str | Path | Dataset,
    *,
    split: str = "test",
    to: str | Path | None = None,
    per_class: bool = False,
    confusion: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
) -> dict[str, Any]:
    """Measure a model on a split; see :func:`bigmc.evaluation.evaluate` for what comes back.

    With ``to`` the figures are also written to a file, with what was measured: for :func:`publish`.
    """
    from bigmc import evaluation
    from bigmc.ingestion import prepare_process
    from bigmc.ingestion.memory import prompt_release

    data, known = _open(dataset), _load(model)
    with opened(engine, prepare_process) as workers, prompt_release():
        figures = evaluation.evaluate(
            known,
            data[split],
            workers,
            per_class=per_class,
            confusion=confusion,
            progress=progress,
            memory_limit=budget.resolve_limit(memory_limit, workers.process_memory),
        )
    if to is not None:
        from bigmc.store.commit import sha256, write_atomic
        from bigmc.store.remote import delivered, is_remote, local_file
        from bigmc.training import identity

        if not isinstance(model, str | Path):
            raise DataError("the model is in memory only", "save it first, or leave out to")
        with local_file(model) as file, delivered(to) as target:
            subject = {
                "model": str(model if is_remote(model) else Path(model).resolve()),
                "model_sha256": sha256(file),
                "dataset": identity(data),
                "split": split,
                "n_nonzero_features": len(known.used_features),
            }
            write_atomic(target, json.dumps({**subject, **figures}, indent=1).encode())
    return figures


def publish(evaluations: Sequence[str | Path], to: str | Path, *, by: str = "accuracy") -> dict[str, Any]:
    """Choose the best of evaluated models and give it its public name, all at once.

    Readers of the name find the model from before or the new one, whole. Done again it does nothing.

    Parameters
    ----------
    evaluations : sequence of path
        Files written by :func:`evaluate` with ``to``, all of one split of one dataset.
    to : path
        Public name; what it holds is replaced.
    by : {"accuracy", "macro_f1"}, default="accuracy"
        Figure to choose by; of equals the model with the fewest features.

    Returns
    -------
    dict
        ``published``, the chosen row ``best``, and the ``table`` of all.

    Raises
    ------
    DataError, ModelError
        If a file is no evaluation, they are of different data, or a model has changed since.
    """
    from bigmc import selection

    return selection.publish(evaluations, to, by)


def predict(
    model: str | Path | Model,
    source: Any,
    to: str | Path,
    *,
    split: str | None = None,
    scores: bool = False,
    on_bad_row: OnBadRow = "fail",
    format: str | None = None,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
) -> dict[str, Any]:
    """Predict the labels of raw files or of a dataset, and write them to Parquet.

    Raw files are hashed as the model's training data was; the parameters come from the model.

    Parameters
    ----------
    model : path or Model
        Model.
    source : path, glob, array, or Dataset
        Raw data or a dataset.
    to : path
        Parquet file with ``row_id``, ``predicted_label``, or the list ``predicted_labels`` where labels are
        sets, and, with ``scores``, ``score_<class>``: the rows of raw data, and of one split of a dataset, in
        the order of the source.
    split : str, optional
        Split of a dataset; by default all its rows.
    scores : bool, default=False
        Write the score of every class.
    on_bad_row : {"fail", "quarantine"}
        Stop at a raw row that cannot be used, or list it in ``TO.rejects.parquet``.
    format, memory_limit, engine, progress
        As for :func:`ingest`.

    Returns
    -------
    dict
        ``n_samples``, ``n_quarantined``, ``seconds`` and ``peak_memory_bytes``.
    """
    from bigmc import prediction
    from bigmc.ingestion import prepare_process
    from bigmc.ingestion.memory import prompt_release
    from bigmc.store.remote import delivered

    started = time.monotonic()
    budget.reset_peak()
    with delivered(to) as target, opened(engine, prepare_process) as workers, prompt_release():
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        predictor = prediction.Predictor(_load(model), target, scores, workers, limit, progress)
        if _is_dataset(source):
            data = _open(source)
            counts = predictor.predict_dataset(data if split is None else data[split])
        elif split is not None:
            raise DataError("raw data has no splits", "leave --split out, or give a dataset")
        else:
            counts = predictor.predict_raw(source, format, on_bad_row)
    seconds, peak = time.monotonic() - started, budget.peak_memory()
    return {"predictions": str(to), **counts, "seconds": seconds, "peak_memory_bytes": peak}


def inspect(model: str | Path | Model, top: int = 20) -> dict[str, Any]:
    """Return the strongest features of each class; see :func:`bigmc.evaluation.inspect`."""
    from bigmc import evaluation

    return evaluation.inspect(_load(model), top)


def report(
    model: str | Path | Model,
    to: str | Path,
    *,
    top: int = 20,
    dataset: str | Path | Dataset | None = None,
    split: str | None = None,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
) -> dict[str, Any]:
    """Write a page that tells a person what a model is and how good.

    One HTML file with everything in it: certificate, course of the training, strongest features of the
    first 50 classes, parameters, sizes. Equal models give equal bytes.

    Parameters
    ----------
    model : path or Model
        Model.
    to : path
        HTML file to make or replace.
    top : int, default=20
        Features of each class, at most.
    dataset : path or Dataset, optional
        Data to evaluate on, for figures of the quality.
    split : str, default="test"
        Split of `dataset`.
    memory_limit, engine, progress
        As for :func:`ingest`; of the evaluation.

    Returns
    -------
    dict
        ``report`` and its ``bytes``; with `dataset` also ``accuracy``, ``macro_f1`` and ``n_samples``.

    Raises
    ------
    DataError
        If `to` cannot be made, or exists and is no page, or a split is given without a dataset.
    """
    from bigmc import evaluation, reporting
    from bigmc.store.remote import delivered

    if dataset is None and split is not None:
        raise DataError(f"the split {split!r} is of no dataset", "give the dataset with --dataset too")
    reporting.check_target(to)
    loaded, file_bytes = _load_measured(model)
    figures: dict[str, Any] = {}
    evaluated: dict[str, Any] | None = None
    if dataset is not None:
        data, split = _open(dataset), split or "test"
        few = loaded.n_classes + data.n_classes <= REPORTED_CONFUSION and not data.has_sets
        evaluated = evaluate(
            loaded, data, split=split, per_class=True, confusion=few,
            memory_limit=memory_limit, engine=engine, progress=progress,
        )  # fmt: skip
        figures = {name: evaluated[name] for name in ("accuracy", "macro_f1", "n_samples")}
        evaluated |= {"split": split, "trained_on": _is_trained_on(loaded, data, split)}
    strongest = evaluation.inspect(loaded, top, REPORTED_CLASSES)
    with delivered(to) as target:
        size = reporting.write_report(loaded, target, strongest, evaluated, file_bytes)
    return {"report": str(to), "bytes": size, **figures}


def info(path: str | Path) -> dict[str, Any]:
    """Return what a dataset or a model holds."""
    return open_dataset(path).info() if _is_folder(path) else _load(path).info()


def verify(path: str | Path) -> list[str]:
    """Return what is wrong with a dataset or a model, one line a problem; empty if it is sound."""
    from bigmc.model import verify_model
    from bigmc.store.remote import local_file
    from bigmc.store.verify import verify as verify_dataset

    if _is_folder(path):
        return verify_dataset(path)
    with local_file(path) as file:
        return verify_model(file)


def _columns(names: Columns) -> tuple[str, ...] | None:
    return (names,) if isinstance(names, str) else names if names is None else tuple(names)


def _is_folder(path: str | Path) -> bool:
    """Return whether a dataset is to be expected at a path, rather than a model."""
    from bigmc.store.remote import is_remote

    if is_remote(path):
        return _is_dataset(path)
    if not Path(path).exists():
        raise DataError(f"there is nothing at {path}", "check the path")
    return Path(path).is_dir()


def _load_measured(model: str | Path | Model) -> tuple[Model, int | None]:
    """Return a model and the size of its file, if it comes from one."""
    from bigmc.store.remote import local_file

    if not isinstance(model, str | Path):
        return model, None
    with local_file(model) as file:
        return _load(file), file.stat().st_size


def _is_trained_on(model: Model, dataset: Dataset, split: str) -> bool:
    trained_on = model.params.get("dataset"), model.params.get("split")
    return dataset.identity is not None and trained_on == (dataset.identity, split)


def _is_dataset(source: Any) -> bool:
    from bigmc.store.remote import Address, is_remote

    if is_remote(source):
        return Address(source).read("manifest.json") is not None
    if isinstance(source, str | Path):
        return (Path(source) / "manifest.json").exists()
    return hasattr(source, "shards")


def _local(path: str | Path, what: str) -> Path:
    from bigmc.store.remote import is_remote

    if is_remote(path):
        raise DataError(f"{path}: {what} works on a local disk only", "give the path of a folder")
    return Path(path)


def _open(dataset: str | Path | Dataset) -> Dataset:
    return open_dataset(dataset) if isinstance(dataset, str | Path) else dataset


def _load(model: str | Path | Model) -> Model:
    from bigmc.model import load_model as load
    from bigmc.store.remote import local_file

    if not isinstance(model, str | Path):
        return model
    with local_file(model) as file:
        return load(file)
