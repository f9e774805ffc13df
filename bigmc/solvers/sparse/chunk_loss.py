"""The loss of a chunk of samples, corrected so that it stands for that of all, and what lowers it.

With the gradient G of all samples at weights W known, a few sweeps go over

    f_c(V) + <G - G_c(W), V> + sum_j a_j / 2 ||V_j - V'_j||² + penalty(V)

from the weights V' that the chunk before left: a minibatch-prox method with variance reduction (Wang, Wang,
Srebro, "Memory and communication efficient distributed stochastic optimization with minibatch-prox", COLT
2017; Johnson, Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NIPS
2013). The damping ``a_j = max(h_j - h_cj, 0) + d h_j sqrt(50 / n_cj)``, with the largest curvature h_j of a
feature over the classes, falls with the entries n_cj the chunk has of it: where these are few the Hessian
of a chunk is wrong. The intercept is one more feature, which every sample has and no penalty counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import GradientSums, Measures
from bigmc.objectives import Curvature
from bigmc.solvers.sparse.chunk import Chunk
from bigmc.solvers.sparse.chunk_task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.intercept import improve_intercept
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.proximal_terms import Terms
from bigmc.solvers.sparse.sample import slope_and_bend
from bigmc.solvers.sparse.spill import Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.sweeps import Sweeper

#: Sweeps over a chunk in a round; more were measured to gain little.
_SWEEPS = 3
#: Columns that violate by less than this share of the largest violation, and of alpha, are left alone.
_NEGLIGIBLE = 0.1
#: Entries of a feature in a chunk with which it is damped by d times its curvature.
_ENTRIES = 50.0
#: With one chunk: sweeps at most.
_MOST_SWEEPS = 300
#: Newton steps of the intercept that take out its slope, at most, and what of it may be left over: in units
#: of the scores' precision and of the margins, and of the margins alone.
_INTERCEPT_STEPS, _ROUNDING, _BALANCED = 20, 16.0, 1e-9
#: Parts the columns are cut into for the workers, whatever their number.
_PARTS = 16


@dataclass
class Weights:
    """Weights of the candidates, layer by layer of the scratch file, and the intercept.

    Attributes
    ----------
    layers : sequence of int64 arrays
        Features.
    rows : list of float64 arrays of shape (n_features, width)
    intercept : float64 array of shape (n_classes,)
    """

    layers: Sequence[NDArray[np.int64]]
    rows: list[NDArray[np.float64]]
    intercept: NDArray[np.float64]

    @classmethod
    def of(
        cls, coef: Coefficients, intercept: NDArray[np.float64], layers: Sequence[NDArray[np.int64]]
    ) -> Weights:
        """Return a copy of some weights."""
        return cls(layers, [coef.take(layer) for layer in layers], intercept.copy())

    @property
    def finite(self) -> bool:
        """Whether all of them are numbers."""
        return bool(np.isfinite(self.intercept).all()) and all(np.isfinite(r).all() for r in self.rows)

    def coef(self, width: int) -> Coefficients:
        """Return those that are not zero."""
        return Coefficients.zeros(width).updated(list(zip(self.layers, self.rows, strict=True)))


@dataclass(frozen=True)
class Balanced:
    """An intercept for the samples of one chunk that makes the dual point of all samples feasible.

    Attributes
    ----------
    chunk : int
    intercept : float64 array of shape (n_classes,)
    left : float
        What rounding leaves of the slope by the intercept, times the intercept.
    """

    chunk: int
    intercept: NDArray[np.float64]
    left: float


class Evaluation:
    """Objective and gradient of the candidates at some weights, added up chunk by chunk.

    Parameters
    ----------
    task : ChunkTask
    layers : sequence of int64 arrays
        The candidates.
    coef : Coefficients
    intercept : float64 array of shape (n_classes,)
    """

    def __init__(
        self,
        task: ChunkTask,
        layers: Sequence[NDArray[np.int64]],
        coef: Coefficients,
        intercept: NDArray[np.float64],
    ) -> None:
        self._task, self._coef, self._intercept = task, coef, intercept
        self._margins = Margins.empty(task.n_classes)
        self._gradients = [np.zeros((len(layer), task.width)) for layer in layers]
        self._curvatures = [np.zeros(len(layer)) for layer in layers]
        self._slope, self._bend = np.zeros(task.n_classes), 0.0

    def add(self, chunk: Chunk) -> None:
        """Add the samples of a chunk."""
        task = self._task
        problem = task.problem(chunk)
        problem.rebuild_scores(self._coef, self._intercept, chunk.held)
        own = problem.margins()
        self._margins += own.stacked
        share = problem.weight_sum / task.weight_sum
        for columns, gradient, curvature in zip(chunk.held, self._gradients, self._curvatures, strict=True):
            part = _gradients(problem, columns)
            gradient += share * part[0]
            curvature += share * part[1]
        more = slope_and_bend(problem, own, task.weight_sum)
        self._slope += more[0]
        self._bend += more[1]

    def result(self) -> Evaluated:
        """Return what the chunks come to."""
        dtype, none = self._task.dtype, np.empty((0, self._task.width))
        return Evaluated(
            self._coef,
            self._intercept,
            self._task.upper(Margins.of(self._task.objective.loss, self._margins), self._coef),
            np.concatenate([none, *self._gradients]).astype(dtype),
            np.concatenate([none[:, 0], *self._curvatures]).astype(dtype),
            self._slope,
            self._bend,
        )


def evaluate(task: ChunkTask, spill: Spill, coef: Coefficients, intercept: NDArray[np.float64]) -> Evaluated:
    """Return objective and gradient of the candidates at some weights; one reading of the columns."""
    evaluation = Evaluation(task, [layer.features for layer in spill.layers], coef, intercept)
    for _, chunk in spill.chunks(range(spill.n_chunks)):
        evaluation.add(chunk)
    return evaluation.result()


def improve(
    task: ChunkTask, chunk: Chunk, weights: Weights, anchor: Evaluated, damping: float, n_iter: int
) -> int:
    """Take a few sweeps over the corrected loss of a chunk; `weights` move.

    Parameters
    ----------
    task : ChunkTask
    chunk : Chunk
    weights : Weights
        Those the chunk before left.
    anchor : Evaluated
        Weights at which the gradient of all samples is known.
    damping : float
        The d above.
    n_iter : int
        Number of the first sweep, for its shuffle.

    Returns
    -------
    int
        Sweeps taken.
    """
    problem = task.problem(chunk)
    problem.rebuild_scores(anchor.coef, anchor.intercept, chunk.held)
    terms = _corrections(problem, chunk, weights, anchor, damping)
    level = _level(problem, weights.intercept, anchor, damping) if task.fit_intercept else None
    problem.rebuild_scores(weights.coef(task.width), weights.intercept, chunk.held)
    negligible = _NEGLIGIBLE * min(task.alpha, distance(task, anchor, weights.layers).violation)
    sweeper = Sweeper(problem, task.descent.line_search, task.seed, task.fit_intercept, 0, 0)
    violations = [np.zeros(len(r)) for r in weights.rows]
    active = [np.arange(len(r)) for r in weights.rows]
    for sweep in range(n_iter, n_iter + _SWEEPS):
        if task.fit_intercept:
            improve_intercept(problem, weights.intercept, 1, level)
        for b in sweeper.shuffled(range(len(weights.rows)), sweep):
            sweeper.sweep(
                chunk.held[b],
                weights.rows[b],
                violations[b],
                active[b],
                sweep,
                task.alpha,
                negligible,
                terms[b],
            )
        active = [
            np.flatnonzero(r.any(axis=1) | (v > 0)) for r, v in zip(weights.rows, violations, strict=True)
        ]
    if task.fit_intercept:
        improve_intercept(problem, weights.intercept, 1, level)
    return _SWEEPS


def descend(
    task: ChunkTask, chunk: Chunk, weights: Weights, target: float, n_iter: int, newton_bytes: int
) -> int:
    """Move `weights` to the optimum of the candidates: the chunk has all samples.

    Parameters
    ----------
    task : ChunkTask
    chunk : Chunk
    weights : Weights
    target : float
        Largest violation that may be left.
    n_iter : int
        Number of the first sweep, for its shuffle.
    newton_bytes : int
        Room for Newton steps.

    Returns
    -------
    int
        Sweeps taken.
    """
    problem = task.problem(chunk)
    coef = weights.coef(task.width)
    problem.rebuild_scores(coef, weights.intercept, chunk.held)
    nnz = sum(columns.nnz for columns in chunk.held)
    visits = 100 * max(nnz, 10**6)
    sweeper = Sweeper(problem, task.descent.line_search, task.seed, task.fit_intercept, visits, newton_bytes)
    changes, n_sweeps = sweeper.sweep_until(
        chunk.held, coef, weights.intercept, task.alpha, target, _MOST_SWEEPS, n_iter
    )
    weights.rows = [moved for _, moved in changes]
    return n_sweeps


def balanced(task: ChunkTask, spill: Spill, anchor: Evaluated) -> Balanced | None:
    """Return a dual point near that of the anchor by whose intercept the slope is zero.

    The dual variables of the samples of one chunk are those of another intercept, the minimum of their loss
    with the slope of all others as a linear term. None if no chunk has enough positive margins for that.
    """
    half = task.weight_sum / 2.0
    noise = max(_ROUNDING * float(np.finfo(task.dtype).eps), _BALANCED)
    for number, chunk in spill.chunks(range(spill.n_chunks)):
        problem = task.problem(chunk)
        problem.rebuild_scores(anchor.coef, anchor.intercept, chunk.held)
        own = problem.margins()
        others = half * anchor.slope - own.intercept_slope
        intercept = anchor.intercept.copy()
        level = Terms(_row(problem, problem.two_over_n * others), np.zeros(1))
        moved = improve_intercept(problem, intercept, _INTERCEPT_STEPS, level, own)
        left = others + moved.intercept_slope
        if np.abs(left).max() <= noise * moved.total_slope * task.weight_sum / problem.weight_sum:
            return Balanced(number, intercept, float(left @ anchor.intercept) / half)
    return None


@dataclass(frozen=True)
class Distance:
    """How far the candidates are from their optimum.

    Attributes
    ----------
    violation : float
        Largest violation of the conditions of optimality, of the intercept too.
    gap : float
        What the candidates add to the gap of the dual point that the losses' derivatives are; infinite
        without a ridge, where that point must be scaled first.
    """

    violation: float
    gap: float


def distance(task: ChunkTask, point: Evaluated, layers: Sequence[NDArray[np.int64]]) -> Distance:
    """Measure the gradients of the candidates at a point.

    With a ridge the gap is ``sum_j R(W_j) + R*(-G_j) + <W_j, G_j>``, where R is penalty and ridge together,
    whose conjugate is the squared distance to the dual ball over twice the ridge.
    """
    ridge, start, gap = task.objective.ridge, 0, 0.0
    largest = float(np.linalg.norm(point.slope)) if task.fit_intercept else 0.0
    for layer in layers:
        out = Measures(*np.empty((3, len(layer))))
        gradient, rows = point.gradient[start : start + len(layer)], point.coef.take(layer)
        task.objective.measure_gradients(task.alpha, gradient, rows, task.n_classes, out)
        start += len(layer)
        largest = max(largest, float(out.violations.max(initial=0.0)))
        gap += task.objective.regulariser(task.alpha, rows) + float(np.vdot(rows, gradient))
        gap += float(out.distances.sum()) / (2.0 * ridge) if ridge > 0 else np.inf
    return Distance(largest, gap)


def _corrections(
    problem: Problem, chunk: Chunk, weights: Weights, anchor: Evaluated, damping: float
) -> list[Terms]:
    """Return what corrects the loss of a chunk whose scores are those of the anchor."""
    terms, start = [], 0
    for columns, before, counts in zip(chunk.held, weights.rows, chunk.counts(), strict=True):
        gradient, curvature = _gradients(problem, columns)
        here = slice(start, start + len(before))
        start += len(before)
        whole = anchor.curvature[here].astype(np.float64)
        added = np.maximum(whole - curvature, 0.0)
        added += damping * whole * np.sqrt(_ENTRIES / np.maximum(counts, 1))
        tilt = anchor.gradient[here] - gradient - added[:, None] * before
        terms.append(Terms(tilt, problem.objective.ridge + added))
    return terms


def _level(problem: Problem, intercept: NDArray[np.float64], anchor: Evaluated, damping: float) -> Terms:
    """Return what corrects the loss by the intercept, see `_corrections`."""
    slope, bend = slope_and_bend(problem, problem.margins(), problem.weight_sum)
    more = max(anchor.bend - bend, 0.0)
    more += damping * anchor.bend * float(np.sqrt(_ENTRIES / problem.n_samples))
    return Terms(_row(problem, anchor.slope - slope - more * intercept), np.array([more]))


def _row(problem: Problem, values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.pad(values, (0, problem.width - len(values)))[None]


def _gradients(problem: Problem, columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gradient and largest curvature of columns at the present scores."""
    n = len(columns.positions)
    sums = GradientSums(np.zeros((n, problem.width)), np.zeros(n))

    def add(part: NDArray[np.int64]) -> None:
        places = np.full(columns.indptr.shape[1] - 1, -1)
        places[columns.positions[part]] = part
        problem.objective.add_gradients(
            places, columns.entries, problem.samples, problem.n_classes, sums, Curvature.LARGEST
        )

    for _ in problem.engine.map(add, np.array_split(np.arange(n), min(_PARTS, max(n, 1)))):
        pass
    scale = problem.two_over_n * problem.scale_of(columns.features)
    return sums.gradients * scale[:, None], sums.curvatures * scale * problem.scale_of(columns.features)
