"""Columns and row norms of a stored shard, read in bounded memory to score it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.scoring.model_scores import add_squares
from bigmc.store.shards.shard import Shard
from bigmc.store.shards.zarr_chunks import CHUNK
from bigmc.store.weighting import Weighting

#: Columns further apart than this many entries are read one by one: there may be a chunk to skip.
GAP_ENTRIES = CHUNK
#: Entries decoded at once; a column has at most 65,536.
_FEWEST_ENTRIES, MOST_ENTRIES = 1 << 16, 1 << 22
#: Features whose offsets are read together.
WINDOW_FEATURES = 1 << 17


class ColumnRun(NamedTuple):
    """Decoded columns of a shard, `features[first:last]` of the requested ones.

    Column ``first + j`` has the entries ``starts[j]:stops[j]`` of `rows` and `data`; for a binary weighting
    `data` is undefined, since all values are one.
    """

    first: int
    last: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    rows: NDArray[np.uint16]
    data: NDArray[np.float64]


def column_runs(
    shard: Shard, features: NDArray[np.int64], scratch_bytes: int, column_bytes: int, weighting: Weighting
) -> Iterator[ColumnRun]:
    """Decode the columns of some features, which increase, reading neighbouring ones together.

    A run is valid until the next one is requested, since buffers are reused. A quarter of `scratch_bytes`
    is for entries, a quarter for the caller's data about the columns of a run, `column_bytes` each, at
    least 1. For a binary weighting values are not read.
    """
    entry_bytes = 2 + 8  # in one type, so that the kernels are compiled once
    most = min(max(scratch_bytes // 4 // entry_bytes, _FEWEST_ENTRIES), MOST_ENTRIES)
    most_columns = max(1, scratch_bytes // 4 // column_bytes)
    wanted = min(most, shard.nnz)
    rows = np.empty(wanted, np.uint16)
    data = np.empty(wanted)
    first = 0
    while first < len(features):
        lo = int(features[first])
        last = int(np.searchsorted(features, lo + WINDOW_FEATURES))
        offsets = shard.indptr(lo, int(features[last - 1]) + 1)
        if last - first == len(offsets) - 1:  # all of them
            starts, stops, breaks = offsets[:-1], offsets[1:], np.empty(0, np.int64)
        else:
            columns = features[first:last] - lo
            starts, stops = offsets[columns], offsets[columns + 1]
            breaks = np.flatnonzero(starts[1:] - stops[:-1] > GAP_ENTRIES) + 1
        at = 0
        while at < len(starts):
            end = int(np.searchsorted(stops, starts[at] + most, side="right"))
            end = min(end, at + most_columns)
            gap = int(np.searchsorted(breaks, at, side="right"))
            if gap < len(breaks):
                end = min(end, int(breaks[gap]))
            begin = int(starts[at])
            size = int(stops[end - 1]) - begin
            # The values of a binary model are ones, which need not be read.
            values = None if weighting.binary else data
            shard.read(begin, begin + size, rows, values)
            yield ColumnRun(
                first + at, first + end, starts[at:end] - begin, stops[at:end] - begin, rows, data
            )
            at = end
        first = last


def row_scale(
    shard: Shard, weighting: Weighting, column_scale: NDArray[np.float32] | None, scratch_bytes: int
) -> NDArray[np.float64] | None:
    """Return one over the norm of each weighted row, 0 for empty rows; None if norms are not needed.

    With a `column_scale`, all columns are read, using `scratch_bytes`.
    """
    if not weighting.l2:
        return None
    if column_scale is not None:
        squares = np.zeros(shard.n_rows)
        for run in column_runs(shard, np.arange(len(column_scale)), scratch_bytes, 8, weighting):
            scale = column_scale[run.first : run.last].astype(np.float64)
            add_squares(run.starts, run.stops, run.rows, run.data, scale, weighting.binary, squares)
        norm = np.sqrt(squares)
    elif weighting.binary:
        norm = np.sqrt(shard.table(["entries"]).column("entries").to_numpy())
    else:
        norm = shard.table(["norm"]).column("norm").to_numpy().astype(np.float64)
    return np.divide(1.0, norm, out=np.zeros(shard.n_rows), where=norm > 0)
