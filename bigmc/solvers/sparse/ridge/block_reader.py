"""Samples of a block in row order, read from shards that are stored by columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.newton import place_entries
from bigmc.solvers.sparse.ridge.row_order import Turned, turned_samples, weighted_rows
from bigmc.solvers.sparse.scratch.scratch_arrays import QUICK, SMALL, ScratchArrays, Stored
from bigmc.solvers.sparse.scratch.shard_blocks import Block, decoded_blocks, of_rows
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
    """Reads blocks. What is consecutive in a shard lies in a scratch file once it was put into row order.

    Parameters
    ----------
    dataset : Dataset
    features : int64 array
        All features that occur, increasing.
    engine : Engine
    constant : bool
        Whether there is a feature that is always 1.
    folder : Path, optional
        Of the scratch file.

    Attributes
    ----------
    column_scale : float32 array of shape (n_features,) or None
    n_bytes : int
        Decoded bytes read from shards, and bytes read from and written to the file.
    resumed : bool
        What is put into row order was so before the run was interrupted: it counts as read from the file.
    """

    def __init__(
        self,
        dataset: Dataset,
        features: NDArray[np.int64],
        engine: Engine,
        constant: bool,
        folder: Path | None = None,
    ) -> None:
        self._dataset, self._features = dataset, features
        self._engine, self._constant, self._folder = engine, constant, folder
        self.column_scale = dataset.column_scale()
        self.n_bytes, self.resumed = 0, False
        self._counts: dict[int, NDArray[np.int32]] = {}
        self._arrays: ScratchArrays | None = None
        self._stored: dict[int, tuple[Stored, Stored]] = {}

    def close(self) -> None:
        """Give the file back."""
        if self._arrays is not None:
            self._arrays.close()
        self._arrays, self._stored, self._counts = None, {}, {}

    def read(self, block: RowBlock) -> tuple[Rows, NDArray[np.float32]]:
        """Return weighted samples in row order, and their squared norms with the constant."""
        dataset = self._dataset
        if block.is_whole(dataset):
            self.n_bytes += sum(self._shard_bytes(s) for s in block.shards)
            turned = turned_samples(dataset.part(block.shards), self._features, self._engine)
        else:
            turned = self._turned_part(block)
        return weighted_rows(turned, self._features, self.column_scale, dataset.weighting, self._constant)

    def _turned_part(self, block: RowBlock) -> Turned:
        """Return some samples of a shard in row order: from the shard the first time, then from the file."""
        dataset = self._dataset
        [s] = block.shards
        first, n_rows = block.start - int(dataset.base[s]), block.stop - block.start
        indptr = np.zeros(n_rows + 1, np.int64)
        np.cumsum(self._counts_of(s)[first : first + n_rows], out=indptr[1:])
        slots = np.empty(int(indptr[-1]), np.uint32)
        values = np.empty(len(slots), np.int8 if dataset.weighting.binary else dataset.dtype)
        if block.start not in self._stored:
            self._turn(s, first, indptr, slots, values)
            self._stored[block.start] = self._put(slots), self._put(values)
            written = sum(stored.n_bytes for stored in self._stored[block.start])
            self.n_bytes += written + (0 if self.resumed else self._shard_bytes(s))
        else:
            assert self._arrays is not None
            for stored, out in zip(self._stored[block.start], (slots, values), strict=True):
                self._arrays.read(stored, out)
                self.n_bytes += stored.n_bytes
        return indptr, slots, values

    def _turn(
        self, s: int, first: int, indptr: NDArray[np.int64], slots: NDArray[np.uint32], values: NDArray[Any]
    ) -> None:
        """Fill in places among the features, and values, of the samples of a shard from `first` on."""
        n_rows = len(indptr) - 1
        place = np.full(self._dataset.shards[s].n_rows, -1, np.int32)
        place[first : first + n_rows] = np.arange(n_rows, dtype=np.int32)
        free = indptr[:-1].copy()
        for piece in self._pieces(s):
            own = of_rows(piece, place)
            lo, hi = np.searchsorted(self._features, [own.lo, own.hi]).tolist()
            entries = (own.indptr, own.indices, own.data)
            place_entries(self._features[lo:hi] - own.lo, lo, entries, free, slots, values)

    def _counts_of(self, s: int) -> NDArray[np.int32]:
        """Return the number of entries of every sample of a shard."""
        if s not in self._counts:
            counts = np.zeros(self._dataset.shards[s].n_rows, np.int32)
            for piece in self._pieces(s):
                counts += np.bincount(piece.indices, minlength=len(counts)).astype(np.int32)
            self._counts[s] = counts
            self.n_bytes += 0 if self.resumed else self._shard_bytes(s)
        return self._counts[s]

    def _pieces(self, s: int) -> Iterator[Block]:
        return decoded_blocks(self._dataset, self._dataset.shards[s], PIECE_ENTRIES, PIECE_FEATURES)

    def _put(self, array: NDArray[Any]) -> Stored:
        if self._arrays is None:
            self._arrays = ScratchArrays(self._folder, 0)
        return self._arrays.write(array, QUICK if array.itemsize >= 4 else SMALL)

    def _shard_bytes(self, s: int) -> int:
        return int(self._dataset.shards[s].nnz) * self._dataset.entry_bytes
