"""First-order steps on the restricted problem in its compact saddle form.

    min over μ, max over p ≥ 0, Σ p = 1 :   1 − τᵀμ + λᵀ|μ| + Σ_x (Σ_y p_xy ψ(x)ᵀμ_y − max_y p_xy)

equals problem (3), because the best p puts its mass on the label subset of eq. (16); it has one number for
every sample and class instead of one for every label subset. The method is the primal-dual hybrid
gradient with adaptive steps, restarts and primal weight of Applegate et al., "Practical large-scale linear
programming using primal-dual hybrid gradient" (2021); the prox of ``Σ_x max_y p_xy`` over the simplex is
`bigmc.kernels.minimax.project_dual`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.minimax import add_multiple, primal_step, project_dual, subset_values
from bigmc.solvers.minimax.expectations import Expectations
from bigmc.solvers.minimax.products import Products

#: Steps between two checks of the gap of the restricted problem.
_CHECK = 40
#: Restart when the gap is at most the first share of that at the last restart, or the second and increases.
_SUFFICIENT, _NECESSARY = 0.2, 0.8
#: Weight of the new estimate of the primal weight, in logarithms.
_SMOOTHING = 0.5
#: Primal weight at the start.
_BALANCE = 0.05
#: The intercept, which is in every sample, moves this much faster than a feature of its size.
_INTERCEPT_SCALE = 5.0
#: Least deviation assumed of a component, relative to the largest deviation of its feature.
_LEAST_DEVIATION = 0.05


@dataclass(frozen=True)
class SaddleProblem:
    """The expectations in units in which all components of μ are alike; arrays of shape (n_psi, n_classes).

    μ is the scale times the coefficients of this problem, `tau` and `lam` are τ and λ times the scale.
    """

    scale: NDArray[np.float64]
    tau: NDArray[np.float64]
    lam: NDArray[np.float64]

    @classmethod
    def of(cls, expected: Expectations, lam: NDArray[np.float64]) -> SaddleProblem:
        """Scale by the deviations of the components."""
        least = _LEAST_DEVIATION * expected.deviation.max(axis=1, keepdims=True)
        scale = 1.0 / np.maximum(expected.deviation, np.where(least > 0, least, 1.0))
        if expected.intercept:
            scale[-1] *= _INTERCEPT_SCALE
        return cls(scale, scale * expected.tau, scale * lam)

    def of_features(self, features: NDArray[np.int64]) -> SaddleProblem:
        """Return the problem with some of the features only."""
        return SaddleProblem(self.scale[features], self.tau[features], self.lam[features])


@dataclass
class Iterate:
    """The state of the method: everything the next step depends on.

    `coef` is the scaled μ now, of shape (n_psi, n_classes), `coef_sum` its sum since the last restart, and
    `coef_anchor` its value then; so are `dual`, `dual_sum` and `dual_anchor` of p, of shape (n_rows,
    n_classes). `weight` is the sum of the step lengths in the sums. `balance` is the primal weight, `shift`
    the multiplier of the last projection. `restart_gap` and `last_gap` are the gaps at the last restart and
    at the last check.
    """

    coef: NDArray[np.float64]
    coef_sum: NDArray[np.float64]
    coef_anchor: NDArray[np.float64]
    dual: NDArray[np.float64]
    dual_sum: NDArray[np.float64]
    dual_anchor: NDArray[np.float64]
    weight: float = 0.0
    step: float = 0.0
    balance: float = _BALANCE
    shift: float = 0.0
    n_iter: int = 0
    n_rejected: int = 0
    restart_gap: float = 1.0
    last_gap: float = np.inf

    @classmethod
    def start(cls, dual: NDArray[np.float64], coef: NDArray[np.float64]) -> Iterate:
        """Start from a scaled μ and a distribution over the rows."""
        return cls(coef, np.zeros_like(coef), coef.copy(), dual, np.zeros_like(dual), dual.copy())

    def move_rows(self, places: NDArray[np.int64], n_rows: int) -> None:
        """Move the rows of p to new places among `n_rows`; those with the place -1 are dropped."""
        self._move(("dual", "dual_sum", "dual_anchor"), places, n_rows)

    def move_features(self, places: NDArray[np.int64], n_features: int) -> None:
        """Move the features of μ to new places among `n_features`."""
        self._move(("coef", "coef_sum", "coef_anchor"), places, n_features)

    def _move(self, names: tuple[str, ...], places: NDArray[np.int64], n_places: int) -> None:
        for name in names:
            old = getattr(self, name)
            new = np.zeros((n_places, old.shape[1]))
            new[places[places >= 0]] = old[places >= 0]
            setattr(self, name, new)


@dataclass(frozen=True)
class Candidate:
    """A pair of points: scaled μ, of shape (n_psi, n_classes), and p, of shape (n_rows, n_classes).

    `upper` bounds the restricted problem, up to rounding. `lower` estimates the other bound: expectations
    outside a slack of zero cost as much as μ has at stake there, where
    `bigmc.solvers.minimax.bounds.lower_bound` would be zero.
    """

    coef: NDArray[np.float64]
    dual: NDArray[np.float64]
    upper: float
    lower: float


Space = NDArray[np.float64] | None
"""Where a result is written to; None makes a new array."""


class SaddleSolver:
    """The method on given rows; `matrix`, dense or sparse, has ψ of the rows, shape (n_rows, n_psi)."""

    def __init__(self, problem: SaddleProblem, matrix: Any) -> None:
        shape = problem.scale.shape
        self._problem = problem
        self._products = Products(matrix, shape[1])
        self._caps = np.empty(matrix.shape[0])
        self._spare, self._step = np.empty((2, *shape))
        of_rows = np.empty((4, matrix.shape[0], shape[1]))
        self._spare_dual, self._dual_step, self._spare_scores, self._change = of_rows

    def _scores(self, coef: NDArray[np.float64], out: Space = None) -> NDArray[np.float64]:
        product = self._products.scores(coef, self._problem.scale)
        scores: NDArray[np.float64] = np.positive(product, out=out, dtype=np.float64)
        return scores

    def _moments(self, dual: NDArray[np.float64], out: Space = None) -> NDArray[np.float64]:
        moments: NDArray[np.float64] = np.multiply(self._problem.scale, self._products.moments(dual), out=out)
        return moments

    def _first_step(self) -> float:
        """Return one over an estimate of the norm of the linear map."""
        coef = np.ones(self._problem.scale.shape)
        norm = 1.0
        for _ in range(10):
            coef = self._moments(self._scores(coef / np.linalg.norm(coef)))
            norm = float(np.linalg.norm(coef))
        return 1.0 / np.sqrt(norm) if norm > 0 else 1.0

    def run(self, now: Iterate, n_steps: int, end: float) -> tuple[Candidate, Candidate]:
        """Make steps from `now`, which is changed, and return the last point and the average point.

        At the time `end` of the monotonic clock the steps stop, but a few are always made.
        """
        if now.step == 0.0:
            now.step = self._first_step()
        scores, moments = self._scores(now.coef), self._moments(now.dual)
        score_sum, moment_sum = self._scores(now.coef_sum), self._moments(now.dual_sum)
        for k in range(1, n_steps + 1):
            scores, moments, used = self._advance(now, scores, moments)
            for values, total in (
                (now.coef, now.coef_sum),
                (now.dual, now.dual_sum),
                (scores, score_sum),
                (moments, moment_sum),
            ):
                add_multiple(values, used, total)
            now.weight += used
            if k % _CHECK and k < n_steps:
                continue
            last = self._candidate(now.coef, now.dual, scores, moments)
            average = self._candidate(
                now.coef_sum / now.weight,
                now.dual_sum / now.weight,
                score_sum / now.weight,
                moment_sum / now.weight,
            )
            gaps = last.upper - last.lower, average.upper - average.lower
            gap = min(gaps)
            falls = gap <= _SUFFICIENT * now.restart_gap
            if falls or (gap <= _NECESSARY * now.restart_gap and gap > now.last_gap):
                if gaps[1] < gaps[0]:
                    now.coef, now.dual = average.coef.copy(), average.dual.copy()
                    scores, moments = score_sum / now.weight, moment_sum / now.weight
                self._restart(now, gap)
                score_sum[:] = 0.0
                moment_sum[:] = 0.0
            else:
                now.last_gap = gap
            if time.monotonic() >= end:
                break
        return last, average

    def _advance(
        self, now: Iterate, scores: NDArray[np.float64], moments: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Make one step of an acceptable length; return scores, moments (overwritten) and the length."""
        problem = self._problem
        now.n_iter += 1
        while True:
            used = now.step
            eta, sigma = used / now.balance, used * now.balance
            coef, dual = self._spare, self._spare_dual
            primal_step(now.coef, moments, problem.tau, problem.lam, eta, coef, self._step)
            new_scores = self._scores(coef, self._spare_scores)
            change = np.subtract(new_scores, scores, out=self._change)
            np.add(new_scores, change, out=dual)
            dual *= sigma
            dual += now.dual
            shift = project_dual(dual, sigma, now.shift, self._caps)
            np.subtract(dual, now.dual, out=self._dual_step)
            step_coef, step_dual = self._step.ravel(), self._dual_step.ravel()
            length = now.balance * (step_coef @ step_coef) + (step_dual @ step_dual) / now.balance
            interaction = 2.0 * abs(step_dual @ change.ravel())
            limit = length / interaction if interaction > 0 else np.inf
            count = now.n_iter + now.n_rejected + 1.0
            now.step = min((1 - count**-0.3) * limit, (1 + count**-0.6) * used)
            now.shift = shift
            if used <= limit:
                break
            now.n_rejected += 1
        self._spare, now.coef, self._spare_dual, now.dual = now.coef, coef, now.dual, dual
        self._spare_scores = scores
        return new_scores, self._moments(dual, moments), used

    def _restart(self, now: Iterate, gap: float) -> None:
        moved = np.linalg.norm(now.coef - now.coef_anchor), np.linalg.norm(now.dual - now.dual_anchor)
        if min(moved) > 0:
            estimate = _SMOOTHING * np.log(moved[1] / moved[0]) + (1 - _SMOOTHING) * np.log(now.balance)
            now.balance = float(np.exp(estimate))
        now.coef_anchor, now.dual_anchor = now.coef.copy(), now.dual.copy()
        now.coef_sum[:] = 0.0
        now.dual_sum[:] = 0.0
        now.weight, now.restart_gap, now.last_gap = 0.0, gap, np.inf

    def _candidate(
        self,
        coef: NDArray[np.float64],
        dual: NDArray[np.float64],
        scores: NDArray[np.float64],
        moments: NDArray[np.float64],
    ) -> Candidate:
        problem = self._problem
        values = np.empty(len(scores))
        phi = np.empty(1)
        subset_values(scores, np.ones(1), values, phi)
        upper = 1.0 - np.vdot(problem.tau, coef) + phi[0] + np.vdot(problem.lam, np.abs(coef))
        distance = np.abs(moments - problem.tau)
        slack = problem.lam > 0
        inside = np.divide(problem.lam, distance, out=np.ones_like(distance), where=slack & (distance > 0))
        lower = min(1.0, float(inside.min())) * (1.0 - float(dual.max(axis=1).sum()))
        lower -= float(np.abs(coef[~slack]) @ distance[~slack])
        return Candidate(coef, dual, float(upper), lower)
