"""Columns that are nearly constant, such as years and time stamps, against scikit-learn on centred ones."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sparse_runs import solve

import bigmc
from bigmc.solvers.sparse import Start
from bigmc.store.block import read_block
from bigmc.store.centred import centred
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

FAR = np.array([1.79e9, 2025.0, 1e5, 0.0])
"""Means of a time in seconds, a year, a pressure, and a column that is not far from 0."""


@pytest.fixture(scope="module")
def table():
    """Return columns of these means and of about the deviations 1e5, 1, 10 and 1, and labels of them all."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 4)) * [1e5, 0.0, 10.0, 1.0]
    X[:, 1] = rng.integers(-1, 2, 400)
    scores = (X / X.std(axis=0)) @ rng.normal(size=(4, 3)) + rng.gumbel(size=(400, 3))
    return X + FAR, np.array(["a", "b", "c"])[scores.argmax(axis=1)]


def dense(dataset):
    """Return the values of a dataset, read in blocks of two features."""
    read = np.zeros((dataset.n_samples, dataset.n_features))
    for lo in range(0, dataset.n_features, 2):
        block = read_block(dataset, lo, min(lo + 2, dataset.n_features))
        for s in range(dataset.n_shards):
            for j, (first, last) in enumerate(zip(block.indptr[s], block.indptr[s, 1:], strict=False)):
                read[block.base[s] + block.indices[first:last], lo + j] = block.data[first:last]
    return read


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_columns_far_from_0_are_read_less_their_mean(table, dtype):
    X = np.round(table[0]).astype(dtype)
    dataset = Dataset.from_arrays(X, table[1], shard_rows=150)
    moved = centred(dataset)
    assert moved is not None
    assert moved.features.tolist() == [0, 1, 2]
    expected = X.astype(np.float64)
    expected[:, :3] -= expected[:, :3].mean(axis=0)
    np.testing.assert_allclose(dense(moved.dataset), expected, atol=1e-5)
    np.testing.assert_array_equal(moved.dataset.labels(), dataset.labels())


def test_other_columns_and_rows_that_are_scaled_stay_as_they_are(table):
    X, y = table
    assert centred(Dataset.from_arrays(X[:, 3:], y)) is None
    assert centred(Dataset.from_arrays(np.full((400, 2), 1e9), y)) is None
    assert centred(Dataset.from_arrays(X, y, weighting=Weighting(l2=True))) is None
    with_gaps = X.copy()
    with_gaps[5, :3] = 0.0  # not stored: less the mean it would have to be
    assert centred(Dataset.from_arrays(with_gaps, y)) is None


@pytest.mark.parametrize("far", [0.0, 1e3, 1e6])
def test_an_offset_of_all_columns_changes_no_prediction(table, far):
    standard = StandardScaler().fit_transform(table[0])
    options = {"alpha": 0.0, "ridge": 0.01, "loss": "log_loss", "fit_intercept": True, "tol": 1e-6}
    model = bigmc.SparseClassifier(**options, max_passes=20).fit(standard + far, table[1])
    other = LogisticRegression(C=1 / (0.01 * 400), tol=1e-10, max_iter=1000).fit(standard, table[1])
    assert model.certificate_.gap <= 1e-6
    np.testing.assert_allclose(model.predict_proba(standard + far), other.predict_proba(standard), atol=1e-3)
    np.testing.assert_allclose(model.model_.coef.T, other.coef_, atol=3e-3)


def test_scaled_columns_have_their_own_deviation(table, tmp_path):
    """A time in seconds varies by less than a part in ten thousand and still tells the classes apart."""
    X, y = table
    options = {"alpha": 0.0, "ridge": 0.01, "loss": "log_loss", "fit_intercept": True, "tol": 1e-6}
    model = bigmc.SparseClassifier(**options).fit(Dataset.from_arrays(X, y, weighting=Weighting(scaled=True)))
    model.save(tmp_path / "m")
    standard = StandardScaler().fit_transform(X)
    other = LogisticRegression(C=1 / (0.01 * 400), tol=1e-10, max_iter=1000).fit(standard, y)
    chances = bigmc.load_model(tmp_path / "m").predict_proba(X)
    np.testing.assert_allclose(chances, other.predict_proba(standard), atol=1e-3)


def test_weights_to_start_from_are_those_of_columns_as_they_are(table):
    dataset = Dataset.from_arrays(table[0], table[1], weighting=Weighting(scaled=True))
    options = {"alpha": 0.02, "loss": "log_loss", "fit_intercept": True, "tol": 1e-6, "memory_limit": 2**30}
    first = solve(dataset, **options)
    again = solve(dataset, **options, start=Start(first.features, first.coef, first.intercept))
    assert first.n_iter > again.n_iter == 0
    np.testing.assert_allclose(again.objective, first.objective, rtol=1e-9)
