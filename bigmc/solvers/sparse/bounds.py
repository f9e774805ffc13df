"""The lower bound of the optimum that a pass gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.gradient import GradientPass
from bigmc.solvers.sparse.problem import Margins, Problem

#: Share of the feasible dual scale given up for the rounding of the gradient, in units of its precision.
_ROUNDING = 16.0


def lower_bound(
    problem: Problem, margins: Margins, factor: NDArray[np.float64], found: GradientPass
) -> float:
    """Return the better of the dual values that the present scores give.

    The derivatives of the losses, as dual variables, are scaled so that every gradient is in the dual ball
    of the penalty. With a ridge they need no scaling: the conjugate of ``alpha * penalty + ridge / 2 ||.||²``
    is the squared distance to that ball over twice the ridge.

    Parameters
    ----------
    problem : Problem
    margins : Margins
        At the present scores.
    factor : float64 array of shape (n_classes, n_classes), or of no rows
        Factors of the dual variables, with which `found` was computed.
    found : GradientPass
    """
    loss, ridge = problem.objective.loss, problem.objective.ridge
    weight = factor if len(factor) else np.ones(1)
    slopes, values = margins.sums * weight, margins.squares * weight * weight

    def value(scale: float) -> float:
        return loss.dual_value(
            scale, slopes, values, problem.weight_sum, lambda scale: problem.entropy(factor, scale)
        )

    allowance = 1.0 - _ROUNDING * float(np.finfo(problem.scores.dtype).eps)
    feasible = problem.alpha / found.largest_norm * allowance if found.largest_norm > 0 else np.inf
    best = value(min(feasible, loss.largest_scale(slopes, values)))
    if ridge > 0:
        best = max(best, value(1.0) - found.distance / (2.0 * ridge))
    return best
