"""Pricing with trees: one pass per level grows many trees of every class side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.boosting_cuts import MISSING_ABOVE, MISSING_BELOW
from bigmc.kernels.boosting_responses import spread_codes
from bigmc.kernels.boosting_trees import descend, node_sums, route, split_nodes
from bigmc.solvers.boosting.binning import BinnedSource, CodedBlock
from bigmc.solvers.boosting.learners import NOWHERE, Learners
from bigmc.solvers.boosting.responses import BitResponses
from bigmc.solvers.boosting.search import Best, Found, code_range, scan_cuts, sums_of

#: Bytes of the nodes of samples that are worked on together to find the answers of trees again.
_ANSWER_NODES = 32 << 20
#: What a cut must gain, as part of the sum of ``|u|``.
_LEAST_GAIN = 1e-12


@dataclass
class Level:
    """The best cut of every node of one level of all trees.

    Attributes
    ----------
    values, below, above : float64 arrays of shape (n_trees, n_nodes)
        What cuts are chosen by, and the sum of u on both sides.
    cuts : int64 array of shape (n_trees, n_nodes, 3)
        Feature, cut, and 1 if missing values go below.
    """

    values: NDArray[np.float64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]
    cuts: NDArray[np.int64]

    @classmethod
    def uncut(cls, sums: NDArray[np.float64], last: bool) -> Level:
        """Return the level without cuts, given the sums of u and |u| of its nodes."""
        total, mass = sums[..., 0], sums[..., 1]
        purity = np.divide(total * total, mass, out=np.zeros_like(mass), where=mass > 0)
        cuts = np.zeros((*total.shape, 3), np.int64)
        cuts[..., 0] = NOWHERE
        # A cut must gain more than the rounding of the sums.
        values = (np.abs(total) if last else purity) + _LEAST_GAIN * mass
        return cls(values, total.copy(), total.copy(), cuts)

    def copy(self) -> Level:
        """Return a copy."""
        return Level(self.values.copy(), self.below.copy(), self.above.copy(), self.cuts.copy())

    def merge(self, later: Level) -> None:
        """Take over the better cuts of later columns."""
        better = later.values > self.values
        for mine, theirs in zip(vars(self).values(), vars(later).values(), strict=True):
            mine[better] = theirs[better]


class TreeSearch:
    """Greedy trees from the best roots of each class; no bound follows from them.

    Parameters
    ----------
    source : BinnedSource
    responses : BitResponses
    n_classes : int
    depth : int
        Levels, at least 2.
    engine : Engine
    """

    exact = False

    def __init__(
        self,
        source: BinnedSource,
        responses: BitResponses,
        n_classes: int,
        depth: int,
        engine: Engine,
    ) -> None:
        self.n_passes = depth
        self._source, self._responses, self._engine = source, responses, engine
        self._n_classes, self._depth = n_classes, depth

    def run(self, u: NDArray[Any], r: float, n_best: int) -> Found:
        """Return good trees under the dual weights ``r u``."""
        classes, cuts, nodes = self._roots(u, n_best)
        columns = np.ascontiguousarray(u[:, : self._n_classes].T)
        levels = [cuts[:, np.newaxis]]
        last = None
        for depth in range(1, self._depth):
            last = self._grow(classes, nodes, depth, columns)
            levels.append(last.cuts)
        assert last is not None
        cuts = np.concatenate(levels, axis=1)
        leaf = np.where(np.stack([last.below, last.above], axis=2) < 0, -1, 1).reshape(len(classes), -1)
        signs = leaf[:, 0].astype(np.int8)
        trees = Learners(
            cuts[..., 0].astype(np.int32), cuts[..., 1].astype(np.int16), cuts[..., 2].astype(bool),
            (leaf * signs[:, np.newaxis]).astype(np.int8),
        )  # fmt: skip
        return self._found(trees, signs, classes, nodes, r * last.values.sum(axis=1))

    def _found(
        self,
        trees: Learners,
        signs: NDArray[np.int8],
        classes: NDArray[np.int64],
        nodes: NDArray[np.uint8],
        scores: NDArray[np.float64],
    ) -> Found:
        """Put together different trees, with the constant learner for every class."""
        n_classes = self._n_classes
        keys = trees.keys()
        first: dict[bytes, int] = {}
        for k, key in enumerate(keys):
            first.setdefault(key, k)
        different = list(first.values())
        place = {key: 1 + p for p, key in enumerate(first)}
        answers = [self._responses.everywhere()]
        answers += [self._responses.of_leaves(nodes[k], trees.leaf[k]) for k in different]
        order = np.lexsort((-scores, classes))
        constants = np.arange(n_classes).repeat(2)
        return Found(
            Learners.joined([Learners.constant(self._depth), trees.take(different)]),
            answers,
            np.concatenate([classes[order], constants]),
            np.concatenate([[place[keys[k]] for k in order], np.zeros_like(constants)]).astype(np.int64),
            np.concatenate([signs[order], np.tile([1, -1], n_classes)]).astype(np.int8),
            float(scores.max(initial=0.0)),
        )

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of trees found before: a pass for every level of every so many trees."""
        n_samples = len(self._responses.labels)
        step = max(1, _ANSWER_NODES // n_samples)
        found = []
        spread = np.empty(n_samples, np.uint8)
        for first in range(0, len(learners.feature), step):
            trees = learners.take(slice(first, first + step))
            nodes = np.zeros((len(trees.feature), n_samples), np.uint8)
            for depth in range(self._depth):
                level = slice(2**depth - 1, 2 ** (depth + 1) - 1)
                cuts = np.stack([trees.feature, trees.cut, trees.missing_below], axis=2)[:, level]
                above = np.zeros_like(nodes)
                for block in self._source.stream():
                    _route(block, cuts, nodes, above, spread)
                for tree in range(len(nodes)):
                    descend(above[tree], nodes[tree])
            found += [self._responses.of_leaves(at, leaf) for at, leaf in zip(nodes, trees.leaf, strict=True)]
        return found

    def _roots(
        self, u: NDArray[Any], n_best: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Return class, cut and the samples' nodes of the best roots."""
        labels = self._responses.labels
        totals = sums_of(u, labels, self._engine)
        shape = (self._n_classes, n_best)
        best = Best.none(*shape)
        known: dict[tuple[int, int, int], NDArray[np.uint8]] = {}
        codes = np.empty(len(labels), np.uint8)
        for block in self._source.stream():
            best.merge(scan_cuts(block, u, labels, totals, shape, self._engine, gini=True))
            wanted = sorted({tuple(place) for place in best.places[best.values > 0].tolist()})
            nodes = {place: known[place] for place in wanted if place in known}
            for place in wanted:
                if place not in nodes:
                    feature, cut, kind = place
                    nodes[place] = np.zeros(len(labels), np.uint8)
                    column = _spread(block, feature - block.lo, codes)
                    route(
                        codes, *code_range(cut, kind, int(block.bins.n_edges[column])), 0,
                        np.zeros(len(labels), np.uint8), nodes[place],
                    )  # fmt: skip
            known = nodes
        classes, ranks = np.nonzero(best.values > 0)
        places = best.places[classes, ranks]
        chosen = np.empty((len(classes), len(labels)), np.uint8)
        for k, place in enumerate(places.tolist()):
            chosen[k] = known[tuple(place)]
        cuts = places.copy()
        cuts[:, 2] = places[:, 2] == MISSING_BELOW
        return classes, cuts, chosen

    def _grow(
        self, classes: NDArray[np.int64], nodes: NDArray[np.uint8], depth: int, u: NDArray[Any]
    ) -> Level:
        """Cut every node of a level, and move the samples to the next one."""
        last, n_nodes = depth == self._depth - 1, 2**depth
        sums = np.zeros((len(classes), n_nodes, 2))
        node_sums(classes, nodes, u, sums)
        best = Level.uncut(sums, last)
        above = np.zeros_like(nodes)
        spread = np.empty(nodes.shape[1], np.uint8)
        for block in self._source.stream():
            start = best.copy()

            def work(part: tuple[int, int], block: CodedBlock = block, start: Level = start) -> Level:
                found = start.copy()
                codes = np.empty(nodes.shape[1], np.uint8)
                hist = np.empty((n_nodes, 256, 2))
                for j in range(*part):
                    if block.bins.n_edges[j] == 0 and not block.bins.missing[j]:
                        continue
                    _spread(block, j, codes)
                    split_nodes(
                        block.lo + j, codes, block.bins.n_edges[j], block.bins.missing[j], classes, nodes,
                        n_nodes, u, last, hist, found.values, found.cuts, found.below, found.above,
                    )  # fmt: skip
                return found

            for _, found in self._engine.map(work, block.parts()):
                best.merge(found)
            _route(block, best.cuts, nodes, above, spread)
        for tree in range(len(classes)):
            descend(above[tree], nodes[tree])
        return best


def _route(
    block: CodedBlock,
    cuts: NDArray[np.int64],
    nodes: NDArray[np.uint8],
    above: NDArray[np.uint8],
    spread: NDArray[np.uint8],
) -> None:
    """Mark the samples that go above at the nodes that ask a column of a block; `spread` is room to work."""
    here = np.argwhere((cuts[..., 0] >= block.lo) & (cuts[..., 0] < block.hi))
    features = cuts[here[:, 0], here[:, 1], 0]
    column = -1
    for k in np.argsort(features, kind="stable"):
        tree, node = here[k]
        feature, cut, missing_below = cuts[tree, node].tolist()
        if feature - block.lo != column:
            column = _spread(block, feature - block.lo, spread)
        kind = MISSING_BELOW if missing_below else MISSING_ABOVE
        codes = code_range(cut, kind, int(block.bins.n_edges[column]))
        route(spread, *codes, node, nodes[tree], above[tree])


def _spread(block: CodedBlock, column: int, codes: NDArray[np.uint8]) -> int:
    """Write the code of every sample in a column of a block; return the column."""
    zero = block.bins.zero[column]
    spread_codes(column, block.indptr, block.rows, block.codes, block.base, zero, codes)
    return column
