"""Decoded columns of a shard, block by block, for all that read them in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import select_rows
from bigmc.store.dataset import Dataset
from bigmc.store.shards.memory_shard import MAX_ROWS
from bigmc.store.shards.shard import Shard


class Block(NamedTuple):
    """Decoded columns ``lo`` to ``hi`` of a shard, as offsets, rows and values of the entries."""

    lo: int
    hi: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.uint16]
    data: NDArray[Any]


class ShardWatch(Protocol):
    """Looks at the blocks of one shard, in the order of its columns; what has no entries may be left out."""

    def add(self, block: Block) -> None:
        """Look at a block, whose arrays are used again after that."""

    def finish(self) -> None:
        """Take note that the shard has no more columns."""


class Watch(Protocol):
    """Looks at all shards; those of different shards may be at work in several threads."""

    def of_shard(self, s: int, n_rows: int) -> ShardWatch:
        """Return what looks at the blocks of the shard with number `s`, which has `n_rows` rows."""


def decoded_blocks(
    dataset: Dataset, shard: Shard, n_entries: int, n_columns: int, features: NDArray[np.int64] | None = None
) -> Iterator[Block]:
    """Decode the columns of a shard, as many entries and columns at a time, but one column at least.

    Of increasing `features`, if given, it is ranges between the first and the last of some. The arrays of a
    block are used again for the next.
    """
    entries = max(n_entries, shard.n_rows)
    rows, values = np.empty(entries, np.uint16), np.ones(entries, dataset.dtype)
    lo = 0
    while lo < shard.n_features:
        if features is not None:
            after = int(np.searchsorted(features, lo))
            if after == len(features):
                return
            lo = int(features[after])
        offsets = shard.indptr(lo, min(lo + n_columns, shard.n_features))
        width = max(1, int(np.searchsorted(offsets, offsets[0] + entries, side="right")) - 1)
        end = lo + width
        if features is not None:
            width = int(features[np.searchsorted(features, end) - 1]) + 1 - lo
        start, stop = int(offsets[0]), int(offsets[width])
        if stop > start:
            shard.read(start, stop, rows, None if dataset.weighting.binary else values)
            n = stop - start
            yield Block(lo, lo + width, offsets[: width + 1] - start, rows[:n], values[:n])
        lo = end


def numbers_of(rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the number of each row of a shard among some of them, -1 for the others."""
    numbers = np.full(MAX_ROWS, -1, np.int32)
    numbers[rows] = np.arange(len(rows), dtype=np.int32)
    return numbers


def of_rows(block: Block, place: NDArray[np.int32]) -> Block:
    """Return the entries of some rows, which get the numbers at their places; the others have -1."""
    counts = np.zeros(block.hi - block.lo, np.int32)
    indices, data = np.empty_like(block.indices), np.empty_like(block.data)
    n = select_rows(block.indptr, block.indices, block.data, place, counts, indices, data)
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return Block(block.lo, block.hi, indptr, indices[:n], data[:n])
