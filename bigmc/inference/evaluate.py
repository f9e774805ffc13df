"""How good a model is on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError
from bigmc.engine import Engine, Resources
from bigmc.errors import DataError, ModelError
from bigmc.inference.evaluate_labels import ConfusionSums, LabelCounts, shard_confusion
from bigmc.inference.evaluate_probabilities import COPIES, ProbabilitySums, shard_probabilities
from bigmc.inference.evaluate_sets import Places, SetCounts, count_shard
from bigmc.inference.memory import divide, divide_limit, own_copy
from bigmc.inference.propensities import inverse_propensities, label_counts
from bigmc.inference.results import Evaluation
from bigmc.inference.unfinished import NOT_SAVED, SavedSums, Sums
from bigmc.model import Model, ModelOutline
from bigmc.options.inference import EvaluateOptions
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.store.dataset import Dataset

ROW_COST = 48
"""Bytes of a row while its shard is scored: labels, codes and best score, and pairs being sorted."""

SET_COST = 192
"""Bytes of a row's sets of labels: some four each of truth and prediction, as pairs, sorted and merged."""


def evaluate(
    model: Model,
    dataset: Dataset,
    options: EvaluateOptions,
    resources: Resources,
    saved: SavedSums = NOT_SAVED,
    counted: Dataset | None = None,
) -> Evaluation:
    """Return how often the model is right on a dataset; one pass over the columns with weight.

    Labels are matched by value, so the dataset may have fewer, more or other classes than the model;
    a row whose label the model does not know is an error of the model.

    Parameters
    ----------
    dataset : Dataset
        With labels and the features of the model.
    options : EvaluateOptions
        What to add to the figures; its split is of the caller.
    saved : SavedSums, optional
        Where the sums over the shards survive a kill; by default nowhere.
    counted : Dataset, optional
        Where labels are sets: samples with the same classes whose labels are counted for propensities.

    Returns
    -------
    dict
        ``accuracy``, ``macro_f1`` (the mean over the classes that occur as label or as prediction, as
        scikit-learn's ``f1_score(average="macro", zero_division=0)``), ``n_samples`` and
        ``n_unknown_labels`` (rows whose label is not a class of the model). With `per_class`,
        ``per_class`` has ``precision``, ``recall``, ``f1`` and ``support`` by label; with `confusion`,
        ``confusion`` has ``labels`` and ``matrix``, rows being the true labels. A model with probabilities
        adds ``log_loss``, ``brier``, ``calibration_error``, ``reliability`` and more: see
        `bigmc.inference.evaluate_probabilities.ProbabilitySums.figures`. Where labels are sets
        there is no confusion; ``accuracy`` is of whole sets, ``n_unknown_labels`` counts labels instead of
        rows, and ``micro_f1``, ``ranking_loss`` and ``ranking_precision`` come with them: see
        `bigmc.inference.evaluate_sets.SetCounts.figures`.

    Raises
    ------
    ModelError
        If the features of the dataset are not those of the model, or no label is known to it.
    DataError
        If the dataset has no samples or no labels, or sets of labels where the model predicts one, or the
        other way round, or a confusion matrix of sets is requested.
    MemoryLimitError
        If the memory limit does not allow one worker.
    """
    _check(model, dataset, options)
    labels, of_truth, of_model = _merge_labels(dataset.classes, model.classes)
    places = Places(of_truth, of_model, len(labels))
    run = _Passes(model, dataset, saved)
    engine, scratch_bytes = share_memory(model.outline, dataset, resources)
    if dataset.has_sets:
        total = SetCounts.zeros(len(labels))
        inverse = None if counted is None else _inverse(counted, places)
        run.add_up("sets", total, engine, resources.progress, count_shard, places, scratch_bytes, inverse)
        by_label = LabelCounts(total.right, total.support, total.predicted).figures(labels, of_model, options)
        figures = {**total.figures(dataset.n_samples), "n_samples": dataset.n_samples, **by_label}
        return cast(Evaluation, figures)
    confusion = ConfusionSums(places)
    run.add_up("labels", confusion, engine, resources.progress, shard_confusion, scratch_bytes)
    counts = confusion.counts
    accuracy = float(counts.right.sum() / dataset.n_samples)
    by_label = counts.figures(labels, of_model, options)
    result: Evaluation = {"accuracy": accuracy, "n_samples": dataset.n_samples, **by_label}  # type: ignore[typeddict-item]
    if model.has_probabilities:
        known = np.full(len(labels), -1)
        known[of_model] = np.arange(model.n_classes)
        result |= cast(Evaluation, _probability_figures(run, known[of_truth], resources))
    if options.confusion:
        result["confusion"] = confusion.figures(labels)
    return result


def _check(model: Model, dataset: Dataset, options: EvaluateOptions) -> None:
    """Refuse what cannot be measured."""
    model.check_features(dataset)
    if dataset.n_samples == 0 or dataset.n_classes == 0:
        missing = "samples" if dataset.n_samples == 0 else "labels"
        raise DataError(f"the dataset has no {missing}", "evaluate on a dataset ingested with its labels")
    sets = model.label_threshold is not None
    if sets != dataset.has_sets:
        ours, theirs = ("a set of labels", "one label")[:: 1 if sets else -1]
        raise DataError(
            f"the model predicts {ours} per sample and the dataset has {theirs}",
            "evaluate on data with labels like those the model was trained on",
        )
    if options.propensities is not None and not sets:
        raise DataError("propensities are for sets of labels", "leave --propensities out")
    if sets and options.confusion:
        raise DataError("sets of labels have no confusion matrix", "leave --confusion out")


@dataclass(frozen=True)
class _Passes:
    """Passes over the shards of a dataset, whose sums survive a kill."""

    model: Model
    dataset: Dataset
    saved: SavedSums

    def add_up(
        self,
        name: str,
        sums: Sums,
        engine: Engine,
        progress: ProgressCallback,
        count: Callable[..., Any],
        *shared: Any,
    ) -> None:
        """Add to the sums of a pass what `count` finds in each shard that is not in them yet."""
        dataset, saved = self.dataset, self.saved
        shards = range(saved.begin(name, sums), dataset.n_shards)
        for shard, found in engine.map(count, shards, self.model, dataset, *shared):
            saved.add(name, shard, sums, found)
            progress(Progress("evaluate", int(dataset.base[shard + 1]), dataset.n_samples, "rows"))
        saved.finish(name, dataset.n_shards, sums)


def share_memory(model: ModelOutline, dataset: Dataset, resources: Resources) -> tuple[Engine, int]:
    """Return the engine with as many workers as the memory limit allows, and the bytes for each.

    Raises
    ------
    MemoryLimitError
        If it does not allow one worker.
    """
    rows = max((shard.n_rows for shard in dataset.shards), default=0)
    cost = ROW_COST + (SET_COST if model.has_sets else 0)
    return divide_limit(model, resources, cost * rows, "evaluation")


def _inverse(counted: Dataset, places: Places) -> NDArray[np.float64]:
    """Return the inverse propensities of the classes of a model."""
    counts = np.zeros(places.n_labels, np.int64)
    counts[places.of_truth] = label_counts(counted)
    return inverse_propensities(counts[places.of_model], counted.n_samples)


def _probability_figures(
    run: _Passes, of_truth: NDArray[np.int64], resources: Resources
) -> Mapping[str, object]:
    """Return the figures of the probabilities; a log loss of None where memory does not allow them."""
    engine, model = resources.engine, run.model
    limit = resources.memory_limit - own_copy(model.outline, engine)
    rows = max(shard.n_rows for shard in run.dataset.shards)
    try:
        scores = COPIES * 8 * model.n_classes * rows
        n_threads, scratch_bytes = divide(
            model.outline, limit, engine.n_threads, scores // 3, "probabilities"
        )
    except MemoryLimitError:
        return {"log_loss": None}
    total = ProbabilitySums()
    run.add_up(
        "probabilities",
        total,
        engine.at_most(n_threads),
        silent,
        shard_probabilities,
        of_truth,
        scratch_bytes,
    )
    return total.figures(model.n_classes)


def _merge_labels(
    truth: NDArray[Any], known: NDArray[Any]
) -> tuple[list[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Return all labels, sorted, and the place of each dataset class and of each model class."""
    theirs, ours = truth.tolist(), known.tolist()
    if not set(theirs) & set(ours):
        raise ModelError(
            f"the model knows no label of the dataset (such as {theirs[0]!r}; its own are like {ours[0]!r})",
            "evaluate on data with the labels the model was trained on",
        )
    labels = sorted(set(theirs) | set(ours))
    place = {label: i for i, label in enumerate(labels)}
    return labels, np.array([place[x] for x in theirs]), np.array([place[x] for x in ours])
