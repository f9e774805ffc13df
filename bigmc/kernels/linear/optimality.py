# mypy: ignore-errors
"""How far gradients are from the conditions of optimality, without the data they came from."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.penalties import dual_norm, prox, violation


@njit(cache=True, nogil=True, fastmath=False)
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
    n_classes, _, alpha, ridge = level
    norms, violations, distances = out
    ones = np.ones(n_classes, np.float64)
    work = np.empty(n_classes, np.float64)
    sums = np.empty(n_classes, np.float64)
    for j in range(gradients.shape[0]):
        for r in range(n_classes):
            sums[r] = gradients[j, r]
        norms[j] = dual_norm(penalty, sums)
        violations[j] = violation(penalty, alpha, ridge, rows[j], sums, ones, work)
        distances[j] = 0.0
        if ridge > 0.0 and norms[j] > alpha:
            prox(penalty, alpha, sums, ones, work)
            for r in range(n_classes):
                distances[j] += work[r] * work[r]


@njit(cache=True, nogil=True, fastmath=False)
def add_dual_norms(penalty, gradients, scale, n_classes, norms):
    """Add the dual norm of each row of `gradients`, times its scale, to `norms`."""
    sums = np.empty(n_classes, np.float64)
    for j in range(gradients.shape[0]):
        for r in range(n_classes):
            sums[r] = scale[j] * gradients[j, r]
        norms[j] += dual_norm(penalty, sums)
