"""The commands as plain functions: what the command line and a notebook both call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bigmc import budget
from bigmc.engine import EngineLike, opened
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
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
    categorical: Columns = (),
    numeric: Columns = (),
    dense: Columns = (),
    keep: Columns = (),
    hash_bits: int = 18,
    ngrams: tuple[int, int] = (1, 2),
    analyzer: str = "word",
    lowercase: bool = True,
    standardize: bool = False,
    fourier: int = 0,
    gamma: float | None = None,
    missing: Literal["refuse", "keep"] = "refuse",
    weighting: str | None = None,
    split: Mapping[str, float] | str | None = None,
    group: str | None = None,
    seed: int = 0,
    n_features: int | None = None,
    names: bool = True,
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
        Label column; for arrays the labels themselves.
    keep : str or sequence of str
        Columns copied to ``rows.parquet``.
    hash_bits, ngrams, analyzer, lowercase
        See :class:`bigmc.ingestion.hashing.TextHasher`.
    standardize : bool, default=False
        Dense features become ``(x - mean) / deviation``; mean and population standard deviation are those
        of the first split, found by a pass of their own. Kept with the dataset, applied at prediction.
    fourier : int, default=0
        Turn dense features, standardised, into so many random Fourier features, an even number.
    gamma : float, optional
        Of the Gaussian kernel they approximate; by default 1 / number of dense features.
    missing : {"refuse", "keep"}, default="refuse"
        Dense values that are null, empty or NaN: a bad row, or kept as NaN, which boosting learns from and
        other learners refuse.
    weighting : {"counts", "binary", "l2", "tfidf"}, optional
        How values are weighted when read; by default ``"l2"`` for hashed columns, else ``"counts"``.
    split : mapping or str, default={"train": 0.8, "test": 0.2}
        Shares of the splits. A row's split is decided by a hash of its number.
    group : str, optional
        Column whose rows stay together in a split.
    seed : int, default=0
        Seed of the assignment to splits, and of random Fourier features.
    n_features : int, optional
        Width of svmlight data; by default the largest index says.
    names : bool, default=True
        Keep the words behind hashed features.
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
    from bigmc.ingestion import make_job, prepare_process

    with opened(engine, prepare_process) as workers:
        job = make_job(
            source,
            Path(to),
            text=_columns(text),
            label=label,
            categorical=_columns(categorical),
            numeric=_columns(numeric),
            dense=_columns(dense),
            keep=_columns(keep),
            hash_bits=hash_bits,
            ngrams=ngrams,
            analyzer=analyzer,
            lowercase=lowercase,
            standardize=standardize,
            fourier=fourier,
            gamma=gamma,
            missing=missing,
            weighting=weighting,
            split=split,
            group=group,
            seed=seed,
            n_features=n_features,
            names=names,
            limit=budget.resolve_limit(memory_limit, workers.process_memory),
            on_bad_row=on_bad_row,
            format=format,
        )
        return job.run(workers, progress)


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
    with opened(engine, prepare_process) as workers:
        return training.train(
            learner,
            _open(dataset),
            Path(to),
            split=split,
            limit=budget.resolve_limit(memory_limit, workers.process_memory),
            engine=workers,
            progress=progress,
            options=options,
            start=None if warm_start is None else Path(warm_start),
        )


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

    with opened(engine) as workers:
        return selection.sparse_path(
            _open(dataset),
            Path(to),
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
    per_class: bool = False,
    confusion: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
) -> dict[str, Any]:
    """Measure a model on a split; see :func:`bigmc.evaluation.evaluate` for what comes back."""
    from bigmc import evaluation
    from bigmc.ingestion import prepare_process
    from bigmc.ingestion.memory import prompt_release

    with opened(engine, prepare_process) as workers, prompt_release():
        return evaluation.evaluate(
            _load(model),
            _open(dataset)[split],
            workers,
            per_class=per_class,
            confusion=confusion,
            progress=progress,
            memory_limit=budget.resolve_limit(memory_limit, workers.process_memory),
        )


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
        Parquet file with ``row_id``, ``predicted_label`` and, with ``scores``, ``score_<class>``: the rows
        of raw data, and of one split of a dataset, in the order of the source.
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

    started = time.monotonic()
    budget.reset_peak()
    with opened(engine, prepare_process) as workers, prompt_release():
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        predictor = prediction.Predictor(_load(model), Path(to), scores, workers, limit, progress)
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

    if dataset is None and split is not None:
        raise DataError(f"the split {split!r} is of no dataset", "give the dataset with --dataset too")
    target = Path(to)
    reporting.check_target(target)
    loaded, figures = _load(model), {}
    evaluated: dict[str, Any] | None = None
    if dataset is not None:
        data, split = _open(dataset), split or "test"
        few = loaded.n_classes + data.n_classes <= REPORTED_CONFUSION
        evaluated = evaluate(
            loaded, data, split=split, per_class=True, confusion=few,
            memory_limit=memory_limit, engine=engine, progress=progress,
        )  # fmt: skip
        figures = {name: evaluated[name] for name in ("accuracy", "macro_f1", "n_samples")}
        evaluated |= {"split": split, "trained_on": _is_trained_on(loaded, data, split)}
    size = reporting.write_report(
        loaded,
        target,
        evaluation.inspect(loaded, top, REPORTED_CLASSES),
        evaluated,
        Path(model).stat().st_size if isinstance(model, str | Path) else None,
    )
    return {"report": str(target), "bytes": size, **figures}


def info(path: str | Path) -> dict[str, Any]:
    """Return what a dataset or a model holds."""
    return open_dataset(path).info() if _is_folder(path) else _load(path).info()


def verify(path: str | Path) -> list[str]:
    """Return what is wrong with a dataset or a model, one line a problem; empty if it is sound."""
    from bigmc.model import verify_model
    from bigmc.store.verify import verify as verify_dataset

    return verify_dataset(path) if _is_folder(path) else verify_model(path)


def _columns(names: Columns) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


def _is_folder(path: str | Path) -> bool:
    if not Path(path).exists():
        raise DataError(f"there is nothing at {path}", "check the path")
    return Path(path).is_dir()


def _is_trained_on(model: Model, dataset: Dataset, split: str) -> bool:
    from bigmc.training import identity

    if dataset.path is None or model.params.get("split") != split:
        return False
    return bool(model.params.get("dataset") == identity(dataset))


def _is_dataset(source: Any) -> bool:
    if isinstance(source, str | Path):
        return (Path(source) / "manifest.json").exists()
    return hasattr(source, "shards")


def _open(dataset: str | Path | Dataset) -> Dataset:
    return open_dataset(dataset) if isinstance(dataset, str | Path) else dataset


def _load(model: str | Path | Model) -> Model:
    from bigmc.model import load_model as load

    return load(model) if isinstance(model, str | Path) else model
