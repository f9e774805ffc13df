# mypy: ignore-errors
"""Newton steps over samples in row order: what is the same for all losses.

A row is read once; what it needs of the direction, and adds to the result, are rows of two matrices small
enough for the cache, so that an entry costs a fraction of what it costs going column by column.

A sample's features are `slots`: places among the features worked on. The factors of the columns are not
applied: the caller scales directions and results.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel
from bigmc.kernels.linear.parallel.products import EVERY_GROUP, groups_of, row_product
from bigmc.kernels.linear.parallel.simd import LANES, lanes_add

_ONE = np.uint64(1)


@kernel
def count_entries(columns, indptr, indices, counts):
    """Add the number of entries of the given columns of a shard to each row's count."""
    for p in range(columns.shape[0]):
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            counts[np.uint64(indices[k])] += 1


@kernel
def place_entries(columns, first, shard, free, slots, values):
    """Write the entries of the given columns of a shard, slots `first` on, behind those its rows have.

    `shard` is its ``(indptr, indices, data)``; `free`, the place of the next entry of each row, moves on.
    """
    indptr, indices, data = shard
    for p in range(columns.shape[0]):
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            i = np.uint64(indices[k])
            to = np.uint64(free[i])
            slots[to] = first + p
            values[to] = data[k]
            free[i] = to + _ONE


@kernel
def add_squares(span, rows, samples, squares):
    """Add the weighted squares of the values of every feature in the rows of a span, the intercept's last."""
    indptr, constant = rows.indptr, rows.constant
    weights, row_scale, gain = samples.weights, samples.row_scale, samples.gain
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        factor = np.float64(gain[i]) * row_scale[i]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])):
            value = np.float64(rows.values[k])
            squares[np.uint64(rows.slots[k])] += factor * value * value
        if constant:
            squares[squares.shape[0] - 1] += weights[i] if weights.shape[0] else 1.0


@kernel
def move_rows(span, rows, samples, direction, part):
    """Add the scores of the step ``part * direction`` to those of the rows of a span."""
    indptr, constant = rows.indptr, rows.constant
    scores, _, _, row_scale, _ = samples
    width = np.uint64(scores.shape[1])
    n_groups = width // np.uint64(LANES)
    move = np.empty(scores.shape[1], scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, n_groups, groups)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if start == stop and not constant:
            continue
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        for u in range(used):
            lanes_add(scores, i * width + groups[u], part, move, groups[u])


@kernel
def add_penalty_curvature(direction, unit, penalty_curvature, ridge, factor, product):
    """Complete a product with the Hessian, and return the curvature along the direction.

    ``product = factor * product + (penalty_curvature (I - unit unit') + ridge I) direction`` row by row:
    the Hessian of the norm of a non-zero row w is ``(I - w w' / |w|²) / |w|``, and
    ``penalty_curvature = alpha / |w|``.
    """
    curve = 0.0
    for j in range(direction.shape[0]):
        along = 0.0
        for r in range(direction.shape[1]):
            along += unit[j, r] * direction[j, r]
        for r in range(direction.shape[1]):
            across = (
                penalty_curvature[j] * (direction[j, r] - along * unit[j, r]) + ridge[j] * direction[j, r]
            )
            product[j, r] = factor[j] * product[j, r] + across
            curve += product[j, r] * direction[j, r]
    return curve


@kernel
def descend(step, direction, product, precondition, solution, residual):
    """Take a step of conjugate gradients; returns the squared preconditioned norm of the residual."""
    norm = 0.0
    for j in range(direction.shape[0]):
        for r in range(direction.shape[1]):
            solution[j, r] += step * direction[j, r]
            residual[j, r] -= step * product[j, r]
            norm += precondition[j, r] * residual[j, r] * residual[j, r]
    return norm


@kernel
def turn(ratio, residual, precondition, scale, direction, scaled):
    """Set the next direction of conjugate gradients, and its copy times the scale of the columns."""
    for j in range(direction.shape[0]):
        for r in range(direction.shape[1]):
            direction[j, r] = precondition[j, r] * residual[j, r] + ratio * direction[j, r]
            scaled[j, r] = scale[j] * direction[j, r]
