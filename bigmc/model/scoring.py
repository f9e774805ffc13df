"""Scores from samples in row order and from stored shards: what every scorer does, and the linear one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.scoring import add_columns, add_squares, score_rows
from bigmc.store.chunks import CHUNK
from bigmc.store.rows import Rows
from bigmc.store.shard import Shard
from bigmc.store.weighting import Weighting

#: Up to this many features a table gives each feature's place (4 bytes each); above it, a search does.
_TABLE_FEATURES = 1 << 24
#: Columns further apart than this many entries are read one by one: there may be a chunk to skip.
_GAP_ENTRIES = CHUNK
#: Entries decoded at once; a column has at most 65,536.
_FEWEST_ENTRIES, _MOST_ENTRIES = 1 << 16, 1 << 22
#: Features whose offsets are looked at together.
_WINDOW_FEATURES = 1 << 17
#: Bytes that scoring a shard takes beside its scores, as far as the caller does not say.
ROOM = 64 << 20

_NO_SCALE = np.empty(0, np.float32)
_NO_TABLE = np.empty(0, np.int32)


class Scorer(Protocol):
    """Computes the scores of one model; threads share it."""

    @property
    def table_bytes(self) -> int:
        """Bytes it takes beside the arrays of the model."""
        ...

    def rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes); the weighting is applied here.

        Raises
        ------
        DataError
            If the samples have another number of features.
        """
        ...

    def shard(self, shard: Shard, room: int = ROOM) -> NDArray[np.float64]:
        """Return the scores of a stored shard, shape (n_rows, n_classes), in `room` bytes beside them."""
        ...

    def shard_codes(self, shard: Shard, room: int = ROOM) -> NDArray[np.int32]:
        """Return the first class with the largest score of every row, in `room` bytes for any `n_classes`."""
        ...


class _Run(NamedTuple):
    """Decoded columns of a shard: `features[first:last]` of those asked for."""

    first: int
    last: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    rows: NDArray[np.uint16]
    data: NDArray[Any]


class LinearScorer:
    """The products of samples with the weights of a linear model.

    Parameters
    ----------
    features : int64 array of shape (n_nonzero,)
        Features with weight, increasing.
    coef : float32 or float64 array of shape (n_nonzero, n_classes)
    intercept : float64 array of shape (n_classes,)
    n_features : int
    weighting : Weighting
        How raw values become the values the weights are for.
    column_scale : float32 array of shape (n_features,) or None
        Factor of each feature (idf of the training samples).
    """

    def __init__(
        self,
        features: NDArray[np.int64],
        coef: NDArray[Any],
        intercept: NDArray[np.float64],
        n_features: int,
        weighting: Weighting,
        column_scale: NDArray[np.float32] | None,
    ) -> None:
        self.features = features
        self.coef = np.ascontiguousarray(coef)
        self.intercept = intercept
        self.n_features = n_features
        self.weighting = weighting
        self.column_scale = column_scale

    @property
    def table_bytes(self) -> int:
        """Bytes of the lookup table."""
        return 4 * self.n_features if self.n_features <= _TABLE_FEATURES else 0

    @cached_property
    def _table(self) -> NDArray[np.int32]:
        if self.n_features > _TABLE_FEATURES:
            return _NO_TABLE
        table = np.full(self.n_features, -1, np.int32)
        table[self.features] = np.arange(len(self.features), dtype=np.int32)
        return table

    def rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes)."""
        if rows.n_features != self.n_features:
            raise DataError(f"the samples have {rows.n_features} features, the model {self.n_features}")
        scores = np.empty((rows.n_rows, len(self.intercept)))
        score_rows(
            rows.indptr,
            rows.indices,
            rows.data,
            self._table,
            self.features,
            self.coef,
            _NO_SCALE if self.column_scale is None else self.column_scale,
            self.weighting.binary,
            self.weighting.l2,
            scores,
        )
        scores += self.intercept
        return scores

    def shard(self, shard: Shard, room: int = ROOM) -> NDArray[np.float64]:
        """Return the scores of a stored shard, shape (n_rows, n_classes).

        Reads the columns with weight only, and all of them once more where norms of idf-weighted
        samples are needed; takes `room` bytes beside the scores.
        """
        return self._class_scores(shard, 0, len(self.intercept), self._row_scale(shard, room), room)

    def shard_codes(self, shard: Shard, room: int = ROOM) -> NDArray[np.int32]:
        """Return the code of the class with the largest score of every row, the lowest code on a tie.

        Keeps the scores of so many classes at a time as fit in half of `room` bytes (64 for a full shard and
        64 MiB); more classes take more passes. Without an intercept a row's norm cannot change its best
        class and is not computed.
        """
        n_classes = len(self.intercept)
        row_scale = self._row_scale(shard, room) if self.intercept.any() else None
        width = max(1, room // 2 // (8 * max(shard.n_rows, 1)))
        codes = np.zeros(shard.n_rows, np.int32)
        best = np.full(shard.n_rows, -np.inf)
        for lo in range(0, n_classes, width):
            scores = self._class_scores(shard, lo, min(lo + width, n_classes), row_scale, room)
            tile_codes = np.argmax(scores, axis=1)
            tile_best = scores[np.arange(shard.n_rows), tile_codes]
            better = tile_best > best
            codes[better] = tile_codes[better] + lo
            best[better] = tile_best[better]
        return codes

    def _class_scores(
        self, shard: Shard, lo: int, hi: int, row_scale: NDArray[np.float64] | None, room: int
    ) -> NDArray[np.float64]:
        """Return the scores of the classes ``lo`` to ``hi``."""
        scores = np.zeros((shard.n_rows, hi - lo))
        for run in self._runs(shard, self.features, room, weight_bytes=8 * (hi - lo)):
            weights = self.coef[run.first : run.last, lo:hi].astype(np.float64)
            if self.column_scale is not None:
                weights *= self.column_scale[self.features[run.first : run.last], np.newaxis]
            add_columns(run.starts, run.stops, run.rows, run.data, weights, self.weighting.binary, scores)
        if row_scale is not None:
            scores *= row_scale[:, np.newaxis]
        scores += self.intercept[lo:hi]
        return scores

    def _row_scale(self, shard: Shard, room: int) -> NDArray[np.float64] | None:
        """Return one over the norm of each weighted row, None where norms are not asked for."""
        if not self.weighting.l2:
            return None
        if self.column_scale is not None:
            squares = np.zeros(shard.n_rows)
            for run in self._runs(shard, np.arange(self.n_features), room, weight_bytes=8):
                scale = self.column_scale[run.first : run.last].astype(np.float64)
                add_squares(run.starts, run.stops, run.rows, run.data, scale, self.weighting.binary, squares)
            norm = np.sqrt(squares)
        elif self.weighting.binary:
            norm = np.sqrt(shard.table(["entries"]).column("entries").to_numpy())
        else:
            norm = shard.table(["norm"]).column("norm").to_numpy().astype(np.float64)
        return np.divide(1.0, norm, out=np.zeros(shard.n_rows), where=norm > 0)

    def _runs(
        self, shard: Shard, features: NDArray[np.int64], room: int, weight_bytes: int
    ) -> Iterator[_Run]:
        """Decode the columns of `features` (increasing), neighbouring ones in one read.

        A run is valid until the next one is asked for. Entries, and `weight_bytes` for every column, take
        a quarter of `room` each.
        """
        if shard.n_features != self.n_features:
            raise DataError(f"the shard has {shard.n_features} features, the model {self.n_features}")
        entry_bytes = 2 + shard.dtype.itemsize
        most = min(max(room // 4 // entry_bytes, _FEWEST_ENTRIES), _MOST_ENTRIES)
        most_columns = max(1, room // 4 // weight_bytes)
        wanted = min(most, shard.nnz)
        rows = np.empty(wanted, np.uint16)
        data = np.empty(wanted, shard.dtype)
        first = 0
        while first < len(features):
            lo = int(features[first])
            last = int(np.searchsorted(features, lo + _WINDOW_FEATURES))
            offsets = shard.indptr(lo, int(features[last - 1]) + 1)
            columns = features[first:last] - lo
            starts, stops = offsets[columns], offsets[columns + 1]
            breaks = np.flatnonzero(starts[1:] - stops[:-1] > _GAP_ENTRIES) + 1
            at = 0
            while at < len(columns):
                end = int(np.searchsorted(stops, starts[at] + most, side="right"))
                end = min(end, at + most_columns)
                gap = int(np.searchsorted(breaks, at, side="right"))
                if gap < len(breaks):
                    end = min(end, int(breaks[gap]))
                begin = int(starts[at])
                size = int(stops[end - 1]) - begin
                # Ones stand in for the values of a binary model; they need not be read.
                values = None if self.weighting.binary else data
                shard.read(begin, begin + size, rows, values)
                yield _Run(first + at, first + end, starts[at:end] - begin, stops[at:end] - begin, rows, data)
                at = end
            first = last
