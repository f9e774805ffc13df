"""A read over all shards that stochastic steps make, and what memory it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.progress import Progress
from bigmc.solvers.sparse.chunks.candidate_columns import CandidateColumns
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.row_order import ENTRY_BYTES, RowSamples
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.stochastic_rounds import Point
from bigmc.solvers.sparse.chunks.stochastic_start import ShardSamples, Started, StochasticSteps, sums_width
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.feature_sets import most_wanted
from bigmc.solvers.sparse.scratch.spill import Spill

#: Bytes of a sample beside its entries, of a feature beside its sums, and of what is decoded at once.
_ROW_BYTES, _FEATURE_BYTES, _DECODED = 64, 64, 3 << 20
#: Share of what is left for the features at most; of the rest for entries in row order.
_TABLE_SHARE, _ROW_ORDER = 0.4, 0.1
#: Samples drawn at random may have more entries than expected; what the allocator keeps between shards.
_MARGIN = 1.25
#: Shares of the samples, and of the entries that features in the table have, with less of which the read
#: says too little: on words and pairs with 17 % and 63 % the candidates it named were far too few.
_LEAST_SAMPLES, _LEAST_ENTRIES = 0.3, 0.85


@dataclass(frozen=True)
class ReadPlan:
    """How stochastic steps divide the memory limit.

    Attributes
    ----------
    table : int64 array
        Features that take part, increasing.
    share : float
        Of the samples of every shard.
    row_bytes : int
        Bytes of the entries in row order.
    most_weights : int
        Features that may end with weights.
    """

    table: NDArray[np.int64]
    share: float
    row_bytes: int
    most_weights: int


def plan_read(task: ChunkTask, plan: ChunkPlan) -> ReadPlan | None:
    """Return which features and samples take part, or None where these are too few."""
    dataset = task.dataset
    n_used = int(np.count_nonzero(dataset.column_nnz()))
    rows = max((shard.n_rows for shard in dataset.shards), default=0)
    decoded = min(_DECODED, 2 * plan.block_bytes)
    left = plan.free_bytes - decoded - rows * (_ROW_BYTES + 4 * dataset.most_labels())
    feature = 4 * sums_width(task.n_classes) + _FEATURE_BYTES
    n_table = min(n_used, int(_TABLE_SHARE * max(left, 0)) // feature)
    table = most_wanted(dataset.column_nnz, n_table)
    coverage = int(dataset.column_nnz(table).sum()) / max(dataset.nnz, 1)
    if task.alpha <= 0.0 or coverage < _LEAST_ENTRIES:
        return None
    left -= n_table * feature
    largest = max(shard.nnz for shard in dataset.shards)
    needed = _MARGIN * coverage * largest * dataset.entry_bytes
    row_bytes = max(ENTRY_BYTES, int(_ROW_ORDER * left))
    share = min(1.0, (left - 2 * row_bytes) / max(needed, 1.0))
    most_weights = max(plan.most_candidates, plan.most_by_rows)
    return ReadPlan(table, share, row_bytes, most_weights) if share >= _LEAST_SAMPLES else None


def first_weights(task: ChunkTask, plan: ChunkPlan, columns: CandidateColumns, state: ChunkState) -> bool:
    """Let the weights of a state follow all samples, if that is worth a read and memory has space for it.

    It is not where the columns of the candidates, the layers of the state, fit into memory: then rounds over
    them read little.

    Returns
    -------
    bool
        Whether there are weights now. The state has no layers then, and its norms are those of the mean
        gradients on the way.
    """
    reading = None if columns.would_be_held(state) else plan_read(task, plan)
    if reading is None:
        return False
    started = read(task, columns.spill, reading, state.intercept)
    if not len(started.coef.features):
        return False
    state.norms = np.zeros(task.dataset.n_features, np.float32)
    state.norms[reading.table] = started.norms
    state.coef, state.intercept, state.layers = started.coef, started.intercept, []
    return True


def read(task: ChunkTask, spill: Spill, plan: ReadPlan, intercept: NDArray[np.float64]) -> Started:
    """Let weights follow the samples of all shards; what is read is added to the bytes of the spill.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Has the labels and scales of the samples, and no columns.
    plan : ReadPlan
    intercept : float64 array of shape (n_classes,)
        To start from.
    """
    steps = StochasticSteps(task, plan.table, intercept, plan.row_bytes)
    generator = np.random.default_rng([task.seed, task.dataset.n_shards])
    order = generator.permutation(task.dataset.n_shards)
    for done, s in enumerate(order.tolist()):
        task.context.progress(Progress("first weights", done, len(order), "shards"))
        first, n_rows = task.dataset.base[s], task.dataset.shards[s].n_rows
        rows = np.flatnonzero(generator.random(n_rows) < plan.share)
        weights = (
            np.ones(n_rows) if task.sample_weight is None else task.sample_weight[first : first + n_rows]
        )
        steps.follow(ShardSamples.of(spill, s, plan.table, rows, weights), generator)
    return steps.result(plan.most_weights)


def follow_chunks(task: ChunkTask, spill: Spill, intercept: NDArray[np.float64], row_bytes: int) -> Point:
    """Return weights that have followed the samples of all chunks, from none.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Has the columns of the candidates, in one layer.
    intercept : float64 array of shape (n_classes,)
        To start from.
    row_bytes : int
        Bytes of the entries that are put into row order together.
    """
    steps = StochasticSteps(task, spill.features, intercept, row_bytes)
    generator = np.random.default_rng([task.seed, spill.n_chunks])
    for done, chunk in enumerate(spill.chunks(generator.permutation(spill.n_chunks).tolist())):
        task.context.progress(Progress("first weights", done, spill.n_chunks, "chunks"))
        steps.follow(RowSamples.of_chunk(chunk), generator)
    started = steps.result()
    return Point(started.coef, started.intercept)
