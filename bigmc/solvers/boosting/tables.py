"""Tables of the columns that trees may cut: their codes side by side, or a list for each sample.

Of columns in which few samples have another code than that of 0, such as the indicators of a category or
frequent words, a sample lists these codes: sums over the samples of a node take as many additions as there
are entries, and the sum of the code of 0 is what is missing from that of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.kernels.boosting.arguments import Table
from bigmc.kernels.boosting.descent import WORD
from bigmc.kernels.boosting.trees import count_codes, list_codes, tabulate, transpose_codes
from bigmc.solvers.boosting.binning import BinnedSource, CodedBlock
from bigmc.solvers.boosting.forest import n_words

#: Bytes of a table, and cells of its columns side by side: a row of histograms should stay in the cache.
TABLE_BYTES = 8 << 20
_SIDE_BY_SIDE = 32 * 256
#: Additions that lists must save, for all samples: another table takes time too.
_WORTH_LISTS = 1 << 17
#: Cells of lists, but for those of one column more: their numbers have two bytes.
_LISTED_CELLS = (1 << 16) - 256

Columns = NDArray[np.bool_] | None


class _Group(NamedTuple):
    """The columns of a table, counted within their block."""

    block: CodedBlock
    columns: NDArray[np.int64]
    listed: bool

    @property
    def cells(self) -> NDArray[np.int64]:
        """Cells of each column in a histogram."""
        return self.block.bins.n_bins[self.columns]

    @property
    def n_entries(self) -> int:
        """Entries of all columns."""
        return int(self.block.bins.n_entries[self.columns].sum())


class CodeTables:
    """The columns of a source with more than one bin, table after table.

    Tables stay in memory between two passes over the same columns if the source keeps its codes and
    they need at most `kept_bytes`; else a table is valid until the next one.
    """

    def __init__(self, source: BinnedSource, n_samples: int, kept_bytes: int, engine: Engine) -> None:
        self._source, self._n, self._kept_bytes, self._engine = source, n_samples, kept_bytes, engine
        self._padded = n_words(n_samples) * WORD
        self._memory = np.empty(0, np.uint8)
        self._chosen: Columns = None
        self._kept: list[Table] | None = None
        self._sizes: tuple[int, int] | None = None
        self._kept_groups: list[_Group] | None = None

    def choose(self, columns: Columns) -> None:
        """Set the columns of the next passes, bool of shape (n_features,): None for all."""
        same = columns is self._chosen or (
            columns is not None and self._chosen is not None and np.array_equal(columns, self._chosen)
        )
        if not same:
            self._chosen, self._kept, self._sizes, self._kept_groups = columns, None, None, None

    def __iter__(self) -> Iterator[Table]:
        """Yield the tables of the chosen columns."""
        if self._kept is None and self._fits:
            self._memory = np.empty(0, np.uint8)
            self._kept = list(self._tables(self._chosen, _own_memory))
        yield from self.of(self._chosen) if self._kept is None else self._kept

    def of(self, columns: Columns) -> Iterator[Table]:
        """Yield the tables of some columns, or of all, and keep none."""
        yield from self._tables(columns, self._shared_memory)

    @property
    def _fits(self) -> bool:
        """Whether the tables of the chosen columns may be kept."""
        return self._source.keeps and self._size[0] <= self._kept_bytes

    @property
    def n_cells(self) -> int:
        """Cells of a histogram of the chosen columns, if the source keeps its codes."""
        return self._size[1]

    @property
    def _size(self) -> tuple[int, int]:
        """Bytes of all tables, and cells of a histogram, of the chosen columns: computed once for them."""
        if self._sizes is None:
            groups = list(self._groups(self._chosen))
            if self._source.keeps:  # else each holds the codes of its block
                self._kept_groups = groups
            n_bytes = sum(self._bytes(group) for group in groups)
            self._sizes = n_bytes, sum(int(group.cells.sum()) for group in groups)
        return self._sizes

    def _groups(self, columns: Columns) -> Iterator[_Group]:
        """Yield the columns of every table."""
        for block in self._source.stream():
            bins, own, entries = block.bins, block.bins.columns, block.bins.n_entries
            if columns is not None:
                own = own[columns[block.features_of(own)]]
            saved = self._n - 2 * entries[own]  # additions for all samples, taking each from a list for two
            listed = (saved > 0) & (saved.clip(0).sum() >= _WORTH_LISTS)
            most = max(1, TABLE_BYTES // (2 * self._n))
            full, few = own[~listed], own[listed]
            most = min(most, max(1, _SIDE_BY_SIDE // int(bins.n_bins[full].max(initial=1))))
            for first in range(0, len(full), most):
                yield _Group(block, full[first : first + most], False)
            number = _parts(bins.n_bins[few], _LISTED_CELLS) + _parts(2 * entries[few], TABLE_BYTES)
            for part in np.unique(number):
                yield _Group(block, few[number == part], True)

    def _bytes(self, group: _Group) -> int:
        """Return at most how many bytes a table has."""
        if group.listed:
            return 4 * (self._n + 1) + 2 * group.n_entries
        return len(group.columns) * (self._n + self._padded)

    def _shared_memory(self, size: int) -> NDArray[np.uint8]:
        """Return the memory of the table before."""
        if len(self._memory) < size:
            self._memory = _own_memory(size)
        return self._memory

    def _tables(self, columns: Columns, memory: Callable[[int], NDArray[np.uint8]]) -> Iterator[Table]:
        """Yield the tables of some columns, in memory of so many bytes each."""
        at = 0
        chosen = self._kept_groups if columns is self._chosen else None
        for group in self._groups(columns) if chosen is None else chosen:
            table = self._table(group, memory(self._bytes(group)), at)
            yield table
            at += table.n_cells

    def _table(self, group: _Group, memory: NDArray[np.uint8], at: int) -> Table:
        block, columns, n = group.block, group.columns, self._n
        bins, n_bins, shards = block.bins, group.cells, range(len(block.base) - 1)
        n_full = 0 if group.listed else len(columns)
        codes = memory[: n * n_full].reshape(n, n_full)
        by_column = memory[n * n_full :][: self._padded * n_full].reshape(n_full, self._padded)
        starts, cells = np.empty(0, np.uint32), np.empty(0, np.uint16)
        if group.listed:
            starts = memory[: 4 * (n + 1)].view(np.uint32)
            cells = memory[4 * (n + 1) :][: 2 * group.n_entries].view(np.uint16)
        table = Table(
            codes=codes,
            columns=by_column,
            starts=starts,
            cells=cells,
            entries=block.entries,
            numbers=columns,
            zero=bins.zero[columns],
            features=block.features_of(columns),
            n_edges=bins.n_edges[columns],
            missing=bins.missing[columns],
            firsts=(np.cumsum(n_bins) - n_bins).astype(np.uint64),
            at=at,
            n_cells=int(n_bins.sum()),
        )
        if group.listed:
            for_each(self._engine, _count, shards, table)
            np.cumsum(starts[:-1], dtype=np.uint32, out=starts[:-1])
            starts[-1] = starts[-2]
            for_each(self._engine, _list, shards, table)
        else:
            for_each(self._engine, _tabulate, shards, table)
            transpose_codes(codes, by_column)
        return table


def _own_memory(size: int) -> NDArray[np.uint8]:
    return np.zeros(size, np.uint8)


def _parts(sizes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the part of each item, such that each has at most `most` before its last item."""
    return (np.cumsum(sizes) - sizes) // most


def _tabulate(shard: int, table: Table) -> None:
    tabulate(table.numbers, table.entries, table.zero, shard, table.codes)


def _count(shard: int, table: Table) -> None:
    count_codes(table.numbers, table.entries, table.zero, shard, table.starts)


def _list(shard: int, table: Table) -> None:
    list_codes(table, shard)
