from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.kernels.csc import add_row_squares, count_rows, first_bad_row, rows_to_csc, scan_floats, undo_delta


def random_rows(dtype=np.int16):
    X = sp.random_array((50, 13), density=0.3, rng=np.random.default_rng(0)).tocsr()
    X.data = np.random.default_rng(1).integers(-3, 4, X.nnz).astype(dtype)
    return X


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.float32, np.float64])
def test_rows_to_csc_equals_scipy_for_any_window_of_rows(dtype):
    X = random_rows(dtype)
    for lo, hi in [(0, 50), (10, 30), (49, 50), (7, 7)]:
        indptr, indices, data = rows_to_csc(X.indptr[lo : hi + 1].astype(np.int64), X.indices, X.data, 13)
        expected = X[lo:hi].tocsc()
        expected.sort_indices()
        assert (indices.dtype, data.dtype) == (np.uint16, dtype)
        assert np.array_equal(indptr, expected.indptr)
        assert np.array_equal(indices, expected.indices)
        assert np.array_equal(data, expected.data)


def test_first_bad_row():
    indptr = np.array([0, 2, 2, 4])
    assert first_bad_row(indptr, np.array([0, 5, 1, 2], np.int32), 6) == -1
    assert first_bad_row(indptr, np.array([0, 5, 1, 2], np.int32), 5) == 0
    assert first_bad_row(indptr, np.array([0, 5, 2, 2], np.int32), 6) == 2
    assert first_bad_row(indptr, np.array([0, 5, -1, 2], np.int32), 6) == 2


def test_row_measures_equal_numpy():
    X = random_rows()
    C = X.tocsc()
    scale = np.random.default_rng(4).random(13).astype(np.float32)
    squares, counts = np.zeros(50), np.zeros(50, np.int32)
    add_row_squares(C.indptr.astype(np.int64), C.indices.astype(np.uint16), C.data, scale, squares)
    assert np.allclose(squares, ((X.toarray() * scale.astype(float)) ** 2).sum(axis=1), rtol=1e-14)
    count_rows(C.indices.astype(np.uint16), counts)
    assert np.array_equal(counts, np.diff(X.indptr))


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
