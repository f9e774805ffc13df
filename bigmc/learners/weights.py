"""Weights of samples: those given, times those of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigmc.errors import DataError
from bigmc.options.label_kind import LabelKind
from bigmc.store.classes import ClassLabels


def combined_weights(
    sample_weight: ArrayLike | None,
    class_weight: Mapping[Any, float] | str | None,
    labels: NDArray[np.int32],
    classes: ClassLabels,
    kind: LabelKind,
) -> NDArray[np.float64] | None:
    """Return the weight of each sample times that of its class, None if all are 1.

    Parameters
    ----------
    sample_weight : float, array-like of shape (n_samples,) or None
    class_weight : dict from label to weight, "balanced" or None
        Balanced is the sum of weights over the number of classes and the class's own sum.
    labels : int32 array of shape (n_samples, most labels)
        Class codes, -1 after the last of a sample.
    classes : labels of the classes
    kind : LabelKind

    Raises
    ------
    DataError
        If weights are negative, not finite or all zero, or fewer than 2 classes have any; with sets, if
        there are weights of classes, or no sample with weight has a label and lacks another.
    """
    weights = np.ones(len(labels))
    if sample_weight is not None:
        given = np.asarray(sample_weight, dtype=np.float64)
        if given.ndim > 0 and given.shape != weights.shape:
            raise DataError(f"sample_weight has the shape {given.shape} and there are {len(labels)} samples")
        weights *= given
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise DataError(
                "sample_weight has negative or infinite values or NaN", "give weights of at least 0"
            )
        if len(weights) and not weights.any():
            raise DataError("every sample_weight is zero", "give some samples a weight above 0")
    if kind is LabelKind.SET:
        if class_weight is not None:
            raise DataError("class_weight is for one label per sample", "give sample_weight instead")
        sizes = (labels >= 0).sum(axis=1)
        if not weights[(sizes > 0) & (sizes < len(classes))].any():
            raise DataError(
                "no sample with weight has a label and lacks another, so there is nothing to learn",
                "check the labels",
            )
        return None if sample_weight is None else weights
    labels = labels[:, 0]
    if class_weight is not None:
        sums = np.bincount(labels, weights, minlength=len(classes)).astype(np.float64)
        weights *= _class_weights(class_weight, sums, classes)[labels]
    present = np.flatnonzero(np.bincount(labels, weights, minlength=len(classes)))
    if len(present) < 2:
        which = f"one class ({classes[present[0]]!s})" if len(present) else "none"
        raise DataError(
            f"training needs at least 2 classes, the samples with weight have {which}", "check the labels"
        )
    return None if sample_weight is None and class_weight is None else weights


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
        raise DataError(f"class_weight names {strangers[0]!r}, which is no label of the data")
    weights = np.array([class_weight.get(label, 1.0) for label in labels], np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError("class_weight has negative or infinite values or NaN", "give weights of at least 0")
    return weights


def recorded_class_weight(class_weight: Mapping[Any, float] | str | None) -> Any:
    """Return weights of classes as a model keeps them: a dict as pairs, since the keys of JSON are texts."""
    if isinstance(class_weight, Mapping):
        return [list(pair) for pair in class_weight.items()]
    return class_weight
