"""Products of sparse rows against SciPy."""

import numpy as np
import pytest
import scipy.sparse

from bigmc.kernels.csr import RowMatrix, columns_times, rows_times


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_scipy(dtype):
    rng = np.random.default_rng(1)
    matrix = scipy.sparse.random_array((30, 20), density=0.2, format="csr", dtype=dtype, rng=rng)
    assert (np.diff(matrix.indptr) == 0).any()
    coef, dual = rng.normal(size=(20, 5)).astype(dtype), rng.normal(size=(30, 5)).astype(dtype)
    scores, moments = np.full((30, 5), np.nan, dtype), np.full((20, 5), np.nan, dtype)
    rows = RowMatrix(matrix.indptr, matrix.indices, matrix.data)
    rows_times(rows, coef, scores)
    columns_times(rows, dual, moments)
    rtol = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(scores, matrix @ coef, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(moments, matrix.T @ dual, rtol=rtol, atol=rtol)
