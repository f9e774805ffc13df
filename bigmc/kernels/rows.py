# mypy: ignore-errors
"""Multiclass squared hinge over samples in row order: products with the Hessian, losses along a step.

A row is read once, and what it needs of the direction and adds to the result are rows of two small
matrices that stay in the cache: several times faster for each entry than going column by column.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from bigmc.kernels.squared_hinge import (
    LANES, _accumulate, _lanes_add, _lanes_change, _load, _pointer, _positive, _spread, _sum,
)

_EIGHT = np.uint64(LANES)


@intrinsic
def _lanes_margins(typing, scores, at, shift, margins, to):
    """``margins[to:] = max(shift + scores[at:], 0)``; returns their sum."""
    signature = scores.dtype(scores, at, shift, margins, to)

    def generate(context, builder, signature, arguments):
        scores, at, shift, margins, to = arguments
        kind, _, _, margins_kind, _ = signature.args
        row = _load(builder, _pointer(context, builder, kind, scores, at), kind)
        margin, _ = _positive(builder, builder.fadd(row, _spread(builder, shift)))
        target = _pointer(context, builder, margins_kind, margins, to)
        builder.store(margin, target, align=margins_kind.dtype.bitwidth // 8)
        return _sum(builder, margin)

    return signature, generate


@intrinsic
def _lanes_active(typing, scores, at, shift, moves, own_move, to):
    """``moves[to:] = [shift + scores[at:] > 0] * (moves[to:] - own_move)``; returns their sum."""
    signature = scores.dtype(scores, at, shift, moves, own_move, to)

    def generate(context, builder, signature, arguments):
        scores, at, shift, moves, own_move, to = arguments
        kind, _, _, moves_kind, _, _ = signature.args
        row = _load(builder, _pointer(context, builder, kind, scores, at), kind)
        _, mask = _positive(builder, builder.fadd(row, _spread(builder, shift)))
        target = _pointer(context, builder, moves_kind, moves, to)
        move = builder.fsub(_load(builder, target, moves_kind), _spread(builder, own_move))
        move = builder.select(mask, move, ir.Constant(move.type, [0.0] * LANES))
        builder.store(move, target, align=moves_kind.dtype.bitwidth // 8)
        return _sum(builder, move)

    return signature, generate


@njit(cache=True, nogil=True, fastmath=False)
def count_rows(columns, indptr, indices, counts):
    """Add the number of entries of the given columns of a shard to each row's count."""
    for p in range(columns.shape[0]):
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            counts[np.uint64(indices[k])] += 1


@njit(cache=True, nogil=True, fastmath=False)
def fill_rows(columns, first, indptr, indices, data, free, slots, values):
    """Write the entries of the given columns of a shard behind those its rows have; `free` moves on."""
    for p in range(columns.shape[0]):
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            i = np.uint64(indices[k])
            to = np.uint64(free[i])
            slots[to] = first + p
            values[to] = data[k]
            free[i] = to + np.uint64(1)


@njit(cache=True, nogil=True, fastmath=False)
def _move(start, stop, slots, values, scale, direction, move):
    """Fill `move` with the product of one sample and the direction."""
    width = np.uint64(move.shape[0])
    move[:] = 0
    for k in range(start, stop):
        at = np.uint64(slots[k]) * width
        value = scale * values[k]
        for q in range(width // _EIGHT):
            _lanes_add(move, q * _EIGHT, value, direction, at + q * _EIGHT)


@njit(cache=True, nogil=True, fastmath=False)
def _spread_out(start, stop, slots, values, factor, slope, out):
    """Add the outer product of one sample and `slope` to `out`."""
    width = np.uint64(slope.shape[0])
    for k in range(start, stop):
        at = np.uint64(slots[k]) * width
        value = factor * values[k]
        for q in range(width // _EIGHT):
            _lanes_add(out, at + q * _EIGHT, value, slope, q * _EIGHT)


@njit(cache=True, nogil=True, fastmath=False)
def gradient_rows(first, last, indptr, slots, values, scores, labels, row_scale, gain, out, curvature):
    """Add the gradient (5) and the diagonal of the Hessian (6) of some rows, both without ``2 / n``."""
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    margins = np.empty(scores.shape[1], scores.dtype)
    active = np.empty(scores.shape[1], scores.dtype)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])
        if start == stop:
            continue
        c = np.uint64(labels[i])
        shift = number(1) - scores[i, c]
        total = number(0)
        for q in range(width // _EIGHT):
            total += _lanes_margins(scores, i * width + q * _EIGHT, shift, margins, q * _EIGHT)
        margins[c] = number(1) - total
        count = number(0)
        for r in range(active.shape[0]):
            active[r] = number(1) if margins[r] > 0 else number(0)
        active[c] = number(0)
        for r in range(active.shape[0]):
            count += active[r]
        active[c] = count
        _spread_out(start, stop, slots, values, gain[i], margins, out)
        square = gain[i] * row_scale[i]
        for k in range(start, stop):
            at = np.uint64(slots[k]) * width
            value = square * values[k] * values[k]
            for q in range(width // _EIGHT):
                _lanes_add(curvature, at + q * _EIGHT, value, active, q * _EIGHT)


@njit(cache=True, nogil=True, fastmath=False)
def active_groups(first, last, scores, labels, active):
    """Set the bits of the groups of lanes in which a row has a positive margin, its own class aside."""
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    margins = np.empty(LANES, scores.dtype)
    for i in range(np.uint64(first), np.uint64(last)):
        c = np.uint64(labels[i])
        shift = number(1) - scores[i, c]
        found = np.uint64(0)
        for q in range(width // _EIGHT):
            total = _lanes_margins(scores, i * width + q * _EIGHT, shift, margins, np.uint64(0))
            if q == c // _EIGHT:
                total -= number(1)
                margins[c % _EIGHT] = number(0)
                total = number(0)
                for r in range(LANES):
                    total += margins[r]
            if total > 0:
                found |= np.uint64(1) << min(q, np.uint64(63))
        if found:
            found |= np.uint64(1) << min(c // _EIGHT, np.uint64(63))
        active[i] = found


@njit(cache=True, nogil=True, fastmath=False)
def hessian_rows(
    first, last, indptr, slots, values, scores, labels, row_scale, gain, active, direction, out
):
    """Add the product of the Hessian of some rows, without ``2 / n``, and the direction."""
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    n_groups = width // _EIGHT
    move = np.empty(scores.shape[1], scores.dtype)
    lanes = np.empty(n_groups, np.uint64)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])
        if start == stop or active[i] == 0:
            continue
        used = np.uint64(0)
        for q in range(n_groups):
            lanes[used] = q * _EIGHT
            used += (active[i] >> min(q, np.uint64(63))) & np.uint64(1)
        c = np.uint64(labels[i])
        shift = number(1) - scores[i, c]
        for u in range(used):
            for r in range(lanes[u], lanes[u] + _EIGHT):
                move[r] = 0
        for k in range(start, stop):
            at = np.uint64(slots[k]) * width
            value = row_scale[i] * values[k]
            for u in range(used):
                _lanes_add(move, lanes[u], value, direction, at + lanes[u])
        own = move[c]
        total = number(0)
        for u in range(used):
            total += _lanes_active(scores, i * width + lanes[u], shift, move, own, lanes[u])
        move[c] = -total
        for k in range(start, stop):
            at = np.uint64(slots[k]) * width
            value = gain[i] * values[k]
            for u in range(used):
                _lanes_add(out, at + lanes[u], value, move, lanes[u])


@njit(cache=True, nogil=True, fastmath=False)
def losses_along(
    first, last, indptr, slots, values, scores, labels, row_scale, gain, direction, parts, changes
):
    """Add the change of the losses of some rows for each of several step lengths."""
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    move = np.empty(scores.shape[1], scores.dtype)
    wide = np.empty(scores.shape[1], np.float64)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])
        if start == stop or row_scale[i] == 0:
            continue
        c = np.uint64(labels[i])
        shift = number(1) - scores[i, c]
        _move(start, stop, slots, values, row_scale[i], direction, move)
        wide[:] = move
        weight = np.float64(gain[i] / row_scale[i])
        for p in range(parts.shape[0]):
            total = 0.0
            for q in range(width // _EIGHT):
                total += _lanes_change(
                    scores, i * width + q * _EIGHT, shift, parts[p], wide, q * _EIGHT, wide[c]
                )
            changes[p] += weight * total


@njit(cache=True, nogil=True, fastmath=False)
def move_rows(first, last, indptr, slots, values, scores, row_scale, direction, part):
    """Add the step to the scores of some rows."""
    width = np.uint64(scores.shape[1])
    move = np.empty(scores.shape[1], scores.dtype)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])
        if start == stop:
            continue
        _move(start, stop, slots, values, row_scale[i], direction, move)
        for q in range(width // _EIGHT):
            _lanes_add(scores, i * width + q * _EIGHT, part, move, q * _EIGHT)
