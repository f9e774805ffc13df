"""Build rows of hashed counts from the hashes of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.ingestion.hashing.scratch import scratch
from bigmc.kernels.hashing import rows as kernel
from bigmc.kernels.hashing.arguments import CountedRows, HashedRows, SortScratch
from bigmc.store.shards.csr import Rows

TABLE_BITS = 14  # bits of the initial number of slots of a long document's table


class RowBuilder:
    """Builds rows in the thread's `scratch` buffers, and moves them out when these are full.

    There are `n_rows` to come, of ``2**hash_bits`` features.
    """

    def __init__(self, n_rows: int, hash_bits: int) -> None:
        self._hash_bits = hash_bits
        self._indptr = np.zeros(n_rows + 1, np.int64)
        self._indices: list[NDArray[np.int32]] = []
        self._values: list[NDArray[Any]] = []
        self._n_done = 0
        self._n_moved = 0  # entries no longer in the scratch buffers
        self._table_bits = min(TABLE_BITS, hash_bits)
        self._table = np.empty(0, np.int64)  # created at the first count
        self._n_counted = 0  # features in the table

    def add(self, offsets: NDArray[np.int64], hashes: NDArray[np.uint32], times: NDArray[np.uint16]) -> None:
        """Add at most `FOLD_ROWS` documents.

        The n-grams of document ``k`` have the hashes ``offsets[k] .. offsets[k + 1]``; `times` are their
        counts, 1 in documents too long to be sorted.
        """
        row, n_rows = 0, len(offsets) - 1
        while row < n_rows:
            self._make_room(int(offsets[-1] - offsets[row]))
            indptr = self._indptr[self._n_done - row : self._n_done - row + n_rows + 1]
            work = SortScratch(scratch.keys, scratch.spare, scratch.heads, scratch.ends)
            out = CountedRows(self._n_moved, indptr, scratch.indices, scratch.values)
            documents = HashedRows(offsets, hashes, times, self._hash_bits)
            stop = kernel.sort_rows(row, n_rows, documents, work, out)
            self._n_done += stop - row
            row = stop
            if row < n_rows:  # a document too long to sort
                self.count(hashes[offsets[row] : offsets[row + 1]])
                self.end_counting()
                row += 1

    def count(self, hashes: NDArray[np.uint32]) -> None:
        """Count some n-grams of one long document."""
        if len(self._table) == 0:
            self._table = _empty_table(self._table_bits)
        while (
            self._table_bits < self._hash_bits and self._n_counted + len(hashes) > 1 << self._table_bits - 1
        ):
            wider = _empty_table(self._table_bits + 1)
            kernel.move_entries(self._table, wider, self._table_bits + 1, self._hash_bits)
            self._table, self._table_bits = wider, self._table_bits + 1
        self._n_counted += kernel.count_hashes(hashes, self._table, self._table_bits, self._hash_bits)

    def end_counting(self) -> None:
        """Add the counts as a row."""
        self._make_room(self._n_counted + 1)
        begin = int(self._indptr[self._n_done])
        held = begin - self._n_moved
        kernel.take_row(self._table, scratch.indices[held:], scratch.values[held:])
        self._n_done += 1
        self._indptr[self._n_done] = begin + self._n_counted
        self._n_counted = 0

    def finish(self) -> Rows:
        """Return the rows; the builder cannot be used after that."""
        self._move()
        indices, values = np.concatenate(self._indices), np.concatenate(self._values)
        return Rows(self._indptr, indices, values, 1 << self._hash_bits)

    def _make_room(self, n_entries: int) -> None:
        if int(self._indptr[self._n_done]) - self._n_moved + n_entries > len(scratch.indices):
            self._move()
            scratch.fit_row(n_entries)

    def _move(self) -> None:
        """Copy the entries out of the buffers, as int16 if every value fits."""
        held = int(self._indptr[self._n_done]) - self._n_moved
        values = scratch.values[:held]
        fits = held == 0 or (values.min() >= -(2**15) and values.max() < 2**15)
        self._indices.append(scratch.indices[:held].copy())
        self._values.append(values.astype(np.int16) if fits else values.copy())
        self._n_moved += held


def _empty_table(bits: int) -> NDArray[np.int64]:
    """Return a table of ``1 << bits`` slots, with the extra places that `count_hashes` needs."""
    return np.zeros((3 << bits >> 1) + 1, np.int64)
