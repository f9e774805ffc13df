"""Samples put into row order, some at a time: stochastic steps follow one sample after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, one_ahead
from bigmc.kernels.linear.rows import stochastic
from bigmc.kernels.linear.rows.stochastic import SparseRows
from bigmc.solvers.sparse.scratch.chunk import Chunk

#: Bytes of an entry in row order.
ENTRY_BYTES = 8


class Part(NamedTuple):
    """Some columns of some samples.

    Attributes
    ----------
    columns : tuple
        Offsets, rows and values.
    slot : int
        Of the first column; those of the others follow.
    first : int
        Number of the sample that row 0 is.
    """

    columns: tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[Any]]
    slot: int
    first: int = 0


@dataclass(frozen=True)
class RowSamples:
    """Samples and their columns.

    Attributes
    ----------
    counts : int32 array of shape (n_samples,)
        Their entries.
    labels : int32 array of shape (n_samples, most labels)
    scale : float32 array of shape (n_samples,)
    weights : float64 array of shape (n_samples,)
    parts : list of Part
    """

    counts: NDArray[np.int32]
    labels: NDArray[np.int32]
    scale: NDArray[np.float32]
    weights: NDArray[np.float64]
    parts: list[Part]

    @classmethod
    def of_chunk(cls, chunk: Chunk) -> RowSamples:
        """Return the samples of a chunk; the slots are the places among the features of its layers."""
        samples, slot = chunk.samples, 0
        counts = np.zeros(samples.n_samples, np.int32)
        parts = list[Part]()
        for columns in chunk.held:
            for s, first in enumerate(columns.base[:-1].tolist()):
                offsets = columns.indptr[s]
                rows = columns.indices[offsets[0] : offsets[-1]]
                size = int(columns.base[s + 1]) - first
                counts[first : first + size] += np.bincount(rows, minlength=size).astype(np.int32)
                parts.append(Part((offsets, columns.indices, columns.data), slot, first))
            slot += len(columns.features)
        weights = np.ones(samples.n_samples) if samples.weights is None else samples.weights
        return cls(counts, samples.label_sets(), samples.row_scale(None), weights, parts)

    def groups(
        self,
        order: NDArray[np.int64],
        column_scale: NDArray[np.float32],
        most_entries: int,
        engine: Engine,
    ) -> Iterator[SparseRows]:
        """Put samples into row order, some at a time; another thread puts the next ones.

        Parameters
        ----------
        order : int64 array
            Numbers of the samples wanted.
        column_scale : float32 array of shape (n_slots,)
            Factor of the values of each column.
        most_entries : int
            Of two groups together, each of which has one sample at least.
        engine : Engine
            Of this process.
        """
        ends, start = np.cumsum(self.counts[order], dtype=np.int64), 0
        groups = list[slice]()
        while start < len(order):
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + most_entries // 2, side="right")))
            groups.append(slice(start, stop))
            start = stop
        return one_ahead(engine, lambda group: self._in_row_order(order, group, column_scale), groups)

    def _in_row_order(
        self, order: NDArray[np.int64], group: slice, column_scale: NDArray[np.float32]
    ) -> SparseRows:
        chosen = order[group]
        indptr = np.concatenate([[0], np.cumsum(self.counts[chosen], dtype=np.int64)])
        nnz = int(indptr[-1])
        slots, values = np.empty(nnz, np.int32), np.empty(nnz, np.float32)
        rows = SparseRows(indptr, slots, values, self.labels[chosen], self.weights[chosen])
        places = np.full(len(self.counts), -1, np.int32)
        places[chosen] = np.arange(len(chosen), dtype=np.int32)
        next_entry = indptr[:-1].copy()
        for part in self.parts:
            scale = column_scale[part.slot : part.slot + len(part.columns[0]) - 1]
            scales = (self.scale[part.first :], scale)
            part_places = places[part.first :]
            stochastic.fill_rows(part.columns, scales, part_places, part.slot, next_entry, rows)
        return rows
