"""Training of the sparse linear classifier: plan the memory, find where to start, go round until done.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013); what a round does is in `bigmc.solvers.sparse.rounds`. Data that
does not fit into memory starts from the weights of a sample that does.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, plan_within
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.objectives import Objective, objective
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers import loop
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.loop import Fingerprint, Limits, Packed, RunContext, load
from bigmc.solvers.sparse.chunk_rounds import ChunkRounds
from bigmc.solvers.sparse.chunk_task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, cut_ranges
from bigmc.solvers.sparse.memory_plan import (
    SINGLE_PRECISION_TOL,
    ChunkPlan,
    SamplePlan,
    SolverPlan,
    holds,
    plan_chunks,
    plan_memory,
    plan_sample,
    plan_start,
)  # fmt: skip
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.rounds import Rounds
from bigmc.solvers.sparse.state import Start, State
from bigmc.solvers.sparse.subsampled_newton import CorrectedRounds
from bigmc.solvers.sparse.sweeps import Sweeper
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows

STEPS = ("line_search", "constant")

#: Entries looked at between two passes at most: a pass costs as much as looking at all entries once.
_VISITS_PER_PASS = 5
_SMALL_VISITS = 20_000_000
#: With fewer samples per feature with weights a sample says too little about the Hessian. On words of 18
#: languages 16 of them brought the objective within 5e-4 in 9 passes, 1000 to a gap of 2e-4 in 2.
_ROWS_PER_FEATURE = 15
#: With so many entries in memory training starts on a sample too: the way to the final features costs less.
_MANY_ENTRIES = 5_000_000
#: Gap to reach on a sample: the optimum of all samples is further away than that. In memory a sample gives
#: a rough start only, with a penalty larger by as much as the noise of its gradients: more features that soon
#: lose their weights again cost more than the better objective saves.
_SAMPLE_TOL, _ROUGH_TOL = 1e-2, 0.3


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
        certificate, ``n_screened`` where features proved to have no weights are left out of the next.
    bytes_read : int
        Decoded bytes read from the shards.
    converged : bool
        The gap reached the tolerance.
    norms : float32 array of shape (n_features,) or None
        Norm of the gradient of every feature at the weights; where these were proved to be none, as last
        seen.
    column_scale : float32 array of shape (n_features,) or None
        Scale of the columns the weights belong to (idf weighting).
    plan : SolverPlan
        What was kept in memory; None where samples were gone through chunk by chunk.
    score_dtype : numpy.dtype
        Of the scores the weights were computed with.
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
    norms: NDArray[np.float32] | None
    column_scale: NDArray[np.float32] | None
    plan: SolverPlan | None
    score_dtype: np.dtype[Any]


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
        How long a step is, see `bigmc.kernels.linear.squared_hinge.sweep`.
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
    minimised = objective(loss, penalty, l1_ratio, ridge, sets=dataset.has_sets)
    _check(dataset, alpha, ridge, tol, step)
    task = Task(dataset, sample_weight, minimised, alpha)
    fingerprint = {
        "alpha": alpha, "loss": loss, "penalty": penalty, "l1_ratio": l1_ratio, "ridge": ridge,
        "fit_intercept": fit_intercept, "seed": seed, "step": step, "memory_limit": memory_limit,
        "n_samples": dataset.n_samples, "n_features": dataset.n_features, "n_classes": dataset.n_classes,
        "nnz": dataset.nnz, "weight_sum": task.weight_sum,
    }  # fmt: skip
    run = _Run(
        task,
        Limits(tol, max_passes, memory_limit),
        Descent(step, fit_intercept, seed),
        RunContext(engine or ThreadEngine(), checkpoint, progress, scratch),
        fingerprint,
    )
    return _train(run, start, block_bytes)


@dataclass(frozen=True)
class Task:
    """What is minimised: the objective over weighted samples.

    Attributes
    ----------
    dataset : Dataset
    sample_weight : float64 array of shape (n_samples,) or None
    objective : Objective
    alpha : float
        Weight of the penalty.
    """

    dataset: Dataset
    sample_weight: NDArray[np.float64] | None
    objective: Objective
    alpha: float

    @property
    def weight_sum(self) -> float:
        """N of the objective."""
        return float(self.dataset.n_samples if self.sample_weight is None else self.sample_weight.sum())

    @property
    def width(self) -> int:
        """Classes, padded to whole vectors of the loss's kernels."""
        lanes = self.objective.loss.lanes
        return -(-self.dataset.n_classes // lanes) * lanes

    def size(self, tol: float) -> dict[str, Any]:
        """Return what a plan of memory must know of it."""
        dataset = self.dataset
        return {
            "n_samples": dataset.n_samples, "n_features": dataset.n_features, "width": self.width,
            "n_classes": dataset.n_classes, "nnz": dataset.nnz, "n_shards": dataset.n_shards,
            "widest": int(dataset.column_nnz().max(initial=0)), "itemsize": dataset.dtype.itemsize,
            "tol": tol, "weighted": self.sample_weight is not None,
            "column_scaled": dataset.weighting.idf, "most_labels": dataset.most_labels(),
            "n_certain": 0 if self.alpha > 0 else int(np.count_nonzero(dataset.column_nnz())),
        }  # fmt: skip


@dataclass(frozen=True)
class Descent:
    """How steps are taken.

    Attributes
    ----------
    step : str
        One of `STEPS`.
    fit_intercept : bool
    seed : int
        Of the order of blocks and columns.
    """

    step: str
    fit_intercept: bool
    seed: int

    @property
    def line_search(self) -> bool:
        """Steps go to the minimum of a local model and are checked by a line search."""
        return self.step == STEPS[0]


@dataclass(frozen=True)
class _Run:
    """What `solve` was asked for."""

    task: Task
    limits: Limits
    descent: Descent
    context: RunContext
    fingerprint: Fingerprint

    @property
    def correctable(self) -> bool:
        """Whether the loss of a sample can be corrected: it takes the steps of Newton's method.

        One pass alone is asked for the gradients at the best intercept, which only the scores of all samples
        tell (`largest_alpha`).
        """
        best_intercept = self.descent.fit_intercept and self.limits.max_passes <= 1
        return self.task.objective.correctable and self.descent.line_search and not best_intercept

    def scores(self, task: Task, dtype: np.dtype[Any], *, on_disk: bool = False) -> Problem:
        """Return the samples of a task and their scores."""
        return Problem(
            task.dataset, task.objective, task.alpha, task.sample_weight, dtype, self.context.local_engine,
            on_disk=on_disk, scratch=self.context.scratch,
        )  # fmt: skip

    def sweeper(self, problem: Problem, nnz: int, newton_bytes: int) -> Sweeper:
        """Return what sweeps over samples with so many entries."""
        descent, most_visits = self.descent, max(_SMALL_VISITS, _VISITS_PER_PASS * nnz)
        return Sweeper(
            problem, descent.line_search, descent.seed, descent.fit_intercept, most_visits, newton_bytes
        )

    def draw(self, share: float) -> Task | None:
        """Return the task of a share of the samples, in memory; None if all of them have no weight."""
        task = self.task
        drawn, positions = draw_rows(task.dataset, share, self.descent.seed, self.context.local_engine)
        weights = None if task.sample_weight is None else task.sample_weight[positions]
        if weights is not None and not weights.any():
            return None
        return replace(task, dataset=drawn, sample_weight=weights)


class _Trained(NamedTuple):
    """Where the rounds of a run ended, and the scale of the columns its weights belong to."""

    state: State
    certificate: Certificate
    column_scale: NDArray[np.float32] | None


def _train(run: _Run, start: Start | None, block_bytes: int | None) -> Solution:
    """Plan the memory, find where to start, and go round until the limits are reached."""
    task, limits = run.task, run.limits
    dataset, size = task.dataset, task.size(limits.tol)
    plan, chunks = plan_within(limits.memory, lambda limit: _plan(run, size, block_bytes, limit))
    sampled = _plan_sample(run, plan, size) if plan and block_bytes is None else None
    saved = load(run.context, run.fingerprint)
    state = State.unpack(saved, task.width) if saved else None
    sample = None
    if plan and sampled and (state.corrected if state else not (plan.keep_blocks and start)):
        sample = run.draw(sampled.share)
    if state is None:
        if start is not None:
            state = State.at(start, task.width, task.alpha)
        elif plan and sampled and sample:
            with suppress(MemoryLimitError):  # by chance the sample is far larger than planned for
                if plan.keep_blocks:  # passes are cheap: a rough start will do
                    sample = replace(sample, alpha=task.alpha / math.sqrt(sampled.share))
                tol = _ROUGH_TOL if plan.keep_blocks else _SAMPLE_TOL
                state = _start_on_sample(run, sample, sampled.memory_limit, tol)
        if state and sample and plan and not plan.keep_blocks and sampled:
            enough = sample.dataset.n_samples >= _ROWS_PER_FEATURE * len(state.coef.features)
            state.corrected = run.correctable and enough and not holds(plan, dataset, state.coef)
    if sampled and sample and state and state.corrected:
        state, certificate, column_scale = _correct(run, sampled, sample, state)
    elif chunks and (state is None or state.chunked or not saved):
        sample = None
        state, certificate, column_scale = _by_chunks(run, chunks, state)
    else:
        sample = None  # its memory is needed
        assert plan is not None
        if state is not None and start is None:
            state.norms = None  # those of a sample say nothing about features of few samples
        state, certificate, column_scale = _go_round(run, plan, state, saved)
    return Solution(
        state.coef.features, np.ascontiguousarray(state.coef.rows[:, : dataset.n_classes]), state.intercept,
        certificate.upper, certificate, state.n_iter, state.nnz_read / max(dataset.nnz, 1), state.history,
        state.bytes_read, certificate.gap <= limits.tol, state.norms, column_scale, plan,
        plan.score_dtype if plan else _dtype(limits.tol),
    )  # fmt: skip


def _plan_sample(run: _Run, plan: SolverPlan, size: dict[str, Any]) -> SamplePlan | None:
    """Return how to train on a sample first, if that is worth it."""
    dataset = run.task.dataset
    if not plan.keep_blocks:
        n_used = int(np.count_nonzero(dataset.column_nnz()))
        shard_rows = max(shard.n_rows for shard in dataset.shards)
        return plan_sample(run.limits.memory, run.context.engine.n_threads, n_used, shard_rows, **size)
    return plan_start(plan.memory.free, **size) if dataset.nnz >= _MANY_ENTRIES else None


def _go_round(run: _Run, plan: SolverPlan, start: State | None, saved: Packed | None) -> _Trained:
    """Train on all samples, their scores in memory or in a file."""
    dataset = run.task.dataset
    problem = run.scores(run.task, plan.score_dtype, on_disk=plan.scores_on_disk)
    ranges = cut_ranges(dataset.plan(plan.block_bytes), plan.block_columns)
    source = BlockSource(dataset, ranges, plan.keep_blocks)
    try:
        sweeper = run.sweeper(problem, dataset.nnz, plan.newton_bytes)
        rounds = Rounds(problem, source, plan, sweeper, run.limits, run.context.progress, start)
        outcome = loop.run(rounds, run.context, run.fingerprint, saved)
    finally:
        problem.close()
    return _Trained(rounds.state, outcome.certificate, problem.column_scale)


def _plan(
    run: _Run, size: dict[str, Any], block_bytes: int | None, limit: int
) -> tuple[SolverPlan | None, ChunkPlan | None]:
    """Return how to train within a limit in bytes: with all samples at once, chunk by chunk, or either.

    Raises
    ------
    MemoryLimitError
        If neither is possible.
    """
    chunks = _plan_chunks(run, size, limit) if block_bytes is None else None
    try:
        plan = plan_memory(limit=limit, block_bytes=block_bytes, **size)
    except MemoryLimitError:
        if chunks is None:
            raise
        return None, chunks
    return plan, None if plan.keep_blocks else chunks


def _plan_chunks(run: _Run, size: dict[str, Any], limit: int) -> ChunkPlan | None:
    """Return how to go through chunks of the samples, if that is possible.

    One pass alone is asked for exact gradients (`largest_alpha`).
    """
    if run.limits.max_passes <= 1:
        return None
    shard_rows = max(shard.n_rows for shard in run.task.dataset.shards)
    return plan_chunks(limit, run.context.local_engine.n_threads, shard_rows, **size)


def _by_chunks(run: _Run, plan: ChunkPlan, state: State | None) -> _Trained:
    """Train on chunks of the samples in turn."""
    task, limits, context = run.task, run.limits, run.context
    chunked = ChunkTask(
        task.dataset, task.sample_weight, task.objective, task.alpha, limits.tol,
        run.descent.fit_intercept, run.descent.line_search, _dtype(limits.tol), run.descent.seed,
        context.local_engine, context.scratch,
    )  # fmt: skip
    rounds = ChunkRounds(chunked, plan)
    if state is None:
        state = State(Coefficients.zeros(task.width), np.zeros(task.dataset.n_classes))
    if not state.chunked:
        state.chunked, state.damping = True, 0.0
        state.bytes_read = state.nnz_read * (2 + task.dataset.dtype.itemsize)
    certificate = rounds.run(
        state, limits.max_passes, context.checkpoint, dict(run.fingerprint), context.progress
    )
    return _Trained(rounds.state, certificate, task.dataset.column_scale())


def _dtype(tol: float) -> np.dtype[Any]:
    """Return the type of the scores where they are no small matrix."""
    return np.dtype(np.float32 if tol >= SINGLE_PRECISION_TOL else np.float64)


def _correct(run: _Run, plan: SamplePlan, sample: Task, state: State) -> _Trained:
    """Train on a sample, corrected by passes over all samples."""
    task, limits, context = run.task, run.limits, run.context
    problem = run.scores(sample, _dtype(limits.tol))
    everything = cut_ranges([(0, sample.dataset.n_features)], sample.dataset.n_features)
    source = BlockSource(sample.dataset, everything, keep=True)
    sweeper = run.sweeper(problem, sample.dataset.nnz, plan.newton_bytes)
    rounds = CorrectedRounds(
        task.dataset, task.sample_weight, problem, source, sweeper, limits.tol,
        context.engine.at_most(plan.n_workers), plan.block_bytes, plan.block_columns,
    )  # fmt: skip
    certificate = rounds.run(
        state, limits.max_passes, context.checkpoint, dict(run.fingerprint), context.progress
    )
    return _Trained(rounds.state, certificate, task.dataset.column_scale())


def _start_on_sample(run: _Run, sample: Task, memory: int, tol: float) -> State:
    """Return the weights of a sample as the start for all samples."""

    def show(seen: Progress) -> None:
        run.context.progress(replace(seen, stage="train on a sample"))

    smaller = replace(
        run,
        task=sample,
        limits=replace(run.limits, tol=tol, memory=memory),
        # another seed: a sample of the sample by the same hash would be all of it
        descent=replace(run.descent, seed=run.descent.seed + 1),
        context=RunContext(run.context.local_engine, progress=show),
    )
    found = _train(smaller, None, None)
    state = State.at(Start(found.features, found.coef, found.intercept), run.task.width, run.task.alpha)
    state.n_iter, state.nnz_read = found.n_iter, run.task.dataset.nnz
    state.norms = found.norms
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


def _check(dataset: Dataset, alpha: float, ridge: float, tol: float, step: str) -> None:
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    if not (np.isfinite(alpha) and alpha >= 0 and alpha + ridge > 0):
        raise BigmcError(f"alpha is {alpha}", "give a positive number, or 0 with a ridge")
    if not tol > 0:
        raise BigmcError(f"tol is {tol}", "give a positive number")
    if step not in STEPS:
        raise BigmcError(f"no step is called {step!r}", f"use one of {', '.join(STEPS)}")
