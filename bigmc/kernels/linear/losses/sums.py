# mypy: ignore-errors
"""Sums of a loss over samples: by own class and other class, or by class where pairs are too many."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.linear.losses.interface import add_class_sums, add_class_totals, residuals
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
    work, weight = _workspace(scores, sums[0].shape[0]), 1.0
    for i in range(scores.shape[0]):
        if weights.shape[0]:
            weight = weights[i]
        add_class_sums(loss, scores, i, labels, weight, work, sums)


@kernel
def class_totals(loss, scores, labels, weights, totals):
    """`class_sums` by class.

    Parameters
    ----------
    loss, scores, labels, weights
        As in `class_sums`.
    totals : tuple of float64 arrays of shapes (n_classes,), (n_classes,) and (3,)
        Added to: half the gradient by the intercept; half the diagonal of its Hessian; and the sums of the
        residuals that are not negative (of other classes, where these go into the own one with the other
        sign), of the values that the dual is made of, and of what the losses have beyond these.
    """
    work, weight = _workspace(scores, totals[0].shape[0]), 1.0
    for i in range(scores.shape[0]):
        if weights.shape[0]:
            weight = weights[i]
        add_class_totals(loss, scores, i, labels, weight, work, totals)


@inlined_kernel
def _workspace(scores, n_classes):
    """Return what losses compute the sums of a sample in: no factors, others, residuals, and wide scratch."""
    width = scores.shape[1]
    none, others = np.empty((0, 0), scores.dtype), np.empty(width, scores.dtype)
    return none, others, np.empty(n_classes, scores.dtype), np.empty((2, width), np.float64)


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
