"""Rounds of stochastic steps over chunks, for more candidates than sweeps have memory for.

Sweeps over a chunk keep a dozen vectors for each candidate. Steps along its samples keep four, of single
precision: the weights they start from, their gradient, what the samples add up to, and what that comes to. A
round evaluates objective and gradient of all samples, and then goes through them with steps whose variance
the gradient reduces, see `bigmc.kernels.linear.rows.variance_reduced`. With ``g_ij`` the gradients of the
samples by the weights of feature j at the start, and d the damping, its weights are held by

    c_j = d (sum_i ||g_ij||²)^½ / eta_j,

the step size of the first weights (`bigmc.solvers.sparse.chunks.stochastic_start`) after a read at the
weights of now; in the place of a curvature, `Evaluated` has ``c_j / d`` then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.rows import stochastic, variance_reduced
from bigmc.kernels.linear.rows.stochastic import SparseRows, Strength, Sums
from bigmc.kernels.linear.rows.variance_reduced import Anchor, RowSums
from bigmc.kernels.linear.scoring.score_matrix import fill_scores
from bigmc.progress import Progress
from bigmc.solvers.sparse.chunks.damping import Damped
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.rare_features import RareFeatures
from bigmc.solvers.sparse.chunks.row_order import ENTRY_BYTES, RowSamples
from bigmc.solvers.sparse.chunks.stochastic_start import RATE, sums_width
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients, slabs, slabs_of_weights
from bigmc.solvers.sparse.columns import scales_of
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.chunk import Chunk, Samples
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated

#: Samples whose scores are computed together.
_ROWS = 1 << 11
#: Times that steps go along the samples of a chunk, in another order each time, before the next is read.
_TIMES = 2
#: A feature whose samples have no loss left is held like one of gradients of this share of the mean size.
_SMALLEST = 1e-3


class Point(NamedTuple):
    """Weights, and the intercept of shape (n_classes,)."""

    coef: Coefficients
    intercept: NDArray[np.float64]


def evaluate_by_rows(
    task: ChunkTask, spill: Spill, point: Point, row_bytes: int, rare: RareFeatures | None = None
) -> Evaluated:
    """Return objective and gradient of the candidates at some weights, and what steps from there go by.

    On the way the samples of rare features are collected.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Has the columns of the candidates, in one layer.
    point : Point
    row_bytes : int
        Bytes of the entries that are put into row order together.
    """
    coef, intercept = point
    loss, features = task.objective.loss, spill.features
    sums = _no_sums(len(features), task.width)
    weights = _dense(coef, features, sums_width(task.n_classes))
    weighted = _Weighted(weights, intercept)
    chunks = _collected(task, spill, weighted, row_bytes, rare) if rare else spill.chunks()
    rows = _rows_of(task, spill, chunks, row_bytes)
    levels = _add_rows(task, rows, weights, intercept, 1.0 / task.weight_sum, sums)
    del weights, weighted
    curve, level_curve = _curves(sums, levels.square, task.dataset.n_samples)
    return Evaluated(
        coef,
        intercept,
        task.upper(Margins.of(loss, levels.margins), coef),
        sums.gradient.astype(task.dtype, copy=False),
        curve.astype(task.dtype),
        levels.gradient,
        level_curve,
    )


def gradient_changes_by_rows(
    task: ChunkTask, spill: Spill, point: Point, moved: Sequence[MovedSamples], row_bytes: int
) -> NDArray[np.float64]:
    """Return what samples with other weights change in the gradients of the candidates.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Has the columns of the candidates, in one layer.
    point : Point
        Of all other samples.
    moved : sequence of MovedSamples
        Other weights, of single precision, and intercepts of some samples.
    row_bytes : int
        Bytes of the entries that are put into row order together.

    Returns
    -------
    float64 array of shape (n_candidates, width)
    """
    features, width = spill.features, sums_width(task.n_classes)
    sums = _no_sums(len(features), task.width)
    for own in moved:
        chunk = own.read(spill)
        weights = _dense(point.coef, features, width)
        for sign, intercept in ((-1.0, point.intercept), (1.0, own.intercept)):
            rows = _rows_of(task, spill, [chunk], row_bytes)
            _add_rows(task, rows, weights, intercept, sign / task.weight_sum, sums)
            weights[np.searchsorted(features, own.features)] = own.rows[:, :width]
    return sums.gradient.astype(np.float64, copy=False)


class _Levels(NamedTuple):
    """Margins of samples, their gradient by the intercept, and the sum of its squares."""

    margins: NDArray[np.float64]
    gradient: NDArray[np.float64]
    square: float


def _no_sums(n: int, width: int) -> RowSums:
    """Return sums of no samples; in double precision, since bounds go by the gradients."""
    return RowSums(np.zeros((n, width)), np.zeros(n), np.zeros(n), np.zeros(n, np.int64))


def _add_rows(
    task: ChunkTask,
    groups: Iterable[SparseRows],
    weights: NDArray[np.float32],
    intercept: NDArray[np.float64],
    factor: float,
    sums: RowSums,
) -> _Levels:
    """Add up the gradients of samples at weights of the candidates, zeros included, times a factor."""
    kernels = task.objective.loss_kernels
    margins, gradient, square = Margins.empty(task.n_classes), np.zeros(task.n_classes), 0.0
    for rows in groups:
        problem = _problem(task, rows)
        if problem is None:
            continue
        problem.rebuild_scores(Coefficients.zeros(task.width), intercept, [])
        variance_reduced.add_row_scores(rows, weights, problem.scores)
        own, scores = problem.margins(), problem.scores
        margins += own.stacked
        gradient += own.intercept_derivatives(task.weight_sum)[0]
        square += variance_reduced.add_row_gradients(kernels, rows, scores, factor, task.n_classes, sums)
    return _Levels(margins, gradient, square)


def follow_rows(task: ChunkTask, spill: Spill, anchor: Evaluated, steps: Damped, row_bytes: int) -> Point:
    """Return weights, of single precision, and intercept after steps along all samples from an anchor.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Has the columns of the candidates, in one layer.
    anchor : Evaluated
        By `evaluate_by_rows`.
    steps : Damped
    row_bytes : int
        Bytes of the entries that are put into row order together.
    """
    followed = RowSteps(task, spill.features, anchor, steps, row_bytes)
    generator = np.random.default_rng([task.seed, steps.n_iter])
    for done, chunk in enumerate(spill.chunks(generator.permutation(spill.n_chunks).tolist())):
        task.context.progress(Progress("round", done, spill.n_chunks, "chunks"))
        for _ in range(_TIMES):
            followed.follow(chunk, generator)
    return followed.result()


class RowSteps:
    """Weights that follow the samples of one chunk after another, from an anchor.

    Parameters
    ----------
    task : ChunkTask
    features : int64 array
        The candidates, increasing.
    anchor : Evaluated
        By `evaluate_by_rows`.
    steps : Damped
    row_bytes : int
        Bytes of the entries that are put into row order together.
    """

    def __init__(
        self, task: ChunkTask, features: NDArray[np.int64], anchor: Evaluated, steps: Damped, row_bytes: int
    ) -> None:
        self._task, self._features, self._anchor = task, features, anchor
        self._most_entries, self._weight = max(1, row_bytes // ENTRY_BYTES), 0.0
        width = sums_width(task.n_classes)
        self._scale = scales_of(task.dataset.column_scale(), features)
        weights = _dense(anchor.coef, features, width)
        gradient = np.ascontiguousarray(anchor.gradient[:, :width], np.float32)
        self._own = Anchor(weights, gradient, np.zeros(len(features)))
        self._sums = _held(steps.of_features * anchor.curvature, weights)
        n_levels = int(task.fit_intercept)
        intercept_gradient = np.zeros((n_levels, width), np.float32)
        intercept_gradient[:, : task.n_classes] = anchor.intercept_gradient
        self._level = Anchor(np.zeros_like(intercept_gradient), intercept_gradient, np.zeros(n_levels))
        self._level_sums = _held(
            np.full(n_levels, steps.of_intercept * anchor.intercept_curvature), self._level.weights
        )

    def follow(self, chunk: Chunk, generator: np.random.Generator) -> None:
        """Go through the samples of a chunk in a random order."""
        task, objective = self._task, self._task.objective
        samples = RowSamples.of_chunk(chunk)
        order = generator.permutation(len(samples.counts))
        for rows in samples.groups(order, self._scale, self._most_entries, task.engine):
            self._weight = variance_reduced.follow(
                (objective.loss_kernels, objective.penalty.kernel),
                rows,
                Strength(task.alpha, objective.ridge, self._weight),
                task.n_classes,
                objective.loss.pad_score,
                self._anchor.intercept.astype(np.float32),
                (self._sums, self._level_sums),
                (self._own, self._level),
            )

    def result(self) -> Point:
        """Return weights, of single precision, and intercept after the samples so far."""
        task, penalty = self._task, self._task.objective.penalty.kernel
        variance_reduced.catch_up(self._weight, self._sums, self._own)
        variance_reduced.catch_up(self._weight, self._level_sums, self._level)
        strength, kept = Strength(task.alpha, task.objective.ridge, self._weight), []
        rows = self._own.weights  # no longer wanted
        for slab in slabs_of_weights(*rows.shape):
            sums = Sums(*(array[slab] for array in self._sums))
            stochastic.fill_weights(penalty, strength, sums, rows[slab])
            kept.append(np.flatnonzero(rows[slab].any(axis=1)) + slab.start)
        used = np.concatenate([np.empty(0, np.int64), *kept])
        step = np.zeros((1, task.n_classes))
        if task.fit_intercept:
            strength = Strength(0.0, 0.0, self._weight)
            stochastic.fill_weights(penalty, strength, self._level_sums, step)
        coef: NDArray[Any] = np.zeros((len(used), task.width), np.float32)
        for slab in slabs_of_weights(*coef.shape):
            coef[slab, : rows.shape[1]] = rows[used[slab]]
        return Point(Coefficients(self._features[used], coef), self._anchor.intercept + step[0])


def _held(curves: NDArray[np.floating], weights: NDArray[np.float32]) -> Sums:
    """Return sums of which `weights` come, held by some curvatures."""
    linear = -curves.astype(np.float32)[:, None] * weights
    return Sums(linear, (curves**2).astype(np.float32), np.ones(len(curves), np.float32))


def _curves(sums: RowSums, level: float, n_samples: int) -> tuple[NDArray[np.float64], float]:
    """Return what holds the weights of each feature, and the intercept."""
    unit = RATE / np.sqrt(max(float(sums.counts.sum()) / max(n_samples, 1), 1.0))
    size = np.sqrt(sums.sizes / np.maximum(sums.counts, 1))
    least = _SMALLEST**2 * level / max(n_samples, 1)
    squares = np.maximum(sums.squares, least * sums.sizes)
    return np.sqrt(squares) * size / unit, float(np.sqrt(level)) / unit


def _problem(task: ChunkTask, rows: SparseRows) -> Problem | None:
    """Return the problem of some samples, its scores not set; None if they have no weight."""
    if task.sample_weight is not None and not rows.weights.any():
        return None
    weights = None if task.sample_weight is None else rows.weights
    ones = np.ones(len(rows.labels), np.float32)
    return task.problem_of(Samples(task.dataset, rows.labels, ones, weights, None))


def _rows_of(task: ChunkTask, spill: Spill, chunks: Iterable[Chunk], row_bytes: int) -> Iterator[SparseRows]:
    """Put the samples of chunks into row order, some at a time."""
    scale = scales_of(task.dataset.column_scale(), spill.features)
    for chunk in chunks:
        samples = RowSamples.of_chunk(chunk)
        order, most_entries = np.arange(len(samples.counts)), row_bytes // ENTRY_BYTES
        for group in samples.groups(order, scale, most_entries, task.engine):
            yield from _slices(group)


class _Weighted(NamedTuple):
    """Weights of the candidates, zeros included, and the intercept."""

    weights: NDArray[np.float32]
    intercept: NDArray[np.float64]


def _collected(
    task: ChunkTask, spill: Spill, point: _Weighted, row_bytes: int, rare: RareFeatures
) -> Iterator[Chunk]:
    """Yield the chunks, and collect the samples of rare features."""
    for chunk in spill.chunks():
        rare.add(chunk, partial(_scores_of, task, spill, point, row_bytes, chunk))
        yield chunk


def _scores_of(
    task: ChunkTask, spill: Spill, point: _Weighted, row_bytes: int, chunk: Chunk, some: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the scores of some samples of a chunk."""
    scale, samples = scales_of(task.dataset.column_scale(), spill.features), RowSamples.of_chunk(chunk)
    found = [np.empty((0, task.width), task.dtype)]
    for rows in samples.groups(some, scale, row_bytes // ENTRY_BYTES, task.engine):
        scores = np.empty((len(rows.labels), task.width), task.dtype)
        fill_scores(point.intercept, task.objective.loss.pad_score, scores)
        variance_reduced.add_row_scores(rows, point.weights, scores)
        found.append(scores)
    return np.concatenate(found)


def _slices(rows: SparseRows) -> Iterator[SparseRows]:
    """Cut samples in row order into some whose scores fit."""
    for some in slabs(len(rows.labels), _ROWS):
        start, stop = rows.indptr[some.start], rows.indptr[some.stop]
        yield SparseRows(
            rows.indptr[some.start : some.stop + 1] - start,
            rows.slots[start:stop],
            rows.values[start:stop],
            rows.labels[some],
            rows.weights[some],
        )


def _dense(coef: Coefficients, features: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """Return the weights of features, zeros included, in the columns of the sums."""
    rows = np.zeros((len(features), width), np.float32)
    for slab in slabs_of_weights(*rows.shape):
        rows[slab] = coef.take(features[slab])[:, :width]
    return rows
