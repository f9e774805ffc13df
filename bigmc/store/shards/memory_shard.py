"""Shards over arrays in memory, so arrays and datasets are trained by the same code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.store.shards.columns import columns_of
from bigmc.store.shards.csr import Rows

#: Maximum rows of a shard: a row id has 16 bits.
MAX_ROWS = 65_536


class MemoryShard:
    """At most 65,536 rows in compressed columns, in memory; see `bigmc.store.shards.shard.Shard`."""

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.uint16],
        data: NDArray[Any],
        table: pa.Table,
        split: str = "all",
    ) -> None:
        self._indptr = indptr
        self._indices = indices
        self._data = data
        self._table = table
        self.split = split
        self.n_rows = int(table.num_rows)
        self.n_features = len(indptr) - 1
        self.nnz = len(indices)
        self.dtype = data.dtype
        self.nbytes = int(indptr.nbytes + indices.nbytes + data.nbytes + table.nbytes)

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""
        return self._indptr[lo : hi + 1]

    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Copy the entries ``start`` to ``stop`` into the given buffers."""
        if indices_out is not None:
            indices_out[: stop - start] = self._indices[start:stop]
        if data_out is not None:
            data_out[: stop - start] = self._data[start:stop]

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows' table, or the named columns of it."""
        return self._table if columns is None else self._table.select(list(columns))


def refuse_unsound(values: Any, name: str) -> None:
    """Raise `DataError` for a masked array, or a sparse matrix with indices outside of its shape.

    NumPy drops a mask without a word. SciPy does not look at all indices, nor do kernels, which would read
    and write beside their arrays.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name}: masked arrays are not supported", "fill or drop the masked values")
    if scipy.sparse.issparse(values) and hasattr(values, "check_format"):  # compressed
        try:
            values.check_format(full_check=True)
        except ValueError as error:
            raise DataError(f"{name}: not a valid sparse matrix ({error})", "check its shape") from None


def native_values(values: Any) -> Any:
    """Return an array in a type that scipy and the kernels take.

    It is in this machine's byte order, float16 as float32, and wider floats than 64 bits as float64.
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        return values.astype(np.float64)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def memory_shards(
    X: Any, labels: NDArray[np.int32] | pa.ListArray, row_ids: NDArray[np.int64], shard_rows: int
) -> Iterator[MemoryShard]:
    """Split a matrix into shards of at most `shard_rows` rows, at most 65,536.

    Zeros of a numpy array are dropped, explicit zeros of a sparse matrix are kept, and duplicate entries
    of a sparse matrix are added up, as in scipy.
    """
    matrix = X
    if matrix.dtype.kind not in "buif":
        raise DataError(
            f"values of type {matrix.dtype} cannot be stored", "give booleans, integers or floats"
        )
    matrix = native_values(matrix)
    if scipy.sparse.issparse(X):
        matrix = matrix.tocsr()
    if matrix.shape[1] > np.iinfo(np.int32).max:
        said = f"{matrix.shape[1]} features are more than the maximum of 2147483647"
        raise DataError(said, "select features, or hash them into fewer")
    for start in range(0, matrix.shape[0], shard_rows):
        stop = min(start + shard_rows, matrix.shape[0])
        part = matrix if stop - start == matrix.shape[0] else matrix[start:stop]  # a slice is a copy
        indptr, indices, data, norm, entries = columns_of([Rows.of_matrix(part)])
        table = pa.table(
            {"label": labels[start:stop], "row_id": row_ids[start:stop], "norm": norm, "entries": entries}
        )
        yield MemoryShard(indptr.astype(np.int64, copy=False), indices, data, table)
