# mypy: ignore-errors
"""Losses by columns: derivatives by the weights of one feature, and what a step of them changes.

The codes of losses are those of `bigmc.kernels.linear.losses`, the arrays of a block those of
`bigmc.store.block.Block`. Sums are float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bigmc.kernels.linear.exponentials import LARGEST_FALL, lanes_growth
from bigmc.kernels.linear.losses import (
    LOG_LOSS,
    MULTITASK_SQUARED_HINGE,
    SQUARED_HINGE,
    curvature_bound,
    hide_labels,
    sample_bends,
    sample_odds,
    sample_slopes,
    squares_change,
)
from bigmc.kernels.linear.simd import lanes_curvature, lanes_gradient

_EIGHT = np.uint64(8)


class ColumnWork(NamedTuple):
    """What the derivatives by one column are computed in.

    Attributes
    ----------
    others : array of shape (width,)
        Scores or odds of a sample, in the precision of the scores.
    slope, bend : arrays of shape (n_classes,)
        Half the derivatives of a sample's loss, in the precision of the scores.
    wide : float64 array of shape (3, width)
        Sums over all classes, pads among them.
    sums, diagonal, squares : float64 arrays of shape (n_classes,)
        Half the gradient, half the diagonal of the Hessian, and the weighted squares of the column.
    """

    others: NDArray[Any]
    slope: NDArray[Any]
    bend: NDArray[Any]
    wide: NDArray[np.float64]
    sums: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    squares: NDArray[np.float64]


@njit(cache=True, nogil=True, fastmath=False)
def column_work(scores, n_classes):
    """Return room for the derivatives by one column."""
    width = scores.shape[1]
    slope = np.empty((2, n_classes), scores.dtype)
    sums = np.empty((3, n_classes), np.float64)
    return ColumnWork(
        np.empty(width, scores.dtype),
        slope[0],
        slope[1],
        np.empty((3, width), np.float64),
        sums[0],
        sums[1],
        sums[2],
    )


@njit(cache=True, nogil=True, fastmath=False)
def _hinge_gradient(loss, j, entries, samples, work):
    """`column_gradient` of the hinge losses, by vector instructions.

    All classes are taken for others, and the own ones are put right afterwards.
    """
    indptr, indices, data, base = entries
    scores, labels, _, _, gain = samples
    number = scores.dtype.type
    zero, one = number(0), number(1)
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    most = labels.shape[1]
    others, own = work.wide[0], work.wide[1]
    others[:] = 0.0
    own[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            if loss == MULTITASK_SQUARED_HINGE:
                for q in range(groups):
                    lanes_gradient(scores, i * width + q * _EIGHT, one, value, others, q * _EIGHT)
            for t in range(most):
                c = labels[i, t]
                if c < 0:
                    break
                score = scores[i, c]
                if loss == MULTITASK_SQUARED_HINGE:
                    own[c] += value * (max(one + score, zero) + max(one - score, zero))
                    continue
                shift = one - score
                total = zero
                for q in range(groups):
                    lane = q * _EIGHT
                    total += lanes_gradient(scores, i * width + lane, shift, value, others, lane)
                for u in range(most):  # a label with itself goes into both sums
                    q = labels[i, u]
                    if q < 0:
                        break
                    if u != t:
                        margin = max(shift + scores[i, q], zero)
                        others[q] -= value * margin
                        total -= margin
                own[c] += value * total
    for r in range(work.sums.shape[0]):
        work.sums[r] = others[r] - own[r]


@njit(cache=True, nogil=True, fastmath=False)
def column_gradient(loss, j, entries, samples, factor, work):
    """Fill the work's sums so that the gradient of the losses by column j is ``2 / n * sums``."""
    if loss != LOG_LOSS and factor.shape[0] == 0:
        _hinge_gradient(loss, j, entries, samples, work)
        return
    indptr, indices, data, base = entries
    scores, labels, _, _, gain = samples
    others, slope, sums = work.others, work.slope, work.sums
    number = scores.dtype.type
    sums[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            sample_slopes(loss, scores, i, labels, factor, others, slope)
            value = number(data[k]) * gain[i]
            for r in range(slope.shape[0]):
                sums[r] += value * slope[r]


@njit(cache=True, nogil=True, fastmath=False)
def _hinge_curvature(loss, j, entries, samples, work):
    """`_hinge_gradient`, and half the diagonal of the Hessian."""
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    number = scores.dtype.type
    zero, one = number(0), number(1)
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    most = labels.shape[1]
    others, own, bends = work.wide[0], work.wide[1], work.wide[2]
    work.wide[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            if loss == MULTITASK_SQUARED_HINGE:
                for q in range(groups):
                    lane = q * _EIGHT
                    lanes_curvature(
                        scores, others, bends, (i * width + lane, lane, lane), one, (value, square)
                    )
            for t in range(most):
                c = labels[i, t]
                if c < 0:
                    break
                score = scores[i, c]
                if loss == MULTITASK_SQUARED_HINGE:
                    own[c] += value * (max(one + score, zero) + max(one - score, zero))
                    bends[c] += square * (number(score < one) - number(score > -one))
                    continue
                shift = one - score
                total = active = zero
                for q in range(groups):
                    lane = q * _EIGHT
                    margins, count = lanes_curvature(
                        scores, others, bends, (i * width + lane, lane, lane), shift, (value, square)
                    )
                    total += margins
                    active += count  # an active margin bends the own class too
                active -= number(2)  # the own class itself, in its lane and in the count
                for u in range(most):  # a label with itself goes into both sums
                    q = labels[i, u]
                    if q < 0:
                        break
                    if u != t:
                        margin = max(shift + scores[i, q], zero)
                        others[q] -= value * margin
                        total -= margin
                        bends[q] -= square * number(margin > zero)
                        active -= number(margin > zero)
                own[c] += value * total
                bends[c] += square * active
    for r in range(work.sums.shape[0]):
        work.sums[r] = others[r] - own[r]
        work.diagonal[r] = bends[r]


@njit(cache=True, nogil=True, fastmath=False)
def column_curvature(loss, j, entries, samples, factor, work, hessian):
    """`column_gradient`, squares of each class, the Hessian's diagonal, and all of it where it has a size.

    They go to the work. The squares of `SQUARED_HINGE` are added up for every label; those of the other
    losses once.
    """
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    others, slope, bend, _, sums, diagonal, squares = work
    number = scores.dtype.type
    sums[:] = 0.0
    diagonal[:] = 0.0
    squares[:] = 0.0
    hessian[:] = 0.0
    n_classes = slope.shape[0]
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            sample_slopes(loss, scores, i, labels, factor, others, slope)
            sample_bends(loss, scores, i, labels, others, slope, bend)
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            for r in range(n_classes):
                sums[r] += value * slope[r]
                diagonal[r] += square * bend[r]
            if loss != SQUARED_HINGE:
                squares[0] += square
            for t in range(labels.shape[1] if loss == SQUARED_HINGE else 0):
                c = labels[i, t]
                if c < 0:
                    break
                squares[c] += square
                shift = number(1) - scores[i, c]
                for r in range(hessian.shape[0]):
                    hessian[c, r] -= square * (shift + others[r] > 0)
            if loss == LOG_LOSS and hessian.shape[0]:  # minus half of p p', without its diagonal
                slope[labels[i, 0]] += number(0.5)
                for r in range(n_classes):
                    part = 2 * square * slope[r]
                    for q in range(r):
                        hessian[r, q] -= part * slope[q]
    for r in range(hessian.shape[0]):
        for q in range(r):
            hessian[r, q] += hessian[q, r]
            hessian[q, r] = hessian[r, q]
        hessian[r, r] = diagonal[r]


@njit(cache=True, nogil=True, fastmath=False)
def column_loss_change(loss, j, entries, samples, others, step):
    """Return the change of the sum of weighted losses when ``row_scale * data * step`` joins the scores.

    The step, and `others`, which is overwritten, have the width of the scores.
    """
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    number = scores.dtype.type
    n_classes = step.shape[0]
    change = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            if row_scale[i] == 0:
                continue
            value = np.float64(number(data[k]) * row_scale[i])
            total = 0.0
            if loss == LOG_LOSS:
                # log(sum p exp(d)), with differences to the own class
                c = labels[i, 0]
                own, rest, _ = sample_odds(scores, i, c, others)
                for q in range(np.uint64(n_classes) // _EIGHT):
                    total += lanes_growth(others, q * _EIGHT, value, step, q * _EIGHT, step[c])
                total /= own + rest
                if total < LARGEST_FALL:  # where the probability of the label is lost in rounding
                    total = LARGEST_FALL
                total = np.log1p(total)
            elif loss == SQUARED_HINGE:
                hide_labels(scores, i, labels, others)
                for t in range(labels.shape[1]):
                    c = labels[i, t]
                    if c < 0:
                        break
                    shift = 1.0 - scores[i, c]
                    for r in range(n_classes):
                        total += squares_change(shift + others[r], value * (step[r] - step[c]))
            else:
                for r in range(n_classes):
                    total += squares_change(1.0 + scores[i, r], value * step[r])
                for t in range(labels.shape[1]):
                    c = labels[i, t]
                    if c < 0:
                        break
                    total -= squares_change(1.0 + scores[i, c], value * step[c])
                    total += squares_change(1.0 - scores[i, c], -value * step[c])
            change += total * (gain[i] / row_scale[i])
    return change


@njit(cache=True, nogil=True, fastmath=False)
def add_column_step(j, entries, samples, step):
    """Add ``row_scale * data * step`` to the scores of the column's samples."""
    indptr, indices, data, base = entries
    scores, row_scale = samples.scores, samples.row_scale
    number = scores.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * row_scale[i]
            for r in range(step.shape[0]):
                scores[i, r] += value * step[r]


@njit(cache=True, nogil=True, fastmath=False)
def add_gradients(loss, places, entries, samples, n_classes, sums, largest):
    """Add half the gradient of the sum of losses, equation (5), of each column, and its curvature (6).

    Nothing is multiplied by the scale of the columns.

    Parameters
    ----------
    loss : int
        Code.
    places : int64 array of shape (columns of the block,)
        Row of the sums of each column, -1 where it is not wanted.
    entries : Entries
    samples : Samples
    n_classes : int
    sums : GradientSums
    largest : bool
        Of the diagonal of the Hessian the largest element counts instead of the mean.
    """
    none = np.empty((0, 0), samples.scores.dtype)
    no_hessian = np.empty((0, 0), np.float64)
    work = column_work(samples.scores, n_classes)
    for j in range(places.shape[0]):
        place = places[j]
        if place < 0:
            continue
        if loss == LOG_LOSS:
            column_curvature(loss, j, entries, samples, none, work, no_hessian)
        else:
            _hinge_curvature(loss, j, entries, samples, work)
        for r in range(n_classes):
            sums.gradients[place, r] += work.sums[r]
        sums.curvatures[place] += work.diagonal.max() if largest else work.diagonal.sum() / n_classes


@njit(cache=True, nogil=True, fastmath=False)
def largest_curvatures(loss, columns, samples, n_classes, two_over_n, bounds):
    """Bound the eigenvalues of the Hessian of the losses along columns, at any weights.

    Parameters
    ----------
    loss : int
        Code.
    columns : Columns
    samples : Samples
        Their scores are not looked at.
    n_classes : int
    two_over_n : float
        Factor of the gradient.
    bounds : float64 array of shape (n_columns,)
        Filled at the positions of the order, see `bigmc.kernels.linear.losses.curvature_bound`.
    """
    indptr, indices, data, base = columns.entries
    _, labels, _, row_scale, gain = samples
    squares = np.empty(n_classes, np.float64)
    for p in columns.order:
        j = columns.positions[p]
        squares[:] = 0.0
        for s in range(indptr.shape[0]):
            first = np.uint64(base[s])
            for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
                i = first + np.uint64(indices[k])
                square = np.float64(data[k]) ** 2 * (np.float64(row_scale[i]) * np.float64(gain[i]))
                if loss != SQUARED_HINGE:
                    squares[0] += square
                    continue
                for t in range(labels.shape[1]):
                    c = labels[i, t]
                    if c < 0:
                        break
                    squares[c] += square
        bounds[p] = two_over_n * columns.scale[p] ** 2 * curvature_bound(loss, squares)
