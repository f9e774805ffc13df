"""Scores of a linear model: samples in row order, and the columns of one stored shard.

Sums are float64 whatever the stored dtypes, so that the order of the additions (by row or by
column) shows in the last bits only. The innermost loop runs over classes: one row of weights against one
row of scores, both contiguous, which the compiler vectorises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.arguments import EntryWeighting, RawRows, WeightedFeatures


@inner_kernel
def _search(features: NDArray[np.int64], feature: int) -> int:
    """Return the place of ``feature`` among the increasing ``features``, or -1."""
    low, high = 0, features.shape[0]
    while low < high:
        middle = (low + high) // 2
        if features[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low if low < features.shape[0] and features[low] == feature else -1


@inner_kernel
def _add_weights(
    places: NDArray[np.int64], values: NDArray[np.float64], coef: NDArray[Any], row: NDArray[np.float64]
) -> None:
    """Add the weights at these places, times the values, to a row of scores, in this order."""
    used, u = places.shape[0], 0
    while u + 4 <= used:  # four at a time: the scores are loaded and stored a quarter as often
        first, second = coef[np.uint64(places[u])], coef[np.uint64(places[u + 1])]
        third, fourth = coef[np.uint64(places[u + 2])], coef[np.uint64(places[u + 3])]
        a, b, c, d = values[u], values[u + 1], values[u + 2], values[u + 3]
        for r in range(row.shape[0]):
            row[r] = (((row[r] + a * first[r]) + b * second[r]) + c * third[r]) + d * fourth[r]
        u += 4
    while u < used:
        weights, value = coef[np.uint64(places[u])], values[u]
        for r in range(row.shape[0]):
            row[r] += value * weights[r]
        u += 1


@kernel
def score_rows(
    rows: RawRows, weighted: WeightedFeatures, weighting: EntryWeighting, scores: NDArray[np.float64]
) -> None:
    """Fill ``scores``, of shape (n_rows, n_classes), with the weighted samples' products with the weights."""
    indptr, indices, data = rows
    table, features, coef = weighted
    column_scale, binary, l2 = weighting
    scaled = column_scale.shape[0] > 0
    tabled = table.shape[0] > 0
    longest = 0
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    values, used_values = np.empty(longest, np.float64), np.empty(longest + 1, np.float64)
    places = np.empty(longest + 1, np.int64)
    for i in range(indptr.shape[0] - 1):
        entries = indices[indptr[i] : indptr[i + 1]]
        stored = data[indptr[i] : indptr[i + 1]]
        used = 0
        for k in range(entries.shape[0]):
            value = 1.0 if binary else np.float64(stored[k])
            if scaled:
                value *= column_scale[np.uint32(entries[k])]
            values[k] = value
            place = table[np.uint32(entries[k])] if tabled else _search(features, entries[k])
            places[used], used_values[used] = place, value
            used += place >= 0
        row = scores[i]
        row[:] = 0.0
        _add_weights(places[:used], used_values[:used], coef, row)
        if not l2:
            continue
        squares = 0.0  # in a loop of its own: together they run three times slower
        for k in range(entries.shape[0]):
            squares += values[k] * values[k]
        if squares > 0.0:
            scale = 1.0 / np.float64(np.float32(np.sqrt(squares)))
            for r in range(row.shape[0]):
                row[r] *= scale


@kernel
def add_columns(
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    rows: NDArray[np.uint16],
    data: NDArray[Any],
    weights: NDArray[np.float64],
    binary: bool,
    scores: NDArray[np.float64],
) -> None:
    """Add columns times their weights to the scores of a shard.

    Parameters
    ----------
    starts, stops : int64 arrays of shape (n_columns,)
        Entries of each column within ``rows`` and ``data``.
    rows : uint16 array of shape (nnz,)
        Row in the shard of each entry.
    data : array of shape (nnz,)
        Raw value of each entry.
    weights : float64 array of shape (n_columns, n_classes)
        Weights of each column, times its column scale.
    binary : bool
        Every entry counts as 1.
    scores : float64 array of shape (n_rows, n_classes)
        Added to.
    """
    n_classes = weights.shape[1]
    for j in range(starts.shape[0]):
        column_rows = rows[starts[j] : stops[j]]
        column_data = data[starts[j] : stops[j]]
        column_weights = weights[j]
        for k in range(column_rows.shape[0]):
            row = scores[column_rows[k]]
            value = 1.0 if binary else np.float64(column_data[k])
            for c in range(n_classes):
                row[c] += value * column_weights[c]


@kernel
def add_squares(
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    rows: NDArray[np.uint16],
    data: NDArray[Any],
    column_scale: NDArray[np.float64],
    binary: bool,
    squares: NDArray[np.float64],
) -> None:
    """Add the squared weighted values of columns to the squared norms of a shard's rows.

    Parameters
    ----------
    starts, stops, rows, data, binary
        As in :func:`add_columns`.
    column_scale : float64 array of shape (n_columns,)
        Factor of each column.
    squares : float64 array of shape (n_rows,)
        Added to.
    """
    for j in range(starts.shape[0]):
        column_rows = rows[starts[j] : stops[j]]
        column_data = data[starts[j] : stops[j]]
        scale = column_scale[j]
        for k in range(column_rows.shape[0]):
            value = scale if binary else scale * np.float64(column_data[k])
            squares[column_rows[k]] += value * value
