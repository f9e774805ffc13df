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

The damping d is 0 until a round makes the objective larger. Then the weights of before are taken up again
with a larger d, since the hinge loss of a sample has no curvature where no margin is positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.objectives import Objective
from bigmc.progress import Progress, ProgressCallback
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.sparse.bounds import lower_bound
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.passes import FullPass, Job, full_pass
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.state import State
from bigmc.solvers.sparse.sweeps import Sweeper
from bigmc.solvers.sparse.terms import Terms
from bigmc.store.dataset import Dataset

#: The descent leaves features alone whose gradient is below this share of alpha and that have no weights.
_CANDIDATE = 0.6
#: It goes on until the violation is this share of what the pass had found, or of the tolerance times alpha.
_FRACTION, _TOLERATED = 0.02, 0.1
_MOST_SWEEPS = 200
#: The damping after a first step that was too long, and the factor by which it grows, and shrinks after a
#: good one.
_LEAST_DAMPING, _DAMPING_FACTOR = 0.05, 4.0
#: An objective is larger only if by more than rounding.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class Measured:
    """Gradients of a pass, as the conditions of optimality see them.

    Attributes
    ----------
    norms : float64 array of shape (n_used,)
    violations : float64 array of shape (n_used,)
    weighted : bool array of shape (n_used,)
        Features with weights.
    distance : float
        ``sum_j max(||G_j|| - alpha, 0)²``.
    """

    norms: NDArray[np.float64]
    violations: NDArray[np.float64]
    weighted: NDArray[np.bool_]
    distance: float

    @property
    def largest_norm(self) -> float:
        """``max_j ||G_j||``."""
        return float(self.norms.max(initial=0.0))

    @classmethod
    def of(cls, found: FullPass, coef: Coefficients, alpha: float, ridge: float) -> Measured:
        """Measure every feature of a pass; the penalty is l1/l2."""
        norms = np.sqrt(np.einsum("jr,jr->j", found.gradient, found.gradient))
        slots = coef.slots(found.features)
        weighted = slots >= 0
        rows = coef.rows[slots[weighted]]
        shrink = ridge + alpha / np.sqrt(np.einsum("jr,jr->j", rows, rows))
        left = found.gradient[weighted] + shrink[:, None] * rows
        excess = np.maximum(norms - alpha, 0.0)
        violations = excess.copy()
        violations[weighted] = np.sqrt(np.einsum("jr,jr->j", left, left))
        return cls(norms, violations, weighted, float((excess * excess).sum()))


class CorrectedRounds:
    """Full passes, and descent on the corrected loss of a sample, in turn.

    Parameters
    ----------
    dataset : Dataset
        All samples.
    sample_weight : float64 array of shape (n_samples,) or None
    problem : Problem
        Of the sample.
    source : BlockSource
        Of the sample; keeps its blocks.
    sweeper : Sweeper
        Of the sample.
    tol : float
    engine : Engine
        For the passes.
    block_bytes, block_columns : int
        Most bytes and columns of a shard decoded at once.

    Attributes
    ----------
    state : State
        What a checkpoint holds.
    """

    def __init__(
        self,
        dataset: Dataset,
        sample_weight: NDArray[np.float64] | None,
        problem: Problem,
        source: BlockSource,
        sweeper: Sweeper,
        tol: float,
        engine: Engine,
        block_bytes: int,
        block_columns: int,
    ) -> None:
        self._dataset = dataset
        self._sample_weight = sample_weight
        self._weight_sum = float(dataset.n_samples if sample_weight is None else sample_weight.sum())
        self._problem = problem
        self._source = source
        self._sweeper = sweeper
        self._tol = tol
        self._engine = engine
        self._block_bytes, self._block_columns = block_bytes, block_columns
        self._used = np.flatnonzero(dataset.column_nnz())
        self.state = State(Coefficients.zeros(problem.width), np.zeros(problem.n_classes))

    @property
    def _objective(self) -> Objective:
        return self._problem.objective

    def run(
        self,
        state: State,
        max_passes: float,
        checkpoint: Checkpoint | None,
        run: dict[str, Any],
        progress: ProgressCallback,
    ) -> Certificate:
        """Go on from `state` until the gap or the number of passes is reached."""
        self.state = state
        while True:
            found = self._pass()
            measured = Measured.of(found, state.coef, self._problem.alpha, self._objective.ridge)
            upper = self._objective.loss.value(found.margins.squares, self._weight_sum)
            upper += self._objective.regulariser(self._problem.alpha, state.coef.rows)
            if not np.isfinite(upper):
                raise DataError(
                    "the objective is not finite", "look for huge or non-finite values in the data"
                )
            bound = lower_bound(
                self._objective, self._problem.alpha, self._weight_sum, self._problem.scores.dtype,
                found.margins, np.empty((0, self._problem.n_classes)), measured,
            )  # fmt: skip
            state.lower = max(state.lower, bound)
            self._record(measured, upper, max_passes, progress)
            worse = upper > state.anchor_objective * (1.0 + _ROUNDING)
            certificate = Certificate.of(state.lower, state.anchor_objective if worse else upper)
            done = certificate.gap <= self._tol or self._passes >= max_passes
            if worse:
                state.coef = state.anchor
                state.damping = max(_LEAST_DAMPING, _DAMPING_FACTOR * state.damping)
            elif not done:
                if upper < state.anchor_objective:
                    state.damping /= _DAMPING_FACTOR
                    state.damping *= state.damping >= _LEAST_DAMPING
                state.anchor, state.anchor_objective = state.coef, upper
                state.coef = self._improved(found, measured)
            if done:
                return certificate
            if checkpoint is not None:
                state.save(checkpoint, run)

    @property
    def _passes(self) -> float:
        return self.state.nnz_read / max(self._dataset.nnz, 1)

    def _pass(self) -> FullPass:
        state = self.state
        job = Job(
            self._objective, state.coef, state.intercept, self._used, self._problem.scores.dtype,
            self._block_bytes, self._block_columns,
        )  # fmt: skip
        found = full_pass(self._dataset, job, self._sample_weight, self._weight_sum, self._engine)
        state.nnz_read += self._dataset.nnz
        state.bytes_read += found.n_bytes
        return found

    def _record(
        self, measured: Measured, upper: float, max_passes: float, progress: ProgressCallback
    ) -> None:
        state = self.state
        entry = {
            "n_passes": self._passes,
            "n_iter": float(state.n_iter),
            "objective": upper,
            "lower": state.lower,
            "gap": Certificate.of(state.lower, upper).gap,
            "violation": float(measured.violations.max(initial=0.0)),
            "largest_norm": measured.largest_norm,
            "n_nonzero": float(len(state.coef.features)),
            "bytes_read": float(state.bytes_read),
        }
        state.history.append(entry)
        total = int(max_passes) if np.isfinite(max_passes) else 0
        progress(Progress("train", int(entry["n_passes"]), total, "passes", entry))

    def _improved(self, found: FullPass, measured: Measured) -> Coefficients:
        """Return the weights that minimise the corrected loss of the sample."""
        problem, state = self._problem, self.state
        alpha = problem.alpha
        chosen = np.flatnonzero(measured.weighted | (measured.norms > _CANDIDATE * alpha))
        features = found.features[chosen]
        positions = self._source.holding(features)
        held = [Columns.of(n, block, positions[n]) for n, block in self._source.stream(positions)]
        problem.rebuild_scores(state.coef, state.intercept, held)
        violation = float(measured.violations.max(initial=0.0))
        target = max(_FRACTION * violation, _TOLERATED * self._tol * alpha)
        terms = self._terms(held, found, chosen)
        changes, n_sweeps = self._sweeper.sweep_until(
            held, state.coef, state.intercept, alpha, target, _MOST_SWEEPS, state.n_iter, terms
        )
        state.n_iter += n_sweeps
        coef = state.coef.updated(changes)
        if not np.isfinite(coef.rows).all():
            raise DataError(
                "the weights are no longer finite", "look for huge or non-finite values in the data"
            )
        return coef

    def _terms(self, held: list[Columns], found: FullPass, chosen: NDArray[np.int64]) -> list[Terms]:
        """Return what corrects the loss of the sample, for the columns held."""
        problem = self._problem
        ridge = self._objective.ridge

        def work(columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            places = np.full(columns.indptr.shape[1] - 1, -1)
            places[columns.positions] = np.arange(len(columns.positions))
            gradient, curvature = np.zeros((len(places), problem.width)), np.zeros(len(places))
            self._objective.add_gradients(
                places, columns.indptr, columns.indices, columns.data, columns.base, problem.scores,
                problem.labels, problem.row_scale, problem.gain, problem.n_classes, gradient, curvature,
            )  # fmt: skip
            scale = problem.scale_of(columns.features)
            n = len(columns.positions)
            return (
                gradient[:n] * (problem.two_over_n * scale)[:, None],
                curvature[:n] * (problem.two_over_n * scale**2),
            )

        terms, start = [], 0
        for columns, (gradient, curvature) in problem.engine.map(work, held):
            here = chosen[start : start + len(columns.features)]
            added = np.maximum(found.curvature[here] - curvature, 0.0)
            added += self.state.damping * found.curvature[here]
            rows = self.state.coef.take(columns.features)
            tilt = found.gradient[here] - gradient - added[:, None] * rows
            terms.append(Terms(tilt, ridge + added))
            start += len(columns.features)
        return terms
