"""Samples in row order against dense arrays."""

import numpy as np
import pytest

from bigmc.store.shards.csr import Rows, sum_of_rows


def values(seed=0, dtype=float, shape=(7, 5)):
    draw = np.random.default_rng(seed)
    return (draw.integers(-3, 4, shape) * (draw.random(shape) < 0.5)).astype(dtype)


def test_rows_hold_the_values_of_an_array():
    X = values()
    rows = Rows.of_dense(X)
    assert (rows.n_rows, rows.n_features) == X.shape
    assert rows.matrix.shape == X.shape
    np.testing.assert_array_equal(rows.matrix.toarray(), X)
    assert len(rows.data) == np.count_nonzero(X)
    np.testing.assert_array_equal(rows.between(2, 5).matrix.toarray(), X[2:5])
    marked = np.array([True, False, True, True, False, False, True])
    np.testing.assert_array_equal(rows.where(marked).matrix.toarray(), X[marked])
    np.testing.assert_array_equal(rows.between(2, 6).where(marked[2:6]).matrix.toarray(), X[2:6][marked[2:6]])
    assert rows.where(np.ones(7, bool)) is rows


def test_values_of_one_feature_are_rows():
    column = np.array([0.0, 2.0, -1.0, 0.0])
    rows = Rows.of_feature(3, column, 6)
    assert (rows.indptr.dtype, rows.indices.dtype, len(rows.data)) == (np.int64, np.int32, 2)
    np.testing.assert_array_equal(rows.matrix.toarray(), np.outer(column, np.arange(6) == 3))


@pytest.mark.parametrize(("dtypes", "expected"), [("i1i1", np.int32), ("i1f4", np.float64)])
def test_batches_of_the_same_samples_are_added_up(dtypes, expected):
    """Also where the sum does not fit the type of the values, or is 0, which stays stored."""
    X, Y = values(dtype=dtypes[:2]), values(1, dtypes[2:], (7, 8))
    X[2, 3] = Y[2, 3] = 100
    X[4, 1], Y[4, 1] = 2, -2
    total = sum_of_rows([Rows.of_dense(X), Rows.of_dense(Y)], 8)
    assert (total.data.dtype, total.indptr.dtype, total.indices.dtype) == (expected, np.int64, np.int32)
    assert total.n_features == 8
    wide = np.pad(X, ((0, 0), (0, 3))).astype(float)
    np.testing.assert_array_equal(total.matrix.toarray(), wide + Y)
    assert len(total.data) == np.count_nonzero((wide != 0) | (Y != 0))
    one = sum_of_rows([Rows.of_dense(X)], 8)
    assert one.n_features == 8
    assert one.data.dtype == X.dtype
