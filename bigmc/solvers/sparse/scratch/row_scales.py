"""Labels and scales of the samples of a shard: as they are, or before the norms of weighted rows are known.

The norms of rows whose columns have an idf weighting take all entries. A first pass over the shards makes do
with rough ones, from the norms of the raw rows, and adds up the exact ones on the way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import add_row_squares
from bigmc.solvers.sparse.scratch.shard_blocks import Block
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import inverse

#: Returns labels, of shape (n_rows, most labels), and scales, of shape (n_rows,), of a shard.
RowsOf = Callable[[int], tuple[NDArray[np.int32], NDArray[np.float32]]]


class Norms(Enum):
    """What the scales of the rows come from: their norms, or a guess until a pass has added these up."""

    EXACT = "exact"
    ROUGH = "rough"


def norms_take_a_pass(dataset: Dataset) -> bool:
    """Return whether the norms of the rows take all entries."""
    return dataset.weighting.idf and dataset.weighting.l2


def exact_rows(dataset: Dataset) -> RowsOf:
    """Return labels and scales as the dataset has them; where norms take all entries it reads them."""
    column_scale = dataset.column_scale()

    def rows_of(s: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        shard = dataset.part([s])
        return shard.label_sets(), shard.row_scale(column_scale)

    return rows_of


def rough_rows(dataset: Dataset) -> RowsOf:
    """Return labels, and scales by the norms of the raw rows and the typical scale of an entry."""
    column_scale, nnz = dataset.column_scale(), dataset.column_nnz()
    assert column_scale is not None
    typical = np.sqrt(float(nnz @ np.square(column_scale, dtype=np.float64)) / max(int(nnz.sum()), 1))
    factor = np.float32(1.0 / typical if typical > 0 else 1.0)

    def rows_of(s: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        shard = dataset.part([s])
        return shard.label_sets(), shard.row_scale(None) * factor

    return rows_of


class RowNorms:
    """Adds up the squares of weighted rows while shards are read, and hands on the scales of each shard.

    A `bigmc.solvers.sparse.scratch.shard_blocks.Watch`.

    Parameters
    ----------
    column_scale : float32 array of shape (n_features,)
    put : callable
        Takes the number of a shard and the scales of its rows; by one thread at a time.
    """

    def __init__(
        self, column_scale: NDArray[np.float32], put: Callable[[int, NDArray[np.float32]], None]
    ) -> None:
        self.column_scale = column_scale
        self._put, self._lock = put, threading.Lock()

    def of_shard(self, s: int, n_rows: int) -> ShardNorms:
        """Return what adds up the rows of one shard."""
        return ShardNorms(self, s, np.zeros(n_rows))

    def put(self, s: int, scale: NDArray[np.float32]) -> None:
        """Hand on the scales of a shard."""
        with self._lock:
            self._put(s, scale)


@dataclass(frozen=True)
class ShardNorms:
    """Adds up the squares of the rows of one shard."""

    norms: RowNorms
    shard: int
    squares: NDArray[np.float64]

    def add(self, block: Block) -> None:
        """Add the entries of some columns."""
        column_scale = self.norms.column_scale[block.lo : block.hi]
        add_row_squares(block.indptr, block.indices, block.data, column_scale, self.squares)

    def finish(self) -> None:
        """Hand on the scales: one over the norm of each row."""
        self.norms.put(self.shard, inverse(np.sqrt(self.squares)))
