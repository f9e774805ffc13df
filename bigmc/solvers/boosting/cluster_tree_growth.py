"""Growing trees on workers that share files with this process, and no memory: each grows some of the trees.

Two layouts were weighed, for T trees of n samples in d features:

=====================  =================================================  ==========================
layout                 moved in a round, to or from each machine          each machine reads
=====================  =================================================  ==========================
workers take columns   the dual weights, 8 bytes per sample and class;    its columns
                       at every level the node of every sample in every
                       tree, ``T n`` bytes
workers take trees     the dual weights; the answers of its trees,        all columns
(this module)          n/8 bytes each
=====================  =================================================  ==========================

A pass brings hundreds of trees, so that nodes would outweigh the columns of all but the widest data, and
would have to wait for each other at every level. Trees do not: one is grown by one worker from its root to
its leaves. So workers take trees, and for the roots classes; every sum is exact (see
`bigmc.kernels.boosting.trees`), and the bits are those of threads. Where the plan allows it a worker keeps
the codes of all columns, as this process would; where not, it takes all its trees at once and reads the
data once for every level. Memory is that of a training on threads, in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.cluster_pricing import Columns, RunCache
from bigmc.solvers.boosting.forest import Grown, Roots
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.tree_growth import TreeGrower, TreePlan
from bigmc.store.block import Residency

R = TypeVar("R")
Edges = dict[int, NDArray[np.float64]]

#: Parts per worker that keeps the codes, so that none waits long for the last.
_PARTS_EACH = 4


class WorkerGrower:
    """Grows trees on workers; the same bits as `bigmc.solvers.boosting.tree_growth.TreeGrower`.

    The engine runs parts, one at a time in each process. `bytes_read` counts the decoded bytes that
    workers have read from the shards.
    """

    def __init__(self, columns: Columns, plan: TreePlan, engine: Engine) -> None:
        self._columns, self._plan, self._workers = columns, plan, engine
        self._edges: Edges = {}
        self._n_classes = self._round = 0
        self._drawn: NDArray[np.bool_] | None = None
        self.bytes_read = 0

    @property
    def _weights(self) -> str:
        return f"weights-{self._round}"

    def begin(self, weights: NDArray[np.int64], columns: NDArray[np.bool_] | None = None) -> None:
        """Set the weights, shape (n_classes, n_samples), and the columns to cut: None for all."""
        if self._round:
            self._columns.remove(self._weights)
        self._round, self._n_classes, self._drawn = self._round + 1, len(weights), columns
        self._columns.write(self._weights, weights)

    def roots(self, n_best: int) -> Roots:
        """Return the `n_best` best roots of every class."""
        parts = self._parts(self._n_classes)
        return Roots.joined(self._map(_roots_part, parts, self._weights, self._drawn, n_best))

    def grow(self, roots: Roots) -> Grown:
        """Return the trees of roots."""
        parts = [roots.take(slice(*part)) for part in self._parts(len(roots.classes))]
        return Grown.joined(self._map(_grow_part, parts, self._weights, self._drawn))

    def answers(self, learners: Learners) -> list[NDArray[np.uint64]]:
        """Return the answers of trees from earlier passes."""
        parts = [learners.take(slice(*part)) for part in self._parts(len(learners.feature))]
        return [answer for own in self._map(_answer_part, parts) for answer in own]

    def edges_of(self, feature: int) -> NDArray[np.float64]:
        """Return the edges of a feature."""
        if feature not in self._edges:  # of a tree that had weight before this run was resumed
            self._map(_edges_part, [feature])
        return self._edges[feature]

    def _parts(self, n: int) -> list[tuple[int, int]]:
        """Split `n` trees or classes among the workers; at least one range."""
        each = _PARTS_EACH if self._columns.blocks is Residency.MEMORY else 1
        edges = np.linspace(0, n, min(max(n, 1), each * self._workers.n_workers) + 1).astype(int).tolist()
        return list(pairwise(edges))

    def _map(
        self, work: Callable[..., tuple[R, NDArray[Any]]], parts: Sequence[Any], *shared: Any
    ) -> list[R]:
        """Return the results of all parts; remember the edges they used, and count the bytes they read."""
        results = []
        for _, (result, edges, n_bytes) in self._workers.map(
            _do, [(work, part) for part in parts], self._columns, self._plan, *shared
        ):
            results.append(result)
            self._edges |= edges
            self.bytes_read += n_bytes
        return results


def _do(
    asked: tuple[Callable[..., tuple[R, NDArray[Any]]], Any], columns: Columns, plan: TreePlan, *shared: Any
) -> tuple[R, Edges, int]:
    """Return the result of a part, the edges of the features it used, and the bytes read."""
    work, part = asked
    grower = _grower(columns, plan)
    source, before = grower.source, grower.source.bytes_read
    result, features = work(part, columns, grower, *shared)
    used = np.unique(features[features >= 0]).tolist()
    return result, {feature: source.edges_of(feature).copy() for feature in used}, source.bytes_read - before


def _roots_part(
    part: tuple[int, int],
    columns: Columns,
    grower: TreeGrower,
    weights: str,
    drawn: NDArray[np.bool_] | None,
    n_best: int,
) -> tuple[Roots, NDArray[Any]]:
    grower.begin(columns.array(weights)[slice(*part)], drawn)
    roots = grower.roots(n_best)
    return roots._replace(classes=roots.classes + part[0]), roots.cuts[:, 0]


def _grow_part(
    roots: Roots, columns: Columns, grower: TreeGrower, weights: str, drawn: NDArray[np.bool_] | None
) -> tuple[Grown, NDArray[Any]]:
    grower.begin(columns.array(weights), drawn)
    grown = grower.grow(roots)
    return grown, grown.learners.feature


def _answer_part(
    learners: Learners, columns: Columns, grower: TreeGrower
) -> tuple[list[NDArray[np.uint64]], NDArray[Any]]:
    return grower.answers(learners), learners.feature


def _edges_part(feature: int, columns: Columns, grower: TreeGrower) -> tuple[None, NDArray[Any]]:
    for block in grower.source.stream():
        if grower.source.place_of(feature) < block.hi:
            break
    return None, np.array([feature])


def _grower(columns: Columns, plan: TreePlan) -> TreeGrower:
    """Return this worker's grower, with the edges and codes that it already has."""

    def make() -> TreeGrower:
        engine, counted = ThreadEngine(plan.n_threads), columns.array("counted")
        dataset, ranges = columns.dataset, columns.ranges
        source = BinnedSource(dataset, ranges, columns.blocks, columns.max_bins, counted, engine)
        return TreeGrower(source, dataset.n_samples, plan, engine)

    return _GROWERS.get(columns.folder, 0, make)


_GROWERS: RunCache[TreeGrower] = RunCache()
