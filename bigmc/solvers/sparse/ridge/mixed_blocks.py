"""Blocks with samples of every shard, where the shards differ in their classes.

A file that is sorted by class makes shards of few classes. After a time through a block of one class the
weights suit that class, whatever the others need: with a million names sorted by their 246 countries, in six
blocks, the objective was 5.7 after eleven epochs, and 1.58 with a gap of .022 where some of the samples of
every shard are in memory at a time.
"""

from __future__ import annotations

from itertools import pairwise

from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.solvers.sparse.ridge.block_plan import MOST_PARTS, BlockPlan, bytes_to_turn
from bigmc.solvers.sparse.ridge.block_reader import RowBlock, entry_in_row_order
from bigmc.store.dataset import Dataset
from bigmc.store.shard_classes import classes_differ

#: Smallest samples of a part on average, and what parts may exceed their share of the entries by.
_FEWEST_ROWS, _MARGIN = 64, 1.25
#: Bytes of what is known of a part: where it is among the samples, and in the scratch file.
_OF_PART = 300


def mixed(plan: BlockPlan, dataset: Dataset) -> BlockPlan:
    """Return a plan with samples of all shards together; the same one if that is no use, or does not fit."""
    if len(plan.blocks) < 2 or dataset.n_shards < 2 or not classes_differ(dataset):
        return plan
    n_groups = _n_groups(plan, dataset)
    turned_bytes = _turned_bytes(plan, dataset, n_groups) if n_groups else 0
    if not turned_bytes:
        return plan
    blocks: list[RowBlock] = []
    cuts = [0]
    for k in range(n_groups):  # every n_groups-th sample, because a shard is sorted in itself, too
        spans = enumerate(pairwise(dataset.base.tolist()))
        blocks += [RowBlock([s], lo + k, hi, n_groups) for s, (lo, hi) in spans if lo + k < hi]
        cuts.append(len(blocks))
    return plan._replace(blocks=blocks, cuts=tuple(cuts), turned_bytes=turned_bytes)


def _n_groups(plan: BlockPlan, dataset: Dataset) -> int:
    """Return of how many parts of each shard one fits into memory, with those of the others, or 0."""
    width, n_shards = padded_classes(dataset.n_classes), dataset.n_shards
    of_row = 4 * width + 8 * 8 + 8 * dataset.most_labels()
    of_entry = 2 * entry_in_row_order(dataset) + 4  # one after another, together, and weighted
    needed = _MARGIN * (of_row * dataset.n_samples + of_entry * dataset.nnz)
    numbers = range(2, dataset.n_samples // (_FEWEST_ROWS * n_shards) + 1)
    return next((n for n in numbers if needed / n + _OF_PART * n_shards * n <= plan.block_bytes), 0)


def _turned_bytes(plan: BlockPlan, dataset: Dataset, n_groups: int) -> int:
    """Return what entries of a shard may take while put into row order, or 0 where that is too little."""
    largest, of_entry = max(shard.nnz for shard in dataset.shards), entry_in_row_order(dataset)
    beside = max(bytes_to_turn(shard, dataset) for shard in dataset.shards)
    beside += _OF_PART * dataset.n_shards * n_groups
    beside += int(_MARGIN * of_entry * dataset.nnz / n_groups)  # parts of other shards
    beside += int(_MARGIN * 4 * largest / n_groups)  # a part as it is written
    turned_bytes = min(of_entry * largest, plan.block_bytes - beside)
    return turned_bytes if turned_bytes >= of_entry * largest / MOST_PARTS else 0
