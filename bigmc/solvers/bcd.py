"""Block coordinate descent over features on two levels: passes over all data, sweeps over a working set.

Blondel, Seki, Uehara (2013), with streaming added: the first pass updates every feature as its block
comes by; every later pass computes the gradient of all features at fixed scores, which gives a
certificate and the working set (features that have weights or violate the optimality conditions).
Sweeps over the working set, held in memory, and Newton steps over the features with weights follow until
its violation is a fraction of what the pass had found. A working set that does not fit is streamed block
by block, with several sweeps per block.

Where all data is in memory the first pass updates nothing. The solver starts with the penalty at which
all weights are zero and goes down to the one asked for, each optimum the start for the next: the features
stay few all the way, where updating all at once would give weights to many that lose them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.objectives import objective
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.certificate import Certificate, lower_bound
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.coefficients import Coefficients
from bigmc.solvers.columns import BlockSource, Columns, cut_ranges
from bigmc.solvers.gradient import GradientPass, gradient_pass
from bigmc.solvers.intercept import improve_intercept
from bigmc.solvers.plan import SolverPlan, plan_memory, sample_share
from bigmc.solvers.problem import Problem
from bigmc.solvers.state import Start, State
from bigmc.solvers.sweeps import Sweeper
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows

STEPS = ("line_search", "constant")

#: Sweeps go on until the violation is this fraction of the tolerance times alpha, which mostly makes the next
#: pass the last, but between these fractions of what the last pass found: the working set may miss features.
_TOLERATED = 0.3
_SMALLEST_FRACTION, _LARGEST_FRACTION = 0.01, 0.2
#: Sweeps between two passes at most.
_INNER_SWEEPS = 1000
#: Entries looked at between two passes at most: a pass costs as much as looking at all entries once.
_VISITS_PER_PASS = 5
_SMALL_VISITS = 20_000_000
#: The penalty goes down by about this factor from stage to stage, each solved to this fraction of it.
_STAGE_FACTOR = 5.0
_STAGE_FRACTION = 0.5
#: Share of the memory limit for training on a sample: the dataset keeps its own counts meanwhile.
_SAMPLE_MEMORY = 0.75
#: Gap to reach on a sample: the optimum of all samples is further away than that.
_SAMPLE_TOL = 1e-2
#: Sweeps over a loaded block when the working set is streamed.
_STREAMED_SWEEPS = 4
#: Newton steps of the intercept before a certificate.
_INTERCEPT_STEPS = 20


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
        ``n_passes, n_iter, objective, lower, gap, violation, largest_norm, n_nonzero, bytes_read`` at every
        certificate.
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
    l1_ratio: float | None = None,
    ridge: float = 0.0,
    fit_intercept: bool = False,
    tol: float = 1e-3,
    max_passes: float = 100,
    seed: int = 0,
    step: str = "line_search",
    start: Start | None = None,
    sample_weight: NDArray[np.float64] | None = None,
    engine: Engine | None = None,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = silent,
    scratch: Path | None = None,
    block_bytes: int | None = None,
) -> Solution:
    """Minimise ``1/n sum_i w_i loss_i + alpha * penalty + ridge / 2 ||W||²`` with ``n = sum_i w_i``.

    Parameters
    ----------
    dataset : Dataset
        Labelled samples of at least two classes.
    alpha : float
        Weight of the penalty, positive; with a ridge it may be 0.
    memory_limit : int
        Bytes the run may add to the process.
    loss, penalty, l1_ratio, ridge
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
    start : Start, optional
        Weights to start from; by default none.
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
    minimised = objective(loss, penalty, l1_ratio, ridge)
    _check(dataset, alpha, ridge, tol, step)
    lanes = minimised.loss.lanes
    column_nnz = dataset.column_nnz()
    size: dict[str, Any] = {
        "limit": memory_limit, "n_samples": dataset.n_samples, "n_features": dataset.n_features,
        "width": -(-dataset.n_classes // lanes) * lanes, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "n_shards": dataset.n_shards, "widest": int(column_nnz.max(initial=0)),
        "itemsize": dataset.dtype.itemsize, "tol": tol, "weighted": sample_weight is not None,
        "column_scaled": dataset.weighting.idf,
    }  # fmt: skip
    plan = plan_memory(**size, block_bytes=block_bytes)
    engine = engine or ThreadEngine()
    run = {
        "alpha": alpha, "loss": loss, "penalty": penalty, "l1_ratio": l1_ratio, "ridge": ridge,
        "fit_intercept": fit_intercept, "seed": seed,
        "step": step, "memory_limit": memory_limit, "n_samples": dataset.n_samples,
        "n_features": dataset.n_features, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "weight_sum": float(dataset.n_samples if sample_weight is None else sample_weight.sum()),
    }  # fmt: skip
    state = State.load(checkpoint, run, size["width"]) if checkpoint else None
    if state is None and start is not None:
        state = State.at(start, size["width"], alpha)
    size["limit"] = int(_SAMPLE_MEMORY * memory_limit)
    share = 0.0 if state or plan.keep_blocks else sample_share(**size)
    if share:
        options = {
            "alpha": alpha, "loss": loss, "penalty": penalty, "l1_ratio": l1_ratio, "ridge": ridge,
            "fit_intercept": fit_intercept, "seed": seed, "step": step, "memory_limit": size["limit"],
            "engine": engine, "max_passes": max_passes,
        }  # fmt: skip
        state = _start_on_sample(dataset, share, sample_weight, options, size["width"], progress)
    problem = Problem(
        dataset, minimised, alpha, sample_weight, plan.score_dtype, engine,
        on_disk=plan.scores_on_disk, scratch=scratch,
    )  # fmt: skip
    ranges = cut_ranges(dataset.plan(plan.block_bytes), plan.block_columns)
    source = BlockSource(dataset, ranges, plan.keep_blocks)
    try:
        most_visits = max(_SMALL_VISITS, _VISITS_PER_PASS * dataset.nnz)
        sweeper = Sweeper(problem, step == "line_search", seed, fit_intercept, most_visits, plan.newton_bytes)
        rounds = _Rounds(problem, source, plan, sweeper, tol)
        certificate = rounds.run(state, max_passes, checkpoint, run, progress)
    finally:
        problem.close()
    state = rounds.state
    return Solution(
        state.coef.features, np.ascontiguousarray(state.coef.rows[:, : dataset.n_classes]), state.intercept,
        certificate.upper, certificate, state.n_iter, state.nnz_read / max(dataset.nnz, 1), state.history,
        state.bytes_read, certificate.gap <= tol, problem.column_scale, plan,
    )  # fmt: skip


def _start_on_sample(
    dataset: Dataset,
    share: float,
    sample_weight: NDArray[np.float64] | None,
    options: dict[str, Any],
    width: int,
    progress: ProgressCallback,
) -> State | None:
    """Train on a part of the samples that fits into memory; its weights are the start for all of them."""
    sample, positions = draw_rows(dataset, share, options["seed"], options["engine"])
    weights = None if sample_weight is None else sample_weight[positions]
    if weights is not None and not weights.any():
        return None

    def show(seen: Progress) -> None:
        progress(replace(seen, stage="train on a sample"))

    found = solve(sample, sample_weight=weights, tol=_SAMPLE_TOL, progress=show, **options)
    state = State.at(Start(found.features, found.coef, found.intercept), width, options["alpha"])
    state.n_iter, state.nnz_read = found.n_iter, dataset.nnz
    return state


def largest_alpha(dataset: Dataset, **options: Any) -> float:
    """Return the smallest weight of the penalty at which all weights are zero; one pass over the data.

    Parameters
    ----------
    dataset : Dataset
    **options
        Those of `solve`, without `alpha`, `tol`, `max_passes` and `start`.
    """
    nothing = Start(np.empty(0, np.int64), np.empty((0, dataset.n_classes)), np.zeros(dataset.n_classes))
    tiny = float(np.finfo(np.float32).tiny)
    found = solve(dataset, alpha=tiny, tol=_SAMPLE_TOL, max_passes=1, start=nothing, **options)
    return found.history[0]["largest_norm"]


class _Rounds:
    """Passes and sweeps in turn; `state` is what a checkpoint holds."""

    def __init__(
        self, problem: Problem, source: BlockSource, plan: SolverPlan, sweeper: Sweeper, tol: float
    ) -> None:
        self._tol = tol
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
        max_passes: float,
        checkpoint: Checkpoint | None,
        run: dict[str, Any],
        progress: ProgressCallback,
    ) -> Certificate:
        """Go on from `state`, or start, until the gap or the number of passes is reached."""
        if state is not None:
            self.state = state
        elif not self._source.keeps:
            self._first_pass()
            self._save(checkpoint, run)
        read_before = self.state.bytes_read - self._source.bytes_read
        while True:
            self._rebuild()
            found, certificate = self._evaluate()
            self.state.bytes_read = read_before + self._source.bytes_read
            self._record(found, certificate, max_passes, progress)
            passes = self.state.nnz_read / self._total_nnz
            if certificate.gap <= self._tol or passes >= max_passes:
                return certificate
            self._improve(found, max_passes)
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
                everything = np.arange(len(rows))
                self._sweeper.sweep(
                    columns, rows, violations, everything, state.n_iter + k, self._problem.alpha
                )
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
            factor = objective.loss.balance(margins.sums)
        else:
            margins = problem.margins()
        upper = objective.loss.value(margins.squares, problem.weight_sum)
        upper += objective.regulariser(problem.alpha, state.coef.rows)
        if not np.isfinite(upper):
            raise DataError("the objective is not finite", "look for huge or non-finite values in the data")
        used = np.empty((0, problem.n_classes)) if factor is None else factor
        found = gradient_pass(problem, self._source, state.coef, used, self._plan.working_set_bytes)
        state.nnz_read += found.nnz
        if factor is not None:
            state.lower = max(state.lower, lower_bound(problem, margins, factor, found))
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
            "largest_norm": found.largest_norm,
            "n_nonzero": float(len(state.coef.features)),
            "bytes_read": float(state.bytes_read),
        }
        state.history.append(entry)
        total = int(max_passes) if np.isfinite(max_passes) else 0
        progress(Progress("train", int(entry["n_passes"]), total, "passes", entry))

    def _improve(self, found: GradientPass, max_passes: float) -> None:
        """Sweep over the working set: in memory if it fits, else as it streams by."""
        state, source = self.state, self._source
        alpha = self._problem.alpha
        target = min(_LARGEST_FRACTION * found.violation, _TOLERATED * self._tol * alpha)
        target = max(_SMALLEST_FRACTION * found.violation, target)
        held = found.columns
        if held is None:
            held = self._gather(found)
        if held is None:
            self._stream(source.holding(found.features), _STREAMED_SWEEPS)
            return
        if source.keeps:
            alpha = self._next_alpha(found.largest_norm, max_passes)
            if alpha > self._problem.alpha:
                target = _STAGE_FRACTION * alpha
            held = self._above(found, held, alpha)
        changes, n_sweeps = self._sweeper.sweep_until(
            held, state.coef, state.intercept, alpha, target, _INNER_SWEEPS, state.n_iter
        )
        state.n_iter += n_sweeps
        self._set_coef(state.coef.updated(changes))
        state.in_memory = True
        self._held = held

    def _next_alpha(self, largest_norm: float, max_passes: float) -> float:
        """Return the weight of the penalty of this round: it falls evenly to the one asked for."""
        state, alpha = self.state, self._problem.alpha
        if alpha == 0.0:
            return alpha
        state.top = state.top or max(largest_norm, alpha)
        n_stages = math.ceil(math.log(state.top / alpha) / math.log(_STAGE_FACTOR))
        n_stages = min(n_stages, max(0, math.ceil(max_passes) - 2) if np.isfinite(max_passes) else n_stages)
        state.stage += 1
        left = max(0, n_stages - state.stage)
        return alpha * (state.top / alpha) ** (left / n_stages) if left else alpha

    def _above(self, found: GradientPass, held: list[Columns], alpha: float) -> list[Columns]:
        """Return the columns of a pass that have weights or get some at `alpha`, if there is room for all."""
        weighted = self.state.coef.slots(found.features) >= 0
        excess = np.where(weighted, np.inf, found.violations - (alpha - self._problem.alpha))
        wanted = excess > 0
        if np.count_nonzero(wanted) > self._plan.working_columns:
            wanted[np.argsort(-excess, kind="stable")[self._plan.working_columns :]] = False
            wanted |= weighted
        chosen = []
        for columns in held:
            start = int(np.searchsorted(found.features, columns.features[0]))
            here = np.flatnonzero(wanted[start : start + len(columns.features)])
            if len(here):
                chosen.append(columns.choose(here))
        return chosen

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


def _check(dataset: Dataset, alpha: float, ridge: float, tol: float, step: str) -> None:
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    if not (np.isfinite(alpha) and alpha >= 0 and alpha + ridge > 0):
        raise BigmcError(f"alpha is {alpha}", "give a positive number, or 0 with a ridge")
    if not tol > 0:
        raise BigmcError(f"tol is {tol}", "give a positive number")
    if step not in STEPS:
        raise BigmcError(f"no step is called {step!r}", f"use one of {', '.join(STEPS)}")
