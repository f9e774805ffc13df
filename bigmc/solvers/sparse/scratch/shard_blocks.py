"""Decoded columns of a shard on their way past whatever looks at them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


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
