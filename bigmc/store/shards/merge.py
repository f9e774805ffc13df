"""Merge small shards into large ones, in bounded memory.

Every shard has the offsets of all its columns, and a block of features reads chunks of every shard, so
hundreds of small shards are slow to read. Ingest with little memory writes such shards,
because a worker writes a shard whenever its buffer is full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.csc import merge_columns
from bigmc.store.files.atomic import replacing_folder
from bigmc.store.files.dtypes import common_dtype
from bigmc.store.files.layout import MATRIX, FileEntry, ShardEntry
from bigmc.store.shards.disk_shard import StoredShard
from bigmc.store.shards.memory_shard import MAX_ROWS
from bigmc.store.shards.write import INDPTR_CHUNK, MAX_ENTRIES, write_matrix_group, write_tables
from bigmc.store.shards.zarr_chunks import ArrayWriter, Form

_OFFSET_BYTES = 4
"""Bytes per source column while a range of columns is merged, and per column of the merged shard."""


def group_small(
    rows: Sequence[int], entries: Sequence[int], *, max_rows: int = MAX_ROWS, max_entries: int = MAX_ENTRIES
) -> list[range]:
    """Return consecutive ranges of shards of one split, each to be merged into one shard.

    A range takes shards while they fit, so two neighbouring ranges never fit into one shard, and a split
    has at most twice the shards it needs. A range of one shard is not changed.
    """
    groups: list[range] = []
    start = n_rows = n_entries = 0
    for i, (more_rows, more_entries) in enumerate(zip(rows, entries, strict=True)):
        if i > start and (n_rows + more_rows > max_rows or n_entries + more_entries > max_entries):
            groups.append(range(start, i))
            start, n_rows, n_entries = i, 0, 0
        n_rows += more_rows
        n_entries += more_entries
    if len(rows) > start:
        groups.append(range(start, len(rows)))
    return groups


def plan_merges(entries: Sequence[ShardEntry]) -> list[list[int]]:
    """Return groups of shards to merge, as positions in `entries`, ordered by the first of each group.

    Only sparse shards of one split are merged, and shards of a split keep their order.
    """
    groups: list[list[int]] = []
    for split in dict.fromkeys(entry.split for entry in entries):
        run: list[int] = []
        for i in (i for i, entry in enumerate(entries) if entry.split == split):
            if entries[i].kind == "sparse":
                run.append(i)
            else:
                groups += _groups_of(run, entries)
                groups.append([i])
                run = []
        groups += _groups_of(run, entries)
    return sorted(groups)


def _groups_of(run: list[int], entries: Sequence[ShardEntry]) -> list[list[int]]:
    ranges = group_small([entries[i].rows for i in run], [entries[i].nnz for i in run])
    return [[run[k] for k in one] for one in ranges]


def merge_shards(folder: Path, sources: Sequence[StoredShard], *, memory: int = 64 << 20) -> ShardEntry:
    """Write one sparse shard with the rows of all sources, in their order, atomically.

    The sources, of one split and one width, are only read. `folder` is named after the new shard, and
    replaced if it exists. `memory` bytes are used besides some MB of codec, but never less than one
    column needs, 1.3 MB at most, and 4 bytes per column of the dataset. `DataError` if the rows or
    entries are too many for one shard.
    """
    kinds = {(s.entry.kind, s.split, s.n_features) for s in sources}
    if len(kinds) != 1 or sources[0].entry.kind != "sparse":
        raise ValueError("only sparse shards of one split and one width can be merged")
    n_rows, nnz = sum(s.n_rows for s in sources), sum(s.nnz for s in sources)
    if n_rows > MAX_ROWS or nnz > MAX_ENTRIES:
        raise DataError(
            f"{n_rows} rows with {nnz} entries do not fit into one shard", "merge fewer shards at a time"
        )
    dtype = common_dtype([s.dtype for s in sources])
    with replacing_folder(folder) as aside:
        files = _merge_matrices(aside, sources, dtype, memory)
        files.append(_merge_tables(aside, sources, memory))
    return ShardEntry(folder.name, sources[0].split, n_rows, nnz, dtype.name, "sparse", tuple(files))


def _merge_matrices(
    folder: Path, sources: Sequence[StoredShard], dtype: np.dtype[Any], memory: int
) -> list[FileEntry]:
    n_features = sources[0].n_features
    rows = np.cumsum([0, *(s.n_rows for s in sources)])
    indptr = _sum_of_offsets(sources)
    nnz = int(indptr[-1])
    matrix = folder / MATRIX
    files = [write_matrix_group(folder, int(rows[-1]), n_features)]
    data = ArrayWriter(matrix / "data", folder, (nnz,), dtype)
    indices = ArrayWriter(matrix / "indices", folder, (nnz,), np.dtype(np.uint16), form=Form.DIFFERENCES)
    ranges = list(_column_ranges(indptr, len(sources), dtype.itemsize, memory - indptr.nbytes))
    width = max((hi - lo for lo, hi in ranges), default=0)
    most = max((int(indptr[hi] - indptr[lo]) for lo, hi in ranges), default=0)
    offsets = np.empty((len(sources), width + 1), np.int32)
    read_indices, read_data = np.empty(most, np.uint16), np.empty(most, dtype)
    out_indices, out_data = np.empty(most, np.uint16), np.empty(most, dtype)
    for lo, hi in ranges:
        at = 0
        for source, mine in zip(sources, offsets, strict=True):
            ends = source.indptr(lo, hi)
            start, stop = int(ends[0]), int(ends[-1])
            source.read(start, stop, read_indices[at:], read_data[at:])
            mine[: hi - lo + 1] = ends - start + at
            at += stop - start
        merge_columns(hi - lo, offsets, rows[:-1], read_indices, read_data, out_indices, out_data)
        data.append(out_data[:at])
        indices.append(out_indices[:at])
    del read_indices, read_data, out_indices, out_data, offsets
    offset_writer = ArrayWriter(
        matrix / "indptr", folder, indptr.shape, indptr.dtype, form=Form.DIFFERENCES, chunk=INDPTR_CHUNK
    )
    offset_writer.append(indptr)
    return [*files, *data.close(), *indices.close(), *offset_writer.close()]


def _sum_of_offsets(sources: Sequence[StoredShard]) -> NDArray[np.int32]:
    """Return the offsets of the merged columns: before each are the entries before it in any source."""
    n_features = sources[0].n_features
    indptr = np.zeros(n_features + 1, np.int32)
    for lo in range(0, n_features + 1, INDPTR_CHUNK):
        hi = min(lo + INDPTR_CHUNK, n_features + 1)
        for source in sources:
            indptr[lo:hi] += source.indptr(lo, hi - 1).astype(np.int32)
    return indptr


def _column_ranges(
    indptr: NDArray[np.int32], n_sources: int, itemsize: int, memory: int
) -> Iterator[tuple[int, int]]:
    """Cut the columns into ranges whose entries, read and merged, and whose offsets fit into `memory`."""
    n_features = len(indptr) - 1
    width = max(1, memory // 3 // (n_sources * _OFFSET_BYTES))
    most = max(1, memory * 2 // 3 // (2 * (itemsize + 2)))
    lo = 0
    while lo < n_features:
        end = int(np.searchsorted(indptr, int(indptr[lo]) + most, "right")) - 1
        hi = min(max(end, lo + 1), lo + width, n_features)
        yield lo, hi
        lo = hi


def _merge_tables(folder: Path, sources: Sequence[StoredShard], memory: int) -> FileEntry:
    """Write the rows of all sources; tables with long texts in several row groups."""
    schema = common_schema([source.schema() for source in sources])
    if schema is None:
        raise ValueError("columns of the same name differ in type")

    def tables() -> Iterator[pa.Table]:
        held = [schema.empty_table()]
        for source in sources:
            held.append(source.table())
            if sum(table.nbytes for table in held) > memory // 4:
                yield pa.concat_tables(held, promote_options="default")
                held = [schema.empty_table()]
        if len(held) > 1:
            yield pa.concat_tables(held, promote_options="default")

    return write_tables(folder, schema, tables())


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema | None:
    """Return the schema that holds the tables of all given ones as they are, or None if there is none."""
    try:
        return pa.unify_schemas(schemas, promote_options="default").with_metadata(schemas[0].metadata)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
