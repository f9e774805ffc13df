"""Which samples of a ridge problem larger than memory are in memory together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.solvers.sparse.memory_plan import WORKSPACE
from bigmc.solvers.sparse.ridge.block_reader import (
    PIECE_ENTRIES,
    PIECE_FEATURES,
    RowBlock,
    entry_in_row_order,
)
from bigmc.solvers.sparse.run import SparseRun
from bigmc.store.dataset import Dataset
from bigmc.store.shards.shard import Shard

#: Samples scored at once.
SCORED_AT_ONCE = 1024
#: Passes at least: one that improves the weights, and one that certifies them.
_FEWEST_PASSES = 2
MOST_PARTS = 16
"""Parts of a shard at most that are put into row order one by one: each reads all of it."""
#: What a part may exceed its share of the entries by: some have longer samples than others.
_PART_MARGIN = 1.25


class BlockPlan(NamedTuple):
    """How the samples are divided.

    Attributes
    ----------
    blocks : list of RowBlock
        Samples that are in memory together.
    features : int64 array of shape (n_used,)
        Features that occur.
    duals_in_file : bool
        Whether the dual variables lie in a scratch file.
    block_bytes : int
        Bytes that blocks may take at a time.
    cuts : tuple of int
        First block of those in memory together, and so on; empty if each is alone.
    turned_bytes : int
        Bytes that entries of a shard may take while they are put into row order for its parts.
    """

    blocks: list[RowBlock]
    features: NDArray[np.int64]
    duals_in_file: bool = False
    block_bytes: int = 0
    cuts: tuple[int, ...] = ()
    turned_bytes: int = 0

    @property
    def groups(self) -> list[list[RowBlock]]:
        """The blocks that are in memory together."""
        cuts = self.cuts or range(len(self.blocks) + 1)
        return [self.blocks[lo:hi] for lo, hi in pairwise(cuts)]


def plan_blocks(run: SparseRun, limit: int | None = None) -> BlockPlan | None:
    """Return a plan of blocks, or None where another solver must be used.

    That is so unless `SparseRun.takes_duals`, and where the weights and some part of a shard do not fit into
    memory, by default the limit of the run. Dual variables stay in memory where they take at most half of it.
    """
    return plan_rows(run, limit) if run.takes_duals else None


def plan_rows(run: SparseRun, limit: int | None = None) -> BlockPlan | None:
    """Return the plan of `plan_blocks` for a run of any loss, with room for dual variables of every class."""
    task, dataset = run.task, run.task.dataset
    features = np.flatnonzero(dataset.column_nnz())
    width, n_used = padded_classes(dataset.n_classes), len(features) + 1
    fixed = WORKSPACE + 24 * dataset.n_features + 8 * n_used
    fixed += 8 * width * n_used  # weights, and those of the proof, or a copy at the end
    fixed += SCORED_AT_ONCE * (4 * width + 40 * dataset.n_classes)
    fixed += 8 * dataset.n_samples if task.sample_weight is not None else 0
    free = (run.limits.memory if limit is None else limit) - fixed
    duals = 4 * dataset.n_classes * dataset.n_samples
    in_file = duals > free // 2
    block_bytes = free if in_file else free - duals
    blocks = _together(dataset, width, block_bytes)
    if blocks is None or run.limits.max_passes < _FEWEST_PASSES:
        return None
    turned_bytes = _turned_bytes(blocks, dataset, block_bytes)
    return BlockPlan(blocks, features, in_file, block_bytes, turned_bytes=turned_bytes)


def bytes_to_turn(shard: Shard, dataset: Dataset) -> int:
    """Return what putting samples of a shard into row order takes, beside their entries."""
    pieces = 2 * min(PIECE_ENTRIES, max(shard.nnz, shard.n_rows)) * dataset.entry_bytes
    pieces += 24 * min(PIECE_FEATURES, dataset.n_features)
    return pieces + (40 + 8 * dataset.most_labels()) * shard.n_rows


def _turned_bytes(blocks: Sequence[RowBlock], dataset: Dataset, max_bytes: int) -> int:
    """Return what entries of a shard may take together, beside those of one part as it is written."""
    n_parts = Counter(block.shards[0] for block in blocks if not block.is_whole(dataset))
    cut = [(dataset.shards[s], n) for s, n in n_parts.items()]
    beside = [bytes_to_turn(shard, dataset) + _PART_MARGIN * 4 * shard.nnz / n for shard, n in cut]
    return max(max_bytes - int(max(beside, default=max_bytes)), 0)


def _together(dataset: Dataset, width: int, max_bytes: int) -> list[RowBlock] | None:
    """Return which samples are in memory together; None if not even a small part of a shard fits."""
    itemsize, base = dataset.dtype.itemsize, dataset.base
    of_row = 4 * width + 8 * 6 + 4 * dataset.most_labels()
    of_entry = 2 + itemsize + 4 + itemsize + 4  # as stored, in row order, and weighted
    of_features = 8 * dataset.n_features
    blocks: list[RowBlock] = []
    left = 0
    for s, shard in enumerate(dataset.shards):
        n_bytes = of_row * shard.n_rows + of_entry * shard.nnz + of_features
        start, stop = int(base[s]), int(base[s + 1])
        if n_bytes <= left:
            blocks[-1] = RowBlock([*blocks[-1].shards, s], blocks[-1].start, stop)
            left -= n_bytes
        elif n_bytes <= max_bytes:
            blocks.append(RowBlock([s], start, stop))
            left = max_bytes - n_bytes
        else:
            n_parts = _parts_of(shard, dataset, of_row, max_bytes)
            if n_parts is None:
                return None
            cuts = np.linspace(start, stop, n_parts + 1).astype(int).tolist()
            blocks += [RowBlock([s], lo, hi) for lo, hi in pairwise(cuts) if hi > lo]
            left = 0
    return blocks


def _parts_of(shard: Shard, dataset: Dataset, of_row: int, max_bytes: int) -> int | None:
    """Return into how many parts a shard is cut, so that each fits; None if all are too large."""
    read, of_entry = bytes_to_turn(shard, dataset), entry_in_row_order(dataset) + 4
    for n_parts in range(2, MOST_PARTS + 1):
        entries = _PART_MARGIN * of_entry * shard.nnz / n_parts
        if read + entries + of_row * (shard.n_rows / n_parts + 1) <= max_bytes:
            return n_parts
    return None
