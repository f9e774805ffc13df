"""The loss of a chunk of samples, corrected so that it stands for that of all, and what lowers it.

With the gradient G of all samples at weights W known, a few sweeps go over

    f_c(V) + <G - G_c(W), V> + sum_j a_j / 2 ||V_j - V'_j||² + penalty(V)

from the weights V' that the chunk before left: a minibatch-prox method with variance reduction (Wang, Wang,
Srebro, "Memory and communication efficient distributed stochastic optimization with minibatch-prox", COLT
2017; Johnson, Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NIPS
2013). The damping ``a_j = max(h_j - h_cj, 0) + d h_j sqrt(50 / n_cj)``, with the largest curvature h_j of a
feature over the classes, falls with the entries n_cj the chunk has of it: where these are few the Hessian
of a chunk is wrong. The intercept is one more feature, which every sample has and no penalty counts; beside
centred columns (`bigmc.solvers.sparse.steps.chunk_parts`) it is the level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.damping import Damped
from bigmc.solvers.sparse.chunks.evaluation import distance
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.chunk import Chunk
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.chunk_parts import (
    Part,
    centred_parts,
    gradients_of,
    places_among_candidates,
    plain_parts,
    set_scores,
    shift_of,
    whole_gradients,
)
from bigmc.solvers.sparse.steps.chunk_steps import ChunkSteps
from bigmc.solvers.sparse.steps.model_sweeps import sweeper_of
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.solvers.sparse.steps.sweeps import Course, shuffled

#: Sweeps over a chunk in a round; more were measured to gain little.
_SWEEPS = 3
#: Columns that violate by less than this share of the largest violation, and of alpha, are left alone.
_NEGLIGIBLE = 0.02
#: Entries of a feature in a chunk with which it is damped by d times its curvature.
_ENTRIES = 50.0
#: Share of its curvature over all samples that a centred column is taken to have at least in a chunk. Where a
#: chunk has no positive margin, its loss is flat, and no damping would hold what the gradient of all pulls.
_LEAST_SHARE = 0.01
#: With one chunk: sweeps at most; the violation to reach in units of what was measured, and of alpha at least
#: and at most; and without alpha the gap that it comes to, in units of the tolerance.
_MOST_SWEEPS = 300
_FRACTION, _FINEST, _COARSEST, _TOLERATED = 0.02, 1e-4, 0.05, 0.5


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


def improve(task: ChunkTask, chunk: Chunk, weights: Weights, anchor: Evaluated, damped: Damped) -> int:
    """Take a few sweeps over the corrected loss of a chunk; `weights` move.

    Parameters
    ----------
    task : ChunkTask
    chunk : Chunk
    weights : Weights
        Those the chunk before left.
    anchor : Evaluated
        Weights at which the gradient of all samples is known.
    damped : Damped
        The d above, and the number of the first sweep, for its shuffle.

    Returns
    -------
    int
        Sweeps taken.
    """
    problem = task.problem(chunk)
    problem.rebuild_scores(anchor.coef, anchor.intercept, chunk.held)
    centred = centred_parts(problem, chunk, weights.rows) if task.fit_intercept else []
    parts = plain_parts(problem, chunk, weights.rows, centred) + centred
    level, n_classes = weights.intercept, task.n_classes
    level += shift_of(centred, n_classes)
    of_level = _level_terms(problem, level, anchor, damped.of_intercept) if task.fit_intercept else None
    problem.fill_residuals()
    terms = _corrections(parts, chunk, anchor, damped.of_features)
    negligible = _NEGLIGIBLE * min(task.alpha, distance(task, anchor, weights.layers).violation)
    steps = ChunkSteps.of(
        task.descent, problem, task.alpha, lambda: set_scores(problem, chunk, weights.rows, centred, level)
    )
    for sweep in range(damped.n_iter, damped.n_iter + _SWEEPS):
        steps.begin_sweep()
        if of_level:
            steps.move_level(level, of_level)
        for b in shuffled(range(len(parts)), (task.seed, sweep)) if parts else []:
            violations = steps.move_columns(parts[b], terms[b], sweep, negligible)
            wanted: NDArray[np.bool_] = parts[b].rows.any(axis=1) | (violations > 0)
            parts[b].active = parts[b].active[wanted[parts[b].active]]
    if of_level:
        steps.move_level(level, of_level)
    for part in centred:
        weights.rows[part.layer][part.places] = part.rows
    level -= shift_of(centred, task.n_classes)
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
    sweeper = sweeper_of(problem, task.descent, visits, newton_bytes)
    course = Course(task.alpha, target, _MOST_SWEEPS, n_iter)
    changes, n_sweeps = sweeper.sweep_until(chunk.held, coef, weights.intercept, course)
    weights.rows = [moved for _, moved in changes]
    return n_sweeps


def violation_to_reach(task: ChunkTask, anchor: Evaluated, layers: Sequence[NDArray[np.int64]]) -> float:
    """Return the violation that a descent to the optimum of the candidates aims at."""
    target = max(_FRACTION * distance(task, anchor, layers).violation, _FINEST * task.alpha)
    if task.alpha > 0:
        return min(target, _COARSEST * task.alpha)
    # the squares of all violations, over twice the ridge, are the gap
    gap = _TOLERATED * task.tol * anchor.objective
    return max(target, math.sqrt(2.0 * task.objective.ridge * gap / max(1, sum(map(len, layers)))))


def _corrections(
    parts: Sequence[Part], chunk: Chunk, anchor: Evaluated, damping: NDArray[np.floating]
) -> list[Terms]:
    """Return what corrects the loss of a chunk whose scores are those of the anchor."""
    terms, counts = [], chunk.counts()
    for part in parts:
        gradient, curvature = gradients_of(part.problem, part.columns)
        at = places_among_candidates(part, chunk)
        raw = anchor.curvature[at].astype(np.float64)
        if part.means is None:
            added, noisy = np.maximum(raw - curvature, 0.0), raw
        else:  # what chunks get wrong is mostly what the level does to these columns
            added, noisy = np.zeros(len(raw)), np.sqrt(np.maximum(curvature, _LEAST_SHARE * raw) * raw)
        added += damping[at] * noisy * np.sqrt(_ENTRIES / np.maximum(counts[part.layer][part.places], 1))
        tilt = whole_gradients(part, chunk, anchor) - gradient - added[:, None] * part.rows
        terms.append(Terms(tilt, part.problem.objective.ridge + added))
    return terms


def _level_terms(problem: Problem, level: NDArray[np.float64], anchor: Evaluated, damping: float) -> Terms:
    """Return what corrects the loss by the level, see `_corrections`."""
    intercept_gradient, intercept_curvature = problem.margins().intercept_derivatives(problem.weight_sum)
    more = max(anchor.intercept_curvature - intercept_curvature, 0.0)
    more += damping * anchor.intercept_curvature * float(np.sqrt(_ENTRIES / problem.n_samples))
    tilt = anchor.intercept_gradient - intercept_gradient - more * level
    return Terms(problem.padded(tilt), np.array([more]))
