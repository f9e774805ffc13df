# mypy: ignore-errors
"""Losses by columns: derivatives by the weights of one feature, and what a step of them changes.

The codes of losses are those of `bigmc.kernels.linear.losses`, the arrays of a block those of
`bigmc.store.block.Block`. Sums are float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

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


@njit(cache=True, nogil=True, fastmath=False)
def _hinge_gradient(loss, j, indptr, indices, data, base, scores, labels, gain, wide, sums):
    """`column_gradient` of the hinge losses, by vector instructions.

    All classes are taken for others, and the own ones are put right afterwards. `wide` is room for two rows
    of the width of the scores.
    """
    number = scores.dtype.type
    zero, one = number(0), number(1)
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    most = labels.shape[1]
    others, own = wide[0], wide[1]
    wide[:] = 0.0
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
    for r in range(sums.shape[0]):
        sums[r] = others[r] - own[r]


@njit(cache=True, nogil=True, fastmath=False)
def column_gradient(
    loss, j, indptr, indices, data, base, scores, labels, gain, factor, others, slope, wide, sums
):
    """Fill `sums` so that the gradient of the losses is ``2 / n * sums``."""
    if loss != LOG_LOSS and factor.shape[0] == 0:
        _hinge_gradient(loss, j, indptr, indices, data, base, scores, labels, gain, wide, sums)
        return
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
def _hinge_curvature(loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, wide, sums):
    """`_hinge_gradient`; the third of the three rows of `wide` gets half the diagonal of the Hessian."""
    number = scores.dtype.type
    zero, one = number(0), number(1)
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    most = labels.shape[1]
    others, own, bends = wide[0], wide[1], wide[2]
    wide[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            if loss == MULTITASK_SQUARED_HINGE:
                for q in range(groups):
                    lane = q * _EIGHT
                    lanes_curvature(scores, i * width + lane, one, value, square, others, lane, bends, lane)
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
                        scores, i * width + lane, shift, value, square, others, lane, bends, lane
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
    for r in range(sums.shape[0]):
        sums[r] = others[r] - own[r]


@njit(cache=True, nogil=True, fastmath=False)
def column_curvature(
    loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, factor, others, slope, bend, sums,
    diagonal, squares, hessian,
):  # fmt: skip
    """`column_gradient`, squares of each class, the Hessian's diagonal, and all of it where it has a size.

    The squares of `SQUARED_HINGE` are added up for every label; those of the other losses once.
    """
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
def column_loss_change(loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, others, step):
    """Return the change of the sum of weighted losses when ``row_scale * data * step`` joins the scores.

    The step has the width of the scores.
    """
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
def add_column_step(j, indptr, indices, data, base, scores, row_scale, step):
    """Add ``row_scale * data * step`` to the scores of the column's samples."""
    number = scores.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * row_scale[i]
            for r in range(step.shape[0]):
                scores[i, r] += value * step[r]


@njit(cache=True, nogil=True, fastmath=False)
def add_gradients(
    loss, places, indptr, indices, data, base, scores, labels, row_scale, gain, n_classes, gradients,
    curvatures, largest=False,
):  # fmt: skip
    """Add half the gradient of the sum of losses, equation (5), of each column, and its mean curvature (6).

    Parameters
    ----------
    loss : int
        Code.
    places : int64 array of shape (columns of the block,)
        Row of the sums of each column, -1 where it is not wanted.
    indptr, indices, data, base, scores, labels, row_scale, gain, n_classes
        As in `bigmc.kernels.linear.squared_hinge.sweep`; nothing is multiplied by the scale of the columns.
    gradients : float64 array of shape (n_sums, width)
    curvatures : float64 array of shape (n_sums,)
        Half the diagonal of the Hessian, its mean over the classes.
    largest : bool, optional
        Add the largest of the diagonal instead of its mean.
    """
    none = np.empty((0, 0), scores.dtype)
    no_hessian = np.empty((0, 0), np.float64)
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    bend = np.empty(n_classes, scores.dtype)
    wide = np.empty((3, scores.shape[1]), np.float64)
    room = np.empty((3, n_classes), np.float64)
    sums, diagonal, squares = room
    for j in range(places.shape[0]):
        place = places[j]
        if place < 0:
            continue
        if loss == LOG_LOSS:
            column_curvature(
                loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, none, others, slope,
                bend, sums, diagonal, squares, no_hessian,
            )  # fmt: skip
        else:
            _hinge_curvature(
                loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, wide, sums
            )
            diagonal[:] = wide[2, :n_classes]
        for r in range(n_classes):
            gradients[place, r] += sums[r]
        curvatures[place] += diagonal.max() if largest else diagonal.sum() / n_classes


@njit(cache=True, nogil=True, fastmath=False)
def largest_curvatures(
    loss, order, columns, indptr, indices, data, base, labels, row_scale, gain, column_scale, n_classes,
    two_over_n, bounds,
):  # fmt: skip
    """Bound the eigenvalues of the Hessian of the losses along columns, at any weights.

    Parameters
    ----------
    loss : int
        Code.
    order, columns, indptr, indices, data, base, labels, row_scale, gain, column_scale, n_classes, two_over_n
        As in `bigmc.kernels.linear.squared_hinge.sweep`.
    bounds : float64 array of shape (n_columns,)
        Filled at the positions of `order`, see `bigmc.kernels.linear.losses.curvature_bound`.
    """
    squares = np.empty(n_classes, np.float64)
    for p in order:
        j = columns[p]
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
        bounds[p] = two_over_n * column_scale[p] ** 2 * curvature_bound(loss, squares)
