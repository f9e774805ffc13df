"""The loss of the samples in memory, and the terms that correct it to the gradient of all samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.linear.arguments import GradientSums, Samples
from bigmc.solvers.sparse.bounds import Entropies
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.sampled.passes import FullPass
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: Newton steps of the intercept at most.
_INTERCEPT_STEPS = 20
#: Parts the columns are cut into for the workers, whatever their number.
_PARTS = 16
#: The gradient by the intercept that may be left over, in units of the scores' precision and of the margins.
_ROUNDING = 16.0


@dataclass(frozen=True)
class Balanced:
    """A dual point of all samples that an intercept allows.

    Attributes
    ----------
    gradient : float64 array of shape (n_used, width)
        Of all features that occur.
    left : float
        What rounding leaves of the gradient by the intercept, times the intercept.
    """

    margins: Margins
    gradient: NDArray[np.float64]
    entropies: Entropies
    left: float


class SampleLoss:
    """The loss of samples in memory.

    Parameters
    ----------
    problem : Problem
        Of the samples.
    source : BlockSource
        Of the samples; keeps its blocks.
    """

    def __init__(self, problem: Problem, source: BlockSource) -> None:
        self._problem = problem
        self._source = source

    def terms(
        self,
        at: Evaluated,
        held: list[Columns],
        gradients: NDArray[np.float64],
        curvatures: NDArray[np.float64],
        damping: float,
    ) -> tuple[list[Terms], Terms]:
        """Return the terms that correct the loss at a point, whose scores the problem has.

        Parameters
        ----------
        held : list of Columns
            Columns of the terms.
        gradients, curvatures : float64 arrays
            Of all samples, for the columns held.

        Returns
        -------
        terms : list of Terms
            Of the columns held.
        level : Terms
            Of the intercept.
        """
        problem = self._problem
        ridge = problem.objective.ridge
        terms, start = [], 0
        for columns, (gradient, curvature) in problem.engine.map(self._gradients, held, self._dual_samples()):
            places = slice(start, start + len(columns.features))
            added = np.maximum(curvatures[places] - curvature, 0.0) + damping * curvatures[places]
            tilt = gradients[places] - gradient - added[:, None] * at.coef.take(columns.features)
            terms.append(Terms(tilt, ridge + added))
            start += len(columns.features)
        intercept_gradient, intercept_curvature = problem.margins().intercept_derivatives(problem.weight_sum)
        more = max(at.intercept_curvature - intercept_curvature, 0.0) + damping * at.intercept_curvature
        tilt = at.intercept_gradient - intercept_gradient - more * at.intercept
        return terms, Terms(problem.padded(tilt), np.array([more]))

    def balanced(
        self, coef: Coefficients, intercept: NDArray[np.float64], totals: FullPass, weight_sum: float
    ) -> Balanced | None:
        """Return a dual point near that of a pass by whose intercept the gradient is zero.

        The dual variables of the samples in memory are those of another intercept, the one which takes out
        the gradient of the pass: that of the loss of these samples, with the gradient of all others as
        a linear term, at its minimum. What it changes in the gradients of the features needs no pass.

        Parameters
        ----------
        coef, intercept
            Weights of the pass.
        weight_sum : float
            Of all samples.

        Returns
        -------
        Balanced or None
            None if the samples in memory cannot make up for the others: too few margins are positive, or
            residuals are bounded.
        """
        problem = self._problem
        held = list(self._source.columns_of(totals.features))
        problem.rebuild_scores(coef, intercept, held)
        pieces = [
            columns.choose(part)
            for columns in held
            for part in np.array_split(np.arange(len(columns.features)), _PARTS)
            if len(part)
        ]
        share, scales = problem.weight_sum / weight_sum, totals.entropies.scales
        gradient = totals.gradient.copy()

        def add(sign: float) -> None:
            start = 0
            for columns, (part, _) in problem.engine.map(self._gradients, pieces, self._dual_samples()):
                gradient[start : start + len(columns.features)] += sign * share * part
                start += len(columns.features)

        add(-1.0)
        own, entropies = problem.margins(), totals.entropies.values - problem.entropies(scales)
        intercept_gradient = totals.margins.intercept_gradient - own.intercept_gradient
        level = Terms(problem.padded(problem.two_over_n * intercept_gradient), np.zeros(1))
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # there may be no minimum
                moved = improve_intercept(problem, intercept.copy(), _INTERCEPT_STEPS, level, own)
        except DataError:
            return None
        add(1.0)
        entropies += problem.entropies(scales)
        margins = totals.margins.minus(own).plus(moved)
        left = margins.intercept_gradient
        noise = _ROUNDING * float(np.finfo(problem.scores.dtype).eps)
        if not np.abs(left).max() <= noise * margins.total_residual:
            return None
        product = 2.0 / weight_sum * float(left @ intercept)
        return Balanced(margins, gradient, Entropies(scales, entropies), product)

    def _dual_samples(self) -> Samples:
        """Return the samples as kernels take them that add up gradients; the scores stay."""
        return self._problem.dual_samples(np.empty((0, self._problem.width)))

    def _gradients(
        self, columns: Columns, samples: Samples
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return gradient and mean curvature of columns at the present scores."""
        problem = self._problem
        n = len(columns.positions)
        places = np.full(columns.indptr.shape[1] - 1, -1)
        places[columns.positions] = np.arange(n)
        sums = GradientSums(np.zeros((n, problem.width)), np.zeros(n))
        problem.objective.add_gradients(places, columns.entries, samples, problem.n_classes, sums)
        scale = problem.scale_of(columns.features)
        return (
            sums.gradients * (problem.two_over_n * scale)[:, None],
            sums.curvatures * (problem.two_over_n * scale**2),
        )
