"""Scores of a boosted model, from samples in row order and from stored shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.kernels.boosting.arguments import Encoding, ScoredTrees
from bigmc.kernels.boosting.bins import MAX_EDGES, encode_columns, encode_rows
from bigmc.kernels.boosting.scoring import add_learners
from bigmc.model.column_reader import column_runs
from bigmc.model.linear_scoring import Scorer, check_width
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.shard import Shard
from bigmc.store.weighting import Weighting

#: Bytes of the codes of rows that are scored together.
_TILE = 4 << 20


class Trees(NamedTuple):
    """Complete binary trees of one depth; a node's children are ``2 k + 1`` (below) and ``2 k + 2``.

    Attributes
    ----------
    features : int64 array of shape (n_used,)
        Features that nodes split on, increasing.
    edge_starts : int64 array of shape (n_used + 1,)
        Feature ``features[j]`` has the edges ``edges[edge_starts[j]:edge_starts[j + 1]]``, increasing.
    edges : float64 array
    node_feature : int32 array of shape (n_learners, n_nodes)
        Place in `features`; -1 sends every sample below.
    node_cut : int16 array of shape (n_learners, n_nodes)
        Samples with more than this number of edges below their value go above.
    missing_below : bool array of shape (n_learners, n_nodes)
        Missing values go below instead of above.
    leaf : int8 array of shape (n_learners, n_nodes + 1)
        Response: -1, 0 or 1.
    learner_class : int64 array of shape (n_learners,)
        Code of the class whose score each one adds to.
    """

    features: NDArray[np.int64]
    edge_starts: NDArray[np.int64]
    edges: NDArray[np.float64]
    node_feature: NDArray[np.int32]
    node_cut: NDArray[np.int16]
    missing_below: NDArray[np.bool_]
    leaf: NDArray[np.int8]
    learner_class: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        feature: NDArray[np.int32],
        threshold: NDArray[np.float64],
        missing_below: NDArray[np.bool_],
        leaf: NDArray[np.int8],
        classes: NDArray[np.int64],
    ) -> Trees:
        """Return trees of nodes with features and thresholds; infinity separates only missing values."""
        asks = feature >= 0
        features = np.unique(feature[asks]).astype(np.int64)
        place = np.where(asks, np.searchsorted(features, feature), -1)
        cut = np.zeros(feature.shape, np.int16)
        edges = [np.unique(threshold[(place == j) & np.isfinite(threshold)]) for j in range(len(features))]
        for j, own in enumerate(edges):
            same = place == j
            cut[same] = np.searchsorted(own, threshold[same])
        starts = np.concatenate([[0], np.cumsum([len(own) for own in edges])]).astype(np.int64)
        return cls(
            features,
            starts,
            np.concatenate([np.empty(0), *edges]),
            place.astype(np.int32),
            cut,
            missing_below,
            leaf,
            classes,
        )

    def check(self, n_classes: int, n_features: int) -> None:
        """Raise `ModelError` if arrays do not fit together; kernels would read past their ends."""
        arrays: tuple[NDArray[Any], ...] = self
        for name, array, kind in zip(self._fields, arrays, _KINDS, strict=True):
            if array.dtype.kind != kind:
                raise ModelError(f"{name} of the learners is of type {array.dtype}")
        if np.isnan(self.edges).any():
            raise ModelError("an edge of the learners is not a number")
        n_learners, n_nodes = self.node_feature.shape
        n_edges = np.diff(self.edge_starts)
        same = self.node_cut.shape == self.missing_below.shape == (n_learners, n_nodes)
        if (
            not same
            or self.leaf.shape != (n_learners, n_nodes + 1)
            or self.learner_class.shape != (n_learners,)
        ):
            raise ModelError("the arrays of the learners have different lengths")
        if n_nodes & (n_nodes + 1) or not 1 <= n_nodes <= 255:
            raise ModelError(f"a tree of {n_nodes} nodes is not complete")
        if len(self.edge_starts) != len(self.features) + 1 or self.edge_starts[0] != 0:
            raise ModelError("the edges do not fit the features")
        if np.any(n_edges < 0) or np.any(n_edges > MAX_EDGES) or self.edge_starts[-1] != len(self.edges):
            raise ModelError("the edges do not fit the features")
        if np.any(np.diff(self.features) <= 0) or np.any((self.features < 0) | (self.features >= n_features)):
            raise ModelError(f"learners use features outside 0 to {n_features - 1}")
        if n_learners:
            if not -1 <= self.node_feature.min() <= self.node_feature.max() < len(self.features):
                raise ModelError("learners use features that the model does not have")
            if not 0 <= self.learner_class.min() <= self.learner_class.max() < n_classes:
                raise ModelError("learners belong to classes that the model does not have")
            most = np.append(n_edges, MAX_EDGES)[self.node_feature]
            if np.any((self.node_cut < 0) | (self.node_cut > most)) or np.abs(self.leaf).max() > 1:
                raise ModelError("learners split at edges that the model does not have")

    def directions(self) -> NDArray[np.float64]:
        """Return for every node whether the response above is larger on average (1), smaller (-1), or not."""
        n_nodes = self.node_feature.shape[1]
        value = np.concatenate([np.zeros(self.node_feature.shape), self.leaf], axis=1)
        for k in range(n_nodes - 1, -1, -1):
            value[:, k] = (value[:, 2 * k + 1] + value[:, 2 * k + 2]) / 2
        nodes = np.arange(n_nodes)
        return np.asarray(np.sign(value[:, 2 * nodes + 2] - value[:, 2 * nodes + 1]))


_KINDS = ("i", "i", "f", "i", "i", "b", "i", "i")
"""Kinds of the NumPy dtypes of the arrays of `Trees`."""


class _Group(NamedTuple):
    """Learners that are scored together, and the features they split on, increasing."""

    features: NDArray[np.int64]
    encoding: Encoding
    trees: ScoredTrees


class BoostedScorer(Scorer):
    """Evaluates the trees with weight."""

    def __init__(
        self,
        trees: Trees,
        weights: NDArray[np.float64],
        n_classes: int,
        n_features: int,
        weighting: Weighting,
    ) -> None:
        used = np.flatnonzero(weights)
        first = trees.node_feature[used].max(axis=1, initial=-1)
        self._order = used[np.argsort(first, kind="stable")]
        self._trees, self._weights = trees, weights
        self.n_classes, self._n_features, self._weighting = n_classes, n_features, weighting
        self._all = self._group(self._order)

    def rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes)."""
        check_width(rows.n_features, self._n_features)
        group = self._all
        step = max(64, _TILE // max(len(group.features), 1))
        scores = np.zeros((rows.n_rows, self.n_classes))
        for lo in range(0, rows.n_rows, step):
            indptr = rows.indptr[lo : lo + step + 1]
            codes = np.empty((max(1, len(group.features)), len(indptr) - 1), np.uint8)
            encode_rows(indptr, rows.indices, rows.data, group.features, group.encoding, codes)
            tile = np.zeros((self.n_classes, codes.shape[1]))
            self._add(group, codes, 0, tile)
            scores[lo : lo + step] = tile.T
        return scores

    def class_scores(self, shard: Shard, lo: int, hi: int, scratch_bytes: int) -> NDArray[np.float64]:
        """Return the scores of the classes ``lo`` to ``hi``; reads only the columns that the learners use."""
        check_width(shard.n_features, self._n_features)
        scores = np.zeros((hi - lo, shard.n_rows))
        for group in self._groups(max(1, scratch_bytes // 2 // max(shard.n_rows, 1))):
            codes = np.empty((max(1, len(group.features)), shard.n_rows), np.uint8)
            for run in column_runs(shard, group.features, scratch_bytes // 2, 64, self._weighting):
                encode_columns(run.first, run.starts, run.stops, run.rows, run.data, group.encoding, codes)
            self._add(group, codes, lo, scores)
        return scores.T

    def _add(self, group: _Group, codes: NDArray[np.uint8], lo: int, scores: NDArray[np.float64]) -> None:
        trees = group.trees
        add_learners(codes, trees._replace(classes=trees.classes - lo), scores)

    def _groups(self, most: int) -> Iterator[_Group]:
        """Split the learners into groups that use at most `most` features, or one learner if it uses more."""
        if len(self._all.features) <= most:
            yield self._all
            return
        asked: set[int] = set()
        first = 0
        for k, learner in enumerate(self._order.tolist()):
            own = set(self._trees.node_feature[learner].tolist()) - {-1}
            if asked and len(asked | own) > most:
                yield self._group(self._order[first:k])
                asked, first = set(), k
            asked |= own
        yield self._group(self._order[first:])

    def _group(self, learners: NDArray[np.int64]) -> _Group:
        """Return some learners with places among their own features."""
        trees = self._trees
        asked = trees.node_feature[learners]
        asks = asked >= 0
        places = np.unique(asked[asks])
        feature = np.where(asks, np.searchsorted(places, asked), 0).astype(np.int32)
        n_edges = np.diff(trees.edge_starts)
        last = np.append(n_edges, 0)[asked] + ~trees.missing_below[learners]
        # Codes above a node's cut; none if it does not split.
        low = np.where(asks, trees.node_cut[learners] + 1, 1).astype(np.uint8)
        high = np.where(asks, last, 0).astype(np.uint8)
        own = n_edges[places]
        steps = np.ceil(np.log2(own + 1)).astype(np.int64)
        firsts = np.concatenate([[0], np.cumsum(1 << steps)]).astype(np.int64)
        table = np.full(int(firsts[-1]), np.inf)
        for first, place in zip(firsts.tolist(), places.tolist(), strict=False):
            edges = trees.edges[trees.edge_starts[place] : trees.edge_starts[place + 1]]
            table[first : first + len(edges)] = edges
        scored = ScoredTrees(
            feature=feature,
            low=low,
            high=high,
            leaf=trees.leaf[learners],
            classes=trees.learner_class[learners],
            weights=self._weights[learners],
        )
        encoding = Encoding(firsts[:-1], steps, own + 1, table, self._weighting.binary)
        return _Group(trees.features[places], encoding, scored)
