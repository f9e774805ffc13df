# mypy: ignore-errors
"""Gradients, products with the Hessian and line searches over samples in row order.

What is different for each loss is a method of it, see `losses.interface`:
`row_residuals`, `row_groups`, `row_turn` and `row_change`.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.linear.losses.interface import RowWork, row_change, row_groups, row_residuals, row_turn
from bigmc.kernels.linear.parallel.products import (
    EVERY_GROUP,
    add_groups,
    groups_of,
    row_outer,
    row_outer_square,
    row_product,
)
from bigmc.kernels.linear.parallel.simd import LANES

_EIGHT = np.uint64(LANES)
_ONE = np.uint64(1)


@inlined_kernel
def _row_work(scores):
    """Return what the derivatives of one sample are computed in."""
    width = scores.shape[1]
    return RowWork(
        residual=np.empty(width, scores.dtype),
        curvature=np.empty(width, scores.dtype),
        others=np.empty(width, scores.dtype),
        margins=np.empty(width, scores.dtype),
        move=np.empty(width, scores.dtype),
        wide=np.empty(width, np.float64),
        groups=np.empty(np.uint64(width) // _EIGHT + _ONE, np.uint64),
    )


@kernel
def gradient_rows(loss, span, rows, samples, kept, out, curvature):
    """Add the gradient (5) and the diagonal of the Hessian of the rows of a span, without ``2 / n``.

    Parameters
    ----------
    loss : LossKernels
    span : tuple of int
        First of these rows, and the one after the last.
    rows : Rows
    samples : Samples
    kept : array of shape (n_samples,), of uint64, or (n_samples, width), of the type of the scores
        Filled with what `hessian_rows` needs, see the loss's `row_residuals`: of hinges a bit for every
        group of lanes that is not zero.
    out, curvature : arrays of shape (n_slots, width)
        Added to.
    """
    indptr, constant = rows.indptr, rows.constant
    _, _, weights, row_scale, gain = samples
    size = out.shape[0] - 1  # row of the intercept
    number = samples.scores.dtype.type
    work = _row_work(samples.scores)
    residual, row_curvature, groups = work.residual, work.curvature, work.groups
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        used = row_residuals(loss, samples, i, kept, work)
        if used == 0 or (indptr[i] == indptr[i + _ONE] and not constant):
            continue
        row_outer(rows, i, gain[i], residual, groups, used, out)
        row_outer_square(rows, i, gain[i] * row_scale[i], row_curvature, groups, used, curvature)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else number(1)
            add_groups(weight, residual, groups, used, out[size])
            add_groups(weight, row_curvature, groups, used, curvature[size])


@kernel
def hessian_rows(loss, span, rows, samples, kept, direction, out):
    """Add the product of the Hessian of the rows of a span, without ``2 / n``, and a direction.

    Parameters as for `gradient_rows`, which has filled `kept`; `direction` and `out` have the shape
    (n_slots, width).
    """
    indptr, constant = rows.indptr, rows.constant
    _, _, weights, row_scale, gain = samples
    size = direction.shape[0] - 1  # row of the intercept
    number = samples.scores.dtype.type
    work = _row_work(samples.scores)
    groups = work.groups
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        if indptr[i] == indptr[i + _ONE] and not constant:
            continue
        used = row_groups(loss, kept, i, work)
        if used == 0:
            continue
        row_product(rows, i, row_scale[i], direction, groups, used, work.move)
        turned = row_turn(loss, samples, i, kept, used, work)
        row_outer(rows, i, gain[i], turned, groups, used, out)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else number(1)
            add_groups(weight, turned, groups, used, out[size])


@kernel
def losses_along(loss, span, rows, samples, direction, part):
    """Return the change of the losses of the rows of a span for the step ``part * direction``."""
    indptr, constant = rows.indptr, rows.constant
    _, _, weights, row_scale, _ = samples
    work = _row_work(samples.scores)
    groups, move, wide = work.groups, work.move, work.wide
    used = groups_of(EVERY_GROUP, np.uint64(move.shape[0]) // _EIGHT, groups)
    change = 0.0
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        if not constant and (indptr[i] == indptr[i + _ONE] or row_scale[i] == 0):
            continue
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        copy_to(move, wide)
        total = row_change(loss, samples, i, part, used, work)
        change += weights[i] * total if weights.shape[0] else total
    return change
