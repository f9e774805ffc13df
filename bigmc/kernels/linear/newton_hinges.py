# mypy: ignore-errors
"""Newton steps of the squared hinges over samples in row order, with one label each.

The loss of Blondel, Seki, Uehara (2013), equation (2), is piecewise quadratic. With the margins
``m_ir = 1 - s_iy + s_ir`` and ``t = D'x_i`` for a direction D of the weights, its Hessian takes D to the sum
over the samples of

    2 / n  x_i u_i',   u_ir = [m_ir > 0] (t_r - t_y) for r != y,   u_iy = -sum over r != y of u_ir

Rows without a positive margin are passed over, and so are groups of classes without one: near the optimum
that is most of the work.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.products import (
    EVERY_GROUP,
    LAST_BIT,
    add_groups,
    groups_of,
    row_outer,
    row_outer_square,
    row_product,
)
from bigmc.kernels.linear.simd import LANES, lanes_active, lanes_change, lanes_margins

_EIGHT = np.uint64(LANES)
_ONE = np.uint64(1)


@njit(cache=True, nogil=True, fastmath=False)
def gradient_rows(tasks, span, rows, samples, active, out, curvature):
    """Add the gradient (5) and the diagonal of the Hessian of the rows of a span, without ``2 / n``.

    Parameters
    ----------
    tasks : bool
        Of the multitask squared hinge, equation (13), instead of the multiclass one.
    span : tuple of int
        First of these rows, and the one after the last.
    rows : Rows
    samples : Samples
        With one label each.
    active : uint64 array of shape (n_samples,)
        Filled: a bit for every group of classes with a positive margin and for the own class, 0 if no
        margin is positive.
    out, curvature : arrays of shape (n_slots, width)
        Added to.
    """
    indptr, constant = rows.indptr, rows.constant
    scores, labels, weights, row_scale, gain = samples
    width = np.uint64(scores.shape[1])
    size = out.shape[0] - 1  # row of the intercept
    n_groups = width // _EIGHT
    number = scores.dtype.type
    margins = np.empty(scores.shape[1], scores.dtype)
    positive = np.empty(scores.shape[1], scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        c = np.uint64(labels[i, 0])
        own = c // _EIGHT
        behind = number(1) - scores[i, c]
        shift = number(1) if tasks else behind
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
                mask |= _ONE << min(q, LAST_BIT)
                total += some
        if mask == 0 and not (tasks and behind > 0):
            active[i] = 0
            continue
        mask |= _ONE << min(own, LAST_BIT)
        active[i] = mask
        if start == stop and not constant:
            continue
        used = groups_of(mask, n_groups, groups)
        count = number(0)
        for u in range(used):
            for r in range(groups[u], groups[u] + _EIGHT):
                positive[r] = number(1) if margins[r] > 0 else number(0)
                count += positive[r]
        margins[c] = -max(behind, number(0)) if tasks else -total
        positive[c] = number(behind > 0) if tasks else count
        row_outer(rows, i, gain[i], margins, groups, used, out)
        square = gain[i] * row_scale[i]
        row_outer_square(rows, i, square, positive, groups, used, curvature)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else number(1)
            add_groups(weight, margins, groups, used, out[size])
            add_groups(weight, positive, groups, used, curvature[size])


@njit(cache=True, nogil=True, fastmath=False)
def hessian_rows(tasks, span, rows, samples, active, direction, out):
    """Add the product of the Hessian of the rows of a span, without ``2 / n``, and a direction.

    Parameters as for `gradient_rows`, which has filled `active`; `direction` and `out` have the shape
    (n_slots, width).
    """
    indptr, constant = rows.indptr, rows.constant
    scores, labels, weights, row_scale, gain = samples
    width = np.uint64(scores.shape[1])
    size = direction.shape[0] - 1  # row of the intercept
    n_groups = width // _EIGHT
    number = scores.dtype.type
    move = np.empty(scores.shape[1], scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if (start == stop and not constant) or active[i] == 0:
            continue
        used = groups_of(active[i], n_groups, groups)
        c = np.uint64(labels[i, 0])
        behind = number(1) - scores[i, c]
        shift = number(1) if tasks else behind
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        own = move[c]
        base = number(0) if tasks else own
        total = number(0)
        for u in range(used):
            at = groups[u]
            total += lanes_active(scores, i * width + at, shift, move, base, at)
        if tasks:
            total = -own if behind > 0 else number(0)
        move[c] = -total
        row_outer(rows, i, gain[i], move, groups, used, out)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else number(1)
            add_groups(weight, move, groups, used, out[size])


@njit(cache=True, nogil=True, fastmath=False)
def losses_along(tasks, span, rows, samples, direction, part):
    """Return the change of the losses of the rows of a span for the step ``part * direction``."""
    indptr, constant = rows.indptr, rows.constant
    scores, labels, weights, row_scale, _ = samples
    width = np.uint64(scores.shape[1])
    n_groups = width // _EIGHT
    number = scores.dtype.type
    move = np.empty(scores.shape[1], scores.dtype)
    wide = np.empty(scores.shape[1], np.float64)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, n_groups, groups)
    change = 0.0
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if not constant and (start == stop or row_scale[i] == 0):
            continue
        c = np.uint64(labels[i, 0])
        shift = number(1) if tasks else number(1) - scores[i, c]
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        wide[:] = move
        own = wide[c]
        total = 0.0
        if tasks:
            before = np.float64(number(1) - scores[i, c])
            after = max(before - part * own, 0.0)
            before = max(before, 0.0)
            total = (after - before) * (after + before)
            # the own class is none of the rest: it does not move there
            wide[c] = own = 0.0
        for u in range(used):
            at = groups[u]
            total += lanes_change(scores, wide, (i * width + at, at), shift, part, own)
        change += weights[i] * total if weights.shape[0] else total
    return change
