# mypy: ignore-errors
"""How far gradients are from the conditions of optimality, without the data they came from."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.penalties import dual_norm, prox, violation


@njit(cache=True, nogil=True, fastmath=False)
def measure_gradients(penalty, ratio, alpha, ridge, gradients, rows, n_classes, norms, violations, distances):
    """Fill dual norms, violations and squared distances to the dual ball of radius alpha.

    Parameters
    ----------
    penalty : int
        Code in `bigmc.kernels.linear.penalties`.
    ratio, alpha, ridge : float
    gradients : float array of shape (n_features, width)
        Of the losses.
    rows : float64 array of shape (n_features, width)
        Weights.
    n_classes : int
    norms, violations, distances : float64 arrays of shape (n_features,)
        Filled; distances are 0 without a ridge.
    """
    ones = np.ones(n_classes, np.float64)
    work = np.empty(n_classes, np.float64)
    sums = np.empty(n_classes, np.float64)
    for j in range(gradients.shape[0]):
        for r in range(n_classes):
            sums[r] = gradients[j, r]
        norms[j] = dual_norm(penalty, ratio, sums)
        violations[j] = violation(penalty, ratio, alpha, ridge, rows[j], sums, ones, work)
        distances[j] = 0.0
        if ridge > 0.0 and norms[j] > alpha:
            prox(penalty, ratio, alpha, sums, ones, work)
            for r in range(n_classes):
                distances[j] += work[r] * work[r]


@njit(cache=True, nogil=True, fastmath=False)
def add_dual_norms(penalty, ratio, gradients, scale, n_classes, norms):
    """Add the dual norm of each row of `gradients`, times its scale, to `norms`."""
    sums = np.empty(n_classes, np.float64)
    for j in range(gradients.shape[0]):
        for r in range(n_classes):
            sums[r] = scale[j] * gradients[j, r]
        norms[j] += dual_norm(penalty, ratio, sums)
