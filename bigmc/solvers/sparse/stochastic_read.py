"""A read over all shards that stochastic steps make, and what memory it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.progress import Progress, ProgressCallback
from bigmc.solvers.sparse.chunk_plan import ChunkPlan
from bigmc.solvers.sparse.chunk_task import ChunkTask
from bigmc.solvers.sparse.spill import Spill
from bigmc.solvers.sparse.stochastic_start import (
    ENTRY_BYTES,
    ShardSamples,
    Started,
    StochasticSteps,
    sums_width,
)

#: Bytes of a sample beside its entries, of a feature beside its sums, and of what is decoded at once.
_ROW_BYTES, _FEATURE_BYTES, _DECODED = 64, 64, 3 << 20
#: Share of what is left for the features at most; of the rest for entries in row order.
_TABLE_SHARE, _ROW_ORDER = 0.4, 0.1
#: Samples drawn at random may have more entries than expected; what the allocator keeps between shards.
_MARGIN = 1.25
#: Share of the samples of a shard, and features, with fewer of which the read says too little.
_LEAST_SHARE, _FEWEST_FEATURES = 0.1, 64


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
    """

    table: NDArray[np.int64]
    share: float
    row_bytes: int


def plan_read(task: ChunkTask, plan: ChunkPlan, column_nnz: NDArray[np.int64]) -> ReadPlan | None:
    """Return which features and samples take part, or None where these are too few.

    Parameters
    ----------
    task : ChunkTask
    plan : ChunkPlan
    column_nnz : int64 array of shape (n_features,)
        Entries of every feature.
    """
    dataset = task.dataset
    n_used, nnz = int(np.count_nonzero(column_nnz)), int(column_nnz.sum())
    rows = max((shard.n_rows for shard in dataset.shards), default=0)
    decoded = min(_DECODED, 2 * plan.block_bytes)
    left = plan.free_bytes - decoded - rows * (_ROW_BYTES + 4 * dataset.most_labels())
    feature = 4 * sums_width(task.n_classes) + _FEATURE_BYTES
    n_table = min(n_used, int(_TABLE_SHARE * max(left, 0)) // feature)
    if task.alpha <= 0.0 or n_table < min(n_used, _FEWEST_FEATURES) or not n_table:
        return None
    table = np.sort(np.argsort(-column_nnz, kind="stable")[:n_table])
    left -= n_table * feature
    largest = max(shard.nnz for shard in dataset.shards) * int(column_nnz[table].sum()) / nnz
    needed = _MARGIN * largest * (2 + dataset.dtype.itemsize)
    row_bytes = max(ENTRY_BYTES, int(_ROW_ORDER * left))
    share = min(1.0, (left - 2 * row_bytes) / max(needed, 1.0))
    return ReadPlan(table, share, row_bytes) if share >= _LEAST_SHARE else None


def read(
    task: ChunkTask, spill: Spill, plan: ReadPlan, intercept: NDArray[np.float64], progress: ProgressCallback
) -> Started:
    """Let weights follow the samples of all shards; what is read is added to the bytes of the spill.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Has the labels and scales of the samples, and no columns.
    plan : ReadPlan
    intercept : float64 array of shape (n_classes,)
        To start from.
    progress : callable
    """
    steps = StochasticSteps(task, plan.table, intercept, plan.row_bytes)
    generator = np.random.default_rng(np.random.SeedSequence([task.seed, task.dataset.n_shards]))
    order = generator.permutation(task.dataset.n_shards)
    for done, s in enumerate(order.tolist()):
        progress(Progress("first weights", done, len(order), "shards"))
        steps.follow(_samples(task, spill, plan, s, generator), generator)
    return steps.result()


def _samples(
    task: ChunkTask, spill: Spill, plan: ReadPlan, s: int, generator: np.random.Generator
) -> ShardSamples:
    """Draw samples of a shard, and read their columns."""
    labels, scale = spill.rows_of_shard(s)
    n_rows = len(scale)
    rows = np.arange(n_rows) if plan.share >= 1.0 else np.flatnonzero(generator.random(n_rows) < plan.share)
    numbers = np.full(n_rows, -1, np.int32)
    numbers[rows] = np.arange(len(rows), dtype=np.int32)
    first = task.dataset.base[s]
    weights = np.ones(n_rows) if task.sample_weight is None else task.sample_weight[first : first + n_rows]
    counts = np.zeros(len(rows), np.int32)
    samples = ShardSamples(plan.table, numbers, counts, labels[rows], scale[rows], weights[rows], [])
    for block in spill.decoded(s):
        samples.add(block)
    return samples
