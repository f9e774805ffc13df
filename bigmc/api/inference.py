"""Using models: measuring, predicting, looking into them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigmc import budget
from bigmc.api.resolve import Size, dataset_of, is_dataset, measured_model, model_of
from bigmc.engine import EngineLike, opened
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.estimators import Classifier
    from bigmc.ingestion.rejects import OnBadRow
    from bigmc.model import Model
    from bigmc.store.dataset import Dataset

REPORTED_CLASSES = 50
"""Classes whose features a report lists, at most."""
REPORTED_CONFUSION = 1000
"""Classes of model and dataset together up to which a report has their confusion, a dense matrix."""


def evaluate(
    model: str | Path | Model | Classifier,
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
    """Measure a model on a split; see :func:`bigmc.inference.evaluate.evaluate` for what comes back.

    With ``to`` the figures are also written to a file, with what was measured: for :func:`publish`.
    """
    from bigmc.inference import evaluate as evaluation
    from bigmc.ingestion import prepare_process
    from bigmc.ingestion.memory import prompt_release

    data, known = dataset_of(dataset), model_of(model)
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
        from bigmc.store.atomic import sha256, write_atomic
        from bigmc.store.object_store import delivered, is_remote, local_file
        from bigmc.training.run import identity

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


def predict(
    model: str | Path | Model | Classifier,
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
    model : path, Model or fitted classifier
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
    from bigmc.inference import predict
    from bigmc.ingestion import prepare_process
    from bigmc.ingestion.memory import prompt_release
    from bigmc.store.object_store import delivered

    started = time.monotonic()
    budget.reset_peak()
    with delivered(to) as target, opened(engine, prepare_process) as workers, prompt_release():
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        predictor = predict.Predictor(model_of(model), target, scores, workers, limit, progress)
        if is_dataset(source):
            data = dataset_of(source)
            counts = predictor.predict_dataset(data if split is None else data[split])
        elif split is not None:
            raise DataError("raw data has no splits", "leave --split out, or give a dataset")
        else:
            counts = predictor.predict_raw(source, format, on_bad_row)
    seconds, peak = time.monotonic() - started, budget.peak_memory()
    return {"predictions": str(to), **counts, "seconds": seconds, "peak_memory_bytes": peak}


def inspect(model: str | Path | Model | Classifier, top: int = 20) -> dict[str, Any]:
    """Return the strongest features of each class; see :func:`bigmc.inference.evaluate.inspect`."""
    from bigmc.inference import evaluate

    return evaluate.inspect(model_of(model), top)


def report(
    model: str | Path | Model | Classifier,
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
    model : path, Model or fitted classifier
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
    from bigmc import reporting
    from bigmc.inference import evaluate as evaluation
    from bigmc.store.object_store import delivered

    if dataset is None and split is not None:
        raise DataError(f"the split {split!r} is of no dataset", "give the dataset with --dataset too")
    reporting.check_target(to)
    loaded, file_bytes = measured_model(model)
    figures: dict[str, Any] = {}
    evaluated: dict[str, Any] | None = None
    if dataset is not None:
        data, split = dataset_of(dataset), split or "test"
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


def _is_trained_on(model: Model, dataset: Dataset, split: str) -> bool:
    trained_on = model.params.get("dataset"), model.params.get("split")
    return dataset.identity is not None and trained_on == (dataset.identity, split)
