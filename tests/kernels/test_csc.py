from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.kernels.csc import (
    add_row_squares,
    count_columns,
    deal_rows,
    scan_floats,
    select_entries,
    undo_delta,
)


def random_rows(dtype=np.int16):
    X = sp.random_array((50, 13), density=0.3, rng=np.random.default_rng(0)).tocsr()
    X.data = np.random.default_rng(1).integers(-3, 4, X.nnz).astype(dtype)
    return X


def test_count_columns_finds_the_first_bad_row():
    indptr, data = np.array([0, 2, 2, 4]), np.ones(4)

    def first_bad(indices, n_features):
        counts, squares = np.zeros(n_features + 1, np.int32), np.empty(3)
        return count_columns(indptr, np.array(indices, np.int32), data, counts, squares)

    assert first_bad([0, 5, 1, 2], 6) == -1
    assert first_bad([0, 5, 1, 2], 5) == 0
    assert first_bad([0, 5, 2, 2], 6) == 2
    assert first_bad([0, 5, -1, 2], 6) == 2


def test_squares_of_rows_equal_numpy():
    X = random_rows()
    C = X.tocsc()
    scale = np.random.default_rng(4).random(13).astype(np.float32)
    squares = np.zeros(50)
    add_row_squares(C.indptr.astype(np.int64), C.indices.astype(np.uint16), C.data, scale, squares)
    assert np.allclose(squares, ((X.toarray() * scale.astype(float)) ** 2).sum(axis=1), rtol=1e-14)


@pytest.mark.parametrize("space", [0, 2, 200])
def test_entries_of_chosen_rows_are_those_of_scipy(space):
    columns = [0, 3, 4, 12]
    C = random_rows().tocsc()
    C.sort_indices()
    chosen = np.array([2, 3, 17, 40, 49])
    place = np.full(50, -1, np.int32)
    place[chosen] = np.arange(5)
    out = np.full(space, -9, np.int32), np.full(space, -9, np.int32), np.full(space, -9.0)
    indices, starts, stops = C.indices.astype(np.uint16), C.indptr[columns], C.indptr[np.add(columns, 1)]
    n = select_entries(starts.astype(np.int64), stops.astype(np.int64), indices, C.data, place, *out)
    part = C[:, columns][chosen].tocoo()
    order = np.lexsort((part.row, part.col))
    assert n == part.nnz > 2
    for array, expected in zip(out, (part.row, part.col, part.data), strict=True):
        assert np.array_equal(array[:n], expected[order][:space])
        assert (array[n:] == -9).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, -7.0, 3.0], (True, True, -7.0, 3.0)),
        ([0.5], (False, True, 0.0, 0.5)),
        ([2.0**25 + 1], (True, False, 0.0, 2.0**25 + 1)),
        ([np.nan, 2.0], (False, True, 0.0, 2.0)),
        ([0.0] * 40_000 + [0.1], (False, False, 0.0, 0.1)),
    ],
)
def test_scan_floats(values, expected):
    assert scan_floats(np.array(values)) == expected


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_undo_delta_wraps_around(dtype):
    limits = np.iinfo(dtype)
    values = np.random.default_rng(0).integers(limits.min, limits.max, 1000, dtype, endpoint=True)
    coded = np.diff(values, prepend=dtype(0))
    undo_delta(coded)
    assert np.array_equal(coded, values)


def test_rows_dealt_to_parts_are_those_that_are_selected_for_each():
    generator = np.random.default_rng(7)
    dense = sp.random_array((200, 30), density=0.2, format="csc", rng=np.random.default_rng(7))
    indices, data = dense.indices.astype(np.uint16), generator.integers(-9, 9, dense.nnz).astype(np.int8)
    parts = generator.integers(0, 5, 200).astype(np.int16)
    parts[parts == 3] = 4  # a part without rows
    numbers = np.array([np.count_nonzero(parts[:i] == part) for i, part in enumerate(parts)], np.uint16)
    counts = np.ones((5, 40), np.int32)
    ends, rows, values = np.empty(5, np.int64), np.empty_like(indices), np.empty_like(data)
    deal_rows(
        dense.indptr.astype(np.int64), indices, data, (parts, numbers), counts[:, 5:35], (ends, rows, values)
    )
    start = 0
    for part, end in enumerate(ends):
        mine = sp.csc_array((data, dense.indices, dense.indptr), dense.shape)[parts == part]
        mine.sort_indices()
        assert np.array_equal(rows[start:end], mine.indices)
        assert np.array_equal(values[start:end], mine.data)
        assert np.array_equal(counts[part, 5:35], np.diff(mine.indptr))
        start = end
    assert start == dense.nnz
    assert (counts[:, :5] == 1).all()
