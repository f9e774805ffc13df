# mypy: ignore-errors
"""Sums of a loss over samples, by own class and other class."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel
from bigmc.kernels.linear.losses.interface import add_class_sums, residuals
from bigmc.kernels.linear.losses.log import LogLoss


@kernel
def class_sums(loss, scores, labels, weights, sums):
    """Add up what the value of the loss and a step of the intercept need, by own and other class.

    Parameters
    ----------
    loss : LossKernels
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, most labels)
    weights : float64 array of shape (n_samples,), or empty for ones
    sums : tuple of three float64 arrays of shape (n_classes, n_classes)
        Residuals, values and curvatures. Added to, by own class (row) and other class (column). Hinges: the
        positive margins, their squares, and their number; the multitask one has those of labels on the
        diagonal, and those of a class that is no label in the row after its own, since they have no other
        class. Log loss: the probabilities of other classes; the loss, on the diagonal; and the sums of
        ``p p'`` over all samples.
    """
    n_classes = sums[0].shape[0]
    none = np.empty((0, 0), scores.dtype)
    others = np.empty(scores.shape[1], scores.dtype)
    residual = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    work = (none, others, residual, wide)
    weight = 1.0
    for i in range(scores.shape[0]):
        if weights.shape[0]:
            weight = weights[i]
        add_class_sums(loss, scores, i, labels, weight, work, sums)


@kernel
def entropy(scores, labels, weights, factor, scale):
    """Return the weighted sum of entropies of the probabilities, moved towards the own class.

    The probability of another class is multiplied by ``scale * factor[c, r]``, at most 1 (`factor` without
    rows stands for ones); what is missing goes to the own class. It is the conjugate of the log loss.
    """
    n_classes = factor.shape[1]
    others = np.empty(scores.shape[1], scores.dtype)
    residual = np.empty(n_classes, scores.dtype)
    weight = 1.0
    total = 0.0
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if weights.shape[0]:
            weight = weights[i]
        residuals(LogLoss(), scores, i, labels, factor, others, residual)
        own = 1.0 + 2.0 * scale * residual[c]
        uncertainty = -own * np.log(own) if own > 0.0 else 0.0
        for r in range(n_classes):
            p = 2.0 * scale * residual[r]
            if r != c and p > 0.0:
                uncertainty -= p * np.log(p)
        total += weight * uncertainty
    return total
