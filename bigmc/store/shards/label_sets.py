"""Label sets: a list of class codes for every sample.

In a shard's table they are the column ``label`` of type ``list<int32>``, codes increasing within a row; an
empty list is a sample without labels. Solvers get them as rows of equal length, padded with -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from bigmc.errors import DataError

#: Type of the column.
SETS = pa.list_(pa.int32())


def is_sets(column_type: pa.DataType) -> bool:
    """Return whether a column of this type holds sets."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(column_type) for is_kind in kinds)


def set_column(rows: NDArray[np.integer], codes: NDArray[np.integer], n_rows: int) -> pa.ListArray:
    """Return the column in which row ``rows[k]`` has the code ``codes[k]``, sorted and without duplicates."""
    pairs = np.unique(rows.astype(np.int64) << 32 | codes)
    starts = np.searchsorted(pairs >> 32, np.arange(n_rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), pa.array((pairs & 0xFFFFFFFF).astype(np.int32)))


def codes_of(column: pa.ChunkedArray | pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return offsets, from 0 on, and codes of a column of sets."""
    array = pa.concat_arrays([pa.array([], SETS), *column.chunks]) if hasattr(column, "chunks") else column
    lengths = np.asarray(array.value_lengths(), np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]), np.asarray(array.flatten(), np.int32)


def pairs_of(column: pa.ChunkedArray | pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return row and code of every label in a column of sets."""
    starts, codes = codes_of(column)
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts)), codes


def labels_of(column: pa.ChunkedArray | pa.Array, labels: pa.Array) -> pa.ListArray:
    """Return a column of sets with the labels that the codes stand for."""
    starts, codes = codes_of(column)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), labels.take(pa.array(codes)))


def longest(columns: Iterable[pa.ChunkedArray]) -> int:
    """Return the size of the largest set, at least 1."""
    return max((int(np.diff(codes_of(column)[0]).max(initial=1)) for column in columns), default=1)


def fill_rows(column: pa.ChunkedArray, out: NDArray[np.int32]) -> None:
    """Write the codes of every row of a column into a row of `out`, padded with -1."""
    rows, codes = pairs_of(column)
    out[:] = -1
    out[rows, np.arange(len(codes)) - np.searchsorted(rows, rows)] = codes


def column_of_indicator(indicator: Any) -> pa.ListArray:
    """Convert a 0/1 indicator of shape (n_samples, n_classes), dense or sparse, to a column of sets.

    `DataError` if a value is neither 0 nor 1.
    """
    sparse = scipy.sparse.issparse(indicator)
    matrix: Any = indicator.tocoo() if sparse else np.asarray(indicator)
    values = matrix.data if sparse else matrix
    if values.dtype.kind not in "buif" or not np.isin(values, (0, 1)).all():
        raise DataError("the label indicator has values other than 0 and 1", "give 1 where a label applies")
    rows, codes = matrix.nonzero()
    return set_column(rows, codes, matrix.shape[0])


def right_sets(
    labels: NDArray[np.int32], own: NDArray[np.int64], predicted: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which samples have exactly the predicted labels; `own` maps their class codes to the model's."""
    rows, places = np.nonzero(labels >= 0)
    codes = own[labels[rows, places]]
    missed = predicted.copy()
    missed[rows[codes >= 0], codes[codes >= 0]] ^= 1
    right: NDArray[np.bool_] = ~np.any(missed, axis=1)
    right[rows[codes < 0]] = False
    return right
