"""Columns of chosen features, cut into the parts of their shards and compressed, while shards are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import deal_rows, gather_columns
from bigmc.solvers.sparse.scratch.scratch_arrays import ShardPlaces, Stored
from bigmc.solvers.sparse.scratch.shard_blocks import Block

#: Entries of a shard that are compressed together, about: what a worker holds until then.
PIECE_ENTRIES = 1 << 16


@dataclass(frozen=True)
class Layer:
    """Features written together, in increasing order, and where their columns of every piece lie.

    Attributes
    ----------
    features : int64 array
    places : dict of ShardPlaces
        By number of the shard; for each part where the number of entries of every feature is, and then rows
        and values of each group of entries.
    """

    features: NDArray[np.int64]
    places: dict[int, ShardPlaces] = field(default_factory=dict)

    def counts(self, key: tuple[int, int]) -> Stored:
        """Return where the number of entries of every feature in a part of a shard is."""
        return Stored.of(self._of(key)[0])

    def entries(self, key: tuple[int, int]) -> Iterator[tuple[Stored, Stored]]:
        """Return where rows and values of each group of entries in a part of a shard are."""
        places = self._of(key)
        pairs = zip(places[1::2], places[2::2], strict=True)
        return ((Stored.of(rows), Stored.of(values)) for rows, values in pairs)

    def file_bytes(self, key: tuple[int, int]) -> int:
        """Return the bytes of a part of a shard that are in the file."""
        s, part = key
        return self.places[s].file_bytes(part)

    def held_up_to(self, key: tuple[int, int]) -> int:
        """Return the offset after the last byte of a part of a shard that is in memory."""
        places = self._of(key)
        return int(((places[:, 0] + places[:, 1]) * places[:, 3]).max())

    def _of(self, key: tuple[int, int]) -> NDArray[np.int64]:
        s, part = key
        return self.places[s].of_part(part)


class LayerWriter:
    """Puts the columns of a layer away: a `bigmc.solvers.sparse.scratch.shard_blocks.Watch`.

    Which entries are compressed together depends on the features and the data alone, so that a layer written
    during a pass takes the same bytes as one that is written by itself.

    Parameters
    ----------
    features : int64 array
        Increasing.
    shares : float64 array
        Entries of each of them in all shards, added up, in units of the number of rows.
    parts_of : callable
        Returns the part of each row of a shard, and which parts there are.
    put : callable
        Compresses an array and puts it away; safe to call from several threads if watches are used so.

    Attributes
    ----------
    layer : Layer
    n_bytes : int
        Written to the file.
    """

    def __init__(
        self,
        features: NDArray[np.int64],
        shares: NDArray[np.float64],
        parts_of: Callable[[int], tuple[NDArray[np.int16], list[int]]],
        put: Callable[[NDArray[Any]], Stored],
    ) -> None:
        self.layer, self.n_bytes = Layer(features), 0
        self._shares, self._parts_of, self._put = shares, parts_of, put
        self._lock = threading.Lock()

    def of_shard(self, s: int, n_rows: int) -> ShardColumns:
        """Return what writes the columns of one shard."""
        groups = (self._shares * n_rows / PIECE_ENTRIES).astype(np.int64)
        return ShardColumns(self, s, groups, *self._parts_of(s))

    def put(self, array: NDArray[Any]) -> Stored:
        """Put an array away."""
        stored = self._put(array)
        with self._lock:
            self.n_bytes += stored.file_bytes
        return stored


class ShardColumns:
    """Writes the columns of one shard, part by part."""

    def __init__(
        self,
        writer: LayerWriter,
        s: int,
        groups: NDArray[np.int64],
        parts: NDArray[np.int16],
        present: list[int],
    ) -> None:
        self._writer, self._s, self._groups = writer, s, groups
        self._present = present
        self._parts = np.searchsorted(present, parts).astype(np.int16)
        self._numbers = _numbers(self._parts, len(present))
        self._counts = np.zeros((len(present), len(groups)), np.int32)
        self._group = -1
        self._pending: list[list[tuple[NDArray[np.uint16], NDArray[Any]]]] = [[] for _ in present]
        self._stored: list[list[Stored]] = [[] for _ in present]

    def add(self, block: Block) -> None:
        """Take the columns of the layer that are in a block."""
        features = self._writer.layer.features
        lo, hi = np.searchsorted(features, [block.lo, block.hi]).tolist()
        while lo < hi:
            group = int(self._groups[lo])
            end = min(hi, int(np.searchsorted(self._groups, group, side="right")))
            if group != self._group:
                self._flush()
                self._group = group
            self._take(lo, end, block)
            lo = end

    def finish(self) -> None:
        """Write what is pending, and the number of entries of every column."""
        self._flush()
        parts = zip(self._present, self._counts, self._stored, strict=True)
        places = {part: [self._writer.put(counts), *stored] for part, counts, stored in parts}
        self._writer.layer.places[self._s] = ShardPlaces.of(places, max(self._present, default=-1) + 1)

    def _take(self, lo: int, end: int, block: Block) -> None:
        """Take the columns of the features with numbers `lo` to `end`."""
        offsets, rows, values = _choose(self._writer.layer.features[lo:end] - block.lo, block)
        ends = np.empty(len(self._present), np.int64)
        dealt_rows, dealt_values = np.empty_like(rows), np.empty_like(values)
        places, out = (self._parts, self._numbers), (ends, dealt_rows, dealt_values)
        deal_rows(offsets, rows, values, places, self._counts[:, lo:end], out)
        for pending, start, stop in zip(self._pending, [0, *ends.tolist()], ends.tolist(), strict=False):
            if stop > start:
                pending.append((dealt_rows[start:stop].copy(), dealt_values[start:stop].copy()))

    def _flush(self) -> None:
        """Compress what is pending."""
        for stored, pending in zip(self._stored, self._pending, strict=True):
            if not pending:
                continue
            rows = np.concatenate([rows for rows, _ in pending])
            steps = rows.copy()
            steps[1:] -= rows[:-1]
            values = np.concatenate([values for _, values in pending])
            stored += [self._writer.put(steps), self._writer.put(values)]
            pending.clear()


def _numbers(parts: NDArray[np.int16], n_parts: int) -> NDArray[np.uint16]:
    """Return the number of each row among those of its part."""
    numbers = np.empty(len(parts), np.uint16)
    for part in range(n_parts):
        mine = np.flatnonzero(parts == part)
        numbers[mine] = np.arange(len(mine))
    return numbers


def _choose(
    positions: NDArray[np.int64], block: Block
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[Any]]:
    """Return the columns at some positions of a block alone."""
    indptr = block.indptr
    nnz = int((indptr[positions + 1] - indptr[positions]).sum())
    offsets = np.empty((1, len(positions) + 1), np.int64)
    rows, values = np.empty(nnz, np.uint16), np.empty(nnz, block.data.dtype)
    gather_columns(positions, indptr[None], block.indices, block.data, offsets, rows, values)
    return offsets[0], rows, values
