"""Blocks with samples of every shard, where the shards differ in their classes.

A file that is sorted by class makes shards of few classes. After a time through a block of one class the
weights suit that class, whatever the others need: with a million names sorted by their 246 countries, in six
blocks, the objective was 5.7 after eleven epochs, and 1.58 with a gap of .022 where some of the samples of
every shard are in memory at a time.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from bigmc.kernels.linear.simd import padded_classes
from bigmc.solvers.sparse.ridge.block_plan import BlockPlan
from bigmc.solvers.sparse.ridge.block_reader import RowBlock
from bigmc.store.dataset import Dataset

#: Share of the samples that would have to change their class for all shards to be alike, above which they are
#: mixed; beside what chance makes of it, for as many classes and samples.
_DIFFERENT = 0.1
#: Smallest samples of a part on average, and what parts may exceed their share of the entries by.
_FEWEST_ROWS, _MARGIN = 64, 1.25


def mixed(plan: BlockPlan, dataset: Dataset) -> BlockPlan:
    """Return a plan with samples of all shards together; the same one if that is no use, or does not fit."""
    if len(plan.blocks) < 2 or dataset.n_shards < 2 or not classes_differ(dataset):
        return plan
    n_groups = _n_groups(plan, dataset)
    if n_groups is None:
        return plan
    blocks: list[RowBlock] = []
    cuts = [0]
    for k in range(n_groups):  # every n_groups-th sample, because a shard is sorted in itself, too
        spans = enumerate(pairwise(dataset.base.tolist()))
        blocks += [RowBlock([s], lo + k, hi, n_groups) for s, (lo, hi) in spans if lo + k < hi]
        cuts.append(len(blocks))
    return plan._replace(blocks=blocks, cuts=tuple(cuts))


def classes_differ(dataset: Dataset) -> bool:
    """Return whether the classes of the shards differ by more than chance."""
    every = dataset.class_counts()
    shares, change, chance = every / max(every.sum(), 1), 0.0, 0.0
    for s in range(dataset.n_shards):
        counts = dataset.part([s]).class_counts()
        n = max(int(counts.sum()), 1)
        change += 0.5 * float(np.abs(counts - n * shares).sum())
        # mean absolute deviation of counts that are about normally distributed
        chance += 0.5 * float(np.sqrt(2.0 / math.pi * n * shares * (1.0 - shares)).sum())
    return bool(change > chance + _DIFFERENT * every.sum())


def _n_groups(plan: BlockPlan, dataset: Dataset) -> int | None:
    """Return of how many parts of each shard one fits into memory, with those of the others, or None."""
    itemsize, width = dataset.dtype.itemsize, padded_classes(dataset.n_classes)
    of_row = 4 * width + 8 * 8 + 8 * dataset.most_labels()
    of_entry = 2 * (4 + itemsize) + 4  # one after another, together, and weighted
    shard = max((2 + itemsize + 4 + itemsize) * shard.nnz + 8 * shard.n_rows for shard in dataset.shards)
    free = plan.block_bytes - 4 * dataset.n_samples - shard - 8 * dataset.n_features
    needed = _MARGIN * (of_row * dataset.n_samples + of_entry * dataset.nnz)
    if free <= 0 or needed / free > dataset.n_samples / (_FEWEST_ROWS * dataset.n_shards):
        return None
    return max(2, math.ceil(needed / free))
