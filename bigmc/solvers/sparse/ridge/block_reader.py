"""Samples of a block in row order, read from shards that are stored by columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.newton import place_entries
from bigmc.solvers.sparse.ridge.dual_descent import rows_of_block, weighted_rows
from bigmc.solvers.sparse.scratch.shard_blocks import decoded_blocks, of_rows
from bigmc.store.dataset import Dataset

#: Entries and features of a shard that is read in parts which are decoded at once.
PIECE_ENTRIES, PIECE_FEATURES = 1 << 18, 1 << 16


class RowBlock(NamedTuple):
    """Samples that are in memory together: those of whole shards, or consecutive ones of one shard.

    Attributes
    ----------
    shards : list of int
    start, stop : int
        The first of their samples, and the one after the last.
    """

    shards: list[int]
    start: int
    stop: int

    def is_whole(self, dataset: Dataset) -> bool:
        """Return whether it has all samples of its shards."""
        first, last = dataset.base[self.shards[0]], dataset.base[self.shards[-1] + 1]
        return bool(first == self.start and last == self.stop)


class BlockReader:
    """Reads blocks; how many entries the samples of a shard have is counted once if it is read in parts.

    Parameters
    ----------
    dataset : Dataset
    features : int64 array
        All features that occur, increasing.
    engine : Engine
    constant : bool
        Whether there is a feature that is always 1.

    Attributes
    ----------
    column_scale : float32 array of shape (n_features,) or None
    """

    def __init__(self, dataset: Dataset, features: NDArray[np.int64], engine: Engine, constant: bool) -> None:
        self._dataset, self._features = dataset, features
        self._engine, self._constant = engine, constant
        self.column_scale = dataset.column_scale()
        self._counts: dict[int, NDArray[np.int32]] = {}

    def read(self, block: RowBlock) -> tuple[Rows, NDArray[np.float32]]:
        """Return weighted samples in row order, and their squared norms with the constant."""
        if block.is_whole(self._dataset):
            part = self._dataset.part(block.shards)
            return rows_of_block(part, self._features, self.column_scale, self._engine, self._constant)
        [s] = block.shards
        dataset, shard = self._dataset, self._dataset.shards[s]
        first = block.start - int(dataset.base[s])
        n_rows = block.stop - block.start
        indptr = np.zeros(n_rows + 1, np.int64)
        np.cumsum(self._counts_of(s)[first : first + n_rows], out=indptr[1:])
        slots = np.empty(int(indptr[-1]), np.uint32)
        values = np.empty(len(slots), np.int8 if dataset.weighting.binary else dataset.dtype)
        place = np.full(shard.n_rows, -1, np.int32)
        place[first : first + n_rows] = np.arange(n_rows, dtype=np.int32)
        free = indptr[:-1].copy()
        for piece in decoded_blocks(dataset, shard, PIECE_ENTRIES, PIECE_FEATURES):
            own = of_rows(piece, place)
            lo, hi = np.searchsorted(self._features, [own.lo, own.hi]).tolist()
            here = (own.indptr, own.indices, own.data)
            place_entries(self._features[lo:hi] - own.lo, lo, here, free, slots, values)
        turned = (indptr, slots, values)
        return weighted_rows(turned, self._features, self.column_scale, dataset.weighting, self._constant)

    def _counts_of(self, s: int) -> NDArray[np.int32]:
        """Return the number of entries of every sample of a shard."""
        if s not in self._counts:
            shard = self._dataset.shards[s]
            counts = np.zeros(shard.n_rows, np.int32)
            for piece in decoded_blocks(self._dataset, shard, PIECE_ENTRIES, PIECE_FEATURES):
                counts += np.bincount(piece.indices, minlength=shard.n_rows).astype(np.int32)
            self._counts[s] = counts
        return self._counts[s]
