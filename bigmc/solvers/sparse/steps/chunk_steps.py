"""Steps of the weights and of the level on the loss of a chunk, or on a quadratic model of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.columns import log_columns
from bigmc.kernels.linear.rows import log_rows
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.chunk_parts import Part
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.solvers.sparse.steps.visits import Aim, Visits, WorkingColumns, visit

#: With more classes than this the Hessian of the level is bounded by twice its diagonal.
_MOST_COUPLED = 16
_RIDGE = 1e-10
#: What a step of the level may leave of its gradient, in units of the scores' precision. With four units the
#: gradient of a feature that all samples have was .0028 alpha outside of its ball, now .0002.
_NOISE = 0.25


class ChunkSteps(ABC):
    """Steps on the loss of a chunk.

    Parameters
    ----------
    problem : Problem
        Of the chunk.
    alpha : float
        Weight of the penalty.
    set_scores : callable
        Sets the scores of the problem to those of the weights.
    """

    def __init__(
        self, descent: Descent, problem: Problem, alpha: float, set_scores: Callable[[], None]
    ) -> None:
        self._descent, self._problem, self._alpha, self._set_scores = descent, problem, alpha, set_scores

    @classmethod
    def of(
        cls, descent: Descent, problem: Problem, alpha: float, set_scores: Callable[[], None]
    ) -> ChunkSteps:
        """Return steps on a model where that is cheaper than the loss, unless they are to be constant."""
        model = problem.objective.loss.keeps_residuals and descent.line_search
        kind: type[ChunkSteps] = ModelSteps if model else LossSteps
        return kind(descent, problem, alpha, set_scores)

    @abstractmethod
    def begin_sweep(self) -> None:
        """Get ready for a sweep."""

    @abstractmethod
    def end(self) -> None:
        """Leave scores that are those of the weights."""

    @abstractmethod
    def move_level(self, level: NDArray[np.float64], terms: Terms) -> None:
        """Take a step of the level, of shape (n_classes,), which has `terms` beside the loss."""

    @abstractmethod
    def _sweeps(self, problem: Problem) -> Visits:
        """Return what takes a step for each column; the problem is that of a part."""

    @abstractmethod
    def _projections(self, problem: Problem) -> Visits:
        """Return what takes the gradient of each column back to the ball of the penalty."""

    def move_columns(self, part: Part, terms: Terms, sweep: int, negligible: float) -> NDArray[np.float64]:
        """Take a step for each active column, but for those that violate by no more than is negligible.

        Returns the violations of all columns before.
        """
        return self._visit(self._sweeps(part.problem), part, terms, Aim(sweep, self._alpha, negligible))

    def project(self, part: Part, terms: Terms, sweep: int, negligible: float) -> NDArray[np.float64]:
        """Take the gradient of each active column back to the ball of the penalty.

        What is out of it by no more than is negligible stays. The steps are added to the part's weights,
        which make no other difference. Returns what all gradients had beyond the ball before.
        """
        return self._visit(self._projections(part.problem), part, terms, Aim(sweep, self._alpha, negligible))

    def _visit(self, visits: Visits, part: Part, terms: Terms, aim: Aim) -> NDArray[np.float64]:
        working = WorkingColumns(part.columns, part.rows, np.zeros(len(part.rows)), terms)
        visit(part.problem, visits, working, part.active, aim, self._descent)
        return working.violations


class LossSteps(ChunkSteps):
    """On the loss itself: scores move along."""

    _begun = False

    def begin_sweep(self) -> None:
        """Set the scores before the first sweep."""
        if not self._begun:
            self._set_scores()
        self._begun = True

    def end(self) -> None:
        """Set the scores if there was no sweep: otherwise they have moved along."""
        self.begin_sweep()

    def move_level(self, level: NDArray[np.float64], terms: Terms) -> None:
        """Take a Newton step of the level."""
        improve_intercept(self._problem, level, 1, terms, noise=_NOISE)

    def _sweeps(self, problem: Problem) -> Visits:
        return Visits.on_loss(problem, problem.objective.sweep)

    def _projections(self, problem: Problem) -> Visits:
        return Visits.on_loss(problem, problem.objective.project)


class ModelSteps(ChunkSteps):
    """On a quadratic model of the log loss, made anew before every sweep: residuals move along."""

    def begin_sweep(self) -> None:
        """Set the scores, and take the residuals there."""
        self._set_scores()
        self._problem.fill_residuals(self._problem.spare_residuals)

    def end(self) -> None:
        """Set the scores."""
        self._set_scores()

    def move_level(self, level: NDArray[np.float64], terms: Terms) -> None:
        """Take the Newton step of the model, or with many classes one that is shorter."""
        problem, k = self._problem, self._problem.n_classes
        residual_sums, variance = np.zeros(problem.width), np.zeros(problem.width)
        products = np.zeros((k, k) if k <= _MOST_COUPLED else (0, 0))
        log_rows.add_level(
            problem.residual_samples, self._problem.spare_residuals, residual_sums, variance, products
        )
        ridge = float(terms.ridges[0])
        gradient = problem.two_over_n * residual_sums[:k] + terms.tilt[0, :k] + ridge * level
        # all classes together may move as they like, which changes no loss
        ridge += _RIDGE * max(problem.two_over_n * float(variance.max()), 1e-300)
        step = np.zeros(problem.width, problem.dtype)
        if len(products):
            hessian = 0.5 * problem.two_over_n * (np.diag(variance[:k] + np.diag(products)) - products)
            step[:k] = -np.linalg.solve(hessian + ridge * np.eye(k), gradient)
        else:  # twice its diagonal is more than the Hessian
            step[:k] = -gradient / (problem.two_over_n * variance[:k] + ridge)
        level += step[:k]
        log_rows.shift(problem.residual_samples, self._problem.spare_residuals, step)

    def _sweeps(self, problem: Problem) -> Visits:
        return Visits.on_model(problem, log_columns.sweep, self._problem.spare_residuals)

    def _projections(self, problem: Problem) -> Visits:
        return Visits.on_model(problem, log_columns.project, self._problem.spare_residuals)
