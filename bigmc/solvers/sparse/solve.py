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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.objectives import Objective, objective
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.sparse.chunk_rounds import ChunkRounds, Task
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
#: A start on a share of the samples has a larger penalty, by the share to the power of minus this.
_ROUGHER = 0.25
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
    lanes = minimised.loss.lanes
    column_nnz = dataset.column_nnz()
    size: dict[str, Any] = {
        "n_samples": dataset.n_samples, "n_features": dataset.n_features,
        "width": -(-dataset.n_classes // lanes) * lanes, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "n_shards": dataset.n_shards, "widest": int(column_nnz.max(initial=0)),
        "itemsize": dataset.dtype.itemsize, "tol": tol, "weighted": sample_weight is not None,
        "column_scaled": dataset.weighting.idf, "most_labels": dataset.most_labels(),
    }  # fmt: skip
    threads = engine if isinstance(engine, ThreadEngine) else ThreadEngine()
    shard_rows = max(shard.n_rows for shard in dataset.shards)
    chunks = None
    if block_bytes is None and step == "line_search" and not fit_intercept and max_passes > 1:
        chunks = plan_chunks(memory_limit, threads.n_threads, shard_rows, **size)
    plan = None
    try:
        plan = plan_memory(limit=memory_limit, block_bytes=block_bytes, **size)
    except MemoryLimitError:
        if chunks is None:
            raise
    options: dict[str, Any] = {
        "alpha": alpha, "loss": loss, "penalty": penalty, "l1_ratio": l1_ratio, "ridge": ridge,
        "fit_intercept": fit_intercept, "seed": seed, "step": step,
    }  # fmt: skip
    record = options | {
        "memory_limit": memory_limit, "n_samples": dataset.n_samples,
        "n_features": dataset.n_features, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "weight_sum": float(dataset.n_samples if sample_weight is None else sample_weight.sum()),
    }  # fmt: skip
    run = _Run(
        dataset, sample_weight, minimised, alpha, tol, max_passes, step == "line_search", fit_intercept, seed,
        engine or ThreadEngine(), scratch, checkpoint, record, progress,
    )  # fmt: skip
    sampled = None
    keep_blocks = plan is not None and plan.keep_blocks
    if block_bytes is None and not keep_blocks:
        n_used = int(np.count_nonzero(column_nnz))
        sampled = plan_sample(memory_limit, run.engine.n_threads, n_used, shard_rows, **size)
    elif plan is not None and block_bytes is None and dataset.nnz >= _MANY_ENTRIES:
        sampled = plan_start(plan.memory.free, **size)
    state = State.load(checkpoint, record, size["width"]) if checkpoint else None
    chunked = state.chunked if state else chunks is not None and not keep_blocks
    sample, norms = None, None
    if sampled and (state.corrected if state else not (keep_blocks and start)):
        sample = Sample.draw(run, sampled.share)
    if state is None:
        if start is not None:
            state = State.at(start, size["width"], alpha)
        elif sampled and sample:
            # another seed: a sample of the sample by the same hash would be all of it
            options |= {"memory_limit": sampled.memory_limit, "seed": seed + 1, "tol": _SAMPLE_TOL}
            if keep_blocks:  # passes are cheap: a rough start will do
                options |= {"alpha": alpha / math.sqrt(sampled.share), "tol": _ROUGH_TOL}
            with suppress(MemoryLimitError):  # by chance the sample is far larger than planned for
                state, norms = _start_on_sample(run, sample, options, size["width"])
        elif chunked and chunks and chunks.sample_limit:
            sample = Sample.draw(run, chunks.sample_share)
            options |= {"memory_limit": chunks.sample_limit, "seed": seed + 1, "tol": _ROUGH_TOL}
            options |= {"alpha": alpha / chunks.sample_share**_ROUGHER}
            with suppress(MemoryLimitError):
                if sample:
                    state, norms = _start_on_sample(run, sample, options, size["width"])
        if state and sample and plan and not keep_blocks:
            enough = sample.dataset.n_samples >= _ROWS_PER_FEATURE * len(state.coef.features)
            state.corrected = run.correctable and enough and not holds(plan, dataset, state.coef)
    if sampled and sample and state and state.corrected:
        state, certificate, column_scale = _correct(run, sampled, sample, state)
    elif chunked and chunks:
        sample = None
        if state is not None and norms is not None:
            state.norms = norms
        state, certificate, column_scale = _by_chunks(run, chunks, threads, size["width"], state)
    else:
        sample = None
        assert plan is not None
        state, certificate, column_scale = _go_round(run, plan, state)
    return Solution(
        state.coef.features, np.ascontiguousarray(state.coef.rows[:, : dataset.n_classes]), state.intercept,
        certificate.upper, certificate, state.n_iter, state.nnz_read / max(dataset.nnz, 1), state.history,
        state.bytes_read, certificate.gap <= tol, state.norms, column_scale, plan,
        plan.score_dtype if plan else _dtype(tol),
    )  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """What `solve` was asked for."""

    dataset: Dataset
    sample_weight: NDArray[np.float64] | None
    objective: Objective
    alpha: float
    tol: float
    max_passes: float
    line_search: bool
    fit_intercept: bool
    seed: int
    engine: Engine
    scratch: Path | None
    checkpoint: Checkpoint | None
    record: dict[str, Any]
    progress: ProgressCallback

    @property
    def local_engine(self) -> Engine:
        """Threads of this process, for what is in its memory."""
        return self.engine if isinstance(self.engine, ThreadEngine) else ThreadEngine()

    @property
    def correctable(self) -> bool:
        """Whether the loss of a sample can be corrected: it takes the steps of Newton's method.

        One pass alone is asked for the gradients at the best intercept, which only the scores of all samples
        tell (`largest_alpha`).
        """
        best_intercept = self.fit_intercept and self.max_passes <= 1
        return self.objective.correctable and self.line_search and not best_intercept

    def problem(
        self,
        dataset: Dataset,
        weights: NDArray[np.float64] | None,
        dtype: np.dtype[Any],
        on_disk: bool = False,
    ) -> Problem:
        """Return the problem of some samples."""
        return Problem(
            dataset, self.objective, self.alpha, weights, dtype, self.local_engine,
            on_disk=on_disk, scratch=self.scratch,
        )  # fmt: skip

    def sweeper(self, problem: Problem, most_visits: int, newton_bytes: int) -> Sweeper:
        """Return what sweeps over it."""
        return Sweeper(problem, self.line_search, self.seed, self.fit_intercept, most_visits, newton_bytes)


@dataclass(frozen=True)
class Sample:
    """Some of the samples, in memory, and their weights."""

    dataset: Dataset
    weights: NDArray[np.float64] | None

    @classmethod
    def draw(cls, run: _Run, share: float) -> Sample | None:
        """Draw a share of the samples; None if all of them have no weight."""
        drawn, positions = draw_rows(run.dataset, share, run.seed, run.local_engine)
        weights = None if run.sample_weight is None else run.sample_weight[positions]
        return None if weights is not None and not weights.any() else cls(drawn, weights)


def _go_round(
    run: _Run, plan: SolverPlan, state: State | None
) -> tuple[State, Certificate, NDArray[np.float32] | None]:
    """Train on all samples, their scores in memory or in a file."""
    dataset = run.dataset
    problem = run.problem(dataset, run.sample_weight, plan.score_dtype, plan.scores_on_disk)
    source = BlockSource(
        dataset, cut_ranges(dataset.plan(plan.block_bytes), plan.block_columns), plan.keep_blocks
    )
    try:
        most_visits = max(_SMALL_VISITS, _VISITS_PER_PASS * dataset.nnz)
        sweeper = run.sweeper(problem, most_visits, plan.newton_bytes)
        rounds = Rounds(problem, source, plan, sweeper, run.tol)
        certificate = rounds.run(state, run.max_passes, run.checkpoint, run.record, run.progress)
    finally:
        problem.close()
    return rounds.state, certificate, problem.column_scale


def _by_chunks(
    run: _Run, plan: ChunkPlan, engine: ThreadEngine, width: int, state: State | None
) -> tuple[State, Certificate, NDArray[np.float32] | None]:
    """Train on chunks of the samples in turn."""
    dtype = _dtype(run.tol)
    task = Task(
        run.dataset, run.sample_weight, run.objective, run.alpha, run.tol, dtype, run.seed, engine,
        run.scratch,
    )  # fmt: skip
    rounds = ChunkRounds(task, plan)
    if state is None:
        state = State(Coefficients.zeros(width), np.zeros(run.dataset.n_classes))
    if not state.chunked:
        state.chunked, state.damping = True, 0.0
        state.bytes_read = state.nnz_read * (2 + run.dataset.dtype.itemsize)
    certificate = rounds.run(state, run.max_passes, run.checkpoint, run.record, run.progress)
    return rounds.state, certificate, run.dataset.column_scale()


def _correct(
    run: _Run, plan: SamplePlan, sample: Sample, state: State
) -> tuple[State, Certificate, NDArray[np.float32] | None]:
    """Train on a sample, corrected by passes over all samples."""
    dtype = _dtype(run.tol)
    problem = run.problem(sample.dataset, sample.weights, dtype)
    everything = cut_ranges([(0, sample.dataset.n_features)], sample.dataset.n_features)
    source = BlockSource(sample.dataset, everything, keep=True)
    sweeper = run.sweeper(
        problem, max(_SMALL_VISITS, _VISITS_PER_PASS * sample.dataset.nnz), plan.newton_bytes
    )
    engine = run.engine.at_most(plan.n_workers)
    rounds = CorrectedRounds(
        run.dataset, run.sample_weight, problem, source, sweeper, run.tol, engine, plan.block_bytes,
        plan.block_columns,
    )  # fmt: skip
    certificate = rounds.run(state, run.max_passes, run.checkpoint, run.record, run.progress)
    return rounds.state, certificate, run.dataset.column_scale()


def _start_on_sample(
    run: _Run, sample: Sample, options: dict[str, Any], width: int
) -> tuple[State, NDArray[np.float32] | None]:
    """Return the weights of a sample as the start for all samples, and the norms of its gradients."""

    def show(seen: Progress) -> None:
        run.progress(replace(seen, stage="train on a sample"))

    found = solve(
        sample.dataset, sample_weight=sample.weights, max_passes=run.max_passes, engine=run.local_engine,
        progress=show, **options,
    )  # fmt: skip
    state = State.at(Start(found.features, found.coef, found.intercept), width, run.alpha)
    state.n_iter, state.nnz_read = found.n_iter, run.dataset.nnz
    return state, found.norms


def _dtype(tol: float) -> np.dtype[Any]:
    """Return the type of the scores where they are no small matrix."""
    return np.dtype(np.float32 if tol >= SINGLE_PRECISION_TOL else np.float64)


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
