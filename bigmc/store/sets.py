"""Labels that are sets: a list of class codes for every sample.

In a shard's table they are the column ``label`` of type ``list<int32>``, codes increasing within a row; an
empty list is a sample without labels. Solvers take them as rows of one length, -1 after the last code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from bigmc.errors import DataError

#: Type of the column.
SETS = pa.list_(pa.int32())


def is_sets(column_type: pa.DataType) -> bool:
    """Return whether a column of this type holds sets."""
    return bool(pa.types.is_list(column_type) or pa.types.is_large_list(column_type))


def set_column(starts: NDArray[np.integer], codes: NDArray[np.integer]) -> pa.ListArray:
    """Return the column whose row ``i`` has ``codes[starts[i]:starts[i + 1]]``, sorted, each code once.

    Parameters
    ----------
    starts : integer array of shape (n_samples + 1,)
    codes : integer array of shape (n_codes,)
    """
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    matrix = scipy.sparse.csr_array(  # equal codes of a row become one
        (np.ones(len(codes), np.int64), (rows, codes)),
        shape=(len(starts) - 1, int(codes.max(initial=-1)) + 1),
    )
    matrix.sort_indices()
    indptr, indices = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(indptr), pa.array(indices))


def codes_of(column: pa.ChunkedArray | pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return offsets and codes of a column of sets, the inverse of `set_column`."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunk, or of more than one array can hold
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], SETS)
    lengths = np.asarray(array.value_lengths().fill_null(0), np.int64)
    codes = np.asarray(array.flatten().to_numpy(zero_copy_only=False), np.int32)
    return np.concatenate([[0], np.cumsum(lengths)]), codes


def longest(columns: Iterable[pa.ChunkedArray]) -> int:
    """Return the size of the largest set, at least 1."""
    return max((int(np.diff(codes_of(column)[0]).max(initial=1)) for column in columns), default=1)


def fill_rows(column: pa.ChunkedArray, out: NDArray[np.int32]) -> None:
    """Write the codes of every row of a column into a row of `out`, and -1 after the last."""
    starts, codes = codes_of(column)
    lengths = np.diff(starts)
    out[:] = -1
    rows = np.repeat(np.arange(len(lengths)), lengths)
    out[rows, np.arange(len(codes)) - starts[rows]] = codes


def indicator_of(labels: NDArray[np.int32], n_classes: int) -> NDArray[np.int64]:
    """Return ones where a row of codes names a class, of shape (n_samples, n_classes)."""
    out = np.zeros((len(labels), n_classes), np.int64)
    rows, places = np.nonzero(labels >= 0)
    out[rows, labels[rows, places]] = 1
    return out


def column_of_indicator(indicator: Any) -> pa.ListArray:
    """Return the column of sets that an indicator matrix describes.

    Parameters
    ----------
    indicator : array-like or scipy sparse matrix of shape (n_samples, n_classes)
        1 or True where a sample has the label of the column, else 0.

    Raises
    ------
    DataError
        If there is anything but zeros and ones.
    """
    matrix = indicator.tocsr() if scipy.sparse.issparse(indicator) else np.asarray(indicator)
    values = matrix.data if scipy.sparse.issparse(indicator) else matrix
    if values.dtype.kind not in "buif" or not np.isin(values, (0, 1)).all():
        raise DataError("an indicator of labels has values besides 0 and 1", "give 1 where a label applies")
    rows = scipy.sparse.csr_array(matrix, copy=True)
    rows.eliminate_zeros()
    return set_column(rows.indptr, rows.indices)
