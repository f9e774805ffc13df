# mypy: ignore-errors
"""Multiclass squared hinge by columns: derivatives by the weights of one feature, and what a step changes.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013); equation numbers below are theirs.

Scores are kept row-major, ``scores[i, r] = s_ir``, with the classes padded to a multiple of `LANES`;
pads hold `PAD_SCORE`, so that their margin ``1 - s_iy + s_ir`` is never positive. All classes of an
entry are worked on at once, without a branch: the own class has the margin 1 and is taken out of the
sums afterwards. Sums are float64.

Value of an entry = ``data[k] * row_scale[i]`` times the scale of its column, which the caller applies once
per column. Samples have one label each, of shape (n_samples,).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inlined_kernel, inner_kernel, kernel
from bigmc.kernels.linear.arguments import Columns, Samples
from bigmc.kernels.linear.parallel.simd import (
    lanes_add,
    lanes_balanced,
    lanes_change,
    lanes_curvature,
    lanes_gradient,
    prefetch,
)
from bigmc.kernels.linear.parallel.team import CHANGE, CURVATURE, GRADIENT, HESSIAN, Crew, piece_of

PAD_SCORE = -1e30

#: Entries the rows of scores are fetched ahead, when a row takes more than one cache line.
_AHEAD = np.uint64(16)
_EIGHT = np.uint64(8)
_SIXTEEN = np.uint64(16)


@inlined_kernel
def _fetch_ahead(scores, first, indices, k, stop):
    """Fetch the scores of an entry soon to come, where they take more than one cache line."""
    width = np.uint64(scores.shape[1])
    if width > _EIGHT and k + _AHEAD < stop:
        coming = (first + np.uint64(indices[k + _AHEAD])) * width
        for line in range(np.uint64(0), width, _SIXTEEN):
            prefetch(scores, coming + line)


@kernel
def gradient(column, piece, entries, samples, sums, own):
    """Fill `sums` and `own` so that equation (5) is ``2 / n * (sums - own)``."""
    indptr, indices, data, base = entries
    scores, labels, _, _, gain = samples
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    sums[:] = 0.0
    own[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, column, piece)
        for k in range(start, stop):
            _fetch_ahead(scores, first, indices, k, stop)
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            shift = one - scores[i, c]
            at = i * width
            total = number(0)
            for q in range(groups):
                total += lanes_gradient(scores, at + q * _EIGHT, shift, value, sums, q * _EIGHT)
            own[c] += value * total


@inner_kernel
def balanced_gradient(column, entries, samples, factor, sums, own):
    """`gradient` with the margins of class ``c`` multiplied by ``factor[c]``."""
    indptr, indices, data, base = entries
    scores, labels, _, _, gain = samples
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    sums[:] = 0.0
    own[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, column]), np.uint64(indptr[s, column + 1])):
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            shift = one - scores[i, c]
            at = i * width
            total = number(0)
            for q in range(groups):
                lane = q * _EIGHT
                total += lanes_balanced(
                    scores, factor, sums, (at + lane, c * width + lane, lane), shift, value
                )
            own[c] += value * total


@kernel
def curvature(column, piece, entries, samples, work):
    """`gradient`, equation (6) as ``2 / n * curvatures``, and the weighted squares of each class."""
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    sums, own, curvatures, squares, _, _ = work
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    sums[:] = 0.0
    own[:] = 0.0
    curvatures[:] = 0.0
    squares[:] = 0.0
    own_curvature = np.zeros(scores.shape[1], np.float64)
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, column, piece)
        for k in range(start, stop):
            _fetch_ahead(scores, first, indices, k, stop)
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            shift = one - scores[i, c]
            at = i * width
            total = number(0)
            active = number(0)
            for q in range(groups):
                lane = q * _EIGHT
                margins, count = lanes_curvature(
                    scores, sums, curvatures, (at + lane, lane, lane), shift, (value, square)
                )
                total += margins
                active += count
            own[c] += value * total
            # the own class was counted once in its own lane and once in `active`
            own_curvature[c] += square * (active - number(2))
            squares[c] += square
    for r in range(curvatures.shape[0]):
        curvatures[r] += own_curvature[r]


@inner_kernel
def pair_curvature(column, piece, entries, samples, work):
    """`gradient`, and the local Hessian as weights of edges between own class (row) and other class."""
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    sums, own, _, squares, edges, _ = work
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    sums[:] = 0.0
    own[:] = 0.0
    edges[:] = 0.0
    squares[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, column, piece)
        for k in range(start, stop):
            _fetch_ahead(scores, first, indices, k, stop)
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            shift = number(1) - scores[i, c]
            total = number(0)
            for q in range(width // _EIGHT):
                lane = q * _EIGHT
                margins, _ = lanes_curvature(
                    scores, sums, edges, (i * width + lane, lane, c * width + lane), shift, (value, square)
                )
                total += margins
            own[c] += value * total
            squares[c] += square


@kernel
def loss_change(column, piece, entries, samples, step):
    """Return the change of the sum of weighted losses when ``row_scale * data * step`` joins the scores."""
    indptr, indices, data, base = entries
    scores, labels, _, row_scale, gain = samples
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    change = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, column, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            if row_scale[i] == 0:
                continue
            c = np.uint64(labels[i])
            value = np.float64(number(data[k]) * row_scale[i])
            shift = one - scores[i, c]
            at = i * width
            total = 0.0
            for q in range(groups):
                lane = q * _EIGHT
                total += lanes_change(scores, step, (at + lane, lane), shift, value, step[c])
            change += total * (gain[i] / row_scale[i])
    return change


@inner_kernel
def add_step(column, piece, entries, samples, step):
    """Add ``row_scale * data * step`` to the scores of the column's samples."""
    indptr, indices, data, base = entries
    scores, row_scale = samples.scores, samples.row_scale
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start, stop = piece_of(indptr, s, column, piece)
        for k in range(start, stop):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * row_scale[i]
            for q in range(width // _EIGHT):
                lanes_add(scores, i * width + q * _EIGHT, value, step, q * _EIGHT)


class HingeSums(NamedTuple):
    """What the entries of a column add up to; float64 arrays of shape (width,) but for the last two.

    Attributes
    ----------
    sums, own
        Half the gradient is ``sums - own``.
    curvatures
        Half the diagonal of the Hessian.
    squares
        Weighted squares of the column's values, by the label of their samples.
    edges : float64 array of shape (n_classes, width), or of no rows
        Half the local Hessian, as weights of edges between own class (row) and other class.
    change : float64 array of shape (1,)
        Change of the sum of weighted losses.
    """

    sums: NDArray[np.float64]
    own: NDArray[np.float64]
    curvatures: NDArray[np.float64]
    squares: NDArray[np.float64]
    edges: NDArray[np.float64]
    change: NDArray[np.float64]


class HingeWork(NamedTuple):
    """Columns that a team goes through, see `parallel.team`."""

    columns: Columns
    samples: Samples
    crew: Crew

    def sums_of(self, number):
        """Return what a piece fills."""
        crew = self.crew
        sums = crew.sums[number]
        edges = crew.matrices[min(number, crew.matrices.shape[0] - 1)]
        return HingeSums(sums[0], sums[1], sums[2], sums[3], edges, crew.changes[number])

    def do_piece(self, task, column, piece, sums):
        """Do a task for a piece of a column."""
        entries, samples = self.columns.entries, self.samples
        if task == GRADIENT:
            gradient(column, piece, entries, samples, sums.sums, sums.own)
        elif task == CURVATURE:
            curvature(column, piece, entries, samples, sums)
        elif task == HESSIAN:
            pair_curvature(column, piece, entries, samples, sums)
        elif task == CHANGE:
            sums.change[0] = loss_change(column, piece, entries, samples, self.crew.trial)
        else:
            add_step(column, piece, entries, samples, self.crew.step)

    def add_sums(self, task, sums, others):
        """Add the sums of another piece."""
        if task == CHANGE:
            sums.change[0] += others.change[0]
            return
        for r in range(sums.sums.shape[0]):
            sums.sums[r] += others.sums[r]
            sums.own[r] += others.own[r]
            sums.curvatures[r] += others.curvatures[r]
            sums.squares[r] += others.squares[r]
        if task == HESSIAN:
            for c in range(sums.edges.shape[0]):
                for r in range(sums.edges.shape[1]):
                    sums.edges[c, r] += others.edges[c, r]
