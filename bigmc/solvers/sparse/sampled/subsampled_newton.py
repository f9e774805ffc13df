"""Rounds for data whose features with weights do not fit: passes over all samples, descent on a part of them.

A round makes one pass over the shards, which gives the objective, the certificate and the gradient G of all
features at the present weights W. Then it minimises, over a random sample S that is held in memory,

    f_S(V) + <G - G_S(W), V> + sum_j c_j / 2 ||V_j - W_j||² + penalty(V),   c_j = max(h_j - h_Sj, 0) + d h_j,

where ``f_S`` is the mean loss of the sample and ``h`` the mean curvature of a feature. The first two terms
have the gradient of all samples at W: the idea of distributed approximate Newton methods (Shamir, Srebro,
Zhang, "Communication-efficient distributed optimization using an approximate Newton-type method", ICML
2014). The third gives every feature at least the curvature it has over all samples, since the features that
are rare in the sample would take steps far too long without. The error of the weights shrinks from round
to round about as much as the Hessian of the sample differs from that of all samples.

How long the step should have been the next pass tells, from the derivatives at both its ends. The round that
follows starts from there, with a gradient interpolated between those of the two passes, which costs no pass
of its own. The damping d is 0 until a round makes the objective larger, or its descent has no end: the hinge
loss of a sample has no curvature where no margin is positive.

An intercept is one more feature in all of this. No dual point may have a gradient by it, but a pass has one:
`bigmc.solvers.sparse.sampled.sample` takes it out by the dual variables of the sample, which costs no pass.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.objectives import Objective
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Fingerprint, Limits, RunContext, pass_progress, save
from bigmc.solvers.sparse.bounds import entropy_scales, lower_bound, next_scale
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.measures import measures_of
from bigmc.solvers.sparse.memory_plan import SamplePlan
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.run import Task
from bigmc.solvers.sparse.sampled.passes import FullPass, Job, full_pass
from bigmc.solvers.sparse.sampled.sample import SampleLoss
from bigmc.solvers.sparse.sampled.state import SampledState
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.sweeps import Corrections, Course, Sweeper

#: The descent leaves features alone whose gradient is below this share of alpha and that have no weights.
_CANDIDATE = 0.6
#: It ends when the violation is this share of that of the pass, or of the tolerance times alpha.
_FRACTION, _TOLERATED = 0.02, 0.1
_MOST_SWEEPS = 200
#: Newton steps of the intercept that follow, at most.
_INTERCEPT_STEPS = 20
#: The damping after a first step that was too long, and the factor by which it grows after others.
_LEAST_DAMPING, _DAMPING_FACTOR = 0.02, 3.0
#: The factor by which it shrinks after a good one.
_RELAXED = 1.5
#: From an objective that is larger by more than this factor nothing is interpolated.
_FAR = 1.1
#: How often it grows in one round until the descent has an end.
_TRIES = 8
#: Bounds of the part of a step that is taken in the end.
_SHORTEST, _LONGEST = 0.05, 2.0
#: An objective is larger only if by more than rounding, in units of the scores' precision.
_ROUNDING = 1.0


@dataclass(frozen=True)
class Measured:
    """How far the gradients of a pass are from the conditions of optimality.

    Attributes
    ----------
    norms : float64 array of shape (n_used,)
    violations : float64 array of shape (n_used,)
    weighted : bool array of shape (n_used,)
        Features with weights.
    distance : float
        With a ridge, ``sum_j dist(G_j, alpha * dual ball)²``.
    """

    norms: NDArray[np.float64]
    violations: NDArray[np.float64]
    weighted: NDArray[np.bool_]
    distance: float

    @property
    def largest_norm(self) -> float:
        """``max_j ||G_j||``."""
        return float(self.norms.max(initial=0.0))

    @property
    def violation(self) -> float:
        """Largest violation of the conditions of optimality."""
        return float(self.violations.max(initial=0.0))

    @classmethod
    def of(
        cls, features: NDArray[np.int64], gradient: NDArray[np.float64], coef: Coefficients, problem: Problem
    ) -> Measured:
        """Measure the gradient of every feature that occurs."""
        objective, alpha = problem.objective, problem.alpha
        out = measures_of(objective, alpha, problem.n_classes, coef, gradient, [features])
        return cls(out.norms, out.violations, coef.slots(features) >= 0, float(out.distances.sum()))


class SubsampledNewton:
    """Full passes, and descent on the corrected loss of a sample, in turn.

    Parameters
    ----------
    task : Task
        All samples.
    context : RunContext
        Its engine makes the passes. After its time to end no further pass should end; the first is always
        made.
    problem : Problem
        Of the sample.
    source : BlockSource
        Of the sample; keeps its blocks.
    sweeper : Sweeper
        Of the sample.
    plan : SamplePlan
        How passes go beside the sample.

    Attributes
    ----------
    state : SampledState
        What a checkpoint holds.
    """

    def __init__(
        self,
        task: Task,
        limits: Limits,
        context: RunContext,
        problem: Problem,
        source: BlockSource,
        sweeper: Sweeper,
        plan: SamplePlan,
    ) -> None:
        self._task, self._limits, self._context, self._plan = task, limits, context, plan
        self._weight_sum = task.weight_sum
        self._problem = problem
        self._source, self._sample = source, SampleLoss(problem, source)
        self._sweeper = sweeper
        self._used = np.flatnonzero(task.dataset.column_nnz())
        self.state = SampledState.zeros(problem.width, problem.n_classes)

    @property
    def _objective(self) -> Objective:
        return self._problem.objective

    def run(self, state: SampledState, fingerprint: Fingerprint) -> Certificate:
        """Resume from `state` until the gap, the number of passes or the time to end is reached."""
        self.state = state
        state.norms = None  # those of a start are of other weights
        began = time.monotonic()
        while True:
            totals = self._pass()
            measured = self._measured(totals.gradient, state.coef)
            upper = totals.margins.total_loss / self._weight_sum
            upper += self._objective.regulariser(self._problem.alpha, state.coef.rows)
            if not np.isfinite(upper):
                raise DataError(
                    "the objective is not finite", "look for huge or non-finite values in the data"
                )
            state.lower = max(state.lower, self._bound(totals, measured))
            intercept_gradient, intercept_curvature = totals.margins.intercept_derivatives(self._weight_sum)
            self._record(measured, intercept_gradient, upper)
            dtype = self._problem.scores.dtype
            current = Evaluated(
                state.coef,
                state.intercept,
                upper,
                totals.gradient.astype(dtype),
                totals.curvature.astype(dtype),
                intercept_gradient,
                intercept_curvature,
            )
            best = state.anchor
            if best is None or upper <= best.objective:
                best = current
            certificate = Certificate.of(state.lower, best.objective)
            now = time.monotonic()
            is_late = now + (now - began) > self._context.ends  # the next pass takes as long as the last
            began = now
            if certificate.gap <= self._limits.tol or self._passes >= self._limits.max_passes or is_late:
                state.coef, state.intercept = best.coef, best.intercept
                return certificate
            start = current if state.anchor is None else self._along(state.anchor, current)
            if upper > best.objective * (1.0 + _ROUNDING * float(np.finfo(dtype).eps)):
                state.damping = max(_LEAST_DAMPING, _DAMPING_FACTOR * state.damping)
                if upper > _FAR * best.objective:
                    start = best
            else:
                state.damping /= _RELAXED
            state.coef, state.intercept = self._improved(start, best.objective, measured.violation)
            state.anchor = best
            save(state, self._context, fingerprint)

    @property
    def _passes(self) -> float:
        return self.state.nnz_read / max(self._task.dataset.nnz, 1)

    def _pass(self) -> FullPass:
        state, task, plan = self.state, self._task, self._plan
        job = Job(
            self._objective,
            state.coef,
            state.intercept,
            self._used,
            self._problem.scores.dtype,
            plan.block_bytes,
            plan.block_columns,
            entropy_scales(self._objective, state.scale),
        )
        engine = self._context.engine.at_most(plan.n_workers)
        totals = full_pass(task.dataset, job, task.sample_weight, self._weight_sum, engine)
        state.nnz_read += task.dataset.nnz
        state.bytes_read += totals.n_bytes
        return totals

    def _measured(self, gradient: NDArray[np.float64], coef: Coefficients) -> Measured:
        return Measured.of(self._used, gradient, coef, self._problem)

    def _bound(self, totals: FullPass, measured: Measured) -> float:
        """Return the lower bound that a pass gives, minus infinity if none."""
        state, margins, entropies, left = self.state, totals.margins, totals.entropies, 0.0
        if self._sweeper.fit_intercept:
            balanced = self._sample.balanced(state.coef, state.intercept, totals, self._weight_sum)
            if balanced is None:
                return -np.inf
            margins, entropies, left = balanced.margins, balanced.entropies, balanced.left
            measured = self._measured(balanced.gradient, state.coef)
        bound = lower_bound(self._task, self._problem.dtype, margins, measured, entropies)
        state.scale = next_scale(bound)
        return left + bound.value

    def _record(self, measured: Measured, intercept_gradient: NDArray[np.float64], upper: float) -> None:
        state = self.state
        violation = measured.violation
        if self._sweeper.fit_intercept:
            violation = max(violation, float(np.linalg.norm(intercept_gradient)))
        certificate = Certificate.of(state.lower, upper)
        entry = state.figures(certificate, self._passes, violation, measured.largest_norm)
        state.history.append(entry)
        self._context.progress(pass_progress(entry, self._limits.max_passes))

    def _along(self, before: Evaluated, after: Evaluated) -> Evaluated:
        """Return the best point on the line through two, its gradient taken for linear between them.

        The derivatives along the line at both, and the secant through them, say where it is. The objective
        of the point is not known.
        """
        features = np.union1d(before.coef.features, after.coef.features)
        old, new = before.coef.take(features), after.coef.take(features)
        way = new - old
        at = np.searchsorted(self._used, features)
        shift = after.intercept - before.intercept
        start = self._directional_derivative(before.gradient[at], old, way, 1.0) + float(
            before.intercept_gradient @ shift
        )
        end = self._directional_derivative(after.gradient[at], new, way, -1.0) + float(
            after.intercept_gradient @ shift
        )
        part = 1.0
        if start < 0.0 and end > start:
            part = float(np.clip(start / (start - end), _SHORTEST, _LONGEST))
        rows = old + part * way
        used = rows.any(axis=1)
        gradient = before.gradient + before.gradient.dtype.type(part) * (after.gradient - before.gradient)
        return Evaluated(
            Coefficients(features[used], rows[used]),
            before.intercept + part * shift,
            np.nan,
            gradient,
            after.curvature,
            before.intercept_gradient + part * (after.intercept_gradient - before.intercept_gradient),
            after.intercept_curvature,
        )

    def _directional_derivative(
        self, gradient: NDArray[Any], rows: NDArray[np.float64], way: NDArray[np.float64], sign: float
    ) -> float:
        """Return the derivative of the objective along a line, at its start (sign 1) or its end (-1)."""
        along = sign * self._objective.penalty.slopes(rows, sign * way)
        smooth = float(np.einsum("jr,jr->", gradient.astype(np.float64) + self._objective.ridge * rows, way))
        return smooth + self._problem.alpha * float(along.sum())

    def _improved(
        self, at: Evaluated, best: float, violation: float
    ) -> tuple[Coefficients, NDArray[np.float64]]:
        """Return the weights and intercept that minimise the loss of the sample, corrected at a point.

        The `violation` of the last pass counts as well as that of the point: on a line between two points
        single weights go through zero, which is far from optimal. Weights whose penalty alone is more than
        the best objective so far are on the way to infinity.
        """
        problem, state, sweeper = self._problem, self.state, self._sweeper
        alpha = problem.alpha
        gradient = at.gradient.astype(np.float64)
        measured = self._measured(gradient, at.coef)
        chosen = np.flatnonzero(measured.weighted | (measured.norms > _CANDIDATE * alpha))
        held = list(self._source.columns_of(self._used[chosen]))
        violation = min(violation, measured.violation)
        target = max(_FRACTION * violation, _TOLERATED * self._limits.tol * alpha)
        for _ in range(_TRIES):
            intercept = at.intercept.copy()
            problem.rebuild_scores(at.coef, intercept, held)
            terms, level = self._sample.terms(
                at, held, gradient[chosen], at.curvature[chosen].astype(np.float64), state.damping
            )
            with suppress(DataError):  # the corrected loss of a small sample may have no minimum
                course = Course(alpha, target, _MOST_SWEEPS, state.n_iter)
                own = Corrections(terms, level)
                changes, n_sweeps = sweeper.sweep_until(held, at.coef, intercept, course, own)
                if sweeper.fit_intercept:
                    improve_intercept(problem, intercept, _INTERCEPT_STEPS, level)
                coef = at.coef.updated(changes)
                penalty = self._objective.regulariser(alpha, coef.rows)
                if penalty <= best and np.isfinite(intercept).all():  # false if not finite
                    state.n_iter += n_sweeps
                    return coef, intercept
            state.damping = max(_LEAST_DAMPING, _DAMPING_FACTOR * state.damping)
        raise DataError("the weights are no longer finite", "look for huge or non-finite values in the data")
