"""The lower bound of the optimum that a pass gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.objectives import Objective
from bigmc.objectives.losses import LogLoss
from bigmc.solvers.sparse.margins import Margins, PairMargins

#: Scales of the dual point in units of the last, at which entropies are computed (log loss), and the least.
_SCALES = (0.5, 0.8, 0.95, 1.0, 1.02, 1.1, 1.5)
_SMALLEST_SCALE = 1e-3
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


class Minimised(Protocol):
    """What is minimised: `bigmc.solvers.sparse.run.Task`, or `bigmc.solvers.sparse.problem.Problem`."""

    @property
    def objective(self) -> Objective:
        """Loss, penalty and ridge."""
        ...

    @property
    def alpha(self) -> float:
        """Weight of the penalty."""
        ...

    @property
    def weight_sum(self) -> float:
        """Sum of the sample weights."""
        ...


class DualPoint(NamedTuple):
    """A dual point on the ray of those of the present scores: its scale, and its value."""

    scale: float
    value: float


@dataclass(frozen=True)
class Entropies:
    """Entropies of a dual point at some scales, of which the bound of the log loss is made.

    Attributes
    ----------
    scales : tuple of float
        Increasing; none for other losses.
    values : float64 array of shape (n_scales,)
        Summed over the samples.
    """

    scales: tuple[float, ...]
    values: NDArray[np.float64]

    def __call__(self, scale: float) -> float:
        """Return at most the entropy at another scale: it is concave and 0 at 0, so the chord is below."""
        return float(np.interp(scale, (0.0, *self.scales), (0.0, *self.values)))


def entropy_scales(objective: Objective, last: float) -> tuple[float, ...]:
    """Return the scales of a dual point at which its entropies are wanted, given that of the last."""
    if objective.loss.name != LogLoss.name:
        return ()
    return tuple(sorted({1.0, *(min(1.0, last * scale) for scale in _SCALES)}))


def next_scale(bound: DualPoint) -> float:
    """Return the scale of a dual point, not below the smallest at which entropies are computed."""
    return min(1.0, max(bound.scale, _SMALLEST_SCALE))


def lower_bound(
    minimised: Minimised,
    precision: np.dtype[Any],
    margins: Margins,
    gradients: Gradients,
    entropy: Callable[[float], float],
    factor: NDArray[np.float64] | None = None,
) -> DualPoint:
    """Return the better of the dual points that the present scores give.

    The derivatives of the losses, as dual variables, are scaled so that every gradient is in the dual ball
    of the penalty. With a ridge they need no scaling: the conjugate of ``alpha * penalty + ridge / 2 ||.||²``
    is the squared distance to that ball over twice the ridge.

    Parameters
    ----------
    precision : numpy.dtype
        Of the scores.
    margins : Margins
        At the present scores; those of pairs where there are factors.
    entropy : callable
        Returns the entropy of the dual point at a scale, for the log loss: `Entropies`, or
        `bigmc.solvers.sparse.problem.Problem.entropy` with the factors.
    factor : float64 array of shape (n_classes, n_classes), or of no rows, optional
        Factors of the dual variables, with which `gradients` was computed.
    """
    loss, ridge = minimised.objective.loss, minimised.objective.ridge
    if factor is not None and len(factor):
        assert isinstance(margins, PairMargins)
        residual_sum, total = margins.balanced(factor)
    else:
        residual_sum, total = margins.total_residual, margins.dual_values

    def value(scale: float) -> float:
        return loss.dual_value(scale, residual_sum, total, minimised.weight_sum, entropy)

    allowance = 1.0 - _ROUNDING * float(np.finfo(precision).eps)
    norm = gradients.largest_norm
    feasible = minimised.alpha / norm * allowance if norm > 0 else np.inf
    scale = min(feasible, loss.largest_scale(residual_sum, total))
    best = DualPoint(scale, value(scale))
    if ridge > 0:
        unscaled = DualPoint(1.0, value(1.0) - gradients.distance / (2.0 * ridge))
        best = max(best, unscaled, key=lambda point: point.value)
    return best
