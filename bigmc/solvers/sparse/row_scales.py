"""Labels and scales of the samples of a shard: as they are, or before the norms of weighted rows are known.

The norms of rows whose columns have an idf weighting take all entries. A first pass over the shards makes do
with rough ones, from the norms of the raw rows, and adds up the exact ones on the way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import add_row_squares
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import inverse

#: Returns labels, of shape (n_rows, most labels), and scales, of shape (n_rows,), of a shard.
RowsOf = Callable[[int], tuple[NDArray[np.int32], NDArray[np.float32]]]


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


@dataclass
class RowNorms:
    """Adds up the squares of weighted rows during a pass, and hands on the scales of each shard.

    Attributes
    ----------
    column_scale : float32 array of shape (n_features,)
    put : callable
        Takes the number of a shard and the scales of its rows; by one thread at a time.
    """

    column_scale: NDArray[np.float32]
    put: Callable[[int, NDArray[np.float32]], None]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(
        self,
        squares: NDArray[np.float64],
        lo: int,
        indptr: NDArray[np.int64],
        indices: NDArray[np.uint16],
        data: NDArray[np.generic],
    ) -> None:
        """Add the entries of the columns from `lo` on."""
        add_row_squares(indptr, indices, data, self.column_scale[lo : lo + len(indptr) - 1], squares)

    def finish(self, s: int, squares: NDArray[np.float64]) -> None:
        """Hand on the scales of a shard: one over the norm of each row."""
        with self._lock:
            self.put(s, inverse(np.sqrt(squares)))
