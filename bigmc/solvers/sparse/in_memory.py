"""Training of the sparse learner where all samples fit into memory, and a sample as the start of a run."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

from bigmc.budget import MemoryLimitError
from bigmc.progress import Progress
from bigmc.solvers import loop
from bigmc.solvers.loop import Packed, RunContext
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.memory_plan import SolverPlan, plan_memory, plan_start
from bigmc.solvers.sparse.ridge.dual_descent import DualDescent
from bigmc.solvers.sparse.run import SparseRun, Task, Trained
from bigmc.solvers.sparse.state import Start, State
from bigmc.solvers.sparse.working_set.rounds import Rounds
from bigmc.store.block import Residency, cut_ranges, dtype_in_memory

#: With so many entries in memory training starts on a sample too: the way to the final features costs less.
MANY_ENTRIES = 5_000_000
#: Gap to reach on that sample, with a penalty larger by as much as the noise of its gradients: more features
#: that soon lose their weights again cost more than the better objective saves.
_ROUGH_TOL = 0.3
#: With a ridge and no other penalty dual coordinate descent gives the first weights. It stops at this share
#: of the tolerance, since its intercept is penalised, at no smaller gap than the second, for its single
#: precision, and after so many epochs.
_DUAL_SHARE, _DUAL_TOL, _DUAL_EPOCHS = 0.7, 1e-4, 60
#: Share of the tolerance at which descent on a dense matrix stops: a tenth took a third longer.
DENSE_SHARE = 0.3


def train_in_memory(run: SparseRun, plan: SolverPlan, start: State | None, saved: Packed | None) -> Trained:
    """Train on all samples.

    Parameters
    ----------
    start : State or None
        Weights to start from; by default `first_weights`.
    saved : Packed or None
        Where to resume.
    """
    task, dataset = run.task, run.task.dataset
    state = None
    if saved is None:
        state = start or first_weights(run, plan)
    problem = run.scores(task, plan.score_dtype)
    ranges = cut_ranges(dataset.plan(plan.block_bytes), plan.block_columns)
    dtype = dtype_in_memory(dataset, dataset.nnz, plan.memory.free)
    further = dataset.nnz * (dtype.itemsize - dataset.dtype.itemsize)
    source = BlockSource(dataset, ranges, Residency.MEMORY, dtype)
    sweeper = run.sweeper(problem, dataset.nnz, plan.newton_bytes - further)
    rounds = Rounds(problem, source, plan, sweeper, run.limits, run.context.progress, state)
    outcome = loop.run(rounds, run.context, run.fingerprint, saved)
    return Trained(rounds.state, outcome.certificate, problem.column_scale)


def on_sample(run: SparseRun, sample: Task, memory: int, tol: float) -> SparseRun:
    """Return a run on a sample in memory that is the start of a run on all samples."""

    def show(seen: Progress) -> None:
        run.context.progress(replace(seen, stage="train on a sample"))

    return replace(
        run,
        task=sample,
        limits=replace(run.limits, tol=tol, memory=memory),
        # another seed: a sample of the sample by the same hash would be all of it
        descent=replace(run.descent, seed=run.descent.seed + 1),
        context=RunContext(run.context.local_engine, progress=show, ends=run.context.ends),
    )


def start_on_sample(smaller: SparseRun, run: SparseRun, first: State | None = None) -> State:
    """Return the weights of a sample in memory as the start for all samples.

    Parameters
    ----------
    smaller : SparseRun
        On the sample, see `on_sample`.
    run : SparseRun
        On all samples.
    first : State or None
        Weights to start from; by default `first_weights`.

    Raises
    ------
    MemoryLimitError
        If the sample does not fit: by chance it is far larger than planned for.
    """
    sample, limits = smaller.task, smaller.limits
    plan = plan_memory(limits.memory, sample.size(limits.tol))
    trained = train_in_memory(smaller, plan, first, None).state
    coef = trained.coef.rows[:, : sample.dataset.n_classes]
    start = Start(trained.coef.features, coef, trained.intercept)
    state = State.at(start, run.task.width)
    state.n_iter, state.nnz_read = trained.n_iter, run.task.dataset.nnz
    state.norms = trained.norms
    return state


def first_weights(run: SparseRun, plan: SolverPlan) -> State | None:
    """Return cheap weights to start from, by dual coordinates or of a sample; None if neither is worth it."""
    if (state := _start_by_dense_descent(run, plan)) is not None:
        return state
    fits = run.takes_duals and DualDescent.memory(run.task.dataset) <= run.limits.memory
    return _start_by_duals(run) if fits else _rough_start(run, plan)


def _rough_start(run: SparseRun, plan: SolverPlan) -> State | None:
    """Return rough weights from a sample, if it fits into memory beside all samples and is worth it."""
    task, tol = run.task, run.limits.tol
    sampled = plan_start(plan.memory.free, task.size(tol)) if task.dataset.nnz >= MANY_ENTRIES else None
    sample = run.draw(sampled.share, run.context.local_engine) if sampled else None
    if sampled is None or sample is None:
        return None
    with suppress(MemoryLimitError):
        sample = replace(sample, alpha=task.alpha / math.sqrt(sampled.share))
        state = start_on_sample(on_sample(run, sample, sampled.memory_limit, _ROUGH_TOL), run)
        state.norms = None  # those of a sample say nothing about features of few samples
        return state
    return None


def _start_by_dense_descent(run: SparseRun, plan: SolverPlan) -> State | None:
    """Return the weights that descent on a dense matrix finds, if columns are, and there is memory for it."""
    if not run.is_ridge:
        return None
    from bigmc.solvers.sparse.ridge import dense_descent  # scipy.linalg takes .03 s

    task, n_threads = run.task, run.context.local_engine.n_threads
    if not dense_descent.applies(run) or dense_descent.memory(task, n_threads) > plan.memory.free:
        return None
    room = dense_descent.room_for(task, plan.memory.free, n_threads)
    start = dense_descent.start_by_descent(run, DENSE_SHARE * run.limits.tol, room)
    return None if start is None else State.at(start, task.width)


def _start_by_duals(run: SparseRun) -> State:
    """Return the weights that dual coordinates find, nearly at the tolerance."""
    task, context = run.task, run.context
    duals = DualDescent(
        task.dataset, context.local_engine, run.descent.seed, task.sample_weight, run.descent.fit_intercept
    )
    tol = max(_DUAL_SHARE * run.limits.tol, _DUAL_TOL)
    duals.descend(task.objective.ridge, tol, _DUAL_EPOCHS, context.ends)
    state = State.at(duals.start(), task.width)
    state.lower, state.nnz_read = duals.lower_bound(task.objective.ridge), task.dataset.nnz
    return state
