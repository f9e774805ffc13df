"""Write one shard to disk atomically."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from enum import Enum
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.lazy import LazyModule
from bigmc.store.files import disk
from bigmc.store.files.atomic import replacing, replacing_folder
from bigmc.store.files.dtypes import smallest_exact_dtype
from bigmc.store.files.layout import MATRIX, ROWS_TABLE, FileEntry, ShardEntry, file_entry
from bigmc.store.shards.columns import columns_of
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.label_sets import SETS
from bigmc.store.shards.memory_shard import MAX_ROWS
from bigmc.store.shards.zarr_chunks import CHUNK, ArrayWriter, Form
from bigmc.store.shards.zarr_groups import write_group

pq = LazyModule("pyarrow.parquet")

#: Elements of a chunk of `indptr`: a block reads hi - lo + 1 of them.
INDPTR_CHUNK = 1 << 16

#: Maximum entries of a sparse shard: `indptr` is int32.
MAX_ENTRIES = np.iinfo(np.int32).max

#: Values of a column of floats that are looked at before it is encoded.
_LOOKED_AT = 1 << 12

#: Columns of a dense array transposed at a time.
_COLUMNS = 16


class Packing(Enum):
    """Compression of ``rows.parquet``: tight in a dataset, fast if it will be rewritten."""

    TIGHT = "tight"
    QUICK = "quick"


def write_shard(
    folder: Path,
    rows: Rows | Sequence[Rows] | NDArray[Any],
    table: pa.Table,
    *,
    split: str = "all",
    pool: Executor | None = None,
    packing: Packing = Packing.TIGHT,
) -> ShardEntry:
    """Write one shard atomically, also if the process is killed.

    The folder is named after the shard, and replaced if it exists; ``FOLDER.partial`` is used meanwhile.
    There are at most 65,536 rows; a dense array with more than half zeros is stored sparse. The table has
    one row per sample with ``label`` (int32, or a list of them), ``row_id`` (int64) and further columns
    to pass through; ``norm`` and ``entries`` are added. A `pool` compresses several chunks at once.
    `DataError` if there are too many rows or entries, or a row's features are out of range or not
    increasing.
    """
    pieces = _sparse_pieces(rows)
    n_rows = len(rows) if pieces is None else sum(piece.n_rows for piece in pieces)
    if n_rows > MAX_ROWS:
        raise DataError(f"{n_rows} rows are more than the maximum of {MAX_ROWS} per shard")
    label, row_id = (table.schema.field(name).type for name in ("label", "row_id"))
    if table.num_rows != n_rows or label not in (pa.int32(), SETS) or row_id != pa.int64():
        raise ValueError("the table needs one row per sample, label of int32 and row_id of int64")
    with replacing_folder(folder) as aside:
        if pieces is not None:
            nnz, dtype, norm, entries, files = _write_sparse(aside, pieces, pool)
        else:
            nnz, dtype, norm, entries, files = _write_dense(aside, np.asarray(rows))
        table = table.append_column("norm", pa.array(norm)).append_column("entries", pa.array(entries))
        files.append(write_tables(aside, table.schema, [table], packing))
    kind: Literal["sparse", "dense"] = "dense" if pieces is None else "sparse"
    return ShardEntry(folder.name, split, n_rows, nnz, dtype.name, kind, tuple(files))


_Written = tuple[int, np.dtype[Any], NDArray[np.float32], NDArray[np.int32], list[FileEntry]]


def _sparse_pieces(rows: Rows | Sequence[Rows] | NDArray[Any]) -> Sequence[Rows] | None:
    """Return the samples in compressed rows, or None if they are better stored as a dense array."""
    if isinstance(rows, Rows):
        return [rows]
    if not isinstance(rows, np.ndarray):
        return rows
    return [Rows.of_dense(rows)] if np.count_nonzero(rows) * 2 < rows.size else None


def _write_sparse(folder: Path, pieces: Sequence[Rows], pool: Executor | None) -> _Written:
    nnz = sum(len(piece.indices) for piece in pieces)
    if nnz > MAX_ENTRIES:
        raise DataError(f"{nnz} entries are too many for one shard", "make shards of fewer rows")
    indptr, indices, data, norm, entries = columns_of(pieces, folder.stem)
    matrix = folder / MATRIX
    files = [write_matrix_group(folder, len(norm), len(indptr) - 1)]
    for name, values, form, chunk in (
        ("data", data, Form.PLAIN, CHUNK),
        ("indices", indices, Form.DIFFERENCES, CHUNK),
        ("indptr", indptr, Form.DIFFERENCES, INDPTR_CHUNK),
    ):
        writer = ArrayWriter(matrix / name, folder, values.shape, values.dtype, form=form, chunk=chunk)
        writer.append(values, pool)
        files += writer.close()
    return nnz, data.dtype, norm, entries, files


def write_matrix_group(folder: Path, n_rows: int, n_features: int) -> FileEntry:
    """Write the group of a sparse shard's three arrays, in a folder that is synced and renamed later."""
    attributes = {"encoding-type": "csc_matrix", "encoding-version": "0.1.0", "shape": [n_rows, n_features]}
    return write_group(folder / MATRIX, folder, attributes, disk.write_file)


def _write_dense(folder: Path, values: NDArray[Any]) -> _Written:
    dtype = smallest_exact_dtype(values)
    writer = ArrayWriter(folder / MATRIX, folder, values.shape, dtype)
    squares = np.zeros(len(values))
    for lo in range(0, values.shape[1], _COLUMNS):
        columns = np.ascontiguousarray(values[:, lo : lo + _COLUMNS].T, dtype)
        writer.append(columns)
        with np.errstate(over="ignore"):  # infinite where a value is above 1e154
            squares += np.sum(columns.astype(np.float64) ** 2, axis=0)
    entries = np.full(len(values), values.shape[1], np.int32)
    return values.size, dtype, np.sqrt(squares).astype(np.float32), entries, writer.close()


def write_tables(
    folder: Path, schema: pa.Schema, tables: Iterable[pa.Table], packing: Packing = Packing.TIGHT
) -> FileEntry:
    """Write rows.parquet from tables of one schema, each in its own row groups."""
    path = folder / ROWS_TABLE
    with disk.output(path) as file:
        _write_tables(file, schema, tables, packing)
    return file_entry(path, folder)


def _write_tables(file: IO[bytes], schema: pa.Schema, tables: Iterable[pa.Table], packing: Packing) -> None:
    rest = iter(tables)
    first = next(rest, schema.empty_table())
    options = _options(first, packing)
    with pq.ParquetWriter(
        file, schema, write_page_checksum=True, write_statistics=False, **options
    ) as writer:
        for table in itertools.chain([first], rest):
            writer.write_table(table)


def _options(table: pa.Table, packing: Packing) -> Mapping[str, Any]:
    """Return how a table is compressed and encoded, given its first rows."""
    if packing is Packing.QUICK:
        # Dictionaries are kept, so that the table is read back unchanged.
        encoded = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
        return {"compression": "lz4", "use_dictionary": encoded or False}
    ordered = ["row_id"]  # increasing within a shard, or nearly: differences take a byte or two
    plain = [*ordered, *(name for name in table.schema.names if _differ(table.column(name)))]
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in table.schema.names if name not in plain],
        "column_encoding": dict.fromkeys(ordered, "DELTA_BINARY_PACKED"),
    }


def _differ(column: pa.ChunkedArray) -> bool:
    """Return whether most values are floats that occur once: a dictionary of them takes time and space."""
    if not pa.types.is_floating(column.type):
        return False
    some = column.slice(0, _LOOKED_AT)
    return 2 * len(some.unique()) > len(some) == _LOOKED_AT


def replace_rows_table(folder: Path, table: pa.Table) -> None:
    """Replace the table of a shard, for example by one with final label codes."""
    with replacing(folder / ROWS_TABLE) as file:
        _write_tables(file, table.schema, [table], Packing.TIGHT)
