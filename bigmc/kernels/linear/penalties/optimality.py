# mypy: ignore-errors
"""How far gradients are from the conditions of optimality, without the data they came from."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.penalties.formulas import dual_norm, excess_norm, violation


@inner_kernel
def measure(penalty, level, gradient, row, p, work, out):
    """Measure the gradient of the losses by one row of weights.

    Parameters
    ----------
    penalty : Norm
    level : Level
        Its factor of the gradient is not used.
    gradient : float64 array of shape (n_classes,)
    row : float64 array of shape (at least n_classes,)
        Weights.
    p : int
        Position of the row in `out`.
    work : float64 array of shape (2, n_classes)
        Ones, and scratch for a row.
    out : Measures
        Distances are 0 without a ridge.
    """
    _, _, alpha, ridge = level
    norms, violations, distances = out
    ones, scratch = work[0], work[1]
    norms[p] = dual_norm(penalty, gradient)
    violations[p] = violation(penalty, alpha, ridge, row, gradient, ones, scratch)
    distances[p] = 0.0
    if ridge > 0.0 and norms[p] > alpha:
        distances[p] = excess_norm(penalty, alpha, gradient, ones, scratch) ** 2


@kernel
def measure_gradients(penalty, level, gradients, rows, out):
    """Measure gradients of the losses that are summed up already.

    Parameters
    ----------
    penalty : Norm
    level : Level
        Its factor of the gradient is not used.
    gradients : float array of shape (n_features, width)
        Of the losses.
    rows : float64 array of shape (n_features, width)
        Weights.
    out : Measures
        Distances are 0 without a ridge.
    """
    n_classes = level.n_classes
    work = np.ones((2, n_classes), np.float64)
    sums = np.empty(n_classes, np.float64)
    for j in range(gradients.shape[0]):
        for r in range(n_classes):
            sums[r] = gradients[j, r]
        measure(penalty, level, sums, rows[j], j, work, out)


@kernel
def add_dual_norms(penalty, gradients, scale, n_classes, norms):
    """Add the dual norm of each row of `gradients`, times its scale, to `norms`."""
    sums = np.empty(n_classes, np.float64)
    for j in range(gradients.shape[0]):
        for r in range(n_classes):
            sums[r] = scale[j] * gradients[j, r]
        norms[j] += dual_norm(penalty, sums)
