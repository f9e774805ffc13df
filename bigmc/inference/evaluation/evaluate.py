"""Evaluate a model on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError
from bigmc.engine import Resources
from bigmc.errors import DataError, ModelError
from bigmc.inference.evaluation.interval import GroupSums
from bigmc.inference.evaluation.label_sets import Places, SetCounts, count_sets
from bigmc.inference.evaluation.labelled import LabelledInput, LabelledPart, Workers
from bigmc.inference.evaluation.probabilities import ProbabilitySums
from bigmc.inference.evaluation.propensities import inverse_propensities
from bigmc.inference.evaluation.saved_sums import NOT_SAVED, SavedSums, Sums
from bigmc.inference.evaluation.single_labels import ConfusionSums, LabelCounts, Pairs, count_labels
from bigmc.inference.results import Evaluation
from bigmc.ingestion.columns.known_labels import KnownLabels
from bigmc.model import Model
from bigmc.options.inference import EvaluateOptions
from bigmc.progress import Progress, ProgressCallback
from bigmc.store.dataset import Dataset


def evaluate(
    model: Model,
    samples: LabelledInput,
    options: EvaluateOptions,
    resources: Resources,
    saved: SavedSums = NOT_SAVED,
    counted: Dataset | None = None,
) -> Evaluation:
    """Evaluate a model on labelled samples, in one pass over them; `bigmc.evaluate` describes the figures.

    Labels are matched by value, so the samples may have fewer, more or other classes than the model. Rows
    with unknown labels count as errors. `saved` keeps the sums over parts, to resume after a kill.
    `counted` has samples with the same classes, whose label sets are counted for propensities.
    `ModelError` if the features of the dataset differ from those of the model, or it knows no label;
    `DataError` if there are no samples or labels, one of model and dataset has sets and the other single
    labels, or a confusion matrix of sets is requested; `MemoryLimitError` if the memory limit does not
    allow one worker.
    """
    n_samples = int(samples.ends[-1]) if len(samples.ends) else 0
    _check(model, samples, n_samples, options)
    labels, of_truth, of_model = _merge_labels(samples.classes, model.classes)
    places = Places(of_truth, of_model, len(labels))
    run = _Pass(model, samples, saved, resources.progress)
    if samples.has_sets:
        sets = SetCounts.zeros(len(labels))
        inverse = None if counted is None else _inverse(counted, places)
        run.add_up(sets, samples.workers(model.outline, resources), count_sets, places, inverse)
        by_label = LabelCounts(sets.right, sets.support, sets.predicted).figures(labels, of_model, options)
        figures = {**sets.figures(n_samples), "n_samples": n_samples, **by_label}
        if options.propensities is not None:
            figures["propensities"] = options.propensities
        return cast(Evaluation, figures)
    sums = _count(run, places, resources)
    counts = sums.confusion.counts
    by_label = counts.figures(labels, of_model, options)
    accuracy = float(counts.right.sum() / n_samples)
    interval = sums.groups.interval(accuracy, n_samples)
    result = cast(
        Evaluation, {"accuracy": accuracy, "interval": list(interval), "n_samples": n_samples, **by_label}
    )
    if sums.probabilities is not None:
        result |= cast(Evaluation, sums.probabilities.figures(model.n_classes))
    elif model.has_probabilities:
        result["log_loss"] = None
    if options.confusion:
        result["confusion"] = sums.confusion.figures(labels)
    return result


def _check(model: Model, samples: LabelledInput, n_samples: int, options: EvaluateOptions) -> None:
    """Raise an error if the evaluation is impossible."""
    samples.check(model)
    if n_samples == 0 or len(samples.classes) == 0:
        missing = "samples" if n_samples == 0 else "labels"
        raise DataError(f"there are no {missing} to evaluate on", "give data with its labels")
    sets = model.label_threshold is not None
    if sets != samples.has_sets:
        ours, theirs = ("a set of labels", "one label")[:: 1 if sets else -1]
        raise DataError(
            f"the model predicts {ours} per sample and the dataset has {theirs}",
            "evaluate on data with the same kind of labels as the training data"
            + (", and name what separates labels in a text with --label-separator" if sets else ""),
        )
    if options.propensities is not None and not sets:
        raise DataError("propensities need sets of labels", "leave --propensities out")
    if sets and options.confusion:
        raise DataError("sets of labels have no confusion matrix", "leave --confusion out")


@dataclass(frozen=True)
class _Pass:
    """A resumable pass over the parts of labelled samples."""

    model: Model
    samples: LabelledInput
    saved: SavedSums
    progress: ProgressCallback

    def add_up(self, sums: Sums, workers: Workers, count: Callable[..., Any], *shared: Any) -> None:
        """Add the counts of each part that the sums do not contain yet."""
        samples, saved, ends = self.samples, self.saved, self.samples.ends.tolist()
        engine, scratch_bytes = workers
        parts, shared = range(saved.begin(sums), len(ends)), (self.model, scratch_bytes, *shared)
        for part, counts in engine.map(_count_part, parts, count, samples, *shared):
            saved.add(part, sums, counts)
            self.progress(Progress("evaluate", ends[part], ends[-1], "rows"))


def _count_part(
    number: int,
    count: Callable[..., Any],
    samples: LabelledInput,
    model: Model,
    scratch_bytes: int,
    *shared: Any,
) -> Any:
    """Return the result of `count` on a part, on any worker."""
    return count(samples.part(number, model, scratch_bytes), model, *shared)


class _Counts(NamedTuple):
    """Counts of a part: pairs of labels, groups, and probabilities, if these are summed up."""

    pairs: Pairs
    groups: GroupSums
    probabilities: ProbabilitySums | None


class _LabelSums:
    """Sums of one pass over rows of single labels: of `_Counts`."""

    def __init__(self, places: Places, probabilities: ProbabilitySums | None) -> None:
        self.confusion, self.groups, self.probabilities = ConfusionSums(places), GroupSums(), probabilities

    def add(self, counts: _Counts) -> None:
        """Add the counts of a part."""
        self.confusion.add(counts.pairs)
        self.groups.add(counts.groups)
        if self.probabilities is not None and counts.probabilities is not None:
            self.probabilities.add(counts.probabilities)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums so far."""
        arrays = self.confusion.arrays() | self.groups.arrays()
        return arrays if self.probabilities is None else arrays | self.probabilities.arrays()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the result of `arrays`."""
        self.confusion.restore(arrays)
        self.groups.restore(arrays)
        if self.probabilities is not None:
            self.probabilities.restore(arrays)


def _count(run: _Pass, places: Places, resources: Resources) -> _LabelSums:
    """Return the sums of all parts; without probabilities if these are missing or do not fit."""
    outline, samples, model = run.model.outline, run.samples, run.model
    workers, probabilities = samples.workers(outline, resources), None
    if model.has_probabilities:
        with suppress(MemoryLimitError):
            workers, probabilities = samples.scoring_workers(outline, resources), ProbabilitySums()
    of_truth = np.full(places.n_labels, -1)
    of_truth[places.of_model] = np.arange(model.n_classes)
    sums = _LabelSums(places, probabilities)
    count = _count_labels if probabilities is None else _count_probabilities
    run.add_up(sums, workers, count, of_truth[places.of_truth])
    return sums


def _count_labels(part: LabelledPart, model: Model, of_truth: NDArray[np.int64]) -> _Counts:
    """Return the counts of a part; `of_truth` maps the samples' classes to the model's codes, or -1."""
    labels, predicted = part.labels.to_numpy(), part.codes()
    groups = GroupSums.of(part.groups(), of_truth[labels] == predicted)
    return _Counts(count_labels(labels, predicted, model.n_classes), groups, None)


def _count_probabilities(part: LabelledPart, model: Model, of_truth: NDArray[np.int64]) -> _Counts:
    """Return the counts of a part and the sums of its probabilities; see `_count_labels`."""
    labels, scores = part.labels.to_numpy(), part.scores()
    predicted = np.argmax(scores, axis=1).astype(np.int32)
    groups = GroupSums.of(part.groups(), of_truth[labels] == predicted)
    chances = ProbabilitySums.of(model.probabilities(scores), of_truth[labels])
    return _Counts(count_labels(labels, predicted, model.n_classes), groups, chances)


def _inverse(counted: Dataset, places: Places) -> NDArray[np.float64]:
    """Return the inverse propensities of the classes of a model."""
    counts = np.zeros(places.n_labels, np.int64)
    counts[places.of_truth] = counted.class_counts()
    return inverse_propensities(counts[places.of_model], counted.n_samples)


def meant_labels(truth: NDArray[Any], known: NDArray[Any]) -> list[Any]:
    """Return the labels of data as the classes of a model that they mean."""
    labels = KnownLabels(known.tolist(), "model's classes")
    return [labels.label(value) for value in truth.tolist()]


def _merge_labels(
    truth: NDArray[Any], known: NDArray[Any]
) -> tuple[list[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Return all labels, sorted, and the position of each dataset class and model class."""
    theirs, ours = meant_labels(truth, known), known.tolist()
    if not set(theirs) & set(ours):
        raise ModelError(
            f"no label of the data (such as {theirs[0]!r}) is one of the model (such as {ours[0]!r})",
            "evaluate on data with the labels of the training data",
        )
    labels = sorted(set(theirs) | set(ours))
    place = {label: i for i, label in enumerate(labels)}
    return labels, np.array([place[x] for x in theirs]), np.array([place[x] for x in ours])
