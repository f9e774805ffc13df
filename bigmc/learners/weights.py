"""Sample weights: given weights times class weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigmc.errors import DataError
from bigmc.store.classes import ClassLabels
from bigmc.store.dataset import Dataset


def combined_weights(
    sample_weight: ArrayLike | None, class_weight: Mapping[Any, float] | str | None, dataset: Dataset
) -> NDArray[np.float64] | None:
    """Return the weight of each sample times that of its class, None if all are 1.

    Labels are read shard by shard: without weights nothing is kept for a sample. Balanced class weights
    are the sum of weights over the number of classes and the class's own sum. `DataError` if samples have
    no label, weights are negative, not finite or all zero, or fewer than 2 classes have any; for label
    sets, if there are class weights, or no sample with weight has a label and lacks another.
    """
    weights = None if sample_weight is None else _checked(sample_weight, dataset.n_samples)
    n_classes = dataset.n_classes
    if dataset.has_sets:
        if class_weight is not None:
            raise DataError("class_weight needs one label per sample", "give sample_weight instead")
        if not any(_tell_apart(labels, n_classes, own) for labels, own in _parts(dataset, weights)):
            raise DataError(
                "every sample with weight has all labels or none, so there is nothing to learn",
                "check the labels",
            )
        return weights
    sums = np.zeros(n_classes)
    for labels, own in _parts(dataset, weights):
        if labels.min(initial=0) < 0:
            raise DataError("some samples have no label", "train on labelled samples")
        sums += np.bincount(labels[:, 0], own, minlength=n_classes)
    if class_weight is not None:
        of_class = _class_weights(class_weight, sums, dataset.class_labels)
        weights = np.ones(dataset.n_samples) if weights is None else weights.copy()
        for labels, own in _parts(dataset, weights):
            assert own is not None
            own *= of_class[labels[:, 0]]
        sums *= of_class
    present = np.flatnonzero(sums)
    if len(present) < 2:
        which = f"one class ({dataset.class_labels[present[0]]!s})" if len(present) else "none"
        raise DataError(
            f"training needs at least 2 classes, but the samples with weight have {which}", "check the labels"
        )
    return weights


def _checked(sample_weight: ArrayLike, n_samples: int) -> NDArray[np.float64]:
    """Return sample weights as an array, without copying one."""
    values = np.asarray(sample_weight, np.float64)
    if values.ndim > 0 and values.shape != (n_samples,):
        said = f"sample_weight has the shape {values.shape}, but there are {n_samples} samples"
        raise DataError(said, "give one weight for each sample")
    weights = values if values.ndim else np.full(n_samples, float(values))
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError("sample_weight has negative or infinite values or NaN", "give weights of at least 0")
    if not weights.any():
        raise DataError("every sample_weight is zero", "give some samples a weight above 0")
    return weights


def _parts(
    dataset: Dataset, weights: NDArray[np.float64] | None
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float64] | None]]:
    """Yield labels, as `Dataset.label_sets` returns them, and weights of the samples of each shard."""
    for labels, (first, last) in zip(dataset.label_parts(), pairwise(dataset.base), strict=True):
        yield labels, None if weights is None else weights[first:last]


def _tell_apart(labels: NDArray[np.int32], n_classes: int, weights: NDArray[np.float64] | None) -> bool:
    """Return whether a sample with weight has a label and lacks another."""
    sizes = (labels >= 0).sum(axis=1)
    mixed = (sizes > 0) & (sizes < n_classes)
    return bool(mixed.any() if weights is None else weights[mixed].any())


def _class_weights(
    class_weight: Mapping[Any, float] | str, sums: NDArray[np.float64], classes: ClassLabels
) -> NDArray[np.float64]:
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(f"class_weight {class_weight!r} is unknown", 'use "balanced" or a dict')
        present = sums > 0
        mean = sums.sum() / max(1, np.count_nonzero(present))
        balanced: NDArray[np.float64] = np.divide(mean, sums, out=np.ones(len(sums)), where=present)
        return balanced
    labels = classes.tolist()
    strangers = [label for label in class_weight if label not in labels]
    if strangers:
        said = f"class_weight names {strangers[0]!r}, which is not a label of the data"
        raise DataError(said, "leave it out, or write it as in the data")
    weights = np.array([class_weight.get(label, 1.0) for label in labels], np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError("class_weight has negative or infinite values or NaN", "give weights of at least 0")
    return weights


def recorded_class_weight(class_weight: Mapping[Any, float] | str | None) -> Any:
    """Return class weights as stored in a model: a dict as pairs, since keys in JSON are texts."""
    if isinstance(class_weight, Mapping):
        return [list(pair) for pair in class_weight.items()]
    return class_weight
