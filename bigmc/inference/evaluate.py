"""How good a model is on labelled data, and which features decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, plan_within
from bigmc.engine import Engine, Resources
from bigmc.errors import DataError, ModelError
from bigmc.inference.evaluate_probabilities import COPIES, ProbabilitySums, shard_probabilities
from bigmc.inference.evaluate_sets import Places, SetCounts, count_shard
from bigmc.inference.propensities import inverse_propensities, label_counts
from bigmc.inference.results import (
    ByLabel,
    ClassFeatures,
    Evaluation,
    FeatureName,
    Inspection,
    WeightedFeature,
)
from bigmc.inference.unfinished import NOT_SAVED, SavedSums
from bigmc.model import Model, ModelOutline, divide
from bigmc.options.inference import EvaluateOptions
from bigmc.progress import Progress
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
    model : Model
    dataset : Dataset
        With labels and the features of the model.
    options : EvaluateOptions
        What to add to the figures; its split is of the caller.
    resources : Resources
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
        other way round, or a confusion matrix of sets is asked for.
    MemoryLimitError
        If the memory limit does not allow one worker.
    """
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
    labels, of_truth, of_model = _merge_labels(dataset.classes, model.classes)
    progress = resources.progress
    engine, room = share_memory(model.outline, dataset, resources)
    if sets:
        places, total = Places(of_truth, of_model, len(labels)), SetCounts.zeros(len(labels))
        shards = range(saved.begin("sets", total), dataset.n_shards)
        inverse = None if counted is None else _inverse(counted, places)
        for shard, here in engine.map(count_shard, shards, model, dataset, places, room, inverse):
            saved.add("sets", shard, total, here)
            progress(Progress("evaluate", int(dataset.base[shard + 1]), dataset.n_samples, "rows"))
        by_label = LabelCounts(total.right, total.support, total.predicted).figures(labels, of_model, options)
        figures = {**total.figures(dataset.n_samples), "n_samples": dataset.n_samples, **by_label}
        return cast(Evaluation, figures)
    confusion = ConfusionSums(Places(of_truth, of_model, len(labels)))
    shards = range(saved.begin("labels", confusion), dataset.n_shards)
    for shard, found in engine.map(_shard_confusion, shards, model, dataset, room):
        saved.add("labels", shard, confusion, found)
        progress(Progress("evaluate", int(dataset.base[shard + 1]), dataset.n_samples, "rows"))
    saved.finish("labels", dataset.n_shards, confusion)
    matrix = confusion.matrix
    right = matrix.diagonal()
    by_counts = LabelCounts(right, matrix.sum(axis=1), matrix.sum(axis=0))
    by_label = by_counts.figures(labels, of_model, options)
    accuracy = float(right.sum() / dataset.n_samples)
    result: Evaluation = {"accuracy": accuracy, "n_samples": dataset.n_samples, **by_label}  # type: ignore[typeddict-item]
    if model.has_probabilities:
        known = np.full(len(labels), -1)
        known[of_model] = np.arange(model.n_classes)
        result |= cast(Evaluation, _probability_figures(model, dataset, known[of_truth], resources, saved))
    if options.confusion:
        occurring = by_counts.occurring
        result["confusion"] = {
            "labels": [labels[c] for c in occurring.tolist()],
            "matrix": matrix[occurring][:, occurring].toarray().tolist(),
        }
    return result


def share_memory(model: ModelOutline, dataset: Dataset, resources: Resources) -> tuple[Engine, int]:
    """Return the engine with as many workers as the memory limit allows, and the bytes for each.

    Raises
    ------
    MemoryLimitError
        If it does not allow one worker.
    """
    rows = max((shard.n_rows for shard in dataset.shards), default=0)
    engine = resources.engine
    # A process of its own keeps the model as it came beside the model.
    own = 0 if engine.shares_memory else model.nbytes
    cost, wanted = ROW_COST + (SET_COST if model.has_sets else 0), engine.n_threads
    n_threads, room = plan_within(
        resources.memory_limit,
        lambda limit: divide(model, limit - own, wanted, cost * rows, "evaluation"),
    )
    return engine.at_most(n_threads), room


def _inverse(counted: Dataset, places: Places) -> NDArray[np.float64]:
    """Return the inverse propensities of the classes of a model."""
    counts = np.zeros(places.n_labels, np.int64)
    counts[places.of_truth] = label_counts(counted)
    return inverse_propensities(counts[places.of_model], counted.n_samples)


def _probability_figures(
    model: Model, dataset: Dataset, of_truth: NDArray[np.int64], resources: Resources, saved: SavedSums
) -> Mapping[str, object]:
    """Return the figures of the probabilities; a log loss of None where memory does not allow them."""
    engine = resources.engine
    limit = resources.memory_limit - (0 if engine.shares_memory else model.nbytes)
    rows = max(shard.n_rows for shard in dataset.shards)
    try:
        scores = COPIES * 8 * model.n_classes * rows
        n_threads, room = divide(model.outline, limit, engine.n_threads, scores // 3, "probabilities")
    except MemoryLimitError:
        return {"log_loss": None}
    total = ProbabilitySums()
    shards = range(saved.begin("probabilities", total), dataset.n_shards)
    engine = engine.at_most(n_threads)
    for shard, found in engine.map(shard_probabilities, shards, model, dataset, of_truth, room):
        saved.add("probabilities", shard, total, found)
    return total.figures(model.n_classes)


class ConfusionSums:
    """How often each label is predicted as each; counts of parts add up.

    Parameters
    ----------
    places : Places
        Of the classes of dataset and model among all labels.
    """

    def __init__(self, places: Places) -> None:
        self._places, self._shape = places, (places.n_labels, places.n_labels)
        self.matrix = scipy.sparse.csr_array(self._shape, dtype=np.int64)

    def add(self, other: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]) -> None:
        """Add pairs of true and predicted code, and how often they occur."""
        truth, predicted, counts = other
        at = self._places.of_truth[truth], self._places.of_model[predicted]
        self.matrix = self.matrix + scipy.sparse.coo_array((counts, at), self._shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the counts that are not zero, and where they stand."""
        found = self.matrix.tocoo()
        return {"truth": found.row, "predicted": found.col, "counts": found.data}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `arrays` returned."""
        at = arrays["truth"], arrays["predicted"]
        self.matrix = scipy.sparse.csr_array((arrays["counts"], at), self._shape)


@dataclass(frozen=True)
class LabelCounts:
    """How often each label is predicted rightly, occurs, and is predicted.

    Attributes
    ----------
    right, support, predicted : int64 arrays of shape (n_labels,)
    """

    right: NDArray[np.int64]
    support: NDArray[np.int64]
    predicted: NDArray[np.int64]

    @property
    def occurring(self) -> NDArray[np.intp]:
        """Labels that occur or are predicted."""
        return np.flatnonzero(self.support + self.predicted)

    def figures(self, labels: list[Any], of_model: NDArray[np.intp], options: EvaluateOptions) -> ByLabel:
        """Return the figures of labels, of which `of_model` has the places of those the model knows."""
        occurring = self.occurring
        f1 = _ratio(2 * self.right, self.support + self.predicted)
        known = np.isin(np.arange(len(labels)), of_model)
        result: ByLabel = {
            "macro_f1": float(f1[occurring].mean()) if len(occurring) else 0.0,
            "n_unknown_labels": int(self.support[~known].sum()),
        }
        if options.per_class:
            precision, recall = _ratio(self.right, self.predicted), _ratio(self.right, self.support)
            result["per_class"] = {
                labels[c]: {
                    "precision": float(precision[c]),
                    "recall": float(recall[c]),
                    "f1": float(f1[c]),
                    "support": int(self.support[c]),
                }
                for c in occurring.tolist()
            }
        return result


def inspect(model: Model, top: int = 20, n_classes: int | None = None) -> Inspection:
    """Return the features that weigh most for each class.

    Parameters
    ----------
    model : Model
    top : int, optional
        Features of each class, at most.
    n_classes : int, optional
        List so many classes, the first ones; by default all.

    Returns
    -------
    dict
        ``n_features``, ``n_nonzero_features`` and ``classes``: for each one ``label``, what else its kind of
        model tells of a class (a linear one its ``intercept``), and ``features``, ordered by falling
        absolute weight: ``index``, ``weight`` and ``names``. A name of a hashed feature has a ``sign`` (its
        occurrences count with this sign) and a ``count``; several names are a known collision. A column
        of arrays has its own name; without names the list is empty.
    """
    names = _feature_names(model)
    classes: list[ClassFeatures] = []
    for c, label in enumerate(model.classes[:n_classes].tolist()):
        features, weights = model.class_weights(c)
        # Equal weights in the order of the features.
        order = np.argsort(-np.abs(weights), kind="stable")[: max(top, 0)]
        strongest: list[WeightedFeature] = [
            {
                "index": int(features[j]),
                "weight": float(weights[j]),
                "names": names.get(int(features[j]), []),
            }
            for j in order
            if weights[j] != 0
        ]
        figures = {"label": label, **model.class_figures(c), "features": strongest}
        classes.append(cast(ClassFeatures, figures))
    return {
        "n_features": model.n_features,
        "n_nonzero_features": len(model.used_features),
        "classes": classes,
    }


def _shard_confusion(
    shard: int, model: Model, dataset: Dataset, room: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Return the pairs of true and predicted code that occur in a shard, and how often."""
    truth = dataset.shards[shard].table(["label"]).column("label").to_numpy()
    if len(truth) and truth.min() < 0:
        raise DataError("some samples have no label", "evaluate on a dataset ingested with its labels")
    pairs = truth.astype(np.int64) * model.n_classes + model.shard_codes(dataset, shard, room)
    found, counts = np.unique(pairs, return_counts=True)
    true_codes, predicted = np.divmod(found, model.n_classes)
    return true_codes.astype(np.int32), predicted.astype(np.int32), counts.astype(np.int64)


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


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _feature_names(model: Model) -> dict[int, list[FeatureName]]:
    names: dict[int, list[FeatureName]] = {}
    if model.names is not None:
        for entry in model.names.to_pylist():
            # Binary weighting makes a 1 of a stored -1 too: the sign of the hash is then without effect.
            entry["sign"] = 1 if model.weighting.binary else entry["sign"]
            names.setdefault(entry.pop("bucket"), []).append(entry)
    columns = model.feature_spec.get("columns")
    if columns is not None:
        names |= {j: [{"name": columns[j], "sign": 1, "count": None}] for j in model.used_features.tolist()}
    return names
