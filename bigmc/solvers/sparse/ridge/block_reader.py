"""Samples of a block in row order, read from shards that are stored by columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Samples that are read together: those of whole shards, or some of one shard.

    Attributes
    ----------
    shards : list of int
    start, stop, step : int
        The first of their samples, the one after the last, and the step from one to the next.
    """

    shards: list[int]
    start: int
    stop: int
    step: int = 1

    @property
    def samples(self) -> slice:
        """Which of all samples they are."""
        return slice(self.start, self.stop, self.step)

    @property
    def n_samples(self) -> int:
        """Their number."""
        return len(range(self.start, self.stop, self.step))

    def within(self, dataset: Dataset) -> slice:
        """Return which of the samples of their shards they are."""
        first = int(dataset.base[self.shards[0]])
        return slice(self.start - first, self.stop - first, self.step)

    def is_whole(self, dataset: Dataset) -> bool:
        """Return whether it has all samples of its shards."""
        first, last = dataset.base[self.shards[0]], dataset.base[self.shards[-1] + 1]
        return bool(first == self.start and last == self.stop and self.step == 1)


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
    at_once : sequence of RowBlock, optional
        Parts of shards that are all written when the first of their shard is read.

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
        at_once: Sequence[RowBlock] = (),
    ) -> None:
        self._dataset, self._features = dataset, features
        self._engine, self._constant, self._folder = engine, constant, folder
        self.column_scale = dataset.column_scale()
        self.n_bytes, self.resumed = 0, False
        self._at_once: dict[int, list[RowBlock]] = {}
        for block in at_once:
            self._at_once.setdefault(block.shards[0], []).append(block)
        self._counts: dict[int, NDArray[np.int32]] = {}
        self._arrays: ScratchArrays | None = None
        self._stored: dict[int, tuple[Stored, Stored]] = {}

    def close(self) -> None:
        """Give the file back."""
        if self._arrays is not None:
            self._arrays.close()
        self._arrays, self._stored, self._counts = None, {}, {}

    def read(self, *blocks: RowBlock) -> tuple[Rows, NDArray[np.float32]]:
        """Return weighted samples of blocks in row order, and their squared norms with the constant."""
        turned = _joined([self._turned(block) for block in blocks])
        weighting = self._dataset.weighting
        return weighted_rows(turned, self._features, self.column_scale, weighting, self._constant)

    def _turned(self, block: RowBlock) -> Turned:
        """Return the samples of a block in row order."""
        if not block.is_whole(self._dataset):
            return self._turned_part(block)
        self.n_bytes += sum(self._shard_bytes(s) for s in block.shards)
        return turned_samples(self._dataset.part(block.shards), self._features, self._engine)

    def _turned_part(self, block: RowBlock) -> Turned:
        """Return some samples of a shard in row order: from the shard the first time, then from the file."""
        dataset = self._dataset
        [s] = block.shards
        if s in self._at_once and block.start not in self._stored:
            self._write_all(s)
        indptr = np.zeros(block.n_samples + 1, np.int64)
        np.cumsum(self._counts_of(s)[block.within(dataset)], out=indptr[1:])
        slots = np.empty(int(indptr[-1]), np.uint32)
        values = np.empty(len(slots), np.int8 if dataset.weighting.binary else dataset.dtype)
        if block.start not in self._stored:
            self._turn(block, indptr, slots, values)
            self._stored[block.start] = self._put(slots), self._put(values)
            written = sum(stored.n_bytes for stored in self._stored[block.start])
            self.n_bytes += written + (0 if self.resumed else self._shard_bytes(s))
        else:
            assert self._arrays is not None
            for stored, out in zip(self._stored[block.start], (slots, values), strict=True):
                self._arrays.read(stored, out)
                self.n_bytes += stored.n_bytes
        return indptr, slots, values

    def _write_all(self, s: int) -> None:
        """Put all samples of a shard into row order, and write all its parts."""
        indptr, slots, values = turned_samples(self._dataset.part([s]), self._features, self._engine)
        self._counts[s] = np.diff(indptr).astype(np.int32)
        self.n_bytes += 0 if self.resumed else self._shard_bytes(s)
        for block in self._at_once[s]:
            is_own = np.zeros(len(indptr) - 1, bool)
            is_own[block.within(self._dataset)] = True
            own = np.repeat(is_own, self._counts[s])
            self._stored[block.start] = self._put(slots[own]), self._put(values[own])
            written = sum(stored.n_bytes for stored in self._stored[block.start])
            self.n_bytes += 0 if self.resumed else written

    def _turn(
        self, block: RowBlock, indptr: NDArray[np.int64], slots: NDArray[np.uint32], values: NDArray[Any]
    ) -> None:
        """Fill in places among the features, and values, of samples of a shard."""
        [s] = block.shards
        place = np.full(self._dataset.shards[s].n_rows, -1, np.int32)
        place[block.within(self._dataset)] = np.arange(block.n_samples, dtype=np.int32)
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


def _joined(parts: Sequence[Turned]) -> Turned:
    """Return samples one after another."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(indptr) for indptr, _, _ in parts])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    slots, values = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    return indptr, slots, values


def same_width(labels: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Return the labels of blocks, as of `Dataset.label_sets`, one block after another."""
    width = max(some.shape[1] for some in labels)
    wide = [np.pad(some, ((0, 0), (0, width - some.shape[1])), constant_values=-1) for some in labels]
    return labels[0] if len(labels) == 1 else np.concatenate(wide)
