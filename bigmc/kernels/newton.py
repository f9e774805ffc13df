# mypy: ignore-errors
"""Newton steps of the multiclass squared hinge over samples in row order.

The loss of Blondel, Seki, Uehara (2013), equation (2), is piecewise quadratic. With the margins
``m_ir = 1 - s_iy + s_ir`` and ``t = D'x_i`` for a direction D of the weights, its Hessian takes D to the sum
over the samples of

    2 / n  x_i u_i',   u_ir = [m_ir > 0] (t_r - t_y) for r != y,   u_iy = -sum over r != y of u_ir

A row is read once; what it needs of the direction, and adds to the result, are rows of two matrices small
enough for the cache, so that an entry costs a fraction of what it costs going column by column. Rows
without a positive margin are passed over, and so are groups of classes without one: near the optimum that
is most of the work.

A sample's features are `slots`: places among the features worked on. The factors of the columns are not
applied here: the caller scales directions and results.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.lanes import (
    LANES,
    lanes_active,
    lanes_add,
    lanes_change,
    lanes_margins,
    outer_of,
    product_of,
)  # fmt: skip

_EIGHT = np.uint64(LANES)
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
#: The last bit of a row's mask stands for all the groups from there on.
_LAST_BIT = np.uint64(63)

_product1, _product2, _product4 = product_of(1), product_of(2), product_of(4)
_outer1, _outer2, _outer4 = outer_of(1), outer_of(2), outer_of(4)
_square1, _square2, _square4 = outer_of(1, square=True), outer_of(2, square=True), outer_of(4, square=True)


@njit(cache=True, nogil=True, fastmath=False)
def count_entries(columns, indptr, indices, counts):
    """Add the number of entries of the given columns of a shard to each row's count."""
    for p in range(columns.shape[0]):
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            counts[np.uint64(indices[k])] += 1


@njit(cache=True, nogil=True, fastmath=False)
def place_entries(columns, first, indptr, indices, data, free, slots, values):
    """Write the entries of the given columns of a shard, slots `first` on, behind those its rows have.

    ``free`` is the place of the next entry of each row and moves on.
    """
    for p in range(columns.shape[0]):
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            i = np.uint64(indices[k])
            to = np.uint64(free[i])
            slots[to] = first + p
            values[to] = data[k]
            free[i] = to + _ONE


@njit(cache=True, nogil=True, fastmath=False)
def _product(slots, values, start, stop, scale, matrix, groups, used, width, into):
    u = np.uint64(0)
    while u + _FOUR <= used:
        _product4(slots, values, start, stop, scale, matrix, groups, u, width, into)
        u += _FOUR
    if u + _TWO <= used:
        _product2(slots, values, start, stop, scale, matrix, groups, u, width, into)
        u += _TWO
    if u < used:
        _product1(slots, values, start, stop, scale, matrix, groups, u, width, into)


@njit(cache=True, nogil=True, fastmath=False)
def _outer(slots, values, start, stop, scale, slope, groups, used, width, out):
    u = np.uint64(0)
    while u + _FOUR <= used:
        _outer4(slots, values, start, stop, scale, slope, groups, u, width, out)
        u += _FOUR
    if u + _TWO <= used:
        _outer2(slots, values, start, stop, scale, slope, groups, u, width, out)
        u += _TWO
    if u < used:
        _outer1(slots, values, start, stop, scale, slope, groups, u, width, out)


@njit(cache=True, nogil=True, fastmath=False)
def _outer_square(slots, values, start, stop, scale, slope, groups, used, width, out):
    u = np.uint64(0)
    while u + _FOUR <= used:
        _square4(slots, values, start, stop, scale, slope, groups, u, width, out)
        u += _FOUR
    if u + _TWO <= used:
        _square2(slots, values, start, stop, scale, slope, groups, u, width, out)
        u += _TWO
    if u < used:
        _square1(slots, values, start, stop, scale, slope, groups, u, width, out)


@njit(cache=True, nogil=True, fastmath=False)
def _groups_of(mask, n_groups, groups):
    """List the groups of lanes whose bits are set; returns how many."""
    used = np.uint64(0)
    for q in range(n_groups):
        groups[used] = q * _EIGHT
        used += (mask >> min(q, _LAST_BIT)) & _ONE
    return used


@njit(cache=True, nogil=True, fastmath=False)
def gradient_rows(
    first, last, indptr, slots, values, scores, labels, row_scale, gain, active, out, curvature
):
    """Add the gradient (5) and the diagonal of the Hessian of rows `first` to `last`, without ``2 / n``.

    Parameters
    ----------
    first, last : int
    indptr, slots, values
        The samples in row order.
    scores : float array of shape (n_samples, width)
    labels : int32 array of shape (n_samples,)
    row_scale, gain : arrays of shape (n_samples,)
        Scale of each row, and the same times its weight.
    active : uint64 array of shape (n_samples,)
        Filled: a bit for every group of classes with a positive margin and for the own class, 0 if no
        margin is positive.
    out, curvature : arrays of shape (n_slots, width)
        Added to.
    """
    width = np.uint64(scores.shape[1])
    n_groups = width // _EIGHT
    number = scores.dtype.type
    margins = np.empty(scores.shape[1], scores.dtype)
    positive = np.empty(scores.shape[1], scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        c = np.uint64(labels[i])
        own = c // _EIGHT
        shift = number(1) - scores[i, c]
        mask = np.uint64(0)
        total = number(0)
        for q in range(n_groups):
            at = q * _EIGHT
            some = lanes_margins(scores, i * width + at, shift, margins, at)
            if q == own:
                margins[c] = number(0)
                some = number(0)
                for r in range(at, at + _EIGHT):
                    some += margins[r]
            if some > 0:
                mask |= _ONE << min(q, _LAST_BIT)
                total += some
        if mask == 0:
            active[i] = 0
            continue
        mask |= _ONE << min(own, _LAST_BIT)
        active[i] = mask
        if start == stop:
            continue
        used = _groups_of(mask, n_groups, groups)
        count = number(0)
        for u in range(used):
            for r in range(groups[u], groups[u] + _EIGHT):
                positive[r] = number(1) if margins[r] > 0 else number(0)
                count += positive[r]
        margins[c] = -total
        positive[c] = count
        _outer(slots, values, start, stop, gain[i], margins, groups, used, width, out)
        square = gain[i] * row_scale[i]
        _outer_square(slots, values, start, stop, square, positive, groups, used, width, curvature)


@njit(cache=True, nogil=True, fastmath=False)
def hessian_rows(
    first, last, indptr, slots, values, scores, labels, row_scale, gain, active, direction, out
):  # fmt: skip
    """Add the product of the Hessian of rows `first` to `last`, without ``2 / n``, and a direction.

    Parameters as for `gradient_rows`, which has filled `active`; `direction` and `out` have the shape
    (n_slots, width).
    """
    width = np.uint64(scores.shape[1])
    n_groups = width // _EIGHT
    number = scores.dtype.type
    move = np.empty(scores.shape[1], scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if start == stop or active[i] == 0:
            continue
        used = _groups_of(active[i], n_groups, groups)
        c = np.uint64(labels[i])
        shift = number(1) - scores[i, c]
        _product(slots, values, start, stop, row_scale[i], direction, groups, used, width, move)
        own = move[c]
        total = number(0)
        for u in range(used):
            at = groups[u]
            total += lanes_active(scores, i * width + at, shift, move, own, at)
        move[c] = -total
        _outer(slots, values, start, stop, gain[i], move, groups, used, width, out)


@njit(cache=True, nogil=True, fastmath=False)
def losses_along(
    first, last, indptr, slots, values, scores, labels, row_scale, gain, direction, part
):  # fmt: skip
    """Return the change of the losses of rows `first` to `last` for the step ``part * direction``."""
    width = np.uint64(scores.shape[1])
    n_groups = width // _EIGHT
    number = scores.dtype.type
    move = np.empty(scores.shape[1], scores.dtype)
    wide = np.empty(scores.shape[1], np.float64)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = _groups_of(~np.uint64(0), n_groups, groups)
    change = 0.0
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if start == stop or row_scale[i] == 0:
            continue
        c = np.uint64(labels[i])
        shift = number(1) - scores[i, c]
        _product(slots, values, start, stop, row_scale[i], direction, groups, used, width, move)
        wide[:] = move
        total = 0.0
        for u in range(used):
            at = groups[u]
            total += lanes_change(scores, i * width + at, shift, part, wide, at, wide[c])
        change += np.float64(gain[i] / row_scale[i]) * total
    return change


@njit(cache=True, nogil=True, fastmath=False)
def move_rows(first, last, indptr, slots, values, scores, row_scale, direction, part):
    """Add the scores of the step ``part * direction`` to those of rows `first` to `last`."""
    width = np.uint64(scores.shape[1])
    n_groups = width // _EIGHT
    move = np.empty(scores.shape[1], scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = _groups_of(~np.uint64(0), n_groups, groups)
    for i in range(np.uint64(first), np.uint64(last)):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if start == stop:
            continue
        _product(slots, values, start, stop, row_scale[i], direction, groups, used, width, move)
        for u in range(used):
            lanes_add(scores, i * width + groups[u], part, move, groups[u])


@njit(cache=True, nogil=True, fastmath=False)
def add_penalty_curvature(direction, unit, bend, ridge, factor, product):
    """Complete a product with the Hessian, and return the curvature along the direction.

    ``product = factor * product + (bend (I - unit unit') + ridge I) direction`` row by row: the Hessian of
    the norm of a non-zero row w is ``(I - w w' / |w|²) / |w|``, and ``bend = alpha / |w|``.
    """
    curve = 0.0
    for j in range(direction.shape[0]):
        along = 0.0
        for r in range(direction.shape[1]):
            along += unit[j, r] * direction[j, r]
        for r in range(direction.shape[1]):
            across = bend[j] * (direction[j, r] - along * unit[j, r]) + ridge * direction[j, r]
            product[j, r] = factor[j] * product[j, r] + across
            curve += product[j, r] * direction[j, r]
    return curve


@njit(cache=True, nogil=True, fastmath=False)
def descend(step, direction, product, precondition, solution, residual):
    """Take a step of conjugate gradients; returns the squared preconditioned norm of the residual."""
    norm = 0.0
    for j in range(direction.shape[0]):
        for r in range(direction.shape[1]):
            solution[j, r] += step * direction[j, r]
            residual[j, r] -= step * product[j, r]
            norm += precondition[j, r] * residual[j, r] * residual[j, r]
    return norm


@njit(cache=True, nogil=True, fastmath=False)
def turn(ratio, residual, precondition, scale, direction, scaled):
    """Set the next direction of conjugate gradients, and its copy times the scale of the columns."""
    for j in range(direction.shape[0]):
        for r in range(direction.shape[1]):
            direction[j, r] = precondition[j, r] * residual[j, r] + ratio * direction[j, r]
            scaled[j, r] = scale[j] * direction[j, r]
