"""Measure how far gradients are from the conditions of optimality, some features at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import Measures
from bigmc.objectives import Objective
from bigmc.solvers.sparse.coefficients import Coefficients, slabs_of_weights


def measured_together(groups: Iterable[NDArray[np.int64]], width: int) -> Iterator[NDArray[np.int64]]:
    """Cut groups of features, with so many weights each, into those that are measured together."""
    return (group[some] for group in groups for some in slabs_of_weights(len(group), width))


def measures_of(
    objective: Objective,
    alpha: float,
    n_classes: int,
    coef: Coefficients,
    gradient: NDArray[np.floating],
    groups: Iterable[NDArray[np.int64]],
) -> Measures:
    """Measure gradients of the losses by the weights of features.

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    gradient : float array of shape (n_features, width)
        In the order of the groups.
    groups : iterable of int64 arrays
        Features, increasing in each group.

    Returns
    -------
    Measures
        Of all groups, one after the other.
    """
    measures, start = Measures(*np.empty((3, len(gradient)))), 0
    for features in measured_together(groups, gradient.shape[1]):
        places = slice(start, start + len(features))
        out = Measures(*(array[places] for array in measures))
        objective.measure_gradients(alpha, gradient[places], coef.take(features), n_classes, out)
        start += len(features)
    return measures
