"""Norms, scales and digests of rows, read in pieces of columns: against dense arrays."""

import numpy as np
import pytest
import scipy.sparse

from bigmc.store import row_norms
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import inverse, row_digests, row_scale, row_squares
from bigmc.store.weighting import Weighting


@pytest.fixture(params=[(1 << 20, 1 << 17), (60, 5)], ids=["at once", "in pieces"])
def matrix(request, monkeypatch):
    """Sparse counts, one row and one column without entries; no column has more entries than a piece."""
    monkeypatch.setattr(row_norms, "PIECE_ENTRIES", request.param[0])
    monkeypatch.setattr(row_norms, "PIECE_FEATURES", request.param[1])
    generator = np.random.default_rng(0)
    X = generator.integers(1, 9, (90, 31)) * (generator.random((90, 31)) < 0.4)
    X[7], X[:, 11] = 0, 0
    return X


def dataset_of(X, **weighting):
    X = scipy.sparse.csr_array(X.astype(float))
    return Dataset.from_arrays(X, shard_rows=40, weighting=Weighting(**weighting))


@pytest.mark.parametrize("binary", [False, True])
def test_squares_are_those_of_weighted_rows(binary, matrix):
    scale = np.linspace(0.5, 2.0, 31).astype(np.float32)
    used = (matrix > 0) if binary else matrix
    squares = row_squares(dataset_of(matrix, binary=binary), scale)
    np.testing.assert_allclose(squares, ((used * scale.astype(float)) ** 2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_scales_make_the_norms_of_rows_one(binary, scaled, matrix):
    scale = np.linspace(0.5, 2.0, 31).astype(np.float32) if scaled else None
    used = ((matrix > 0) if binary else matrix) * (scale if scaled else 1.0)
    factors = row_scale(dataset_of(matrix, binary=binary, l2=True), scale)
    norms = np.linalg.norm(used * factors[:, None].astype(float), axis=1)
    np.testing.assert_allclose(norms, np.arange(90) != 7, rtol=1e-6)
    assert factors[7] == 0.0
    assert (row_scale(dataset_of(matrix, binary=binary), scale) == 1.0).all()
    np.testing.assert_array_equal(inverse(np.array([0.0, 4.0])), [0.0, 0.25])


@pytest.mark.parametrize("binary", [False, True])
def test_digests_are_equal_where_rows_are(binary, matrix):
    rows = np.concatenate([matrix, matrix[::-1], matrix * 2])
    used = (rows > 0) if binary else rows
    _, expected = np.unique(used, axis=0, return_inverse=True)
    _, digests = np.unique(row_digests(dataset_of(rows, binary=binary)), return_inverse=True)
    same = [number[:, None] == number for number in (expected.ravel(), digests)]
    np.testing.assert_array_equal(*same)
