"""Samples of a block in row order, read from shards that are stored by columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.rows.newton import place_entries
from bigmc.solvers.sparse.ridge.row_order import Turned, turned_samples, weighted_rows
from bigmc.solvers.sparse.scratch.scratch_arrays import QUICK, SMALL, ScratchArrays, Stored
from bigmc.solvers.sparse.scratch.shard_blocks import Block, decoded_blocks, of_rows
from bigmc.store.block import INDEX_BYTES
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

#: Entries and features of a shard that is read in parts which are decoded at once.
PIECE_ENTRIES, PIECE_FEATURES = 1 << 18, 1 << 16


class RowBlock(NamedTuple):
    """Samples that are read together: those of whole shards, or some of one shard.

    Attributes
    ----------
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
    """Reads blocks. Parts of a shard lie in a scratch file, in row order, once one of them was read.

    Parameters
    ----------
    features : int64 array
        All features that occur, increasing.
    constant : bool
        Whether there is a feature that is always 1.
    blocks : sequence of RowBlock
        All that will be read.
    folder : Path, optional
        Of the scratch file.
    turned_bytes : int, optional
        Maximum bytes of entries of a shard that are put into row order together; one part always is.

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
        blocks: Sequence[RowBlock],
        folder: Path | None = None,
        turned_bytes: int = 0,
    ) -> None:
        self._dataset, self._features = dataset, features
        self._engine, self._constant, self._folder = engine, constant, folder
        self._most_turned = turned_bytes // entry_in_row_order(dataset)
        self.column_scale = dataset.column_scale()
        self.n_bytes, self.resumed = 0, False
        self._parts: dict[int, list[RowBlock]] = {}
        for block in blocks:
            if not block.is_whole(dataset):
                self._parts.setdefault(block.shards[0], []).append(block)
        self._arrays: ScratchArrays | None = None
        self._places: dict[int, NDArray[np.int64]] = {}  # of the parts of a shard, see `_write_parts`

    def close(self) -> None:
        """Give the file back."""
        if self._arrays is not None:
            self._arrays.close()
        self._arrays, self._places = None, {}

    def read(self, *blocks: RowBlock) -> tuple[Rows, NDArray[np.float32], NDArray[np.int32]]:
        """Return weighted samples of blocks in row order, their squared norms with the constant, and labels.

        The labels are as of `Dataset.label_sets`.
        """
        turned, labels = zip(*[self._turned(block) for block in blocks], strict=True)
        weighting = self._dataset.weighting
        rows = weighted_rows(_joined(turned), self._features, self.column_scale, weighting, self._constant)
        return *rows, _same_width(labels)

    def _turned(self, block: RowBlock) -> tuple[Turned, NDArray[np.int32]]:
        """Return the samples of a block in row order, and their labels."""
        if not block.is_whole(self._dataset):
            return self._turned_part(block)
        part = self._dataset.part(block.shards)
        self.n_bytes += part.decoded_bytes
        return turned_samples(part, self._features, self._engine), part.label_sets()

    def _turned_part(self, block: RowBlock) -> tuple[Turned, NDArray[np.int32]]:
        """Return the same of some samples of a shard, from the file."""
        [s] = block.shards
        if s not in self._places:
            self._write_parts(s)
        own = self._places[s][bisect_left(self._parts[s], block.start, key=lambda part: part.start)]
        rows = self._get(own[0], np.int32).reshape(block.n_samples, -1)
        slots, values = self._get(own[1], np.uint32), self._get(own[2], self._dataset.dtype)
        self.n_bytes += int(own[:, 1].sum())
        return (_offsets(rows[:, 0]), slots, values), rows[:, 1:]

    def _write_parts(self, s: int) -> None:
        """Put the samples of a shard into row order, and write its parts.

        As many parts at a time as memory allows: to decode the shard for each of them took longer than an
        epoch. Of each part there are three arrays: how many entries its samples have, with their labels; the
        places of these entries among the features; and their values.
        """
        shard, labels = self._dataset.shards[s], self._dataset.part([s]).label_sets()
        counts, n_bytes = self._count_entries(s), INDEX_BYTES * shard.nnz
        places = []
        for parts in self._together(s, counts):
            order = np.concatenate([np.arange(shard.n_rows)[part.within(self._dataset)] for part in parts])
            indptr = _offsets(counts[order])
            slots, values = self._in_row_order(s, order, indptr)
            n_bytes += self._dataset.entry_bytes * shard.nnz
            rows = np.c_[counts[order], labels[order]]
            for lo, hi in pairwise(_offsets([part.n_samples for part in parts]).tolist()):
                own = slice(int(indptr[lo]), int(indptr[hi]))
                places.append([self._put(rows[lo:hi].ravel()), self._put(slots[own]), self._put(values[own])])
        self._places[s] = np.array(places, np.int64)
        n_bytes += int(self._places[s][:, :, 1].sum())
        self.n_bytes += 0 if self.resumed else n_bytes

    def _count_entries(self, s: int) -> NDArray[np.int32]:
        """Return the number of entries of every sample of a shard."""
        counts = np.zeros(self._dataset.shards[s].n_rows, np.int32)
        for piece in self._pieces(s, self._dataset.with_weighting(Weighting(binary=True))):  # without values
            counts += np.bincount(piece.indices, minlength=len(counts)).astype(np.int32)
        return counts

    def _together(self, s: int, counts: NDArray[np.int32]) -> list[list[RowBlock]]:
        """Return the parts of a shard that are put into row order at a time."""
        together: list[list[RowBlock]] = []
        left = 0
        for part in self._parts[s]:
            n_entries = int(counts[part.within(self._dataset)].sum())
            if not together or n_entries > left:
                together.append([])
                left = self._most_turned
            together[-1].append(part)
            left -= n_entries
        return together

    def _in_row_order(
        self, s: int, order: NDArray[np.int64], indptr: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[Any]]:
        """Return places among the features, and values, of samples of a shard in an order."""
        place = np.full(self._dataset.shards[s].n_rows, -1, np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        slots = np.empty(int(indptr[-1]), np.uint32)
        values, free = np.empty(len(slots), self._dataset.dtype), indptr[:-1].copy()
        for piece in self._pieces(s, self._dataset):
            own = of_rows(piece, place)
            lo, hi = np.searchsorted(self._features, [own.lo, own.hi]).tolist()
            entries = (own.indptr, own.indices, own.data)
            place_entries(self._features[lo:hi] - own.lo, lo, entries, free, slots, values)
        return slots, values

    def _pieces(self, s: int, dataset: Dataset) -> Iterator[Block]:
        shard = dataset.shards[s]
        return decoded_blocks(dataset, shard, min(PIECE_ENTRIES, shard.nnz), PIECE_FEATURES)

    def _put(self, array: NDArray[Any]) -> Stored:
        if self._arrays is None:
            self._arrays = ScratchArrays(self._folder, 0)
        return self._arrays.write(array, QUICK if array.itemsize >= 4 else SMALL)

    def _get(self, place: NDArray[np.int64], dtype: DTypeLike) -> NDArray[Any]:
        assert self._arrays is not None
        stored = Stored.of(place)
        return self._arrays.read(stored, np.empty(stored.size, dtype))


def entry_in_row_order(dataset: Dataset) -> int:
    """Return the bytes of an entry in row order: its place among the features, and its value."""
    return np.dtype(np.uint32).itemsize + dataset.dtype.itemsize


def _offsets(counts: ArrayLike) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _joined(parts: Sequence[Turned]) -> Turned:
    """Return samples one after another."""
    if len(parts) == 1:
        return parts[0]
    indptr = _offsets(np.concatenate([np.diff(indptr) for indptr, _, _ in parts]))
    slots, values = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    return indptr, slots, values


def _same_width(labels: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Return the labels of blocks, as of `Dataset.label_sets`, one block after another."""
    if len(labels) == 1:
        return labels[0]
    cuts = _offsets([len(some) for some in labels]).tolist()
    joined = np.full((cuts[-1], max(some.shape[1] for some in labels)), -1, np.int32)
    for (lo, hi), some in zip(pairwise(cuts), labels, strict=True):
        joined[lo:hi, : some.shape[1]] = some
    return joined
