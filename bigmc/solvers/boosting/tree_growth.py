"""Growing trees: one pass over the columns for each level, for many trees of all classes side by side.

Columns are processed a table at a time, with the codes of a sample side by side. If the columns stay in
memory, as many trees are grown at a time as the histograms of their nodes fit: of two siblings only the one
with fewer samples is then summed up, the other is the difference from their parent. If columns are read again
for every level, all trees are grown at once, and every node is summed up. Sums are integers (see
`bigmc.kernels.boosting.trees`), so both ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.boosting.arguments import Table
from bigmc.kernels.boosting.trees import add_samples, find_peaks, open_level, route, tabulate, transpose_codes
from bigmc.solvers.boosting.binning import BinnedSource, CodedBlock
from bigmc.solvers.boosting.forest import WORD, Forest, Grown, Roots, answers_of, at_roots, n_words
from bigmc.solvers.boosting.learners import NOWHERE, Learners
from bigmc.solvers.boosting.oracle import ColumnReader, OnColumns

#: Bytes of a table, which holds its codes twice, and its columns at most: a row of histograms should stay in
#: the cache.
TABLE_BYTES = 8 << 20
_TABLE_COLUMNS = 32
#: Bytes of the nodes of samples that are processed together to find the answers of trees again.
_ANSWER_NODES = 32 << 20


class Grower(ColumnReader, Protocol):
    """Grows trees under packed weights, see `bigmc.kernels.boosting.trees.pack_weights`."""

    def begin(self, weights: NDArray[np.int64], columns: NDArray[np.bool_] | None = None) -> None:
        """Set the weights, shape (n_classes, n_samples), and the columns to cut: None for all."""

    def roots(self, n_best: int) -> Roots:
        """Return the `n_best` best roots of every class."""

    def grow(self, roots: Roots) -> Grown:
        """Return the trees of roots."""

    def answers(self, learners: Learners) -> list[NDArray[np.uint64]]:
        """Return the answers of trees from earlier passes."""


class TreeGrower(OnColumns):
    """Grows trees of `depth` levels, at least 2, over columns that this process reads."""

    def __init__(
        self, source: BinnedSource, n_samples: int, depth: int, histogram_bytes: int, engine: Engine
    ) -> None:
        super().__init__(source)
        self.source, self._engine, self._histogram_bytes = source, engine, histogram_bytes
        self._n_samples, self._depth = n_samples, depth
        self._codes, self._hist = np.empty(0, np.uint8), np.empty(0, np.int64)
        self._weights = np.empty((0, n_samples), np.int64)
        self._drawn: NDArray[np.bool_] | None = None

    def begin(self, weights: NDArray[np.int64], columns: NDArray[np.bool_] | None = None) -> None:
        """Set the weights, shape (n_classes, n_samples), and the columns to cut: None for all."""
        self._weights, self._drawn = weights, columns

    def roots(self, n_best: int) -> Roots:
        """Return the `n_best` best roots of every class."""
        classes = range(len(self._weights))
        best = [(np.empty(0), np.empty((0, 5), np.int64))] * len(classes)
        for table in self._tables(self._drawn):
            for c, peaks in self._engine.map(self._peaks, classes, table, n_best):
                values, places = (np.concatenate(pair) for pair in zip(best[c], peaks, strict=True))
                order = _largest(values, n_best)
                best[c] = values[order], places[order]
        places = np.concatenate([peaks for _, peaks in best])
        owners = np.repeat(classes, [len(peaks) for _, peaks in best])
        return Roots(owners, places[:, :3].copy(), places[:, 3:].copy())

    def grow(self, roots: Roots) -> Grown:
        """Return the trees of roots."""
        n_trees, n_cells, step = len(roots.classes), 0, 0
        n_nodes = 1 << (self._depth - 1)
        if self.source.keeps:
            blocks = self.source.stream()
            n_cells = sum(int(b.bins.n_bins[_columns_of(b, self._drawn)].sum()) for b in blocks)
            step = min(self._histogram_bytes // (8 * n_cells * n_nodes), n_trees) if n_cells else 0
        size = step * n_nodes * n_cells
        if len(self._hist) < size:
            self._hist = np.empty(size, np.int64)
        hist = self._hist[:size].reshape(step, n_nodes, n_cells)
        parts = []
        for k in range(0, max(n_trees, 1), step or max(n_trees, 1)):
            part = roots.take(slice(k, k + step) if step else slice(None))
            forest = Forest(part, self._weights, self._depth, hist[: len(part.classes)])
            parts.append(self._grow(forest))
        return Grown.joined(parts)

    def answers(self, learners: Learners) -> list[NDArray[np.uint64]]:
        """Return the answers of trees from earlier passes: a pass per level for each group of trees."""
        step, n_nodes = max(1, _ANSWER_NODES // self._n_samples), 1 << (self._depth - 1)
        answers = []
        for first in range(0, len(learners.feature), step):
            trees = learners.take(slice(first, first + step))
            cuts = np.stack([trees.feature, trees.cut, trees.missing_below], axis=2).astype(np.int64)
            members, above = at_roots(len(cuts), n_nodes, self._n_samples)
            asked = self._asked(trees.feature)
            for depth in range(self._depth):
                if depth:
                    totals = np.zeros((len(cuts), 2**depth), np.int64)
                    slots, added = np.zeros_like(totals), np.zeros(totals.shape, np.uint8)
                    open_level(members, above, totals, False, slots, added)
                level = np.ascontiguousarray(cuts[:, 2**depth - 1 : 2 ** (depth + 1) - 1])
                for table in self._tables(asked):
                    route(0, len(cuts), table, level, members, above)
            answers += answers_of(members, above, trees)
        return answers

    def _asked(self, features: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which columns are among these, shape (n_features,)."""
        asked = np.zeros(max(hi for _, hi in self.source.ranges), np.bool_)
        asked[features[features != NOWHERE]] = True
        return asked

    def _tables(self, drawn: NDArray[np.bool_] | None) -> Iterator[Table]:
        """Yield the columns with more than one bin, all or drawn; a table is valid until the next one."""
        n, at, padded = self._n_samples, 0, n_words(self._n_samples) * WORD
        most = min(max(1, TABLE_BYTES // (2 * n)), _TABLE_COLUMNS)
        for block in self.source.stream():
            bins, chosen = block.bins, _columns_of(block, drawn)
            for first in range(0, len(chosen), most):
                columns = chosen[first : first + most]
                size = n * len(columns)
                if len(self._codes) < size + padded * len(columns):
                    self._codes = np.zeros(size + padded * len(columns), np.uint8)
                codes = self._codes[:size].reshape(n, -1)
                for _ in self._engine.map(_tabulate, range(len(block.base) - 1), block, columns, codes):
                    pass
                turned = self._codes[size : size + padded * len(columns)].reshape(-1, padded)
                transpose_codes(codes, turned)
                ends = np.cumsum(bins.n_bins[columns])
                yield Table(
                    codes=codes,
                    columns=turned,
                    features=block.lo + columns,
                    n_edges=bins.n_edges[columns],
                    missing=bins.missing[columns],
                    firsts=(ends - bins.n_bins[columns]).astype(np.uint64),
                    at=at,
                    n_cells=int(ends[-1]),
                )
                at += int(ends[-1])

    def _peaks(self, c: int, table: Table, n_best: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return values, cuts and sides of the best roots of a class in a table."""
        hist = np.zeros((1, table.n_cells), np.int64)
        self._add_root(0, table._replace(at=0), [c], hist)
        values, places = np.empty(2 * table.n_cells), np.empty((2 * table.n_cells, 5), np.int64)
        n = find_peaks(hist[0], table, values, places[:, :3], places[:, 3:])
        order = _largest(values[:n], n_best)
        places = places[order]
        places[:, 0] = table.features[places[:, 0]]
        return values[order], places

    def _add_root(self, k: int, table: Table, classes: Sequence[int], hist: NDArray[np.int64]) -> None:
        """Add a table's columns to the histogram of all samples of class ``classes[k]``."""
        add_samples(table, self._weights[classes[k]], hist[k])

    def _grow(self, forest: Forest) -> Grown:
        run = self._engine.map
        # The first pass moves the samples down from the roots, and sums up those of each class.
        different, places = np.unique(forest.classes, return_inverse=True)
        whole = np.zeros((len(different), forest.hist.shape[2]), np.int64)
        for table in self._tables(self._drawn):
            for _ in run(forest.route, forest.parts, table):
                pass
            if forest.hist.size:
                for _ in run(self._add_root, range(len(different)), table, different, whole):
                    pass
        if forest.hist.size:
            forest.hist[:, 0] = whole[places]
        for _ in range(1, self._depth):
            forest.next_level()
            for _ in run(forest.enter, forest.parts):
                pass
            for table in self._tables(self._drawn):
                for _ in run(forest.offer, forest.parts, table):
                    pass
        return forest.grown()


def _columns_of(block: CodedBlock, drawn: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Return the drawn columns of a block, counted within it, that have more than one bin."""
    columns = block.bins.columns
    return columns if drawn is None else columns[drawn[block.lo + columns]]


def _tabulate(shard: int, block: CodedBlock, columns: NDArray[np.int64], codes: NDArray[np.uint8]) -> None:
    tabulate(columns, block.entries, block.bins.zero, shard, codes)


def _largest(values: NDArray[np.float64], n_best: int) -> NDArray[np.int64]:
    """Return the places of the `n_best` largest values, the largest first; of equal ones the first."""
    return np.argsort(-values, kind="stable")[:n_best]
