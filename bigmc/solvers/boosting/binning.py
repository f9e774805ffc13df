"""Blocks of columns as codes: the input of the search for learners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.kernels.boosting.arguments import CutColumns, Edges, Entries, Values
from bigmc.kernels.boosting.bins import encode, find_edges, pack_edges, zero_codes
from bigmc.store.block import Block, Residency, read_block, stream_blocks
from bigmc.store.chosen_columns import AnyColumns, ChosenColumns

#: Parts of a block for the workers, independent of their number.
_PARTS = 16


@dataclass(frozen=True)
class Bins:
    """Edges of a block's columns.

    Column ``j`` has the edges ``edges[starts[j]:starts[j + 1]]``, `n_bins` codes (missing values
    included), of which `zero` is that of 0, and `n_entries`. `missing` and `has_zeros` tell whether there are
    NaN, and samples without an entry. `columns` are those with more than one bin, and `parts` ranges
    ``(lo, hi)`` of them of about equal work.
    """

    starts: NDArray[np.int64]
    edges: NDArray[np.float64]
    n_edges: NDArray[np.int64]
    zero: NDArray[np.int64]
    missing: NDArray[np.bool_]
    has_zeros: NDArray[np.bool_]
    n_bins: NDArray[np.int64]
    n_entries: NDArray[np.int64]
    columns: NDArray[np.int64]
    parts: list[tuple[int, int]]


@dataclass(frozen=True)
class CodedBlock:
    """A block whose values are codes; `rows` and `indptr` are those of `bigmc.store.block.Block`.

    `numbers` has the feature of every column, unless these are ``lo`` to ``hi``.
    """

    lo: int
    hi: int
    indptr: NDArray[np.int64]
    rows: NDArray[np.uint16]
    codes: NDArray[np.uint8]
    base: NDArray[np.int64]
    bins: Bins
    numbers: NDArray[np.int64] | None = None

    def features_of(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the features of some columns."""
        return self.lo + columns if self.numbers is None else self.numbers[columns]

    @property
    def entries(self) -> Entries:
        """The coded entries, as kernels take them."""
        return Entries(self.indptr, self.rows, self.codes, self.base)

    def chosen(self, columns: NDArray[np.int64], firsts: NDArray[np.int64]) -> CutColumns:
        """Return some columns, with the first row of each in the histogram."""
        bins = self.bins
        return CutColumns(columns, self.lo, bins.n_bins, bins.zero, bins.missing, bins.has_zeros, firsts)


class BinnedSource:
    """The columns of a dataset as codes, block by block; edges are computed when a block is first read.

    Columns have at most `max_bins` bins, besides missing values, whose edges come from the samples in
    `counted`. `blocks` says where codes are kept between two passes. `bytes_read` counts the
    decoded bytes of the shards so far; blocks whose codes are kept are decoded into values of `dtype`, by
    default that of the dataset. Of `ChosenColumns`, ranges and blocks have their columns, and features
    are those of the dataset. `known` has the edges of every block that an equal source found before, and
    is filled.
    """

    def __init__(
        self,
        dataset: AnyColumns,
        ranges: Sequence[tuple[int, int]],
        blocks: Residency,
        max_bins: int,
        counted: NDArray[np.bool_],
        engine: Engine,
        dtype: np.dtype[Any] | None = None,
        known: dict[int, Bins] | None = None,
    ) -> None:
        self.dataset, self._dtype = dataset, dtype
        self.ranges = list(ranges)
        self.keeps = blocks is Residency.MEMORY
        self.bytes_read = 0
        self._chosen = dataset.chosen if isinstance(dataset, ChosenColumns) else None
        self._limit = max_bins - 1
        self._counted = counted
        self._engine = engine
        self._bins: dict[int, Bins] = {} if known is None else known
        self._kept: list[CodedBlock | None] = [None] * len(self.ranges)
        self._codes = np.empty(0, np.uint8)

    def stream(self) -> Iterator[CodedBlock]:
        """Yield every block in order; one is valid until the next is requested."""
        if self.keeps:
            for number, (lo, hi) in enumerate(self.ranges):
                coded = self._kept[number]
                if coded is None:
                    block = read_block(self.dataset, lo, hi, dtype=self._dtype)
                    coded = self._kept[number] = self._coded(number, block)
                yield coded
            return
        for number, block in enumerate(stream_blocks(self.dataset, self.ranges)):
            yield self._coded(number, block)

    @property
    def n_features(self) -> int:
        """Features of the dataset up to the last one that is read."""
        last = max(hi for _, hi in self.ranges)
        return last if self._chosen is None else int(self._chosen[last - 1]) + 1

    def place_of(self, feature: int) -> int:
        """Return the place of a feature among the columns."""
        return feature if self._chosen is None else int(np.searchsorted(self._chosen, feature))

    def edges_of(self, feature: int) -> NDArray[np.float64]:
        """Return the edges of a feature whose block has been read."""
        place = self.place_of(feature)
        number = int(np.searchsorted([hi for _, hi in self.ranges], place, side="right"))
        bins = self._bins[number]
        column = place - self.ranges[number][0]
        return bins.edges[bins.starts[column] : bins.starts[column + 1]]

    def _coded(self, number: int, block: Block) -> CodedBlock:
        self.bytes_read += block.bytes_as(self.dataset.dtype)
        parts = equal_parts((block.indptr[:, 1:] - block.indptr[:, :-1]).sum(axis=0) + 1, _PARTS)
        bins = self._bins.get(number)
        if bins is None:
            bins = self._bins[number] = self._find(block, parts)
        if self.keeps:
            codes = np.empty(block.nnz, np.uint8)
        else:
            if len(self._codes) < block.nnz:
                self._codes = np.empty(block.nnz, np.uint8)
            codes = self._codes[: block.nnz]

        def work(part: tuple[int, int]) -> None:
            encode(*part, block.indptr, block.data, bins.starts, bins.edges, codes)

        for_each(self._engine, work, parts)
        numbers = None if self._chosen is None else self._chosen[block.lo : block.hi]
        return CodedBlock(block.lo, block.hi, block.indptr, block.indices, codes, block.base, bins, numbers)

    def _find(self, block: Block, parts: Sequence[tuple[int, int]]) -> Bins:
        """Find the edges of a block's columns."""
        n_columns = block.hi - block.lo
        n_samples = int(block.base[-1])
        entries = (block.indptr[:, 1:] - block.indptr[:, :-1]).sum(axis=0)
        starts = np.concatenate([[0], np.cumsum(np.minimum(entries + 1, self._limit))])
        unpacked = Edges(
            starts=starts,
            edges=np.empty(int(starts[-1])),
            n_edges=np.empty(n_columns, np.int64),
            missing=np.empty(n_columns, np.bool_),
        )
        values = Values(block.indptr, block.indices, block.data, block.base)

        def work(part: tuple[int, int]) -> None:
            find_edges(*part, values, self._counted, self._limit, unpacked)

        for_each(self._engine, work, parts)
        n_edges, missing = unpacked.n_edges, unpacked.missing
        starts = np.concatenate([[0], np.cumsum(n_edges)])
        edges = np.empty(int(starts[-1]))
        pack_edges(unpacked.starts, n_edges, unpacked.edges, starts, edges)
        zero = np.empty(n_columns, np.int64)
        zero_codes(starts, edges, zero)
        n_bins = n_edges + 1 + missing
        columns = np.flatnonzero(n_bins > 1)
        cut = equal_parts(entries[columns] + n_bins[columns], _PARTS)
        return Bins(
            starts=starts,
            edges=edges,
            n_edges=n_edges,
            zero=zero,
            missing=missing,
            has_zeros=entries < n_samples,
            n_bins=n_bins,
            n_entries=entries,
            columns=columns,
            parts=cut,
        )


def equal_parts(work: NDArray[np.int64], n_parts: int) -> list[tuple[int, int]]:
    """Cut columns into at most `n_parts` ranges of about equal work."""
    if not len(work):
        return []
    total = np.cumsum(work)
    cuts = np.searchsorted(total, np.linspace(0, total[-1], n_parts + 1)[1:-1])
    edges = np.unique([0, *cuts.tolist(), len(work)])
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
