"""Evaluate models on labelled data, and write reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bigmc.api.resolve import Size, model_source, resources_of
from bigmc.engine import EngineLike, Resources
from bigmc.errors import DataError
from bigmc.options.declare import check_names
from bigmc.options.inference import EvaluateKeywords, EvaluateOptions, ReportKeywords, ReportOptions
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.api.resolve import AnyModel
    from bigmc.inference.evaluation.labelled import LabelledInput
    from bigmc.inference.evaluation.saved_sums import SavedSums
    from bigmc.inference.raw_input import RawInput
    from bigmc.inference.results import Evaluation, ReportResult
    from bigmc.model import Model, ModelSource
    from bigmc.store.dataset import Dataset
    from bigmc.store.label_source import LabelSource
    from bigmc.training.results import FitResult

REPORTED_CLASSES = 50
"""Maximum number of classes whose features a report lists."""
REPORTED_CONFUSION = 1000
"""Maximum number of classes, of model and dataset together, for which a report has a confusion matrix."""


def evaluate(
    model: AnyModel,
    dataset: Any,
    *,
    label: Any = None,
    to: str | Path | None = None,
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[EvaluateKeywords],
) -> Evaluation:
    """Evaluate a model on labelled data.

    With ``to``, the figures are also written to a file for :func:`publish`. Killed at any moment, the same
    call resumes. If the file already has the figures of the same
    evaluation, nothing is done; any other file is refused, unless ``overwrite`` is given.

    Parameters
    ----------
    model : path, Model or fitted classifier
        Model.
    dataset : path or Dataset, or path, glob, table or array of raw data
        Data with labels. Raw rows are hashed like the model's training data; every row must be valid, since
        figures of the other rows would not be those of the data.
    label : str or array-like, optional
        Label column of raw files and tables, by default that of the model's training data; for an array,
        the labels of its rows.
    split : str, default="test"
        Split of a dataset to evaluate on.
    label_separator : str, optional
        Separator between several labels of a row of raw files, by default that of the training data.
    per_class : bool, default=False
        Add precision, recall, F1 and support of every class.
    confusion : bool, default=False
        Add the confusion matrix.
    propensities : str, optional
        For label sets: split, such as ``"train"``, whose labels are counted. Adds ``psp_at_1``,
        ``psp_at_3`` and ``psp_at_5``, propensity-scored precision@k, in which rare labels count more.
    to : path, optional
        File for the figures.
    overwrite : bool, default=False
        Replace another file at `to`; by default this is refused.
    format, delimiter, columns, encoding, memory_limit, engine, progress
        As for :func:`ingest`.

    Returns
    -------
    dict
        ``accuracy``, its 95 % ``interval`` (of single labels; wider where the rows of a dataset belong to
        groups: see `bigmc.inference.evaluation.interval`), ``macro_f1`` (the mean over the classes that occur
        as label or as prediction, as scikit-learn's ``f1_score(average="macro", zero_division=0)``),
        ``n_samples`` and ``n_unknown_labels`` (rows whose label is not a class of the model). With
        `per_class`, ``per_class`` has ``precision``, ``recall``, ``f1`` and ``support`` by label; with
        `confusion`, ``confusion`` has ``labels`` and ``matrix``, rows being the true labels. A model with
        probabilities adds ``log_loss``, ``brier``, ``calibration_error``, ``reliability`` and more: see
        `bigmc.inference.evaluation.probabilities.ProbabilitySums.figures`. For label sets there is no
        confusion; ``accuracy`` counts exact matches, ``n_unknown_labels`` counts labels, not rows, and
        ``micro_f1``, ``ranking_loss`` and ``ranking_precision`` are added: see
        `bigmc.inference.evaluation.label_sets.SetCounts.figures`. ``trained_on_these_rows`` is there, and
        true, if the model was trained on this split, as `fit` does after its test: then the figures say
        nothing of new rows.
    """
    from bigmc.engine.processes import prompt_release
    from bigmc.inference.evaluation import evaluate as evaluation
    from bigmc.inference.evaluation.evaluation_file import Subject, stored_figures, write_figures
    from bigmc.inference.evaluation.saved_sums import NOT_SAVED, clear_beside, saved_beside
    from bigmc.inference.raw_input import RawInput
    from bigmc.ingestion.readers import MATRICES
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.object_store import is_remote
    from bigmc.store.files.outputs import IfExists, Output, refuse_inputs

    named = label is None or isinstance(label, str)
    check_names(EvaluateOptions, options, "evaluate", signature(evaluate).parameters)
    asked = EvaluateOptions(label=label if named else None, **options)
    data = _data_to_measure(dataset, asked, None if named else label)
    read = data.sources if isinstance(data, RawInput) else data
    if to is not None:
        refuse_inputs(to, [model, read])
    output = None if to is None else Output.at(to)
    with (
        model_source(model) as source,
        resources_of(memory_limit, engine, progress) as resources,
        prompt_release(),
    ):
        if named and isinstance(data, RawInput) and data.sources[0].format not in MATRICES:
            asked = _with_labels_of(source.outline.label_source, asked)
        known, samples = _loaded(source, data, asked, resources)
        counted = data[asked.propensities] if asked.propensities and isinstance(data, Dataset) else None
        on_own_rows = isinstance(data, Dataset) and _is_trained_on(known, data, asked.split)

        def measured(saved: SavedSums) -> Evaluation:
            figures = evaluation.evaluate(known, samples, asked, resources, saved, counted)
            if on_own_rows:
                figures["trained_on_these_rows"] = True
            return figures

        if output is None:
            return measured(NOT_SAVED)
        if source.sha256 is None or not isinstance(model, str | Path):
            raise DataError("the model is only in memory", "save it first, or leave out to")
        place = str(model if is_remote(model) else Path(model).resolve())
        subject = Subject(place, source.sha256, *_identity(data, asked), len(known.used_features))
        labels = [*known.classes.tolist(), *evaluation.meant_labels(samples.classes, known.classes)]
        figures = stored_figures(output, subject, asked, labels)
        if figures is not None:
            clear_beside(output)
            return figures
        # Parts of raw files depend on the memory limit.
        parts = hashlib.sha256(samples.ends.tobytes()).hexdigest()
        made = {"command": "evaluate", **asdict(subject), "parts": parts}
        if asked.propensities is not None:
            made["propensities"] = asked.propensities
        with saved_beside(output, made) as saved:
            figures = stored_figures(output, subject, asked, labels)  # of the process that held the lock
            if figures is None:
                output.refuse_existing(IfExists(overwrite))
                figures = measured(saved)
                write_figures(output, subject, figures)
        return figures


def _data_to_measure(data: Any, asked: EvaluateOptions, labels: Any) -> Dataset | RawInput:
    """Return the samples to evaluate on, as a dataset or as raw files and arrays."""
    from bigmc.inference.raw_input import RawInput
    from bigmc.ingestion.parts.scan import expand_sources, is_dataset
    from bigmc.store.dataset import Dataset

    if is_dataset(data):
        if labels is not None or asked.label is not None or asked.label_separator is not None:
            raise DataError("a dataset already has labels", "leave the label out, or give raw data")
        return Dataset.open(data)
    sources = expand_sources(data, asked, labels)  # first: a dataset that is not there is no raw data
    if asked.propensities is not None:
        raise DataError("propensities need a split of a dataset", "ingest the data first")
    if asked.split != EvaluateOptions.split:
        raise DataError("raw data has no splits", "leave --split out, or give a dataset")
    return RawInput(sources)


def _with_labels_of(known: LabelSource | None, asked: EvaluateOptions) -> EvaluateOptions:
    """Return the options with the label column and separator of the training data where none are given."""
    if known is None:
        return asked
    separator = known.separator if asked.label_separator is None else asked.label_separator
    column = known.column if asked.label is None else asked.label
    return replace(asked, label=column, label_separator=separator)


def _loaded(
    source: ModelSource, data: Dataset | RawInput, asked: EvaluateOptions, resources: Resources
) -> tuple[Model, LabelledInput]:
    """Return a model and the samples to evaluate it on; a model too large for memory is refused unread."""
    from bigmc.inference.evaluation.labelled import LabelledDataset
    from bigmc.inference.evaluation.labelled_files import LabelColumn, LabelledFiles
    from bigmc.inference.raw_input import RawInput

    if isinstance(data, RawInput):
        column = LabelColumn.of(asked, data.sources[0].format)
        files = LabelledFiles.plan(data, column, source.outline, resources)
        model = source.load()
        return model, files.with_classes(model, resources)
    samples = LabelledDataset(data[asked.split])
    samples.workers(source.outline, resources)
    return source.load(), samples


def _identity(data: Dataset | RawInput, asked: EvaluateOptions) -> tuple[str, str]:
    """Return the digest of the data and the split of it."""
    from bigmc.inference.raw_input import RawInput
    from bigmc.store.files.layout import canonical_json

    if not isinstance(data, RawInput):
        return data.identity, asked.split
    of = [data.identity, asked.label, asked.label_separator]
    return hashlib.sha256(canonical_json(of)).hexdigest(), ""


def report(
    model: AnyModel,
    to: str | Path,
    *,
    fitted: FitResult | None = None,
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[ReportKeywords],
) -> ReportResult:
    """Write an HTML report on a model and its quality.

    One self-contained file: certificate, training history, strongest features of the
    first 50 classes, parameters, sizes. Equal models give equal bytes.

    Parameters
    ----------
    model : path, Model or fitted classifier
        Model.
    to : path
        HTML file to write.
    top : int, default=20
        Maximum number of features per class.
    dataset : path or Dataset, optional
        Data to evaluate the model on.
    split : str, default="test"
        Split of `dataset`.
    fitted : dict, optional
        Result of the :func:`fit` that made the model, whose figures on held-out rows the report shows if
        there is no `dataset`.
    overwrite : bool, default=False
        Replace another file at `to`; by default this is refused, unless it is the same report.
    memory_limit, engine, progress
        As for :func:`ingest`, for the evaluation.

    Returns
    -------
    dict
        ``report`` and its ``bytes``; with `dataset` also ``accuracy``, ``macro_f1`` and ``n_samples``.

    Raises
    ------
    DataError
        If `to` cannot be made, or is something else, or a split is given without a dataset.
    """
    from bigmc.engine.processes import prompt_release
    from bigmc.inference import inspection
    from bigmc.inference.evaluation import evaluate as evaluation
    from bigmc.inference.evaluation.saved_sums import saved_beside
    from bigmc.reporting import page
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.outputs import IfExists, Output, refuse_inputs

    check_names(ReportOptions, options, "a report", signature(report).parameters)
    asked = ReportOptions(**options)
    refuse_inputs(to, [model, asked.dataset])
    output = Output.at(to)
    result: ReportResult = {"report": str(to), "bytes": 0}
    evaluated: Mapping[str, Any] | None = None
    with ExitStack() as held:
        stored = held.enter_context(model_source(model))
        if asked.dataset is None:
            loaded = stored.load()
            if fitted is not None and fitted["test"] is not None:
                others = {"baselines": fitted["baselines"], "refitted": loaded.params.get("split") == "all"}
                evaluated = {**fitted["test"], **others, "split": "test", "trained_on": False}
        else:
            data, split = Dataset.open(asked.dataset), asked.split or "test"
            resources = held.enter_context(resources_of(memory_limit, engine, progress))
            held.enter_context(prompt_release())
            few = stored.outline.n_classes + data.n_classes <= REPORTED_CONFUSION and not data.has_sets
            measured = EvaluateOptions(split=split, per_class=True, confusion=few)
            loaded, samples = _loaded(stored, data, measured, resources)
            made: Mapping[str, Any] | None = None
            if stored.sha256 and data.path:
                made = {"command": "report", "model": stored.sha256, "dataset": data.identity, "split": split}
            with saved_beside(output, made) as saved:
                figures = evaluation.evaluate(loaded, samples, measured, resources, saved)
            result["accuracy"], result["macro_f1"] = figures["accuracy"], figures["macro_f1"]
            result["n_samples"] = figures["n_samples"]
            evaluated = {**figures, "split": split, "trained_on": _is_trained_on(loaded, data, split)}
    strongest = inspection.inspect(loaded, asked.top, REPORTED_CLASSES)
    content = page(loaded, strongest, evaluated, stored.n_bytes).encode()
    output.write_new(content, IfExists(overwrite))
    result["bytes"] = len(content)
    return result


def _is_trained_on(model: Model, dataset: Dataset, split: str) -> bool:
    """Return whether a model was trained on a split of a dataset; that of a fit is, on all rows."""
    known = dataset.path is not None and model.params.get("dataset") == dataset.identity
    return known and model.params.get("split") in (split, "all")
