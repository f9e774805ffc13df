# mypy: ignore-errors
"""Gradients, products with the Hessian and line searches over samples in row order, for sets of labels.

What `bigmc.kernels.linear.newton_hinges` does for one label per sample, with the same arguments but for the
labels: rows of codes, increasing, -1 after the last. Equation numbers are those of Blondel et al. (2013); the
ranking loss is that of section 4.7.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.losses import hide_labels
from bigmc.kernels.linear.products import (
    EVERY_GROUP,
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
    """Add the gradient and the diagonal of the Hessian of the rows of a span, without ``2 / n``.

    Parameters
    ----------
    tasks : bool
        Of the multitask squared hinge, equation (13), instead of the ranking loss.
    active : uint64 array of shape (n_samples,)
        Filled: 1 if any margin is positive, else 0.
    span, rows, samples, out, curvature
        As in `bigmc.kernels.linear.newton_hinges.gradient_rows`.
    """
    constant = rows.constant
    scores, labels, weights, row_scale, gain = samples
    width = np.uint64(scores.shape[1])
    size = out.shape[0] - 1  # row of the intercept
    groups = np.empty(width // _EIGHT + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, width // _EIGHT, groups)
    number = scores.dtype.type
    zero, one = number(0), number(1)
    others, margins, slope, positive = np.empty((4, width), scores.dtype)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        hide_labels(scores, i, labels, others)
        slope[:] = zero
        positive[:] = zero
        found = False
        if tasks:
            for q in range(width // _EIGHT):
                found |= lanes_margins(others, q * _EIGHT, one, slope, q * _EIGHT) > zero
            for r in range(width):
                positive[r] = one if slope[r] > zero else zero
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            if tasks:
                slope[c] = -max(behind, zero)
                positive[c] = number(behind > zero)
                found |= behind > zero
                continue
            total = zero
            for q in range(width // _EIGHT):
                total += lanes_margins(others, q * _EIGHT, behind, margins, q * _EIGHT)
            slope[c] = -total
            if total > zero:
                found = True
                count = zero
                for r in range(width):
                    above = one if margins[r] > zero else zero
                    slope[r] += margins[r]
                    positive[r] += above
                    count += above
                positive[c] = count
        active[i] = found
        if not found:
            continue
        row_outer(rows, i, gain[i], slope, groups, used, out)
        square = gain[i] * row_scale[i]
        row_outer_square(rows, i, square, positive, groups, used, curvature)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else one
            add_groups(weight, slope, groups, used, out[size])
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
    size = out.shape[0] - 1  # row of the intercept
    groups = np.empty(width // _EIGHT + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, width // _EIGHT, groups)
    number = scores.dtype.type
    zero, one = number(0), number(1)
    others, move, turn, change = np.empty((4, width), scores.dtype)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if (start == stop and not constant) or active[i] == 0:
            continue
        hide_labels(scores, i, labels, others)
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        turn[:] = zero
        if tasks:
            turn[:] = move
            for q in range(width // _EIGHT):
                lanes_active(others, q * _EIGHT, one, turn, zero, q * _EIGHT)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            if tasks:
                turn[c] = move[c] if behind > zero else zero
                continue
            change[:] = move
            total = zero
            for q in range(width // _EIGHT):
                total += lanes_active(others, q * _EIGHT, behind, change, move[c], q * _EIGHT)
            for r in range(width):
                turn[r] += change[r]
            turn[c] -= total
        row_outer(rows, i, gain[i], turn, groups, used, out)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else one
            add_groups(weight, turn, groups, used, out[size])


@njit(cache=True, nogil=True, fastmath=False)
def losses_along(tasks, span, rows, samples, direction, part):
    """Return the change of the losses of the rows of a span for the step ``part * direction``."""
    indptr, constant = rows.indptr, rows.constant
    scores, labels, weights, row_scale, _ = samples
    width = np.uint64(scores.shape[1])
    groups = np.empty(width // _EIGHT + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, width // _EIGHT, groups)
    number = scores.dtype.type
    one = number(1)
    others, move = np.empty((2, width), scores.dtype)
    wide = np.empty(width, np.float64)
    change = 0.0
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if not constant and (start == stop or row_scale[i] == 0):
            continue
        hide_labels(scores, i, labels, others)
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        wide[:] = move
        total = 0.0
        if tasks:
            for q in range(width // _EIGHT):
                total += lanes_change(others, wide, (q * _EIGHT, q * _EIGHT), one, part, 0.0)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            if tasks:
                before = np.float64(behind)
                after = max(before - part * wide[c], 0.0)
                before = max(before, 0.0)
                total += (after - before) * (after + before)
                continue
            for q in range(width // _EIGHT):
                total += lanes_change(others, wide, (q * _EIGHT, q * _EIGHT), behind, part, wide[c])
        change += weights[i] * total if weights.shape[0] else total
    return change
