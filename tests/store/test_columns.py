from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.store.shards.columns import columns_of
from bigmc.store.shards.csr import Rows


def random_matrix(dtype, n_rows=50):
    X = sp.random_array((n_rows, 13), density=0.3, rng=np.random.default_rng(0)).tocsr()
    X.data = np.random.default_rng(1).integers(-3, 4, X.nnz).astype(dtype)
    return X


def rows_of(X, lo, hi):
    """Return rows of a matrix, with offsets that do not begin at 0."""
    return Rows(X.indptr[lo : hi + 1].astype(np.int64), X.indices.astype(np.int32), X.data, X.shape[1])


@pytest.mark.parametrize("ends", [(0, 50), (0, 10, 30, 50), (7, 7), (49, 50), (0, 0, 50)])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.float32, np.float64])
def test_columns_of_any_pieces_equal_scipy(dtype, ends):
    X = random_matrix(dtype)
    columns = columns_of([rows_of(X, lo, hi) for lo, hi in pairwise(ends)])
    rows = X[ends[0] : ends[-1]]
    expected = rows.tocsc()
    expected.sort_indices()
    assert (columns.indices.dtype, columns.data.dtype) == (np.uint16, np.int8)
    assert np.array_equal(columns.indptr, expected.indptr)
    assert np.array_equal(columns.indices, expected.indices)
    assert np.array_equal(columns.data, expected.data)
    assert np.array_equal(columns.entries, np.diff(rows.indptr))
    assert np.allclose(columns.norm, np.sqrt(rows.multiply(rows).sum(axis=1)))


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ([1.0, 2.0], [300.0], np.int16),
        ([70_000.0], [0.5], np.float32),  # 32 bits of integers and of floats would need 64 together
        ([2.0**24 + 1], [0.5], np.float64),
        ([1.0], [0.1], np.float64),
        ([1], [0.25], np.float32),
        ([True], [-200], np.int16),
        ([], [3], np.int8),
    ],
)
def test_values_take_the_smallest_dtype_that_holds_those_of_all_pieces(first, second, dtype):
    pieces = [
        Rows(np.arange(len(v) + 1), np.zeros(len(v), np.int32), np.array(v, None if v else np.int32), 2)
        for v in (first, second)
    ]
    columns = columns_of(pieces)
    assert columns.data.dtype == dtype
    assert columns.data.tolist() == [*first, *second]
