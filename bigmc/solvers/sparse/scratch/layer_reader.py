"""Read stored columns back, shard by shard: the reverse of `layer_writer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import undo_delta
from bigmc.solvers.sparse.scratch.layer_writer import Layer
from bigmc.solvers.sparse.scratch.scratch_arrays import Stored
from bigmc.solvers.sparse.scratch.shard_blocks import Block

#: Entries put together at once, unless one column has more, and features whose offsets a block has at most.
PIECE_ENTRIES, PIECE_FEATURES = 1 << 18, 1 << 16

#: Decodes a stored array into the front of another, and returns that.
Read = Callable[[Stored, NDArray[Any]], NDArray[Any]]


class PartColumns:
    """The columns of a layer in one part of a shard, whose entries are read from first to last.

    Attributes
    ----------
    counts : int32 array of shape (n_features,)
        Entries of each of them.
    """

    def __init__(self, layer: Layer, key: tuple[int, int], dtype: np.dtype[Any], read: Read) -> None:
        self.counts = read(layer.counts(key), np.empty(len(layer.features), np.int32))
        self._pairs, self._read = layer.entries(key), read
        self._rows, self._values = np.empty(0, np.uint16), np.empty(0, dtype)

    def take(self, n: int) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        """Return the next `n` entries: their rows among those of the part, and their values."""
        rows, values = np.empty(n, np.uint16), np.empty(n, self._values.dtype)
        at = 0
        while at < n:
            if not len(self._rows):
                stored_rows, stored_values = next(self._pairs)
                self._rows = self._read(stored_rows, np.empty(stored_rows.size, np.uint16))
                self._values = self._read(stored_values, np.empty(stored_rows.size, values.dtype))
                undo_delta(self._rows)
            some = min(n - at, len(self._rows))
            rows[at : at + some], values[at : at + some] = self._rows[:some], self._values[:some]
            self._rows, self._values = self._rows[some:], self._values[some:]
            at += some
        return rows, values


def stored_blocks(
    layers: Sequence[Layer],
    s: int,
    places: Mapping[int, NDArray[np.uint16]],
    dtype: np.dtype[Any],
    read: Read,
) -> Iterator[Block]:
    """Put the columns of all layers together, for one shard.

    Parameters
    ----------
    s : int
        Number of the shard.
    places : mapping of int to uint16 array
        Rows of the shard that each of its parts has.
    dtype : numpy dtype
        Of the values.
    read : callable
    """
    held = [
        (layer, [(rows, PartColumns(layer, (s, part), dtype, read)) for part, rows in places.items()])
        for layer in layers
    ]
    joined = np.concatenate([layer.features for layer in layers])
    order = np.argsort(joined)
    counts = [sum((part.counts.astype(np.int64) for _, part in parts)) for _, parts in held]
    features, counted = joined[order], np.concatenate(counts)[order]
    before = np.concatenate([[0], np.cumsum(counted)])
    first = 0
    while first < len(features):
        lo = int(features[first])
        last = int(np.searchsorted(before, before[first] + PIECE_ENTRIES, side="right")) - 1
        last = max(first + 1, min(last, int(np.searchsorted(features, lo + PIECE_FEATURES))))
        hi = int(features[last - 1]) + 1
        offsets = np.zeros(hi - lo + 1, np.int64)
        offsets[features[first:last] - lo + 1] = counted[first:last]
        np.cumsum(offsets, out=offsets)
        yield _together(lo, hi, offsets, held, dtype)
        first = last


def _together(
    lo: int,
    hi: int,
    offsets: NDArray[np.int64],
    held: Sequence[tuple[Layer, Sequence[tuple[NDArray[np.uint16], PartColumns]]]],
    dtype: np.dtype[Any],
) -> Block:
    """Return the columns `lo` to `hi` of a shard from all its parts."""
    indices, data = np.empty(int(offsets[-1]), np.uint16), np.empty(int(offsets[-1]), dtype)
    free = offsets[:-1].copy()
    for layer, parts in held:
        start, stop = np.searchsorted(layer.features, [lo, hi])
        columns = layer.features[start:stop] - lo
        for rows, part in parts:
            counts = part.counts[start:stop].astype(np.int64)
            ends = np.cumsum(counts)
            n = int(ends[-1]) if len(ends) else 0
            own, values = part.take(n)
            at = np.repeat(free[columns] - (ends - counts), counts) + np.arange(n)
            indices[at], data[at] = rows[own], values
            free[columns] += counts
    keys = np.repeat(np.arange(hi - lo), np.diff(offsets)) << 16 | indices
    order = np.argsort(keys, kind="stable")  # runs of increasing rows, one from every part
    return Block(lo, hi, offsets, indices[order], data[order])
