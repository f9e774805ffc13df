# mypy: ignore-errors
"""Log loss by columns: sums over a column's entries of the residuals and probabilities kept of each sample.

Both layouts of `rows.log_rows` are summed: one of a row for each class, in lanes, and one
margin for two classes. Loops are written out for each sum, because sums that are not needed cost as much as
those that are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.arguments import Columns, Samples
from bigmc.kernels.linear.parallel.exponentials import lanes_curve, lanes_variance
from bigmc.kernels.linear.parallel.simd import LANES, lanes_add
from bigmc.kernels.linear.parallel.team import CURVATURE, GRADIENT, HESSIAN, Crew, piece_of
from bigmc.kernels.linear.rows.log_rows import turn

_EIGHT = np.uint64(LANES)


@kernel
def gradient(j, piece, entries, samples, total):
    """Fill `total` with half the gradient by column j."""
    indptr, indices, data, base = entries
    residuals, gain = samples.scores, samples.gain
    if residuals.shape[1] == 1:
        total[1] = _margin_gradient(j, piece, entries, samples)
        total[0] = -total[1]
        return
    number = residuals.dtype.type
    width = np.uint64(residuals.shape[1])
    total[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            for q in range(np.uint64(0), width, _EIGHT):
                lanes_add(total, q, value, residuals, i * width + q)


@inner_kernel
def _margin_gradient(j, piece, entries, samples):
    """Return half the gradient of the second of two classes by column j."""
    indptr, indices, data, base = entries
    residuals, gain = samples.scores, samples.gain
    number = residuals.dtype.type
    gradient_sum = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            gradient_sum += (number(data[k]) * gain[i]) * residuals[i, 0]
    return gradient_sum


@kernel
def curvature(j, piece, entries, samples, wide):
    """Fill rows of `wide`, of shape (2, width), with half the gradient by column j and half the curvature."""
    indptr, indices, data, base = entries
    residuals, row_scale, gain = samples.scores, samples.row_scale, samples.gain
    if residuals.shape[1] == 1:
        wide[0, 1], wide[1, 1] = _margin_curvature(j, piece, entries, samples)
        wide[0, 0], wide[1, 0] = -wide[0, 1], wide[1, 1]
        return
    number = residuals.dtype.type
    width = np.uint64(residuals.shape[1])
    wide[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            factors = (value, value * (number(data[k]) * row_scale[i]))
            for q in range(np.uint64(0), width, _EIGHT):
                lanes_curve(residuals, i * width + q, factors, wide, (q, width + q))


@inner_kernel
def _margin_curvature(j, piece, entries, samples):
    """Return half the gradient of the second of two classes by column j, and half the curvature."""
    indptr, indices, data, base = entries
    residuals, row_scale, gain = samples.scores, samples.row_scale, samples.gain
    number = residuals.dtype.type
    gradient_sum = curvature_sum = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            size = abs(residuals[i, 0])
            gradient_sum += value * residuals[i, 0]
            curvature_sum += (value * (number(data[k]) * row_scale[i])) * (size * (number(1) - (size + size)))
    return gradient_sum, curvature_sum


@inner_kernel
def variances(j, piece, entries, samples, shares, total):
    """Fill `total` with the diagonal of the Hessian by column j."""
    if shares.shape[1] == 1:
        total[:] = _margin_variance(j, piece, entries, samples, shares)
        return
    indptr, indices, data, base = entries
    row_scale, gain = samples.row_scale, samples.gain
    number = shares.dtype.type
    width = np.uint64(shares.shape[1])
    total[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            square = (number(data[k]) * gain[i]) * (number(data[k]) * row_scale[i])
            for q in range(np.uint64(0), width, _EIGHT):
                lanes_variance(shares, i * width + q, square, total, q)


@inner_kernel
def _margin_variance(j, piece, entries, samples, shares):
    """Return the curvature of either of two classes by column j."""
    indptr, indices, data, base = entries
    row_scale, gain = samples.row_scale, samples.gain
    number = shares.dtype.type
    variance = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            variance += (number(data[k]) * gain[i]) * (number(data[k]) * row_scale[i]) * shares[i, 0]
    return variance


@inner_kernel
def class_products(j, piece, entries, samples, shares, total):
    """Fill `total`, of shape (n_classes, width), with the sums of ``p p'`` times the squares of column j."""
    indptr, indices, data, base = entries
    row_scale, gain = samples.row_scale, samples.gain
    number = shares.dtype.type
    width = np.uint64(shares.shape[1])
    total[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            square = (number(data[k]) * gain[i]) * (number(data[k]) * row_scale[i])
            for r in range(np.uint64(total.shape[0])):
                lanes_add(total, r * width, square * shares[i, r], shares, i * width)


@inner_kernel
def add_column_step(j, piece, entries, samples, shares, step):
    """Move the residuals by a step of the weights of column j."""
    indptr, indices, data, base = entries
    residuals, row_scale = samples.scores, samples.row_scale
    number = residuals.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            turn(residuals, shares, i, number(data[k]) * row_scale[i], step)


class ResidualSums(NamedTuple):
    """What the entries of a column add up to.

    Attributes
    ----------
    total : float64 array of shape (width,)
        Half the gradient, or the diagonal of the Hessian.
    products : float64 array of shape (n_classes, width), or of no rows
        Sums of ``p p'``.
    """

    total: NDArray[np.float64]
    products: NDArray[np.float64]


class ResidualWork(NamedTuple):
    """Columns that a team goes through, see `parallel.team`.

    Attributes
    ----------
    columns : Columns
    samples : Samples
        Residuals instead of scores.
    shares : array of the shape of the residuals
        Probabilities at the scores that the residuals were computed from.
    crew : Crew
    """

    columns: Columns
    samples: Samples
    shares: NDArray[Any]
    crew: Crew

    def sums_of(self, number):
        """Return what a piece fills."""
        crew = self.crew
        return ResidualSums(crew.sums[number, 0], crew.matrices[min(number, crew.matrices.shape[0] - 1)])

    def do_piece(self, task, column, piece, sums):
        """Do a task for a piece of a column."""
        entries, samples, shares = self.columns.entries, self.samples, self.shares
        if task == GRADIENT:
            gradient(column, piece, entries, samples, sums.total)
        elif task == CURVATURE:
            variances(column, piece, entries, samples, shares, sums.total)
        elif task == HESSIAN:
            class_products(column, piece, entries, samples, shares, sums.products)
        else:
            add_column_step(column, piece, entries, samples, shares, self.crew.step)

    def add_sums(self, task, sums, others):
        """Add the sums of another piece."""
        if task == HESSIAN:
            for r in range(sums.products.shape[0]):
                for q in range(sums.products.shape[1]):
                    sums.products[r, q] += others.products[r, q]
            return
        for r in range(sums.total.shape[0]):
            sums.total[r] += others.total[r]
