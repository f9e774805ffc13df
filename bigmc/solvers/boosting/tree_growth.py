"""Growing trees: one pass over the columns for each level, for many trees of all classes side by side.

Columns are processed a table at a time, with the codes of a sample side by side. If the columns stay in
memory, as many trees are grown at a time as the histograms of their nodes fit: of two siblings only the one
with fewer samples is then summed up, the other is the difference from their parent. If columns are read again
for every level, all trees are grown at once, and every node is summed up. Sums are integers (see
`bigmc.kernels.boosting.trees`), so both ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.kernels.boosting.arguments import Table
from bigmc.kernels.boosting.trees import add_samples, find_peaks, open_level, route
from bigmc.solvers.boosting.binning import BinnedSource, equal_parts
from bigmc.solvers.boosting.forest import Forest, Grown, Roots, answers_of, at_roots
from bigmc.solvers.boosting.learners import NOWHERE, Learners
from bigmc.solvers.boosting.oracle import ColumnReader, OnColumns
from bigmc.solvers.boosting.tables import CodeTables

#: Parts of the trees for threads.
_PARTS = 8
#: Bytes of histograms of trees that grow side by side, if one tree has no more: further ones at once save
#: hardly any time. A hundred trees of 160 rows and 1,460 columns would take 0.9 GB.
_SIDE_BY_SIDE_BYTES = 64 << 20
#: Bytes of the nodes of samples that are processed together to find the answers of trees again.
_ANSWER_NODES = 32 << 20


@dataclass(frozen=True)
class TreePlan:
    """How trees grow: their levels, at least 2, bytes of their histograms and of kept tables, and threads."""

    depth: int
    histogram_bytes: int
    table_bytes: int = 0
    n_threads: int = 1


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
    """Grows trees over columns that this process reads."""

    def __init__(self, source: BinnedSource, n_samples: int, plan: TreePlan, engine: Engine) -> None:
        super().__init__(source)
        self.source, self._engine, self._histogram_bytes = source, engine, plan.histogram_bytes
        self._n_samples, self._depth = n_samples, plan.depth
        self._tables = CodeTables(source, n_samples, plan.table_bytes, engine)
        self._hist, self._root_sums = np.empty(0, np.int64), np.empty((0, 0), np.int64)
        self._weights = np.empty((0, n_samples), np.int64)

    def begin(self, weights: NDArray[np.int64], columns: NDArray[np.bool_] | None = None) -> None:
        """Set the weights, shape (n_classes, n_samples), and the columns to cut: None for all."""
        self._weights, self._root_sums = weights, np.empty((0, 0), np.int64)
        self._tables.choose(columns)

    def roots(self, n_best: int) -> Roots:
        """Return the `n_best` best roots of every class."""
        classes = range(len(self._weights))
        best = [(np.empty(0), np.empty((0, 5), np.int64))] * len(classes)
        if self.source.keeps and 32 * len(classes) * self._tables.n_cells <= self._histogram_bytes:
            self._root_sums = np.zeros((len(classes), self._tables.n_cells), np.int64)
        for table in self._tables:
            for c, peaks in self._engine.map(self._peaks, classes, table, n_best):
                values, places = (np.concatenate(pair) for pair in zip(best[c], peaks, strict=True))
                order = _largest(values, places, n_best)
                best[c] = values[order], places[order]
        places = np.concatenate([peaks for _, peaks in best])
        owners = np.repeat(classes, [len(peaks) for _, peaks in best])
        return Roots(owners, places[:, :3].copy(), places[:, 3:].copy())

    def grow(self, roots: Roots) -> Grown:
        """Return the trees of roots."""
        n_trees, n_cells, step = len(roots.classes), 0, 0
        n_nodes = 1 << (self._depth - 1)
        if self.source.keeps:
            n_cells = self._tables.n_cells
            tree = 8 * n_cells * n_nodes
            space = self._histogram_bytes - self._root_sums.nbytes
            space = min(space, max(_SIDE_BY_SIDE_BYTES, self._engine.n_threads * tree))
            step = min(space // tree, n_trees) if n_cells else 0
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
                for table in self._tables.of(asked):
                    route(0, len(cuts), table, level, members, above)
            answers += answers_of(members, above, trees)
        return answers

    def _asked(self, features: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which columns are among these, shape (n_features,)."""
        asked = np.zeros(self.source.n_features, np.bool_)
        asked[features[features != NOWHERE]] = True
        return asked

    def _peaks(self, c: int, table: Table, n_best: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return values, cuts and sides of the best roots of a class in a table."""
        kept = len(self._root_sums) > 0
        hist = self._root_sums[c, table.at :][: table.n_cells] if kept else np.zeros(table.n_cells, np.int64)
        add_samples(table._replace(at=0), self._weights[c], hist)
        values, places = np.empty(2 * table.n_cells), np.empty((2 * table.n_cells, 5), np.int64)
        n = find_peaks(hist, table, self._weights[c].sum(), values, places[:, :3], places[:, 3:])
        values, places = values[:n], places[:n]
        places[:, 0] = table.features[places[:, 0]]
        order = _largest(values, places, n_best)
        return values[order], places[order]

    def _add_root(self, k: int, table: Table, classes: Sequence[int], hist: NDArray[np.int64]) -> None:
        """Add a table's columns to the histogram of all samples of class ``classes[k]``."""
        add_samples(table, self._weights[classes[k]], hist[k])

    def _grow(self, forest: Forest) -> Grown:
        run = partial(for_each, self._engine)
        n_trees, n_parts = len(forest.classes), _PARTS if self._engine.n_workers > 1 else 1
        parts = equal_parts(np.ones(n_trees, np.int64), n_parts)
        # The first pass moves the samples down from the roots, and sums up those of each class.
        different, places = np.unique(forest.classes, return_inverse=True)
        summed = len(self._root_sums) > 0 or not forest.hist.size
        whole = np.zeros((len(different), forest.hist.shape[2]), np.int64)
        for table in self._tables:
            run(forest.route, parts, table)
            if not summed:
                run(self._add_root, range(len(different)), table, different, whole)
        if forest.hist.size:
            for k, c in enumerate(forest.classes if summed else places):
                forest.hist[k, 0] = (self._root_sums if summed else whole)[c]
        for _ in range(1, self._depth):
            forest.next_level()
            run(forest.enter, parts)
            for table in self._tables:
                run(forest.offer, parts, table)
        return forest.grown()


def _largest(values: NDArray[np.float64], places: NDArray[np.int64], n_best: int) -> NDArray[np.int64]:
    """Return which are the `n_best` largest values, the largest first; of equal ones the first feature's."""
    return np.lexsort((places[:, 0], -values))[:n_best]
