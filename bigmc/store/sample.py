"""Draw a random sample in memory, of single rows or whole groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.kernels.csc import append_columns, select_rows
from bigmc.store import row_hash
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import GROUP_HASH
from bigmc.store.row_norms import PIECE_ENTRIES, column_pieces
from bigmc.store.shards.memory_shard import MAX_ROWS, MemoryShard
from bigmc.store.shards.shard import Shard

_COLUMNS = ["label", "row_id", "norm", "entries"]


def draw_rows(dataset: Dataset, share: float, seed: int, engine: Engine) -> tuple[Dataset, NDArray[np.int64]]:
    """Return about `share` of the samples of a dataset, in memory, and their positions; one pass over shards.

    Whether a row is drawn depends only on its id and the seed, so equal calls give equal samples for any
    number of workers and any order of the source. An idf weighting stays that of all samples. Drawn with a
    binary weighting, the sample has no counts for another one. `DataError` if no row was drawn.
    """
    _check_share(share)
    chosen = [rows for _, rows in engine.map(_chosen, range(dataset.n_shards), dataset, share, seed)]
    return _in_memory(dataset, chosen, engine)


def _chosen(s: int, dataset: Dataset, share: float, seed: int) -> NDArray[np.int64]:
    """Return the rows of a shard that are drawn."""
    return np.flatnonzero(is_drawn(dataset.shards[s], share, seed))


def is_drawn(shard: Shard, share: float, seed: int) -> NDArray[np.bool_]:
    """Return whether `draw_rows` draws each row of a shard."""
    row_ids = shard.table(["row_id"]).column("row_id").to_numpy()
    return hashed_shares(row_ids, seed) < share


def draw_groups(
    dataset: Dataset, share: float, seed: int, engine: Engine
) -> tuple[Dataset, NDArray[np.int64]]:
    """Return about `share` of the groups of a dataset, like `draw_rows`; of the rows, if it has no groups.

    Samples in memory without groups may have ids that several share, which then are the groups. At least one
    group is drawn, and one is not; `DataError` if all samples belong to one group.
    """
    _check_share(share)
    least, largest = 1.0, 0.0
    for shard in dataset.shards:
        column = _key_column(shard)
        if column is None:
            return draw_rows(dataset, share, seed, engine)
        shares = hashed_shares(column.to_numpy(), seed)
        least, largest = min(least, shares.min(initial=1.0)), max(largest, shares.max(initial=0.0))
    if least == largest and dataset.n_samples == 1:
        return draw_rows(dataset, share, seed, engine)
    if least == largest:
        raise DataError("all samples belong to one group", "leave --group out, or name another column")

    def taken(shard: Shard) -> NDArray[np.bool_]:
        column = _key_column(shard)
        assert column is not None
        shares = hashed_shares(column.to_numpy(), seed)
        drawn: NDArray[np.bool_] = (shares < share) | (shares == least)
        return drawn & (shares < largest) if share < 1 else drawn

    return _in_memory(dataset, [np.flatnonzero(taken(shard)) for shard in dataset.shards], engine)


def take_rows(dataset: Dataset, places: NDArray[np.int64], engine: Engine) -> Dataset:
    """Return the samples at some places, which increase, in memory."""
    ends = np.searchsorted(places, dataset.base)
    chosen = [places[i:j] - lo for lo, (i, j) in zip(dataset.base[:-1], pairwise(ends), strict=True)]
    return _in_memory(dataset, chosen, engine)[0]


def holdout_keys(dataset: Dataset) -> NDArray[np.int64]:
    """Return the keys by which samples are held out: a hash of the group, or else the id."""
    hashes = []
    for shard in dataset.shards:
        of_shard = group_hashes(shard)
        if of_shard is None:
            return dataset.row_ids()
        hashes.append(of_shard)
    return np.concatenate(hashes)


def group_hashes(shard: Shard) -> NDArray[np.int64] | None:
    """Return a hash of the group of every row of a shard, or None if it has no groups."""
    column = _group_column(shard)
    return None if column is None else column.to_numpy()


def _group_column(shard: Shard) -> pa.ChunkedArray | None:
    """Return the hashes of the groups, or None if the ingest had none or a row has none."""
    try:
        column = shard.table([GROUP_HASH]).column(GROUP_HASH)
    except (DataError, KeyError):
        return None
    return None if column.null_count else column


def _key_column(shard: Shard) -> pa.ChunkedArray | None:
    """Return the hashes of the groups, or else the ids of a shard in memory; None for one on disk."""
    column = _group_column(shard)
    if column is None and isinstance(shard, MemoryShard):
        return shard.table(["row_id"]).column("row_id")
    return column


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise DataError(f"the share of rows to sample is {share}", "give a share above 0 and up to 1")


def _in_memory(
    dataset: Dataset, chosen: Sequence[NDArray[np.int64]], engine: Engine
) -> tuple[Dataset, NDArray[np.int64]]:
    """Return the chosen rows of every shard as a dataset, and their positions."""
    groups: list[list[int]] = [[]]
    n_rows = 0
    for s, rows in enumerate(chosen):
        if n_rows + len(rows) > MAX_ROWS:
            groups.append([])
            n_rows = 0
        groups[-1].append(s)
        n_rows += len(rows)
    drawn = [shard for _, shard in engine.map(_draw, groups, dataset, chosen) if shard is not None]
    if not drawn:
        raise DataError(f"a sample of {dataset.n_samples} rows is empty", "draw a larger one")
    positions = np.concatenate([dataset.base[s] + rows for s, rows in enumerate(chosen)])
    weights = dataset.sample_weights()
    sample = Dataset(
        drawn,
        dataset.class_labels,
        dataset.n_features,
        dataset.weighting,
        dataset.features,
        column_scale=dataset.column_scale(),
        sample_weights=None if weights is None else weights[positions],
    )
    return sample, positions


def hashed_shares(row_ids: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return a uniform number from 0 to 1 for every row, determined by its id and the seed."""
    start = np.uint64((seed * row_hash.GAMMA + 0x632BE59BD9B4E019) % (1 << 64))
    return np.asarray(row_hash.unit_interval(row_hash.mix(row_ids.astype(np.uint64) + start)), np.float64)


def _draw(group: list[int], dataset: Dataset, chosen: Sequence[NDArray[np.int64]]) -> MemoryShard | None:
    """Return the chosen rows of some shards as one."""
    tables: list[pa.Table] = []
    pieces: list[_Piece] = []
    counts = np.zeros(dataset.n_features, np.int64)
    for s in group:
        if not len(chosen[s]):
            continue
        shard = dataset.shards[s]
        tables.append(_row_table(shard).take(pa.array(chosen[s])))
        pieces.append(_select(shard, chosen[s], dataset.dtype))
        counts[pieces[-1].columns] += pieces[-1].counts
    if not tables:
        return None
    indptr = np.concatenate([[0], np.cumsum(counts)])
    free, n_entries = indptr[:-1].copy(), int(indptr[-1])
    indices, data = np.empty(n_entries, np.uint16), np.empty(n_entries, dataset.dtype)
    first_row = 0
    for table, piece in zip(tables, pieces, strict=True):
        append_columns(piece.columns, piece.counts, first_row, piece.indices, piece.data, free, indices, data)
        first_row += table.num_rows
    return MemoryShard(indptr, indices, data, pa.concat_tables(tables).combine_chunks())


def _row_table(shard: Shard) -> pa.Table:
    """Return the table of a shard in memory, with the groups of its rows."""
    table, groups = shard.table(_COLUMNS), _group_column(shard)
    return table if groups is None else table.append_column(GROUP_HASH, groups)


class _Piece(NamedTuple):
    """Entries of some rows of a shard, one column after the other.

    Only columns with entries are listed: with many shards of few rows each, offsets for all features
    would take far more memory than the entries.
    """

    columns: NDArray[np.int32]
    counts: NDArray[np.int32]
    indices: NDArray[np.uint16]
    data: NDArray[Any]


def _select(shard: Shard, rows: NDArray[np.int64], dtype: np.dtype[Any]) -> _Piece:
    """Return the columns of a shard with only the given rows, renumbered."""
    place = np.full(shard.n_rows, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    kept: list[_Piece] = []
    rows_read, values_read = np.empty(PIECE_ENTRIES, np.uint16), np.empty(PIECE_ENTRIES, dtype)
    kept_rows, kept_values = np.empty_like(rows_read), np.empty_like(values_read)
    for lo, offsets in column_pieces(shard, rows_read, values_read):
        counts = np.zeros(len(offsets) - 1, np.int32)
        n = select_rows(offsets, rows_read, values_read, place, counts, kept_rows, kept_values)
        used = np.flatnonzero(counts).astype(np.int32)
        kept.append(_Piece(used + np.int32(lo), counts[used], kept_rows[:n].copy(), kept_values[:n].copy()))
    return _Piece(*(np.concatenate(arrays) for arrays in zip(*kept, strict=True)))
