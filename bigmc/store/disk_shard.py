"""Shards on disk, read by ranges of columns."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.store.layout import MATRIX, ROWS_TABLE, SHARDS, ShardEntry, damaged, shard_folder
from bigmc.store.object_store import Origin
from bigmc.store.zarr_chunks import ArrayReader, ByteCounter


class StoredShard(ABC):
    """A shard on disk; see `bigmc.store.shard.Shard`. Nothing of it stays in memory.

    Parameters
    ----------
    folder : Path
        Of the shard.
    entry : ShardEntry
        From the manifest.
    n_features : int
        Of the dataset.
    counter : ByteCounter
        Counts the bytes read.
    origin : Origin, optional
        Where the files come from when they are first asked for.
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

    @abstractmethod
    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""

    @abstractmethod
    def read(
        self,
        start: int,
        stop: int,
        indices_out: NDArray[np.uint16] | None,
        data_out: NDArray[Any] | None,
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows.parquet, or the named columns of it."""
        self._check()
        path = self.folder / ROWS_TABLE
        names = None if columns is None else list(columns)
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                table = file.read(names)
                groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
                for column in (g.column(c) for g in groups for c in range(g.num_columns)):
                    if names is None or column.path_in_schema.split(".")[0] in names:
                        self._counter.add(column.total_compressed_size)
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, f"cannot be read ({error})") from None
        if names is not None and table.column_names != names:
            missing = sorted(set(names) - set(table.column_names))
            if missing:
                raise DataError(f"{path} has no column {', '.join(missing)}")
            table = table.select(names)
        if table.num_rows != self.n_rows:
            raise damaged(path, f"has {table.num_rows} rows instead of {self.n_rows}")
        return table

    def _array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayReader:
        """Return the reader of an array under ``x/``, opened and compared with the entry at first use."""
        reader = self._arrays.get(name)
        if reader is None:
            self._check()
            folder = self.folder / MATRIX / name
            reader = ArrayReader(folder, self._counter)
            if reader.shape != shape or reader.dtype != dtype:
                raise damaged(
                    folder, f"has the shape {reader.shape} and dtype {reader.dtype}, not {shape} and {dtype}"
                )
            self._arrays[name] = reader
        return reader

    def _check(self) -> None:
        """Compare the sizes of all files with the manifest, once; bring them here before, if need be."""
        with self._lock:
            if self._checked:
                return
            if self._origin is not None:
                self._origin.bring(self.entry.files, f"{SHARDS}/{self.entry.name}")
            for file in self.entry.files:
                path = self.folder / file.path
                try:
                    size = path.stat().st_size
                except OSError as error:
                    raise damaged(path, f"cannot be read ({error.strerror})") from None
                if size != file.bytes:
                    raise damaged(path, f"has {size} bytes instead of {file.bytes}")
            self._checked = True


class SparseShard(StoredShard):
    """Compressed columns in three arrays."""

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""
        out = np.empty(hi - lo + 1, np.int64)
        self._array("indptr", (self.n_features + 1,), np.dtype(np.int32)).read(lo, hi + 1, out)
        return out

    def read(
        self,
        start: int,
        stop: int,
        indices_out: NDArray[np.uint16] | None,
        data_out: NDArray[Any] | None,
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""
        if indices_out is not None:
            self._array("indices", (self.nnz,), np.dtype(np.uint16)).read(start, stop, indices_out)
        if data_out is not None:
            self._array("data", (self.nnz,), self.dtype).read(start, stop, data_out)


class DenseShard(StoredShard):
    """A two-dimensional array, column after column: every element is an entry, zeros too."""

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""
        return np.arange(lo, hi + 1, dtype=np.int64) * self.n_rows

    def read(
        self,
        start: int,
        stop: int,
        indices_out: NDArray[np.uint16] | None,
        data_out: NDArray[Any] | None,
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""
        if indices_out is not None:
            indices_out[: stop - start] = np.arange(start, stop) % max(self.n_rows, 1)
        if data_out is not None:
            self._array("", (self.n_rows, self.n_features), self.dtype).read(start, stop, data_out)


def open_shard(
    path: Path, entry: ShardEntry, n_features: int, counter: ByteCounter, origin: Origin | None = None
) -> StoredShard:
    """Return the shard of `entry` in the dataset at `path`; its files are looked at on first use."""
    kind = DenseShard if entry.kind == "dense" else SparseShard
    return kind(shard_folder(path, entry.name), entry, n_features, counter, origin)
