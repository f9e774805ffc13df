"""Shards on disk, read by ranges of columns."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.lazy import LazyModule
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.layout import (
    MATRIX,
    ROWS_TABLE,
    SHARDS,
    ShardEntry,
    check_contents,
    check_sizes,
    damaged,
    digests_below,
    state_of,
)
from bigmc.store.files.object_store import Origin
from bigmc.store.shards.label_sets import SETS
from bigmc.store.shards.memory_shard import MAX_ROWS
from bigmc.store.shards.zarr_chunks import ArrayReader, ByteCounter

pq = LazyModule("pyarrow.parquet")

_COLUMN_TYPES = {
    "label": (pa.int32(), SETS),
    "row_id": (pa.int64(),),
    "norm": (pa.float32(),),
    "entries": (pa.int32(),),
}


def _is_plain(column: pa.ChunkedArray, types: tuple[pa.DataType, ...]) -> bool:
    """Return whether a column has one of these types and no nulls."""
    nested = any(pa.types.is_list(column.type) and chunk.flatten().null_count for chunk in column.chunks)
    return column.type in types and not column.null_count and not nested


class StoredShard(ABC):
    """A shard on disk, in a folder of its own; see `bigmc.store.shards.shard.Shard`.

    Nothing of it stays in memory. Its files are checked at first use; if there is an `origin`, they are first
    downloaded from it.
    """

    def __init__(
        self,
        folder: Path,
        entry: ShardEntry,
        n_features: int,
        counter: ByteCounter,
        origin: Origin | None = None,
    ) -> None:
        self.folder = folder
        self.entry = entry
        self.split = entry.split
        self.n_rows = entry.rows
        self.n_features = n_features
        self.nnz = entry.nnz
        self.dtype: np.dtype[Any] = np.dtype(entry.dtype)
        self.nbytes = entry.bytes
        self._counter = counter
        self._origin = origin
        self._lock = threading.Lock()
        self._arrays: dict[str, ArrayReader] = {}
        self._checked = False
        self._table_state: tuple[int, int, int] | None = None  # of rows.parquet when it was checked

    @abstractmethod
    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""

    @abstractmethod
    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""

    def schema(self) -> pa.Schema:
        """Return the columns of `table`."""
        return pq.read_schema(arrow_file(self.folder / ROWS_TABLE))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows.parquet, or the named columns of it."""
        self._check()
        self._check_table()
        path = self.folder / ROWS_TABLE
        names = None if columns is None else list(columns)
        try:
            with pq.ParquetFile(arrow_file(path), page_checksum_verification=True) as file:
                table = file.read(names)
                groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
                for column in (g.column(c) for g in groups for c in range(g.num_columns)):
                    if names is None or column.path_in_schema.split(".")[0] in names:
                        self._counter.add(column.total_compressed_size)
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, f"cannot be read ({error})") from None
        self._check_table()
        if names is not None:
            missing = sorted(set(names) - set(table.column_names))
            if missing:
                raise DataError(f"{path} has no column {', '.join(missing)}")
            table = table.select(names)  # in this order, which differs between releases of Arrow
        if table.num_rows != self.n_rows:
            raise damaged(path, f"has {table.num_rows} rows instead of {self.n_rows}")
        for name, types in _COLUMN_TYPES.items():
            if name in table.column_names and not _is_plain(table.column(name), types):
                raise damaged(path, f"its column {name} is not as bigmc writes it")
        return table

    def _check_table(self) -> None:
        """Check rows.parquet against the manifest, since all results depend on its labels.

        It is checked once, and again if it is another file than then: that of a dataset put in the place of
        this one may have as many rows.
        """
        path = self.folder / ROWS_TABLE
        with self._lock:
            state = state_of(path)
            if state is None or state != self._table_state:
                entry = next(file for file in self.entry.files if file.path == ROWS_TABLE)
                check_contents(path, entry)
                self._table_state = state

    def _array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayReader:
        """Return the reader of an array under ``x/``, opened and checked against the entry at first use."""
        reader = self._arrays.get(name)
        if reader is None:
            self._check()
            folder = self.folder / MATRIX / name
            prefix = f"{MATRIX}/{name}/" if name else f"{MATRIX}/"
            reader = ArrayReader(folder, self._counter, digests_below(prefix, self.entry.files))
            if reader.shape != shape or reader.dtype != dtype:
                raise damaged(
                    folder, f"has the shape {reader.shape} and dtype {reader.dtype}, not {shape} and {dtype}"
                )
            self._arrays[name] = reader
        return reader

    def _check(self) -> None:
        """Check the sizes of all files against the manifest, once; remote files are copied first."""
        with self._lock:
            if self._checked:
                return
            if self._origin is not None:
                self._origin.bring(self.entry.files, f"{SHARDS}/{self.entry.name}")
            check_sizes(self.folder, self.entry.files, self.folder.parents[1])
            self._checked = True


class SparseShard(StoredShard):
    """Compressed columns in three arrays."""

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""
        out = np.empty(hi - lo + 1, np.int64)
        self._array("indptr", (self.n_features + 1,), np.dtype(np.int32)).read(lo, hi + 1, out)
        entries = np.diff(out)
        if (
            out[0] < 0
            or out[-1] > self.nnz
            or entries.min(initial=0) < 0
            or entries.max(initial=0) > self.n_rows
        ):
            raise damaged(self.folder / MATRIX / "indptr", "its offsets are not those of columns")
        return out

    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""
        if indices_out is not None:
            self._array("indices", (self.nnz,), np.dtype(np.uint16)).read(start, stop, indices_out)
            rows = indices_out[: stop - start]
            if self.n_rows < MAX_ROWS and rows.size and rows.max() >= self.n_rows:
                raise damaged(
                    self.folder / MATRIX / "indices", f"names rows beyond the {self.n_rows} there are"
                )
        if data_out is not None:
            self._array("data", (self.nnz,), self.dtype).read(start, stop, data_out)


class DenseShard(StoredShard):
    """A two-dimensional array in column order; every element is an entry, including zeros."""

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""
        return np.arange(lo, hi + 1, dtype=np.int64) * self.n_rows

    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""
        if indices_out is not None:
            column = np.arange(self.n_rows, dtype=np.uint16)
            at = start
            while at < stop:
                row = at % self.n_rows
                end = min(stop, at - row + self.n_rows)
                indices_out[at - start : end - start] = column[row : row + end - at]
                at = end
        if data_out is not None:
            self._array("", (self.n_rows, self.n_features), self.dtype).read(start, stop, data_out)
