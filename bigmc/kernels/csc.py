"""Kernels on compressed columns: sort rows into columns, find the smallest dtype, add up statistics.

A shard's columns are three arrays as in `scipy.sparse.csc_matrix`, with row ids of 16 bits counted
inside the shard. Loops run over slices, not over ``range(lo, hi)``: an index that may be negative
keeps the compiler from vectorising.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import kernel

#: Values looked at between two early exits of the dtype scans.
_SCAN = 16384


@kernel
def count_columns(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    counts: NDArray[Any],
    squares: NDArray[np.float64],
) -> int:
    """Count the entries of each column in some rows and add up the squares of each row, in one pass.

    Row ``i`` has the entries ``indptr[i]:indptr[i + 1]``, which need not start at 0. Entries of column
    ``j`` are added to element ``j + 1`` of `counts`, of shape (n_features + 1,); `squares`, of shape
    (n_rows,), is filled. Returns the first row whose features are out of range or not increasing, or -1.
    """
    n_features = counts.shape[0] - 1
    for i in range(indptr.shape[0] - 1):
        row = indices[indptr[i] : indptr[i + 1]]
        values = data[indptr[i] : indptr[i + 1]]
        previous = -1
        total = 0.0
        for k in range(row.shape[0]):
            j = row[k]
            if j <= previous or j >= n_features:
                return i
            previous = j
            counts[j + 1] += 1
            x = np.float64(values[k])
            total += x * x
        squares[i] = total
    return -1


@kernel
def place_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    first_row: int,
    free: NDArray[Any],
    indices_out: NDArray[np.uint16],
    data_out: NDArray[Any],
) -> None:
    """Write the entries of some rows into their columns, each after those of the rows before.

    The rows, as for `count_columns`, are numbered from `first_row`. `free`, of shape (n_features,), has
    the next free place of each column, and is advanced.
    """
    for i in range(indptr.shape[0] - 1):
        row = indices[indptr[i] : indptr[i + 1]]
        values = data[indptr[i] : indptr[i + 1]]
        for k in range(row.shape[0]):
            place = free[row[k]]
            free[row[k]] = place + 1
            indices_out[place] = first_row + i
            data_out[place] = values[k]


@kernel
def scan_floats(data: NDArray[Any]) -> tuple[bool, bool, float, float]:
    """Return (all are integers, all are exact in float32, smallest, largest); NaN counts as exact."""
    integral = True
    single = True
    low = 0.0
    high = 0.0
    for start in range(0, data.shape[0], _SCAN):
        for x in data[start : start + _SCAN]:
            integral &= x == np.rint(x)
            single &= (np.float64(np.float32(x)) == x) | (x != x)
            low = min(low, x)
            high = max(high, x)
        if not integral and not single:
            break
    return integral, single, low, high


@kernel
def add_row_squares(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    column_scale: NDArray[np.float32],
    squares: NDArray[np.float64],
) -> None:
    """Add the square of every scaled entry of one shard's columns to ``squares`` of its row.

    `indptr` (length of `column_scale` + 1) points into `indices` and `data`; `squares` has one
    element per row of the shard.
    """
    for j in range(indptr.shape[0] - 1):
        scale = np.float64(column_scale[j])
        rows = indices[indptr[j] : indptr[j + 1]]
        values = data[indptr[j] : indptr[j + 1]]
        for k in range(rows.shape[0]):
            x = scale * values[k]
            squares[rows[k]] += x * x


@kernel
def add_row_products(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    weights: NDArray[np.float64],
    products: NDArray[np.float64],
) -> None:
    """Add every entry of one shard's columns, times the weight of its column, to ``products`` of its row.

    A missing value counts as a number of its own. `indptr` (length of `weights` + 1) points into `indices`
    and `data`; `products` has one element per row of the shard.
    """
    for j in range(indptr.shape[0] - 1):
        weight = weights[j]
        rows = indices[indptr[j] : indptr[j + 1]]
        values = data[indptr[j] : indptr[j + 1]]
        for k in range(rows.shape[0]):
            x = np.float64(values[k])
            products[rows[k]] += weight * x if x == x else np.sqrt(weight)


@kernel
def add_class_statistics(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    labels: NDArray[np.int32],
    sums: NDArray[np.float64],
    squares: NDArray[np.float64],
) -> None:
    """Add every entry of one shard's columns, and its square, to those of its class and feature.

    `labels` are the class codes of the shard's rows; `sums` and `squares` have the shape
    (n_columns, n_classes), so that a column's classes share a cache line.
    """
    for j in range(indptr.shape[0] - 1):
        rows = indices[indptr[j] : indptr[j + 1]]
        values = data[indptr[j] : indptr[j + 1]]
        for k in range(rows.shape[0]):
            x = np.float64(values[k])
            c = labels[rows[k]]
            sums[j, c] += x
            squares[j, c] += x * x


@kernel
def undo_delta(values: NDArray[Any]) -> None:
    """Replace differences between neighbours by the values, in place; wraps around like the encoder."""
    total = np.int64(0)
    for k in range(values.shape[0]):
        total += values[k]
        values[k] = total


@kernel
def merge_columns(
    n_columns: int,
    offsets: NDArray[np.int32],
    first_rows: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    indices_out: NDArray[np.uint16],
    data_out: NDArray[Any],
) -> None:
    """Write the columns of several shards, read one shard after the other, column by column.

    `offsets`, of shape (n_shards, n_columns + 1 or more), is where each column of each shard begins in
    `indices` and `data`. `first_rows` is added to the rows of each shard; the sums are below 65,536.
    """
    at = 0
    for j in range(n_columns):
        for s in range(offsets.shape[0]):
            rows = indices[offsets[s, j] : offsets[s, j + 1]]
            values = data[offsets[s, j] : offsets[s, j + 1]]
            for k in range(rows.shape[0]):
                indices_out[at] = rows[k] + first_rows[s]
                data_out[at] = values[k]
                at += 1


@kernel
def append_columns(
    columns: NDArray[np.int32],
    counts: NDArray[np.int32],
    first_row: int,
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    free: NDArray[np.int64],
    indices_out: NDArray[np.uint16],
    data_out: NDArray[Any],
) -> None:
    """Write the entries of a shard after those of the shards before it, column by column.

    `columns`, increasing, have `counts` entries, one column after the other. `first_row` is added to the
    rows; the sums are below 65,536. `free`, of shape (n_columns,), has the next free place of each
    column, and is advanced.
    """
    start = 0
    for k in range(columns.shape[0]):
        j, n = columns[k], counts[k]
        rows, values = indices[start : start + n], data[start : start + n]
        to_rows, to_values = indices_out[free[j] : free[j] + n], data_out[free[j] : free[j] + n]
        for e in range(n):
            to_rows[e] = rows[e] + first_row
            to_values[e] = values[e]
        free[j] += n
        start += n


@kernel
def select_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    place: NDArray[np.int32],
    counts: NDArray[np.int32],
    indices_out: NDArray[np.uint16],
    data_out: NDArray[Any],
) -> int:
    """Copy the entries of some rows, column by column; returns their number.

    `place` is the new number of each row, -1 for those left out. `counts`, of shape (n_columns,), is
    filled with the entries copied of each column.
    """
    at = 0
    for j in range(indptr.shape[0] - 1):
        before = at
        rows = indices[indptr[j] : indptr[j + 1]]
        values = data[indptr[j] : indptr[j + 1]]
        for k in range(rows.shape[0]):
            i = place[rows[k]]
            indices_out[at] = i
            data_out[at] = values[k]
            at += i >= 0
        counts[j] = at - before
    return at


@kernel
def select_entries(
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    place: NDArray[np.int32],
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    values: NDArray[np.float64],
) -> int:
    """Copy the entries of some rows as coordinates, as many as there is space for; returns their number.

    Column j has the entries ``starts[j]:stops[j]``; `place` is the new number of each row, -1 for those left
    out.
    """
    at = 0
    for j in range(starts.shape[0]):
        for k in range(starts[j], stops[j]):
            i = place[indices[k]]
            if i >= 0:
                if at < rows.shape[0]:
                    rows[at] = i
                    columns[at] = j
                    values[at] = data[k]
                at += 1
    return at


@kernel
def deal_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint16],
    data: NDArray[Any],
    places: tuple[NDArray[np.int16], NDArray[np.uint16]],
    counts: NDArray[np.int32],
    out: tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[Any]],
) -> None:
    """Copy the entries of columns part by part of the rows, and column by column in each.

    `places` has the part of each row, and its number in it. `counts`, of shape (n_parts, n_columns), is
    filled with the entries of each column in each part; `out` with the ends of the parts, shape
    (n_parts,), indices and data.
    """
    parts, numbers = places
    ends, indices_out, data_out = out
    counts[:] = 0
    ends[:] = 0
    for j in range(indptr.shape[0] - 1):
        for k in range(indptr[j], indptr[j + 1]):
            part = parts[indices[k]]
            counts[part, j] += 1
            ends[part] += 1
    start = 0
    for part in range(ends.shape[0]):
        size = ends[part]
        ends[part] = start
        start += size
    for j in range(indptr.shape[0] - 1):
        for k in range(indptr[j], indptr[j + 1]):
            i = indices[k]
            part = parts[i]
            at = ends[part]
            indices_out[at] = numbers[i]
            data_out[at] = data[k]
            ends[part] = at + 1


@kernel
def gather_columns(
    columns: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    data: NDArray[Any],
    indptr_out: NDArray[np.int64],
    indices_out: NDArray[Any],
    data_out: NDArray[Any],
) -> None:
    """Copy columns of a block into a smaller block of these columns only.

    Parameters
    ----------
    columns : int64 array of shape (n_columns,)
        Increasing positions in the block.
    indptr, indices, data
        The block.
    indptr_out : int64 array of shape (n_shards, n_columns + 1)
    indices_out, data_out : arrays of shape (entries of the columns,)
        Filled, shard after shard.
    """
    to = 0
    for s in range(indptr.shape[0]):
        for p in range(columns.shape[0]):
            indptr_out[s, p] = to
            start = indptr[s, columns[p]]
            size = indptr[s, columns[p] + 1] - start
            copy_to(indices[start : start + size], indices_out[to:])
            copy_to(data[start : start + size], data_out[to:])
            to += size
        indptr_out[s, columns.shape[0]] = to
