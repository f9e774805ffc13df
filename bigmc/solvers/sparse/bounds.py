"""The lower bound of the optimum that a pass gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.objectives import Objective
from bigmc.solvers.sparse.margins import Margins, PairMargins

#: Share of the feasible dual scale given up for the rounding of the gradient, in units of its precision.
_ROUNDING = 16.0


class Gradients(Protocol):
    """What of the gradients of all features decides the bound."""

    @property
    def largest_norm(self) -> float:
        """``max_j ||G_j||`` in the dual norm of the penalty."""
        ...

    @property
    def distance(self) -> float:
        """``sum_j dist(G_j, alpha * dual ball)²``, where there is a ridge."""
        ...


class DualPoint(NamedTuple):
    """A dual point on the ray of those of the present scores: its scale, and its value."""

    scale: float
    value: float


def lower_bound(
    objective: Objective,
    alpha: float,
    weight_sum: float,
    precision: np.dtype[Any],
    margins: Margins,
    factor: NDArray[np.float64],
    gradients: Gradients,
    entropy: Callable[[NDArray[np.float64], float], float] | None = None,
) -> DualPoint:
    """Return the better of the dual points that the present scores give.

    The derivatives of the losses, as dual variables, are scaled so that every gradient is in the dual ball
    of the penalty. With a ridge they need no scaling: the conjugate of ``alpha * penalty + ridge / 2 ||.||²``
    is the squared distance to that ball over twice the ridge.

    Parameters
    ----------
    objective : Objective
    alpha, weight_sum : float
    precision : numpy.dtype
        Of the scores.
    margins : Margins
        At the present scores; those of pairs where there are factors.
    factor : float64 array of shape (n_classes, n_classes), or of no rows
        Factors of the dual variables, with which `gradients` was computed.
    gradients : Gradients
    entropy : callable, optional
        For the log loss, see `bigmc.solvers.sparse.problem.Problem.entropy`.
    """
    loss, ridge = objective.loss, objective.ridge
    if len(factor):
        assert isinstance(margins, PairMargins)
        residual_sum, total = margins.balanced(factor)
    else:
        residual_sum, total = margins.total_residual, margins.dual_values

    def value(scale: float) -> float:
        def scaled_entropy(scale: float) -> float:
            assert entropy is not None
            return entropy(factor, scale)

        return loss.dual_value(scale, residual_sum, total, weight_sum, scaled_entropy)

    allowance = 1.0 - _ROUNDING * float(np.finfo(precision).eps)
    feasible = alpha / gradients.largest_norm * allowance if gradients.largest_norm > 0 else np.inf
    scale = min(feasible, loss.largest_scale(residual_sum, total))
    best = DualPoint(scale, value(scale))
    if ridge > 0:
        unscaled = DualPoint(1.0, value(1.0) - gradients.distance / (2.0 * ridge))
        best = max(best, unscaled, key=lambda point: point.value)
    return best
