"""Block coordinate descent over features on two levels: passes over all data, sweeps over a working set.

Blondel, Seki, Uehara (2013), with streaming added: the first pass updates every feature as its block
comes by; every later pass computes the gradient of all features at fixed scores, which gives a
certificate and the working set (features that have weights or violate the optimality conditions).
Sweeps over the working set, held in memory, follow until its violation is a fraction of what the pass
had found. A working set that does not fit is streamed block by block, with several sweeps per block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.objectives import objective
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.certificate import Certificate, balance
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.coefficients import Coefficients
from bigmc.solvers.columns import BlockSource, Columns, cut_ranges
from bigmc.solvers.gradient import GradientPass, gradient_pass
from bigmc.solvers.intercept import improve_intercept
from bigmc.solvers.plan import SolverPlan, plan_memory
from bigmc.solvers.problem import Problem
from bigmc.solvers.state import State
from bigmc.solvers.sweeps import Sweeper
from bigmc.store.dataset import Dataset

STEPS = ("line_search", "constant")

#: Sweeps go on until the violation is this fraction of the one the last pass found.
_INNER_FRACTION = 0.2
#: Sweeps between two passes at most.
_INNER_SWEEPS = 1000
#: Entries looked at between two passes at most: a pass costs as much as looking at all entries once.
_VISITS_PER_PASS = 5
_SMALL_VISITS = 20_000_000
#: Sweeps over a loaded block when the working set is streamed.
_STREAMED_SWEEPS = 4
#: Newton steps of the intercept before a certificate.
_INTERCEPT_STEPS = 20
#: Share of the feasible dual scale given up for the rounding of the gradient, in units of its precision.
_ROUNDING = 16.0


@dataclass(frozen=True)
class Solution:
    """Weights and the proof of how good they are.

    Attributes
    ----------
    features : int64 array of shape (n_nonzero,)
        Features with non-zero weights, increasing.
    coef : float64 array of shape (n_nonzero, n_classes)
    intercept : float64 array of shape (n_classes,)
    objective : float
    certificate : Certificate
    n_iter : int
        Sweeps.
    n_passes : float
        Entries passed over in whole passes and streamed sweeps, in units of all entries.
    history : list of dict
        ``n_passes, n_iter, objective, lower, gap, violation, n_nonzero, bytes_read`` at every certificate.
    bytes_read : int
        Decoded bytes read from the shards.
    converged : bool
        The gap reached the tolerance.
    column_scale : float32 array of shape (n_features,) or None
        Scale of the columns the weights belong to (idf weighting).
    plan : SolverPlan
        What was kept in memory.
    """

    features: NDArray[np.int64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    objective: float
    certificate: Certificate
    n_iter: int
    n_passes: float
    history: list[dict[str, float]]
    bytes_read: int
    converged: bool
    column_scale: NDArray[np.float32] | None
    plan: SolverPlan


def solve(
    dataset: Dataset,
    *,
    alpha: float,
    memory_limit: int,
    loss: str = "squared_hinge",
    penalty: str = "l1/l2",
    fit_intercept: bool = False,
    tol: float = 1e-3,
    max_passes: float = 100,
    seed: int = 0,
    step: str = "line_search",
    sample_weight: NDArray[np.float64] | None = None,
    engine: Engine | None = None,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = silent,
    scratch: Path | None = None,
    block_bytes: int | None = None,
) -> Solution:
    """Minimise ``1/n sum_i w_i loss_i + alpha * penalty`` with ``n = sum_i w_i``.

    Parameters
    ----------
    dataset : Dataset
        Labelled samples of at least two classes.
    alpha : float
        Weight of the penalty, positive.
    memory_limit : int
        Bytes the run may add to the process.
    loss, penalty : str
        See `bigmc.objectives.objective`.
    fit_intercept : bool
        Add an unpenalised constant per class.
    tol : float
        Relative gap between objective and lower bound to reach.
    max_passes : float
        Passes over the data at most; checked after every certificate.
    seed : int
        Of the order of blocks and columns.
    step : {"line_search", "constant"}
        How long a step is, see `bigmc.kernels.squared_hinge.sweep`.
    sample_weight : float64 array of shape (n_samples,), optional
        A weight of 2 is the same as giving the sample twice.
    engine : Engine, optional
        Any number of workers gives the same bits.
    checkpoint : Checkpoint, optional
        Where the state is saved after every round, and read from at the start; going on from there
        gives the same bits as an uninterrupted run with the same memory limit.
    progress : callable
        Called with a `Progress` at every certificate.
    scratch : Path, optional
        Folder for the score matrix when it does not fit; by default the system's for temporary files.
    block_bytes : int, optional
        Stream blocks of at most this many bytes, whether or not everything would fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    DataError
        If the data lead to numbers that are not finite.
    """
    _check(dataset, alpha, tol, step)
    minimised = objective(loss, penalty)
    lanes = minimised.loss.lanes
    column_nnz = dataset.column_nnz()
    plan = plan_memory(
        n_samples=dataset.n_samples, n_features=dataset.n_features,
        width=-(-dataset.n_classes // lanes) * lanes, n_classes=dataset.n_classes, nnz=dataset.nnz,
        n_shards=dataset.n_shards, widest=int(column_nnz.max(initial=0)), itemsize=dataset.dtype.itemsize,
        limit=memory_limit, tol=tol, weighted=sample_weight is not None,
        column_scaled=dataset.weighting.idf, block_bytes=block_bytes,
    )  # fmt: skip
    problem = Problem(
        dataset, minimised, alpha, sample_weight, plan.score_dtype, engine or ThreadEngine(),
        on_disk=plan.scores_on_disk, scratch=scratch,
    )  # fmt: skip
    ranges = cut_ranges(dataset.plan(plan.block_bytes), plan.block_columns)
    source = BlockSource(dataset, ranges, plan.keep_blocks)
    run = {
        "alpha": alpha, "loss": loss, "penalty": penalty, "fit_intercept": fit_intercept, "seed": seed,
        "step": step, "memory_limit": memory_limit, "n_samples": dataset.n_samples,
        "n_features": dataset.n_features, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "weight_sum": problem.weight_sum,
    }  # fmt: skip
    try:
        state = State.load(checkpoint, run, problem.width) if checkpoint else None
        most_visits = max(_SMALL_VISITS, _VISITS_PER_PASS * dataset.nnz)
        sweeper = Sweeper(problem, step == "line_search", seed, fit_intercept, most_visits)
        rounds = _Rounds(problem, source, plan, sweeper)
        certificate = rounds.run(state, tol, max_passes, checkpoint, run, progress)
    finally:
        problem.close()
    state = rounds.state
    return Solution(
        state.coef.features, np.ascontiguousarray(state.coef.rows[:, : dataset.n_classes]), state.intercept,
        certificate.upper, certificate, state.n_iter, state.nnz_read / max(dataset.nnz, 1), state.history,
        state.bytes_read, certificate.gap <= tol, problem.column_scale, plan,
    )  # fmt: skip


class _Rounds:
    """Passes and sweeps in turn; `state` is what a checkpoint holds."""

    def __init__(self, problem: Problem, source: BlockSource, plan: SolverPlan, sweeper: Sweeper) -> None:
        self._problem = problem
        self._source = source
        self._plan = plan
        self._sweeper = sweeper
        self._total_nnz = max(source.dataset.nnz, 1)
        self._held: list[Columns] = []
        self.state = State(Coefficients.zeros(problem.width), np.zeros(problem.n_classes))

    def run(
        self,
        state: State | None,
        tol: float,
        max_passes: float,
        checkpoint: Checkpoint | None,
        run: dict[str, Any],
        progress: ProgressCallback,
    ) -> Certificate:
        """Go on from `state`, or start, until the gap or the number of passes is reached."""
        if state is None:
            self._first_pass()
            self._save(checkpoint, run)
        else:
            self.state = state
        read_before = self.state.bytes_read - self._source.bytes_read
        while True:
            self._rebuild()
            found, certificate = self._evaluate()
            self.state.bytes_read = read_before + self._source.bytes_read
            self._record(found, certificate, max_passes, progress)
            passes = self.state.nnz_read / self._total_nnz
            if certificate.gap <= tol or passes >= max_passes:
                return certificate
            self._improve(found)
            self.state.bytes_read = read_before + self._source.bytes_read
            self._save(checkpoint, run)

    def _save(self, checkpoint: Checkpoint | None, run: dict[str, Any]) -> None:
        if checkpoint is not None:
            self.state.save(checkpoint, run)

    def _set_coef(self, coef: Coefficients) -> None:
        """Take new weights, unless they break the promise on memory."""
        if not np.isfinite(coef.rows).all():
            raise DataError(
                "the weights are no longer finite", "look for huge or non-finite values in the data"
            )
        allowed = next(item.n_bytes for item in self._plan.memory.items if item.name == "weights")
        needed = 2 * (coef.rows.nbytes + coef.features.nbytes)
        if needed > allowed:
            raise MemoryLimitError(
                f"{len(coef.features)} features have weights, which take {format_bytes(needed)} where the "
                f"memory limit leaves {format_bytes(allowed)}",
                f"give a memory limit of {format_bytes(4 * needed)} or a larger alpha",
            )
        self.state.coef = coef

    def _first_pass(self) -> None:
        """Update every feature as its block comes by."""
        problem, state = self._problem, self.state
        problem.rebuild_scores(state.coef, state.intercept, [])
        if self._sweeper.fit_intercept:
            improve_intercept(problem, state.intercept, _INTERCEPT_STEPS)
        self._stream(None, 1)

    def _stream(self, chosen: dict[int, NDArray[np.int64]] | None, n_sweeps: int) -> None:
        """Sweep over the chosen columns of the numbered blocks, or over all, as they come by."""
        state, source = self.state, self._source
        changes = []
        numbers = self._sweeper.shuffled(list(chosen) if chosen else range(len(source.ranges)), state.n_iter)
        for number, block in source.stream(numbers):
            state.nnz_read += block.nnz
            entries = (block.indptr[:, 1:] - block.indptr[:, :-1]).sum(axis=0)
            columns = Columns.of(number, block, chosen[number] if chosen else np.flatnonzero(entries))
            rows = state.coef.take(columns.features)
            violations = np.zeros(len(rows))
            for k in range(n_sweeps):
                self._sweeper.sweep(columns, rows, violations, np.arange(len(rows)), state.n_iter + k)
            if self._sweeper.fit_intercept:
                improve_intercept(self._problem, state.intercept, 1)
            changed = rows.any(axis=1) | (state.coef.slots(columns.features) >= 0)
            changes.append((columns.features[changed], rows[changed]))
        state.n_iter += n_sweeps
        self._set_coef(state.coef.updated(changes))
        state.in_memory = source.keeps
        state.bytes_read = source.bytes_read

    def _rebuild(self) -> None:
        """Compute the scores afresh from the weights."""
        state = self.state
        held: Iterator[Columns] | list[Columns] = self._held
        if not self._held:
            held = self._support(count=not state.in_memory)
        self._problem.rebuild_scores(state.coef, state.intercept, held)
        self._held = []  # its memory is for the columns the coming pass gathers

    def _support(self, count: bool) -> Iterator[Columns]:
        """Read the columns with weights; after a restart only, they do not count as passed over."""
        positions = self._source.holding(self.state.coef.features)
        for number, block in self._source.stream(positions):
            if count:
                self.state.nnz_read += block.nnz
            yield Columns.of(number, block, positions[number])

    def _evaluate(self) -> tuple[GradientPass, Certificate]:
        """Make a full pass at the present weights; update the intercept and the lower bound."""
        problem, state = self._problem, self.state
        objective = problem.objective
        factor: NDArray[np.float64] | None = np.empty((0, problem.n_classes))
        if self._sweeper.fit_intercept:
            margins = improve_intercept(problem, state.intercept, _INTERCEPT_STEPS)
            factor = balance(margins.sums)
        else:
            margins = problem.margins()
        upper = objective.loss.value(margins.squares, problem.weight_sum)
        upper += problem.alpha * objective.penalty.value(state.coef.rows)
        if not np.isfinite(upper):
            raise DataError("the objective is not finite", "look for huge or non-finite values in the data")
        used = np.empty((0, problem.n_classes)) if factor is None else factor
        found = gradient_pass(problem, self._source, state.coef, used, self._plan.working_set_bytes)
        state.nnz_read += found.nnz
        if factor is not None:
            weight = factor if len(factor) else np.ones(1)
            allowance = 1.0 - _ROUNDING * float(np.finfo(problem.scores.dtype).eps)
            scale = problem.alpha / found.largest_norm * allowance if found.largest_norm > 0 else np.inf
            lower = objective.loss.dual_value(
                margins.sums * weight, margins.squares * weight * weight, problem.weight_sum, scale
            )
            state.lower = max(state.lower, lower)
        return found, Certificate.of(state.lower, upper)

    def _record(
        self, found: GradientPass, certificate: Certificate, max_passes: float, progress: ProgressCallback
    ) -> None:
        state = self.state
        entry = {
            "n_passes": state.nnz_read / self._total_nnz,
            "n_iter": float(state.n_iter),
            "objective": certificate.upper,
            "lower": certificate.lower,
            "gap": certificate.gap,
            "violation": found.violation,
            "n_nonzero": float(len(state.coef.features)),
            "bytes_read": float(state.bytes_read),
        }
        state.history.append(entry)
        total = int(max_passes) if np.isfinite(max_passes) else 0
        progress(Progress("train", int(entry["n_passes"]), total, "passes", entry))

    def _improve(self, found: GradientPass) -> None:
        """Sweep over the working set: in memory if it fits, else as it streams by."""
        state, source = self.state, self._source
        held = found.columns
        if held is None:
            held = self._gather(found)
        if held is None:
            self._stream(source.holding(found.features), _STREAMED_SWEEPS)
            return
        changes, n_sweeps = self._sweeper.sweep_until(
            held, state.coef, state.intercept, _INNER_FRACTION * found.violation, _INNER_SWEEPS, state.n_iter
        )
        state.n_iter += n_sweeps
        self._set_coef(state.coef.updated(changes))
        state.in_memory = True
        self._held = held

    def _gather(self, found: GradientPass) -> list[Columns] | None:
        """Read the features with weights and the worst violators into the room there is, if it does."""
        state, source = self.state, self._source
        nnz = source.dataset.column_nnz()[found.features]
        n_shards = source.dataset.n_shards
        cost = nnz * (2 + source.dataset.dtype.itemsize) + 8 * n_shards + 8 * self._problem.width + 48
        weighted = state.coef.slots(found.features) >= 0
        room = self._plan.working_set_bytes - 8 * n_shards * len(source.ranges) - int(cost[weighted].sum())
        if room < 0:
            return None
        worst = np.argsort(-np.where(weighted, -1.0, found.violations), kind="stable")
        worst = worst[: len(worst) - int(weighted.sum())]
        chosen = weighted.copy()
        chosen[worst[np.cumsum(cost[worst]) <= room]] = True
        positions = source.holding(found.features[chosen])
        held = []
        for number, block in source.stream(positions):
            state.nnz_read += block.nnz
            held.append(Columns.of(number, block, positions[number]).gathered())
        return held


def _check(dataset: Dataset, alpha: float, tol: float, step: str) -> None:
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    if not (np.isfinite(alpha) and alpha > 0):
        raise BigmcError(f"alpha is {alpha}", "give a positive number")
    if not tol > 0:
        raise BigmcError(f"tol is {tol}", "give a positive number")
    if step not in STEPS:
        raise BigmcError(f"no step is called {step!r}", f"use one of {', '.join(STEPS)}")
