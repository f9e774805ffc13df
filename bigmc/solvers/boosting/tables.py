"""Tables of the columns that trees may cut: the codes of a sample side by side, those of a bundle as one.

The indicators of a category are many columns with little in them: a sample is above in one of them at most.
They share a place, so that the sums over the samples of a node take one addition for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.boosting.arguments import Places, Table
from bigmc.kernels.boosting.trees import bundle_columns, tabulate, transpose_codes
from bigmc.solvers.boosting.binning import BinnedSource, CodedBlock
from bigmc.solvers.boosting.forest import WORD, n_words

#: Bytes of a table, which holds its codes twice, and its places at most: a row of histograms should stay in
#: the cache.
TABLE_BYTES = 8 << 20
_TABLE_PLACES = 32

Columns = NDArray[np.bool_] | None


class CodeTables:
    """The columns of a source with more than one bin, table after table.

    Tables stay in memory between two passes over the same columns if the source keeps its codes and
    they need at most `kept_bytes`; else a table is valid until the next one.
    """

    def __init__(self, source: BinnedSource, n_samples: int, kept_bytes: int, engine: Engine) -> None:
        self._source, self._n, self._kept_bytes, self._engine = source, n_samples, kept_bytes, engine
        self._padded = n_words(n_samples) * WORD
        self._most = min(max(1, TABLE_BYTES // (2 * n_samples)), _TABLE_PLACES)
        self._bundles: dict[int, NDArray[np.int64]] = {}
        self._codes = np.empty(0, np.uint8)
        self._chosen: Columns = None
        self._kept: list[Table] | None = None

    def choose(self, columns: Columns) -> None:
        """Set the columns of the next passes, bool of shape (n_features,): None for all."""
        same = columns is self._chosen or (
            columns is not None and self._chosen is not None and np.array_equal(columns, self._chosen)
        )
        if not same:
            self._chosen, self._kept = columns, None

    def __iter__(self) -> Iterator[Table]:
        """Yield the tables of the chosen columns."""
        if self._kept is None and self._source.keeps:
            n_places = sum(int(p.place.max()) + 1 for _, p in self._layouts(self._chosen))
            if n_places * (self._n + self._padded) <= self._kept_bytes:
                self._codes = np.empty(0, np.uint8)
                self._kept = list(self._tables(self._chosen, reuse=False))
        yield from self.of(self._chosen) if self._kept is None else self._kept

    def of(self, columns: Columns) -> Iterator[Table]:
        """Yield the tables of some columns, or of all, and keep none."""
        yield from self._tables(columns, reuse=True)

    @property
    def n_cells(self) -> int:
        """Cells of a histogram of the chosen columns, if the source keeps its codes."""
        return sum(int(_cells(block, places).sum()) for block, places in self._layouts(self._chosen))

    def _layouts(self, columns: Columns) -> Iterator[tuple[CodedBlock, Places]]:
        """Yield the block and the columns of every table."""
        for block in self._source.stream():
            own, bundles = block.bins.columns, self._bundles_of(block)
            if columns is not None:
                drawn = columns[block.lo + own]
                own, bundles = own[drawn], bundles[drawn]
            place = _places_of(bundles)
            for first in range(0, place.max(initial=-1) + 1, self._most):
                here = (place >= first) & (place < first + self._most)
                yield block, _places(own[here], place[here] - first)

    def _bundles_of(self, block: CodedBlock) -> NDArray[np.int64]:
        """Return the bundle of each column of a block that has more than one bin, -1 for none."""
        if block.lo not in self._bundles:
            bins, own = block.bins, block.bins.columns
            entries = (block.indptr[:, 1:] - block.indptr[:, :-1]).sum(axis=0)
            joins = (bins.n_bins == 2) & ~bins.missing & bins.has_zeros & (bins.zero == 0)
            joins &= 2 * entries <= self._n  # of others few fit into a bundle
            bundles, taken = np.empty(len(own), np.int64), np.zeros(self._n, np.uint32)
            bundle_columns(own, block.entries, joins[own], taken, bundles)
            self._bundles[block.lo] = bundles
        return self._bundles[block.lo]

    def _tables(self, columns: Columns, reuse: bool) -> Iterator[Table]:
        """Yield the tables of some columns, each in the same memory or in its own."""
        at, n, padded = 0, self._n, self._padded
        for block, places in self._layouts(columns):
            cells = _cells(block, places)
            size, turned = n * len(cells), padded * len(cells)
            memory = self._codes
            if not reuse or len(memory) < size + turned:
                memory = np.zeros(size + turned, np.uint8)
                self._codes = memory if reuse else self._codes
            codes, by_place = memory[:size].reshape(n, -1), memory[size:][:turned].reshape(-1, padded)
            for _ in self._engine.map(_tabulate, range(len(block.base) - 1), block, places, codes):
                pass
            transpose_codes(codes, by_place)
            bins, ends = block.bins, np.cumsum(cells)
            yield Table(
                codes=codes,
                columns=by_place,
                features=block.lo + places.columns,
                n_edges=bins.n_edges[places.columns],
                missing=bins.missing[places.columns],
                place=places.place,
                member=places.member,
                firsts=(ends - cells).astype(np.uint64),
                at=at,
                n_cells=int(ends[-1]),
            )
            at += int(ends[-1])


def _places_of(bundles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each column, in the order of the first columns of bundles; -1 is alone."""
    keys = np.where(bundles < 0, -1 - np.arange(len(bundles)), bundles)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse]


def _places(columns: NDArray[np.int64], place: NDArray[np.int64]) -> Places:
    """Return columns with their places in one table, and numbered from 1 where several share one."""
    sizes = np.bincount(place)
    order = np.argsort(place, kind="stable")
    member = np.empty_like(order)
    member[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return Places(columns, place, np.where(sizes[place] > 1, member, 0))


def _cells(block: CodedBlock, places: Places) -> NDArray[np.int64]:
    """Return the cells of every place in a histogram."""
    sizes = np.bincount(places.place)
    cells = sizes + 1
    alone = places.member == 0
    cells[places.place[alone]] = block.bins.n_bins[places.columns[alone]]
    return cells


def _tabulate(shard: int, block: CodedBlock, places: Places, codes: NDArray[np.uint8]) -> None:
    tabulate(places, block.entries, block.bins.zero, shard, codes)
