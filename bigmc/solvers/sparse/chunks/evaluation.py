"""Objective and gradient of the candidates at some weights, and how far these are from optimal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import Measures
from bigmc.solvers.sparse.chunks.rare_features import RareFeatures
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.measures import measured_together, measures_of
from bigmc.solvers.sparse.scratch.chunk import Chunk
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.chunk_parts import gradients_of


class Evaluation:
    """Objective and gradient of the candidates at some weights, added up chunk by chunk.

    Parameters
    ----------
    task : ChunkTask
    layers : sequence of int64 arrays
        The candidates.
    coef : Coefficients
    intercept : float64 array of shape (n_classes,)

    Attributes
    ----------
    margins : float64 array
        See `Margins.empty`.
    """

    def __init__(
        self,
        task: ChunkTask,
        layers: Sequence[NDArray[np.int64]],
        coef: Coefficients,
        intercept: NDArray[np.float64],
    ) -> None:
        self._task, self._coef, self._intercept = task, coef, intercept
        self.margins = Margins.empty(task.n_classes)
        self._gradients = [np.zeros((len(layer), task.width)) for layer in layers]
        self._curvatures = [np.zeros(len(layer)) for layer in layers]
        self._intercept_gradient, self._intercept_curvature = np.zeros(task.n_classes), 0.0

    def add(self, chunk: Chunk, rare: RareFeatures | None = None) -> None:
        """Add the samples of a chunk, of which those of rare features are collected on the way."""
        task = self._task
        problem = task.problem(chunk)
        problem.rebuild_scores(self._coef, self._intercept, chunk.held)
        if rare:
            rare.add(chunk, problem.scores.__getitem__)
        own = problem.margins()
        problem.fill_residuals()
        self.margins += own.stacked
        share = problem.weight_sum / task.weight_sum
        for columns, gradient, curvature in zip(chunk.held, self._gradients, self._curvatures, strict=True):
            part = gradients_of(problem, columns)
            gradient += share * part[0]
            curvature += share * part[1]
        intercept_gradient, intercept_curvature = own.intercept_derivatives(task.weight_sum)
        self._intercept_gradient += intercept_gradient
        self._intercept_curvature += intercept_curvature

    @property
    def gradient(self) -> NDArray[np.float64]:
        """Gradient by the candidates, layer by layer, of shape (n_candidates, width)."""
        return np.concatenate([np.empty((0, self._task.width)), *self._gradients])

    @property
    def curvature(self) -> NDArray[np.float64]:
        """Largest curvature of each candidate, of shape (n_candidates,)."""
        return np.concatenate([np.empty(0), *self._curvatures])

    def result(self) -> Evaluated:
        """Return what the chunks come to."""
        dtype = self._task.dtype
        return Evaluated(
            self._coef,
            self._intercept,
            self._task.upper(Margins.of(self._task.objective.loss, self.margins), self._coef),
            self.gradient.astype(dtype),
            self.curvature.astype(dtype),
            self._intercept_gradient,
            self._intercept_curvature,
        )


def evaluate_by_columns(
    task: ChunkTask,
    spill: Spill,
    coef: Coefficients,
    intercept: NDArray[np.float64],
    rare: RareFeatures | None = None,
) -> Evaluated:
    """Return objective and gradient of the candidates at some weights; one reading of the columns.

    On the way the samples of rare features are collected.
    """
    evaluation = Evaluation(task, spill.features_by_layer, coef, intercept)
    for chunk in spill.chunks():
        evaluation.add(chunk, rare)
    return evaluation.result()


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
    largest = float(np.linalg.norm(point.intercept_gradient)) if task.fit_intercept else 0.0
    for features in measured_together(layers, task.width):
        out = Measures(*np.empty((3, len(features))))
        gradient, rows = point.gradient[start : start + len(features)], point.coef.take(features)
        task.objective.measure_gradients(task.alpha, gradient, rows, task.n_classes, out)
        start += len(features)
        largest = max(largest, float(out.violations.max(initial=0.0)))
        gap += task.objective.regulariser(task.alpha, rows) + float(np.vdot(rows, gradient))
        gap += float(out.distances.sum()) / (2.0 * ridge) if ridge > 0 else np.inf
    return Distance(largest, gap)


def dual_norms(task: ChunkTask, point: Evaluated, layers: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the dual norms of the gradients of the candidates at a point, layer by layer."""
    return candidate_measures(task, point, layers).norms


def relative_norms(
    task: ChunkTask, point: Evaluated, layers: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return the same in units of alpha: 1 is the surface of the dual ball."""
    return dual_norms(task, point, layers) / max(task.alpha, 1e-300)


def candidate_measures(task: ChunkTask, point: Evaluated, layers: Sequence[NDArray[np.int64]]) -> Measures:
    """Measure the gradients of the candidates at a point, layer by layer."""
    return measures_of(task.objective, task.alpha, task.n_classes, point.coef, point.gradient, layers)
