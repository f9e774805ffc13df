# mypy: ignore-errors
"""Losses by columns: derivatives by the weights of one feature, and what a step of them changes.

Losses are those of `losses`. Sums are float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.arguments import Columns, Samples
from bigmc.kernels.linear.losses.interface import (
    add_coupling,
    add_curvature,
    add_gradient,
    add_squares,
    adds_by_lanes,
    change,
    curvature_bound,
    curvatures,
    residuals,
)
from bigmc.kernels.linear.parallel.team import CHANGE, CURVATURE, GRADIENT, HESSIAN, WHOLE, Crew, piece_of


class ColumnWork(NamedTuple):
    """What the derivatives by one column are computed in.

    Attributes
    ----------
    others : array of shape (width,)
        Scores or odds of a sample, in the precision of the scores.
    residual, curvature : arrays of shape (n_classes,)
        Half the derivatives of a sample's loss, in the precision of the scores.
    wide : float64 array of shape (3, width)
        Sums over all classes, pads among them.
    sums, diagonal, squares : float64 arrays of shape (n_classes,)
        Half the gradient, half the diagonal of the Hessian, and the weighted squares of the column.
    """

    others: NDArray[Any]
    residual: NDArray[Any]
    curvature: NDArray[Any]
    wide: NDArray[np.float64]
    sums: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    squares: NDArray[np.float64]


@kernel
def column_work(scores, n_classes):
    """Return an array for the derivatives by one column."""
    width = scores.shape[1]
    residual = np.empty((2, n_classes), scores.dtype)
    sums = np.empty((3, n_classes), np.float64)
    return ColumnWork(
        np.empty(width, scores.dtype),
        residual[0],
        residual[1],
        np.empty((3, width), np.float64),
        sums[0],
        sums[1],
        sums[2],
    )


@kernel
def column_gradient(loss, j, piece, entries, samples, factor, work):
    """Fill the work's sums so that the gradient of the losses by column j is ``2 / n * sums``."""
    indptr, indices, data, base = entries
    scores, labels, _, _, gain = samples
    others, residual, sums, wide = work.others, work.residual, work.sums, work.wide
    number = scores.dtype.type
    by_lanes = adds_by_lanes(loss) and factor.shape[0] == 0
    sums[:] = 0.0
    wide[0] = 0.0
    wide[1] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            if by_lanes:
                add_gradient(loss, scores, i, labels, value, wide)
                continue
            residuals(loss, scores, i, labels, factor, others, residual)
            for r in range(residual.shape[0]):
                sums[r] += value * residual[r]
    if by_lanes:
        for r in range(sums.shape[0]):
            sums[r] = wide[0, r] - wide[1, r]


@inner_kernel
def _curvature_by_lanes(loss, j, entries, samples, work):
    """`column_gradient`, and half the diagonal of the Hessian."""
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    number = scores.dtype.type
    wide = work.wide
    wide[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            add_curvature(loss, scores, i, labels, (value, square), wide)
    for r in range(work.sums.shape[0]):
        work.sums[r] = wide[0, r] - wide[1, r]
        work.diagonal[r] = wide[2, r]


@kernel
def column_curvature(loss, j, piece, entries, samples, factor, work, hessian):
    """`column_gradient`, squares of each class, the Hessian's diagonal, and all of it where it has a size.

    They go to the work; the squares are those of the loss's `add_squares`.
    """
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    others, residual, curvature, _, sums, diagonal, squares = work
    number = scores.dtype.type
    sums[:] = 0.0
    diagonal[:] = 0.0
    squares[:] = 0.0
    hessian[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            residuals(loss, scores, i, labels, factor, others, residual)
            curvatures(loss, scores, i, labels, others, residual, curvature)
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            for r in range(residual.shape[0]):
                sums[r] += value * residual[r]
                diagonal[r] += square * curvature[r]
            add_squares(loss, labels, i, square, squares)
            add_coupling(loss, scores, i, labels, others, residual, square, hessian)
    for r in range(hessian.shape[0]):
        for q in range(r):
            hessian[r, q] += hessian[q, r]
            hessian[q, r] = hessian[r, q]
        hessian[r, r] = diagonal[r]


@kernel
def column_loss_change(loss, j, piece, entries, samples, others, step):
    """Return the change of the sum of weighted losses when ``row_scale * data * step`` joins the scores.

    The step, and `others`, which is overwritten, have the width of the scores.
    """
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    number = scores.dtype.type
    total = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            if row_scale[i] == 0:
                continue
            value = np.float64(number(data[k]) * row_scale[i])
            total += change(loss, scores, i, labels, others, value, step) * (gain[i] / row_scale[i])
    return total


@inner_kernel
def add_column_step(j, piece, entries, samples, step):
    """Add ``row_scale * data * step`` to the scores of the column's samples."""
    indptr, indices, data, base = entries
    scores, row_scale = samples.scores, samples.row_scale
    number = scores.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, j, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * row_scale[i]
            for r in range(step.shape[0]):
                scores[i, r] += value * step[r]


@kernel
def add_gradients(loss, places, entries, samples, n_classes, sums, largest):
    """Add half the gradient of the sum of losses, equation (5), of each column, and its curvature (6).

    Nothing is multiplied by the scale of the columns.

    Parameters
    ----------
    loss : LossKernels
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
        if adds_by_lanes(loss):
            _curvature_by_lanes(loss, j, entries, samples, work)
        else:
            column_curvature(loss, j, WHOLE, entries, samples, none, work, no_hessian)
        for r in range(n_classes):
            sums.gradients[place, r] += work.sums[r]
        sums.curvatures[place] += work.diagonal.max() if largest else work.diagonal.sum() / n_classes


@kernel
def largest_curvatures(loss, columns, samples, n_classes, two_over_n, bounds):
    """Bound the eigenvalues of the Hessian of the losses along columns, at any weights.

    Parameters
    ----------
    loss : LossKernels
    columns : Columns
    samples : Samples
        Their scores are not looked at.
    n_classes : int
    two_over_n : float
        Factor of the gradient.
    bounds : float64 array of shape (n_columns,)
        Filled at the positions of the order, see the loss's `curvature_bound`.
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
                add_squares(loss, labels, i, square, squares)
        bounds[p] = two_over_n * columns.scale[p] ** 2 * curvature_bound(loss, squares)


class LossSums(NamedTuple):
    """What the entries of a column add up to.

    Attributes
    ----------
    work : ColumnWork
    hessian : float64 array of shape (n_classes, at least n_classes), or of no rows
    change : float64 array of shape (1,)
    """

    work: ColumnWork
    hessian: NDArray[np.float64]
    change: NDArray[np.float64]


class LossWork(NamedTuple):
    """Columns that a team goes through, see `parallel.team`.

    Attributes
    ----------
    loss : LossKernels
    columns : Columns
    samples : Samples
    crew : Crew
    n_classes : int
    """

    loss: Any
    columns: Columns
    samples: Samples
    crew: Crew
    n_classes: int

    def sums_of(self, number):
        """Return what a piece fills."""
        crew, m = self.crew, self.n_classes
        sums, numbers = crew.sums[number], crew.numbers[number]
        work = ColumnWork(
            numbers[0], numbers[1, :m], numbers[2, :m], sums[:3], sums[3, :m], sums[4, :m], sums[5, :m]
        )
        return LossSums(work, crew.matrices[min(number, crew.matrices.shape[0] - 1)], crew.changes[number])

    def do_piece(self, task, column, piece, sums):
        """Do a task for a piece of a column."""
        loss, entries, samples = self.loss, self.columns.entries, self.samples
        none, m = np.empty((0, 0), samples.scores.dtype), self.n_classes
        if task == GRADIENT:
            column_gradient(loss, column, piece, entries, samples, none, sums.work)
        elif task == CURVATURE:
            column_curvature(loss, column, piece, entries, samples, none, sums.work, sums.hessian[:0])
        elif task == HESSIAN:
            column_curvature(loss, column, piece, entries, samples, none, sums.work, sums.hessian)
        elif task == CHANGE:
            others, trial = sums.work.others, self.crew.trial
            sums.change[0] = column_loss_change(loss, column, piece, entries, samples, others, trial)
        else:
            add_column_step(column, piece, entries, samples, self.crew.step[:m])

    def add_sums(self, task, sums, others):
        """Add the sums of another piece."""
        if task == CHANGE:
            sums.change[0] += others.change[0]
            return
        for r in range(self.n_classes):
            sums.work.sums[r] += others.work.sums[r]
            sums.work.diagonal[r] += others.work.diagonal[r]
            sums.work.squares[r] += others.work.squares[r]
        if task == HESSIAN:
            for r in range(sums.hessian.shape[0]):
                for q in range(sums.hessian.shape[0]):
                    sums.hessian[r, q] += others.hessian[r, q]
