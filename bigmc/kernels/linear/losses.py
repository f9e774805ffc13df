# mypy: ignore-errors
"""Losses by samples: their derivatives by the scores, and their sums.

Codes stand for losses:

========================== ==========================================================================
`SQUARED_HINGE`            ``sum over p in Y, r not in Y of max(1 - s_p + s_r, 0)²``, equation (2) where
                           the sets Y have one label, that of section 4.7 where they have any number
`MULTITASK_SQUARED_HINGE`  ``sum over r of max(1 - Y_r s_r, 0)²``, equation (11)
`LOG_LOSS`                 ``log(1 + sum over r != y of exp(s_r - s_y))``, equation (12)
========================== ==========================================================================

Equation numbers are those of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale
sparse multiclass classification", Machine Learning 93 (2013). A slope is half a derivative, so that
``2 / n`` is the factor of all gradients.

The labels of a sample are a row of codes, increasing, -1 after the last; the log loss knows one only. A
visit of a sample costs ``O(|Y| n_classes)`` with `SQUARED_HINGE`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.exponentials import lanes_exp, lanes_largest

SQUARED_HINGE = 0
MULTITASK_SQUARED_HINGE = 1
LOG_LOSS = 2

_EIGHT = np.uint64(8)


@njit(cache=True, nogil=True, fastmath=False)
def curvature_bound(loss, squares):
    """Bound half the eigenvalues of the Hessian of the sum of losses by the weights of one feature.

    With the sum S of the feature's weighted squares half the Hessian is at most ``S`` for the multitask
    squared hinge and ``S / 4`` for the log loss. With sums of squares per label, s_1 and s_2 the largest and
    S their sum, it is at most ``S + (m - 1) s_1 + s_2`` for the squared hinge: for v that adds up to 0 the
    pairs of a set of ``a`` labels bend by at most ``a ||v||² + m sum over p in Y of v_p²``, and for ``a = 1``
    by that.

    Parameters
    ----------
    loss : int
    squares : float64 array of shape (n_classes,)
        Added up for every label with `SQUARED_HINGE`, else once for all of a sample.
    """
    first = second = total = 0.0
    for r in range(squares.shape[0]):
        total += squares[r]
        if squares[r] > first:
            second = first
            first = squares[r]
        else:
            second = max(second, squares[r])
    if loss == SQUARED_HINGE:
        return total + ((squares.shape[0] - 1) * first + second)
    return 0.25 * total if loss == LOG_LOSS else total


@njit(cache=True, nogil=True, fastmath=False)
def hide_labels(scores, i, labels, others):
    """Fill `others` with the scores of a sample, minus infinity at its labels: they have no margins."""
    for r in range(others.shape[0]):
        others[r] = scores[i, r]
    for t in range(labels.shape[1]):
        if labels[i, t] < 0:
            break
        others[labels[i, t]] = -np.inf


@njit(cache=True, nogil=True, fastmath=False)
def sample_odds(scores, i, c, others):
    """Fill `others` with exponentials of a sample's scores, 0 for its label c.

    Returns that of the label, the sum of the others, and the largest score, to which all are relative: the
    sum of all is from 1 to the number of classes.
    """
    width = np.uint64(scores.shape[1])
    at = np.uint64(i) * width
    top = scores[i, c]
    for q in range(width // _EIGHT):
        top = max(top, lanes_largest(scores, at + q * _EIGHT))
    total = scores.dtype.type(0)
    own = top
    for q in range(width // _EIGHT):
        lane = q * _EIGHT
        some = lanes_exp(scores, at + lane, top, others, lane)
        if q == np.uint64(c) // _EIGHT:
            own = others[c]
            others[c] = 0
            some = scores.dtype.type(0)
            for r in range(lane, lane + _EIGHT):
                some += others[r]
        total += some
    return own, total, top


@njit(cache=True, nogil=True, fastmath=False)
def sample_slopes(loss, scores, i, labels, factor, others, slope):
    """Fill `slope` with half the derivative of a sample's loss by its scores, times the factors if any.

    `others` is room of the width of the scores, filled by `hide_labels` or `sample_odds`.
    """
    number = scores.dtype.type
    zero, one = number(0), number(1)
    n_classes = slope.shape[0]
    if loss == LOG_LOSS:
        c = labels[i, 0]
        own, total, _ = sample_odds(scores, i, c, others)
        half = number(0.5) / (own + total)
        for r in range(n_classes):
            slope[r] = others[r] * half
        slope[c] = -total * half
        if factor.shape[0]:
            total = zero
            for r in range(n_classes):
                slope[r] *= factor[c, r] if r != c else zero
                total += slope[r]
            slope[c] = -total
    elif loss == SQUARED_HINGE:
        hide_labels(scores, i, labels, others)
        slope[:] = zero
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = one - scores[i, c]
            total = zero
            for r in range(n_classes):
                margin = max(shift + others[r], zero)
                if factor.shape[0]:
                    margin *= factor[c, r]
                slope[r] += margin
                total += margin
            slope[c] = -total
    else:
        for r in range(n_classes):
            slope[r] = max(one + scores[i, r], zero)
            if factor.shape[0]:  # the same in all rows but the class's own
                slope[r] *= factor[(r + 1) % n_classes, r]
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            slope[c] = -max(one - scores[i, c], zero)
            if factor.shape[0]:
                slope[c] *= factor[c, c]


@njit(cache=True, nogil=True, fastmath=False)
def sample_bends(loss, scores, i, labels, others, slope, bend):
    """Fill `bend` with half the diagonal of the Hessian of a sample's loss, after `sample_slopes`."""
    n_classes = slope.shape[0]
    if loss == LOG_LOSS:
        # half of p (1 - p); slopes are p / 2, and (p - 1) / 2 of the own class
        for r in range(n_classes):
            bend[r] = abs(slope[r]) * (1 - 2 * abs(slope[r]))
    elif loss == SQUARED_HINGE:
        bend[:] = 0
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = scores.dtype.type(1) - scores[i, c]
            count = slope.dtype.type(0)
            for r in range(n_classes):
                active = shift + others[r] > 0
                bend[r] += active
                count += active
            bend[c] = count
    else:
        for r in range(n_classes):
            bend[r] = slope[r] != 0


@njit(cache=True, nogil=True, fastmath=False)
def squares_change(margin, move):
    """Return ``max(margin + move, 0)² - max(margin, 0)²``."""
    before = max(margin, 0.0)
    after = max(margin + move, 0.0)
    return (after - before) * (after + before)


@njit(cache=True, nogil=True, fastmath=False)
def class_sums(loss, scores, labels, weights, slopes, values, curvatures):
    """Add up what the value of the loss and a step of the intercept need, by own and other class.

    Parameters
    ----------
    loss : int
        Code.
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, most labels)
    weights : float64 array of shape (n_samples,), or empty for ones
    slopes, values, curvatures : float64 arrays of shape (n_classes, n_classes)
        Added to, by own class (row) and other class (column). Hinges: the positive margins, their squares,
        and their number; the multitask one has those of labels on the diagonal, and those of a class that is
        no label in the row after its own, since they have no other class. Log loss: the probabilities of
        other classes; the loss, on the diagonal; and the sums of ``p p'`` over all samples.
    """
    n_classes = slopes.shape[0]
    none = np.empty((0, 0), scores.dtype)
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    one = scores.dtype.type(1)
    weight = 1.0
    for i in range(scores.shape[0]):
        if weights.shape[0]:
            weight = weights[i]
        if loss == SQUARED_HINGE:
            hide_labels(scores, i, labels, others)
            for t in range(labels.shape[1]):
                c = labels[i, t]
                if c < 0:
                    break
                shift = one - scores[i, c]
                for r in range(n_classes):
                    margin = np.float64(shift + others[r])
                    if margin > 0:
                        slopes[c, r] += weight * margin
                        values[c, r] += weight * margin * margin
                        curvatures[c, r] += weight
            continue
        sample_slopes(loss, scores, i, labels, none, others, slope)
        if loss == LOG_LOSS:
            c = labels[i, 0]
            for r in range(scores.shape[1]):
                wide[0, r] = scores[i, r]
            own, total, top = sample_odds(wide, 0, c, wide[1])
            values[c, c] += weight * (np.log(own + total) + (top - wide[0, c]))
            for r in range(n_classes):
                slopes[c, r] += weight * 2.0 * slope[r] if r != c else 0.0
            slope[c] += scores.dtype.type(0.5)
            for r in range(n_classes):
                for q in range(n_classes):
                    curvatures[r, q] += 4.0 * weight * slope[r] * slope[q]
            continue
        for r in range(n_classes):
            row = r if slope[r] < 0 else (r + 1) % n_classes
            margin = abs(np.float64(slope[r]))
            slopes[row, r] += weight * margin
            values[row, r] += weight * margin * margin
            curvatures[row, r] += weight * (margin > 0)


@njit(cache=True, nogil=True, fastmath=False)
def entropy(scores, labels, weights, factor, scale):
    """Return the weighted sum of entropies of the probabilities, moved towards the own class.

    The probability of another class is multiplied by ``scale * factor[c, r]``, at most 1 (`factor` without
    rows stands for ones); what is missing goes to the own class. It is the conjugate of the log loss.
    """
    n_classes = factor.shape[1]
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    weight = 1.0
    total = 0.0
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if weights.shape[0]:
            weight = weights[i]
        sample_slopes(LOG_LOSS, scores, i, labels, factor, others, slope)
        own = 1.0 + 2.0 * scale * slope[c]
        here = -own * np.log(own) if own > 0.0 else 0.0
        for r in range(n_classes):
            p = 2.0 * scale * slope[r]
            if r != c and p > 0.0:
                here -= p * np.log(p)
        total += weight * here
    return total
