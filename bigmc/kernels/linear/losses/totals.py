# mypy: ignore-errors
"""Sums of a loss over samples by class, for so many classes that pairs of them are too many."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel
from bigmc.kernels.linear.losses.interface import add_class_totals


@kernel
def class_totals(loss, scores, labels, weights, totals):
    """Add up the value of a loss and its derivatives by an intercept.

    Parameters
    ----------
    loss : LossKernels
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, most labels)
    weights : float64 array of shape (n_samples,), or empty for ones
    totals : tuple of float64 arrays of shapes (n_classes,), (n_classes,) and (3,)
        Added to: half the gradient by the intercept; half the diagonal of its Hessian; and the sums of the
        residuals that are not negative (of other classes, where these go into the own one with the other
        sign), of the values that the dual is made of, and of what the losses have beyond these.
    """
    n_classes = totals[0].shape[0]
    none = np.empty((0, 0), scores.dtype)
    others = np.empty(scores.shape[1], scores.dtype)
    residual = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    work = (none, others, residual, wide)
    weight = 1.0
    for i in range(scores.shape[0]):
        if weights.shape[0]:
            weight = weights[i]
        add_class_totals(loss, scores, i, labels, weight, work, totals)
