"""Training of the sparse learner on data larger than memory.

With a ridge alone dual coordinates go through blocks of the samples
(`bigmc.solvers.sparse.ridge.row_blocks`). Else training starts from the weights of a sample that fits. If
the sample has many rows for each feature with weights, its loss, corrected by passes over all samples, is
minimised (`bigmc.solvers.sparse.sampled.subsampled_newton`); otherwise training goes through chunks of the
samples in turn (`bigmc.solvers.sparse.chunks.rounds`). All end with the same certificate.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bigmc.budget import MemoryLimitError, give_back_large_arrays
from bigmc.objectives import GROUP_LASSO
from bigmc.solvers.loop import Packed
from bigmc.solvers.sparse.chunks.plan import ChunkPlan, plan_chunks
from bigmc.solvers.sparse.chunks.rounds import ChunkRounds
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.in_memory import DENSE_SHARE, first_weights, on_sample, start_on_sample
from bigmc.solvers.sparse.memory_plan import SamplePlan, plan_memory, plan_sample
from bigmc.solvers.sparse.ridge.block_plan import plan_blocks
from bigmc.solvers.sparse.ridge.mixed_blocks import mixed
from bigmc.solvers.sparse.ridge.row_blocks import descend_blocks, is_unfinished
from bigmc.solvers.sparse.run import VISITS_PER_PASS, SparseRun, Task, Trained
from bigmc.solvers.sparse.sampled.state import SampledState
from bigmc.solvers.sparse.sampled.subsampled_newton import SubsampledNewton
from bigmc.solvers.sparse.state import Start, State
from bigmc.store.block import Residency

#: With fewer samples per feature with weights a sample says too little about the Hessian. On words of 18
#: languages 16 of them brought the objective within 5e-4 in 9 passes, 1000 to a gap of 2e-4 in 2.
_ROWS_PER_FEATURE = 15
#: The same where passes decode every shard twice, which rounds over chunks do not. On 300,000 rows of 200
#: numbers (squared hinge, alpha 2e-4) 133 rows brought a certified gap of 6e-4 in 22 reads, where chunks were
#: at .4 after 10; 24 rows did not come within 1e-2 in 26, where chunks did after 4. With 135 rows (log loss,
#: alpha 5e-3) a gap of 1.5e-4 took 5.0 reads and 15 CPU seconds, chunks 6.3 and 34. With l1 chunks are
#: better (5.4 reads and 119 seconds to 6.9e-4 with the squared hinge, where a sample took 8.0 and 150).
_ROWS_IF_READ_TWICE = 100
#: So many rows of a sample for each feature that its first weights have are enough: more make a round better,
#: but cost more than they save, and are not shared among workers. On words of 18 languages (411 such
#: features, 860 in the end) 323,000 rows came to a gap of 7e-4 in two passes and 46 CPU seconds, 719,000
#: to 2e-4 in 69; 24,000 rows of 30 numbers to 6e-5 in three passes and 7.4, 380,000 to 3e-4 in two and 8.6.
_ENOUGH_ROWS = 800
#: Gap to reach on a sample: the optimum of all samples is further away than that.
_SAMPLE_TOL = 1e-2


def chunk_plan(run: SparseRun, chunk_bytes: int | None) -> ChunkPlan:
    """Return how to go through chunks of the samples.

    Parameters
    ----------
    chunk_bytes : int or None
        Most bytes of a chunk; by default what the limit allows.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    """
    n_threads = run.context.local_engine.n_threads
    plan = plan_chunks(run.limits.memory, n_threads, run.shard_rows, run.size)
    return plan if chunk_bytes is None else replace(plan, chunk_bytes=chunk_bytes)


def plan_out_of_core(run: SparseRun, chunk_bytes: int | None) -> ChunkPlan | None:
    """Return how to go through chunks; None where memory is enough for dual coordinates alone.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    """
    try:
        return chunk_plan(run, chunk_bytes)
    except MemoryLimitError:
        if plan_blocks(run) is None:
            raise
        return None


def train_out_of_core(
    run: SparseRun, chunks: ChunkPlan | None, start: Start | None, saved: Packed | None
) -> Trained:
    """Train on samples that do not fit into memory together.

    Parameters
    ----------
    chunks : ChunkPlan or None
        None where memory is enough for dual coordinates alone.
    start : Start or None
        Weights to start from.
    saved : Packed or None
        Where to resume.
    """
    task = run.task
    give_back_large_arrays()
    if chunks and start is None and saved is None and (state := _by_dense_rows(run)):
        return _by_chunks(run, chunks, state)
    descended = _by_row_blocks(run, start if chunks else None, saved)
    if descended is not None and (chunks is None or not _goes_on(run, descended)):
        return descended
    assert chunks is not None
    if descended is not None:
        return _by_chunks(run, chunks, descended.state)
    if saved is not None and not saved.meta["corrected"]:
        return _by_chunks(run, chunks, ChunkState.unpack(saved, task.width))
    return _by_sample(run, chunks, start, saved)


def largest_norm(run: SparseRun, chunks: ChunkPlan) -> float:
    """Return the largest dual norm of a gradient where all weights are zero and the intercept is the best."""
    return ChunkRounds(_chunk_task(run), chunks).largest_norm()


def _by_dense_rows(run: SparseRun) -> State | None:
    """Return the weights of descent on a dense matrix in a file; None where that does not apply."""
    if not run.is_ridge:
        return None
    from bigmc.solvers.sparse.ridge.dense_file import start_from_file  # scipy.linalg takes .03 s

    found = start_from_file(run, DENSE_SHARE * run.limits.tol)
    if found is None:
        return None
    start, n_reads = found
    state = State.at(start, run.task.width)
    state.nnz_read = n_reads * run.task.dataset.nnz
    return state


def _by_row_blocks(run: SparseRun, start: Start | None, saved: Packed | None) -> Trained | None:
    """Return what dual coordinates come to, block after block; None where they do not apply or are done."""
    begun = saved is not None and is_unfinished(saved)
    if start is not None or (saved is not None and not begun):
        return None
    plan = plan_blocks(run)
    return None if plan is None else descend_blocks(run, mixed(plan, run.task.dataset), saved)


def _by_sample(run: SparseRun, chunks: ChunkPlan, start: Start | None, saved: Packed | None) -> Trained:
    """Train on a sample corrected by passes, or on chunks if that is not worth it."""
    sampled, state = _plan_sample(run), None
    sample = run.draw(sampled.share, run.context.engine) if sampled else None
    if saved is not None:
        state = SampledState.unpack(saved, run.task.width)
    elif start is not None:
        state = SampledState.at(start, run.task.width)
    if sampled and sample:
        if saved is not None and state:
            sample = _cut(on_sample(run, sample, sampled.memory_limit, _SAMPLE_TOL), state.sample_rows)
        elif state is None:
            state, sample = _start(run, sampled, sample)
        if state and (saved is not None or _corrects(run, chunks, sample, state)):
            return _correct(run, sampled, sample, state)
    return _by_chunks(run, chunks, state)


def _goes_on(run: SparseRun, trained: Trained) -> bool:
    """Whether a run has not reached its tolerance, and may read more."""
    passes = trained.state.nnz_read / max(run.task.dataset.nnz, 1)
    may_read = passes + 1 <= run.limits.max_passes and run.context.has_time(0.0)
    return trained.certificate.gap > run.limits.tol and may_read


def _plan_sample(run: SparseRun) -> SamplePlan | None:
    """Return how to hold a sample in memory, if that is possible and worth it.

    A worker decodes a shard twice that is larger than its block: for the scores, and for the gradient.
    """
    n_used = int(np.count_nonzero(run.task.dataset.column_nnz()))
    n_workers = run.context.engine.n_threads
    size = run.size
    plan = plan_sample(run.limits.memory, n_workers, n_used, run.shard_rows, size)
    if plan is None:
        return None
    once = size.largest_shard * size.entry_bytes <= plan.block_bytes
    large = plan.share * size.n_samples >= _ROWS_IF_READ_TWICE * n_used
    return plan if once or (large and run.task.objective.penalty == GROUP_LASSO) else None


def _start(run: SparseRun, plan: SamplePlan, sample: Task) -> tuple[SampledState | None, Task]:
    """Return the weights of a sample, None if it does not fit, and what of it is worth training on."""
    rows = 0
    with suppress(MemoryLimitError):
        smaller = on_sample(run, sample, plan.memory_limit, _SAMPLE_TOL)
        first = first_weights(smaller, plan_memory(plan.memory_limit, sample.size(_SAMPLE_TOL)))
        if first is not None and _ENOUGH_ROWS * len(first.coef.features) < sample.dataset.n_samples:
            rows = _ENOUGH_ROWS * len(first.coef.features)
            sample = _cut(smaller, rows)
        state = SampledState.of(start_on_sample(replace(smaller, task=sample), run, first))
        state.sample_rows = rows
        return state, sample
    return None, sample


def _cut(smaller: SparseRun, rows: int) -> Task:
    """Return about so many rows of a sample; all of them if that is 0, or none of them has a weight."""
    sample = smaller.task
    return (smaller.draw(rows / sample.dataset.n_samples, smaller.context.engine) if rows else None) or sample


def _corrects(run: SparseRun, chunks: ChunkPlan, sample: Task, state: State) -> bool:
    """Whether the loss of a sample is worth correcting, and the features with weights do not all fit."""
    features = state.coef.features
    n_chunks = chunks.n_chunks(int(run.task.dataset.column_nnz(features).sum()), len(features))
    enough = sample.dataset.n_samples >= _ROWS_PER_FEATURE * len(features)
    return run.descent.line_search and enough and n_chunks > 1


def _chunk_task(run: SparseRun) -> ChunkTask:
    task = run.task
    return ChunkTask(
        dataset=task.dataset,
        sample_weight=task.sample_weight,
        objective=task.objective,
        alpha=task.alpha,
        tol=run.limits.tol,
        descent=run.descent,
        dtype=run.score_dtype,
        context=replace(run.context, engine=run.context.local_engine),
    )


def _by_chunks(run: SparseRun, plan: ChunkPlan, state: State | None) -> Trained:
    """Train on chunks of the samples in turn, by threads of this process."""
    task, rounds = run.task, ChunkRounds(_chunk_task(run), plan)
    if state is None:
        state = ChunkState.zeros(task.width, task.dataset.n_classes)
    elif not isinstance(state, ChunkState):
        state = ChunkState.of(state)
        state.damping = 0.0
        state.bytes_read = state.nnz_read * task.dataset.entry_bytes
    certificate = rounds.run(state, run.limits.max_passes, run.fingerprint)
    return Trained(rounds.state, certificate, task.dataset.column_scale())


def _correct(run: SparseRun, plan: SamplePlan, sample: Task, state: SampledState) -> Trained:
    """Train on a sample, corrected by passes over all samples."""
    task, problem = run.task, run.scores(sample, run.score_dtype)
    source = BlockSource(sample.dataset, [(0, sample.dataset.n_features)], Residency.MEMORY)
    # a descent may look at as many entries as a pass: l1 has sweeps that gain little by themselves
    nnz = max(sample.dataset.nnz, task.dataset.nnz // VISITS_PER_PASS)
    sweeper = run.sweeper(problem, nnz, plan.newton_bytes)
    rounds = SubsampledNewton(task, run.limits, run.context, problem, source, sweeper, plan)
    certificate = rounds.run(state, run.fingerprint)
    return Trained(rounds.state, certificate, task.dataset.column_scale())
