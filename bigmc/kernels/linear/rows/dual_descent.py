# mypy: ignore-errors
"""Dual coordinate descent for ridge problems with the squared hinge of each class against the rest.

Hsieh, Chang, Lin, Keerthi and Sundararajan, "A dual coordinate descent method for large-scale linear SVM",
ICML 2008, algorithm 1, for all classes of a sample at once: its entries are read once, and the weights of
the classes lie side by side. Every class is a problem of its own, so that classes may be spread over threads
in any way without a change of a bit.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.parallel.products import row_outer, row_product
from bigmc.kernels.linear.parallel.simd import LANES
from bigmc.kernels.prefetch import CACHE_LINE, prefetch

#: Visits after which the place of a sample is needed, and the sample. With 3.2 million samples of 31 entries
#: an epoch takes 3.5 CPU seconds with them, 6.8 without; with 320,000 it takes .33 and .45.
_FAR, _NEAR = np.uint64(8), np.uint64(4)
_EIGHT = np.uint64(LANES)
_ONE = np.uint64(1)
_UNIT = np.float32(1.0)
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)


@kernel
def weigh_entries(indptr, slots, values, column_scale, row_scale, weighted, squares):
    """Set `weighted` to the values times both scales, and `squares` to the squared norms of the rows."""
    for i in range(np.uint64(indptr.shape[0] - 1)):
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])):
            value = np.float32(values[k] * column_scale[slots[k]] * row_scale[i])
            weighted[k] = value
            total += value * value
        squares[i] = total


@kernel
def place_weighted(columns, first, block, scales, free, out):
    """Write the weighted entries of columns of a shard, slots `first` on, behind those its rows have.

    Parameters
    ----------
    columns : int64 array
        Places of the columns among those of the block, increasing.
    first : int
    block : (int64 array, uint16 array, array)
        Offsets of its columns, rows and values.
    scales : two float32 arrays
        Of all slots, and of the rows.
    free : int64 array of shape (n_rows,)
        Place of the next entry of each row; moves on.
    out : (uint32 array, float32 array, float64 array)
        Slots and values of all entries, and the sums of the squares of the rows.
    """
    indptr, rows, data = block
    column_scale, row_scale = scales
    slots, values, squares = out
    for p in range(np.uint64(columns.shape[0])):
        slot = np.uint64(first) + p
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            i = np.uint64(rows[k])
            to = np.uint64(free[i])
            value = np.float32(data[k] * column_scale[slot] * row_scale[i])
            slots[to], values[to] = slot, value
            squares[i] += value * value
            free[i] = to + _ONE


@inner_kernel
def _fetch(order, t, rows, targets, curvature, duals, span):
    """Begin to load what later visits need, in random places: first where a sample is, then all of it."""
    n = np.uint64(order.shape[0])
    if t + _FAR < n:
        i = order[t + _FAR]
        prefetch(rows.indptr, i * 8)
        prefetch(targets, i * targets.strides[0])
        for array in curvature:
            prefetch(array, i * 4)
    if t + _NEAR < n:
        i = order[t + _NEAR]
        for at in range(4 * rows.indptr[i], 4 * rows.indptr[i + 1], CACHE_LINE):
            prefetch(rows.slots, at)
            prefetch(rows.values, at)
        start = i * duals.strides[0]
        for at in range(start + 4 * LANES * span[0], start + 4 * LANES * span[1], CACHE_LINE):
            prefetch(duals, at)


@kernel
def descend_duals(order, span, rows, targets, curvature, pair, totals):
    """Move the dual variables of some classes to their best values, sample after sample.

    Parameters
    ----------
    order : int64 array
        Samples to visit.
    span : (int, int)
        Groups of lanes: the classes worked on are ``8 * span[0]`` to ``8 * span[1]``.
    rows : Rows
        Samples in row order, their values weighted.
    targets : int32 array of shape (n_samples, most labels)
        Classes of each sample, increasing, -1 after the last.
    curvature : three float32 arrays of shape (n_samples,)
        Squared norm of each sample, the constant included; ``n ridge / (2 weight)``; and the part of the
        squared norm that is of features of this sample alone, which are not among the rows.
    pair : (float32 array of shape (n_samples, width), float32 array of shape (n_used + 1, width))
        Dual variables with the sign of the class, positive for labels and negative for the rest; and the
        weights, the sum of samples times these, the intercept last (0 without one). Both are changed.
    totals : float64 array of shape (2, width)
        Are given the sums of the losses, as the samples were when visited, and of the gains of the dual
        objective, both over the ridge and times n.
    """
    constant = rows.constant
    squares, diagonal, alone = curvature
    duals, coef = pair
    first, last = np.uint64(span[0]), np.uint64(span[1])
    n_groups = last - first
    groups, moved = np.empty(n_groups, np.uint64), np.empty(n_groups, np.uint64)
    for q in range(n_groups):
        groups[q] = (first + q) * _EIGHT
    low, high = first * _EIGHT, last * _EIGHT
    score, step = np.zeros(coef.shape[1], np.float32), np.zeros(coef.shape[1], np.float32)
    constants = coef[coef.shape[0] - 1]
    for t in range(order.shape[0]):
        i = np.uint64(order[t])
        _fetch(order, np.uint64(t), rows, targets, curvature, duals, span)
        row_product(rows, i, _UNIT, coef, groups, n_groups, score)
        dual, quadratic, own = duals[i], diagonal[i], alone[i]
        rate, half = _UNIT / (squares[i] + quadratic), _HALF * (squares[i] + quadratic)
        weight = _HALF / quadratic
        for r in range(low, high):
            score[r] += own * dual[r]
            margin = score[r] + _UNIT + quadratic * dual[r]
            loss = max(score[r] + _UNIT, _ZERO)
            change = max(margin * rate, dual[r])
            step[r] = -change
            totals[0, r] += weight * loss * loss
            totals[1, r] += change * (margin - half * change)
        for p in range(targets.shape[1]):
            if targets[i, p] < 0:
                break
            r = np.uint64(targets[i, p])
            if r < low or r >= high:
                continue
            change = -step[r]
            margin = score[r] + _UNIT + quadratic * dual[r]
            loss = max(score[r] + _UNIT, _ZERO)
            totals[0, r] -= weight * loss * loss
            totals[1, r] -= change * (margin - half * change)
            margin = _UNIT - score[r] - quadratic * dual[r]
            loss = max(_UNIT - score[r], _ZERO)
            change = max(margin * rate, -dual[r])
            step[r] = change
            totals[0, r] += weight * loss * loss
            totals[1, r] += change * (margin - half * change)
        n_moved = np.uint64(0)
        for q in range(n_groups):
            some = False
            for r in range(groups[q], groups[q] + _EIGHT):
                some |= step[r] != _ZERO
            if some:
                moved[n_moved] = groups[q]
                n_moved += _ONE
                for r in range(groups[q], groups[q] + _EIGHT):
                    dual[r] += step[r]
                    if constant:
                        constants[r] += step[r]
        if n_moved > np.uint64(0):
            row_outer(rows, i, _UNIT, step, moved, n_moved, coef)


@inner_kernel
def _groups_of(span):
    first = np.uint64(span[0])
    groups = np.empty(span[1] - span[0], np.uint64)
    for q in range(np.uint64(groups.shape[0])):
        groups[q] = (first + q) * _EIGHT
    return groups


@kernel
def score_rows(chosen, span, rows, coef, scores):
    """Set ``scores[t]`` to the scores of sample ``chosen[t]``; other arguments as in `descend_duals`."""
    groups = _groups_of(span)
    for t in range(chosen.shape[0]):
        i = np.uint64(chosen[t])
        row_product(rows, i, _UNIT, coef, groups, np.uint64(groups.shape[0]), scores[t])


@kernel
def add_rows(chosen, span, rows, duals, coef):
    """Add the chosen samples times their `duals` to the weights; arguments as in `descend_duals`."""
    groups = _groups_of(span)
    for t in range(chosen.shape[0]):
        i = np.uint64(chosen[t])
        row_outer(rows, i, _UNIT, duals[i], groups, np.uint64(groups.shape[0]), coef)
