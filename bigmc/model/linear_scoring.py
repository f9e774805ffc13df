"""Score samples in row order and stored shards: the common interface, and linear models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.linear.arguments import EntryWeighting, RawRows, WeightedFeatures
from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.kernels.linear.scoring.hashed_scoring import RoundedWeights
from bigmc.kernels.linear.scoring.model_scores import add_columns, score_rows
from bigmc.kernels.prefetch import CACHE_LINE
from bigmc.model.column_reader import column_runs, row_scale
from bigmc.model.rounding import multiples_of
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.shard import Shard
from bigmc.store.weighting import Weighting

#: Up to this many features, rows of weights are found by a table (4 bytes each), above it by a search.
TABLE_FEATURES = 1 << 24
#: Default of the bytes that scoring a shard may use, excluding the scores.
SCRATCH = 64 << 20

#: A row of rounded weights has a multiple of this many bytes; the last ones are a float32.
_ROW_BYTES = 16
_SCALE_BYTES = 4

_NO_SCALE = np.empty(0, np.float32)
_NO_TABLE = np.empty(0, np.int32)


class Scorer(ABC):
    """Computes the scores of one model; threads share it."""

    n_classes: int

    @abstractmethod
    def rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes); they are weighted first.

        `DataError` if the samples have another number of features.
        """

    def shard(self, shard: Shard, scratch_bytes: int = SCRATCH) -> NDArray[np.float64]:
        """Return the scores of a stored shard, shape (n_rows, n_classes).

        At most `scratch_bytes` are used, excluding the result.
        """
        return np.ascontiguousarray(self.class_scores(shard, 0, self.n_classes, scratch_bytes))

    def shard_codes(self, shard: Shard, scratch_bytes: int = SCRATCH) -> NDArray[np.int32]:
        """Return the first class with the largest score of every row, using at most `scratch_bytes`."""
        return best_codes(
            shard.n_rows,
            self.n_classes,
            scratch_bytes // 4,
            lambda lo, hi: self.class_scores(shard, lo, hi, scratch_bytes // 2),
        )

    @abstractmethod
    def class_scores(self, shard: Shard, lo: int, hi: int, scratch_bytes: int) -> NDArray[np.float64]:
        """Return the scores of the classes ``lo`` to ``hi``, shape (n_rows, hi - lo).

        At most `scratch_bytes` are used, excluding the result.
        """


def check_width(n_features: int, expected: int) -> None:
    """Raise `DataError` if samples have another number of features than their model."""
    if n_features != expected:
        cure = "give data with the features of the training data"
        raise DataError(f"the samples have {n_features} features, the model {expected}", cure)


def lookup_bytes(n_features: int) -> int:
    """Return the bytes of the table from features to rows of weights."""
    return 4 * n_features if n_features <= TABLE_FEATURES else 0


def best_codes(
    n_rows: int, n_classes: int, scratch_bytes: int, class_scores: Callable[[int, int], NDArray[np.float64]]
) -> NDArray[np.int32]:
    """Return the code of the class with the largest score of every row, the lowest code on a tie.

    `class_scores` returns the scores of the classes ``lo`` to ``hi``, shape (n_rows, hi - lo). If those
    of all classes do not fit into `scratch_bytes`, the classes are scored in several passes.
    """
    width = max(1, scratch_bytes // (8 * max(n_rows, 1)))
    codes = np.zeros(n_rows, np.int32)
    best = np.full(n_rows, -np.inf)
    for lo in range(0, n_classes, width):
        scores = class_scores(lo, min(lo + width, n_classes))
        tile_codes = np.argmax(scores, axis=1)
        tile_best = scores[np.arange(n_rows), tile_codes]
        better = tile_best > best
        codes[better] = tile_codes[better] + lo
        best[better] = tile_best[better]
    return codes


class LinearScorer(Scorer):
    """The products of samples with the weights of a linear model; parameters as for `LinearModel`."""

    def __init__(
        self,
        features: NDArray[np.int64],
        coef: NDArray[Any],
        intercept: NDArray[np.float64],
        n_features: int,
        weighting: Weighting,
        column_scale: NDArray[np.float32] | None,
        step: NDArray[np.float32] | None = None,
    ) -> None:
        self.features = features
        self.coef = np.ascontiguousarray(coef)
        self.intercept = intercept
        self.n_classes = len(intercept)
        self.n_features = n_features
        self.weighting = weighting
        self.column_scale = column_scale
        self.step = step

    @cached_property
    def _table(self) -> NDArray[np.int32]:
        if self.n_features > TABLE_FEATURES:
            return _NO_TABLE
        table = np.full(self.n_features, -1, np.int32)
        table[self.features] = np.arange(len(self.features), dtype=np.int32)
        return table

    @cached_property
    def rounded(self) -> RoundedWeights | None:
        """The weights in a byte each, to score hashes; None if not rounded, or too many features."""
        scale = np.ones(self.n_features, np.float32) if self.column_scale is None else self.column_scale
        fits = self.n_features <= TABLE_FEATURES and scale.dtype == np.float32 and scale.min() >= 0
        if self.step is None or not fits:
            return None
        n_classes = len(self.step)
        step = np.ones(padded_classes(n_classes), np.float32)
        step[:n_classes] = self.step
        row_bytes = -(-(n_classes + _SCALE_BYTES) // _ROW_BYTES) * _ROW_BYTES
        multiples = _aligned_zeros(len(self.coef), row_bytes)
        multiples[:, :n_classes] = multiples_of(self.coef, self.step)
        scales = multiples.view(np.float32)
        scales[:, -1] = scale[self.features]
        entries = (-scale).view(np.int32)
        entries[self.features] = np.arange(len(self.features), dtype=np.int32)
        return RoundedWeights(entries, multiples, scales, step, self.intercept)

    @property
    def entry_weighting(self) -> EntryWeighting:
        """How raw values are weighted, as kernels take it."""
        scale = _NO_SCALE if self.column_scale is None else self.column_scale
        return EntryWeighting(scale, self.weighting.binary, self.weighting.l2)

    def rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes)."""
        check_width(rows.n_features, self.n_features)
        scores = np.empty((rows.n_rows, self.n_classes))
        score_rows(
            RawRows(rows.indptr, rows.indices, rows.data),
            WeightedFeatures(self._table, self.features, self.coef),
            self.entry_weighting,
            scores,
        )
        scores += self.intercept
        return scores

    def class_scores(self, shard: Shard, lo: int, hi: int, scratch_bytes: int) -> NDArray[np.float64]:
        """Return the scores of the classes ``lo`` to ``hi``, using `scratch_bytes`, excluding the result."""
        check_width(shard.n_features, self.n_features)
        return self._class_scores(shard, lo, hi, self._row_scale(shard, scratch_bytes), scratch_bytes)

    def tiles(self, shard: Shard, scratch_bytes: int = SCRATCH) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the scores of some classes, shape (n_rows, n_tile_classes), each after the code of the first.

        A quarter of `scratch_bytes` is for the scores; the columns with weight are read for each
        tile.
        """
        check_width(shard.n_features, self.n_features)
        scale = self._row_scale(shard, scratch_bytes)
        width = max(1, scratch_bytes // 4 // (8 * max(shard.n_rows, 1)))
        for lo in range(0, self.n_classes, width):
            hi = min(lo + width, self.n_classes)
            yield lo, self._class_scores(shard, lo, hi, scale, scratch_bytes // 2)

    def shard_codes(self, shard: Shard, scratch_bytes: int = SCRATCH) -> NDArray[np.int32]:
        """Return the code of the class with the largest score of every row, the lowest code on a tie.

        Half of `scratch_bytes` is for scores (of 64 classes for a full shard and 64 MiB). Without an
        intercept a row's norm cannot change its best class and is not computed.
        """
        check_width(shard.n_features, self.n_features)
        scale = self._row_scale(shard, scratch_bytes) if self.intercept.any() else None
        return best_codes(
            shard.n_rows,
            self.n_classes,
            scratch_bytes // 2,
            lambda lo, hi: self._class_scores(shard, lo, hi, scale, scratch_bytes),
        )

    def _class_scores(
        self, shard: Shard, lo: int, hi: int, scale: NDArray[np.float64] | None, scratch_bytes: int
    ) -> NDArray[np.float64]:
        """Return the scores of the classes ``lo`` to ``hi``."""
        scores = np.zeros((shard.n_rows, hi - lo))
        for run in column_runs(shard, self.features, scratch_bytes, 8 * (hi - lo), self.weighting):
            weights = self.coef[run.first : run.last, lo:hi].astype(np.float64)
            if self.column_scale is not None:
                weights *= self.column_scale[self.features[run.first : run.last], np.newaxis]
            add_columns(run.starts, run.stops, run.rows, run.data, weights, self.weighting.binary, scores)
        if scale is not None:
            scores *= scale[:, np.newaxis]
        scores += self.intercept[lo:hi]
        return scores

    def _row_scale(self, shard: Shard, scratch_bytes: int) -> NDArray[np.float64] | None:
        return row_scale(shard, self.weighting, self.column_scale, scratch_bytes)


def _aligned_zeros(n_rows: int, width: int) -> NDArray[np.int8]:
    """Return int8 zeros of this shape that begin at a cache line, so that few rows cross into one more."""
    memory = np.zeros(n_rows * width + CACHE_LINE, np.int8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + n_rows * width].reshape(n_rows, width)
