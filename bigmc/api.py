"""The commands as plain functions: what the command line and a notebook both call."""

from __future__ import annotations

import glob
import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigmc import budget
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import DataError, ModelError
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bigmc.ingestion.rejects import OnBadRow
    from bigmc.model import Model
    from bigmc.store.dataset import Dataset

Size = str | int | None
Columns = str | Sequence[str] | None

LEARNERS = ("sparse",)

NAMES_PER_FEATURE = 8
"""Most names of a feature that a model gets; fewer where memory is short."""

NAMES_PER_BATCH = 1 << 14
"""Names looked at together."""

_HOW = ("memory_limit", "engine")
"""Parameters that say how a model is computed, not which."""


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
    weighting: str | None = None,
    split: Mapping[str, float] | str | None = None,
    group: str | None = None,
    seed: int = 0,
    n_features: int | None = None,
    names: bool = True,
    memory_limit: Size = None,
    engine: Engine | None = None,
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
    weighting : {"counts", "binary", "l2", "tfidf"}, optional
        How values are weighted when read; by default ``"l2"`` for hashed columns, else ``"counts"``.
    split : mapping or str, default={"train": 0.8, "test": 0.2}
        Shares of the splits. A row's split is decided by a hash of its number.
    group : str, optional
        Column whose rows stay together in a split.
    seed : int, default=0
        Seed of the assignment to splits.
    n_features : int, optional
        Width of svmlight data; by default the largest index says.
    names : bool, default=True
        Keep the words behind hashed features.
    memory_limit : str or int, optional
        Bytes that ingest may use above the bare process; by default half of what there is.
    engine : Engine, optional
        Runs the parts; by default a thread per processor.
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
    from bigmc.ingestion import make_job

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
        weighting=weighting,
        split=split,
        group=group,
        seed=seed,
        n_features=n_features,
        names=names,
        limit=budget.resolve_limit(memory_limit),
        on_bad_row=on_bad_row,
        format=format,
    )
    return job.run(engine or ThreadEngine(), progress)


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
        If it is no model, damaged or of another version.
    """
    from bigmc.estimators import SparseClassifier

    return SparseClassifier.from_model(_load(path))


def train(
    learner: str,
    dataset: str | Path | Dataset,
    to: str | Path,
    *,
    split: str = "train",
    memory_limit: Size = None,
    engine: Engine | None = None,
    progress: ProgressCallback = silent,
    **options: Any,
) -> dict[str, Any]:
    """Train a learner on a split of a dataset and save the model.

    Killed at any moment, the same call continues from its checkpoint to the same model; after success
    it does nothing.

    Parameters
    ----------
    learner : {"sparse"}
        Which learner.
    dataset : path or Dataset
        Data on disk.
    to : path
        Model to make; ``TO.wip/`` holds the checkpoint meanwhile.
    split : str, default="train"
        Split to train on.
    memory_limit, engine, progress
        As for :func:`ingest`.
    **options
        Parameters of the estimator, such as ``alpha`` and ``tol``.

    Returns
    -------
    dict
        ``objective``, ``certificate`` with ``lower``, ``upper`` and ``gap``, ``converged``, ``n_iter``,
        ``n_passes``, ``n_nonzero_features``, ``seconds`` and ``peak_memory_bytes`` of this call (resident
        bytes of the whole process), ``memory_limit_bytes``, and ``bytes_read``.
    """
    from sklearn.exceptions import ConvergenceWarning

    from bigmc.estimators import SparseClassifier
    from bigmc.ingestion.memory import prompt_release
    from bigmc.store.checkpoint import FileCheckpoint
    from bigmc.store.commit import exclusive

    if learner not in LEARNERS:
        raise DataError(f"no learner is called {learner!r}", f"use one of {', '.join(LEARNERS)}")
    started = time.monotonic()
    budget.reset_peak()
    limit = budget.resolve_limit(memory_limit)
    data, target = _open(dataset), Path(to)
    read_before = data.bytes_read
    estimator = SparseClassifier(**options, memory_limit=limit, engine=engine or ThreadEngine())
    estimator.check_params()
    samples = data[split]
    params = {name: value for name, value in estimator.get_params().items() if name not in _HOW}
    params |= {"learner": learner, "dataset": _identity(data), "split": split}
    work = target.with_name(target.name + ".wip")
    if target.is_dir():
        raise ModelError(f"{target} is a folder", "give the path of a file with --to")
    if not target.parent.is_dir():
        raise ModelError(f"there is no folder {target.parent}", "make it, or give another --to")
    if not _is_trained(target, params):
        with exclusive(work / "lock"), prompt_release():
            if not _is_trained(target, params):
                _claim(work, params, target)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # told as "converged" below
                    estimator.fit_dataset(
                        samples, checkpoint=FileCheckpoint(work), progress=progress, scratch=work
                    )
                names = _names(data, estimator.model_.features, limit // 16)
                replace(estimator.model_, params=params, names=names).save(target)
    shutil.rmtree(work, ignore_errors=True)
    model = _load(target)
    return {
        "model": str(target),
        "objective": model.objective,
        "certificate": dict(model.certificate),
        "converged": model.certificate["gap"] <= estimator.tol,
        "n_iter": model.n_iter,
        "n_passes": model.n_passes,
        "n_nonzero_features": len(model.features),
        "seconds": time.monotonic() - started,
        "peak_memory_bytes": budget.peak_memory(),
        "memory_limit_bytes": limit,
        "bytes_read": data.bytes_read - read_before,
    }


def evaluate(
    model: str | Path | Model,
    dataset: str | Path | Dataset,
    *,
    split: str = "test",
    per_class: bool = False,
    confusion: bool = False,
    memory_limit: Size = None,
    engine: Engine | None = None,
    progress: ProgressCallback = silent,
) -> dict[str, Any]:
    """Measure a model on a split; see :func:`bigmc.evaluation.evaluate` for what comes back."""
    from bigmc import evaluation
    from bigmc.ingestion.memory import prompt_release

    limit = budget.resolve_limit(memory_limit)
    with prompt_release():
        return evaluation.evaluate(
            _load(model),
            _open(dataset)[split],
            engine or ThreadEngine(),
            per_class=per_class,
            confusion=confusion,
            progress=progress,
            memory_limit=limit,
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
    engine: Engine | None = None,
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
    from bigmc.ingestion.memory import prompt_release

    started = time.monotonic()
    budget.reset_peak()
    limit = budget.resolve_limit(memory_limit)
    with prompt_release():
        predictor = prediction.Predictor(
            _load(model), Path(to), scores, engine or ThreadEngine(), limit, progress
        )
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


def _is_dataset(source: Any) -> bool:
    if isinstance(source, str | Path):
        return (Path(source) / "manifest.json").exists()
    return hasattr(source, "shards")


def _open(dataset: str | Path | Dataset) -> Dataset:
    return open_dataset(dataset) if isinstance(dataset, str | Path) else dataset


def _load(model: str | Path | Model) -> Model:
    from bigmc.model import load_model as load

    return load(model) if isinstance(model, str | Path) else model


def _identity(dataset: Dataset) -> str:
    """Return a digest of a dataset on disk: of its manifest, which has a digest of every file."""
    if dataset.path is None:
        raise DataError("the dataset is in memory only", "ingest it first, or call the estimator's fit")
    return hashlib.sha256((dataset.path / "manifest.json").read_bytes()).hexdigest()


def _names(dataset: Dataset, features: NDArray[np.int64], most_bytes: int) -> Any:
    """Return the known names of some features of a dataset on disk, as many of each as there is room for."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = None if dataset.path is None else dataset.path / "names.parquet"
    if path is None or not path.exists():
        return None
    pieces, most = [], NAMES_PER_FEATURE
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(NAMES_PER_BATCH):
            pieces.append(batch.filter(pa.array(np.isin(batch.column("bucket").to_numpy(), features))))
            while sum(piece.nbytes for piece in pieces) > most_bytes and most:
                most -= 1
                pieces = [_fewer_names(pieces, most)] if most else []
        return pa.Table.from_batches(pieces, file.schema_arrow) if most else None


def _fewer_names(pieces: Sequence[Any], most: int) -> Any:
    """Return so many names of each feature, the most frequent ones."""
    import numpy as np
    import pyarrow as pa

    table = pa.Table.from_batches(pieces).sort_by([("bucket", "ascending"), ("count", "descending")])
    buckets = table.column("bucket").to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    return table.filter(pa.array(rank < most)).combine_chunks().to_batches()[0]


def _is_trained(target: Path, params: Mapping[str, Any]) -> bool:
    """Return whether the model is there already; refuse one that was trained otherwise."""
    if not target.exists():
        return False
    _refuse_other(_load(target).params, params, f"the model {target}", "delete it, or give another --to")
    return True


def _claim(work: Path, params: Mapping[str, Any], target: Path) -> None:
    """Write down what is being trained; refuse to continue a training of something else.

    Where no state was saved yet there is nothing to lose, and a mended command needs no cleaning. What
    a killed run left half written is removed.
    """
    from bigmc.store.checkpoint import FileCheckpoint
    from bigmc.store.commit import PARTIAL, write_atomic

    for pattern in (f"*{PARTIAL}", "bigmc-scores-*"):
        for leftover in work.glob(pattern):
            leftover.unlink()
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*{PARTIAL}"):
        leftover.unlink()
    file = work / "training.json"
    if file.exists() and FileCheckpoint(work).path.exists():
        cure = f"delete {work}, or give another --to"
        _refuse_other(json.loads(file.read_text()), params, f"an unfinished training of {target}", cure)
    else:
        write_atomic(file, json.dumps(params).encode())


def _refuse_other(stored: Mapping[str, Any], params: Mapping[str, Any], what: str, cure: str) -> None:
    asked = json.loads(json.dumps(params))
    differences = [
        "another dataset"
        if name == "dataset"
        else f"{name}: it has {json.dumps(stored.get(name))}, asked for {json.dumps(asked.get(name))}"
        for name in sorted(stored.keys() | asked.keys())
        if stored.get(name) != asked.get(name)
    ]
    if differences:
        raise ModelError(f"{what} was made with other parameters ({', '.join(differences)})", cure)
