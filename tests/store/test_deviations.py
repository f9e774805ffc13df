"""Columns in units of their deviation, against NumPy and scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import bigmc
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

from .conftest import store_dataset

SCALED = Weighting(scaled=True)


@pytest.fixture(scope="module")
def units():
    """Return columns of very different units, one constant and one mostly 0, and labels of two of them."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 5)) * [1e-3, 1e4, 1.0, 0.0, 1.0] + [0.0, 2e5, 2000.0, 7.0, 0.0]
    X[rng.random(300) < 0.9, 4] = 0.0
    y = np.where(X[:, 0] * 1e3 + (X[:, 1] - 2e5) * 1e-4 > 0, "b", "a")
    return X, y


def test_factors_are_one_over_the_deviations(units):
    X, y = units
    scale = Dataset.from_arrays(X, y, weighting=SCALED).column_scale()
    expected = np.where(X.std(axis=0) > 0, 1 / np.maximum(X.std(axis=0), 1e-30), 1 / 7)
    np.testing.assert_allclose(scale, expected, rtol=1e-6)


def test_columns_may_be_longer_than_a_block(units, tmp_path, monkeypatch):
    """A million rows have megabytes of each feature, also where there are no stored statistics."""
    X, y = units
    monkeypatch.setattr("bigmc.store.dataset.BLOCK_BYTES", 500)
    codes = (y == "b").astype(np.int32)
    parts = [("train", X[:100]), ("train", X[100:220]), ("train", X[220:])]
    stored = store_dataset(tmp_path / "d", parts, codes, ["a", "b"], SCALED)
    assert len(stored.spans(500)) == 5
    for view, rows in ((stored, slice(None)), (stored.subset([0, 2]), np.r_[0:100, 220:300])):
        expected = np.where(X[rows].std(axis=0) > 0, X[rows].std(axis=0), 7)
        np.testing.assert_allclose(view.column_scale(), 1 / expected, rtol=1e-6)


def test_a_column_of_zeros_stays_one():
    X = np.array([[0.0, 1.0], [0.0, 3.0]])
    scale = Dataset.from_arrays(X, [0, 1], weighting=SCALED).column_scale()
    np.testing.assert_array_equal(scale, [1.0, 1.0])


def test_the_dictionary_of_other_weightings_is_what_it_was():
    assert Weighting().to_dict() == {"binary": False, "l2": False, "idf": False}
    assert Weighting(**SCALED.to_dict()) == SCALED
    assert SCALED.name == "scaled"


def test_a_model_of_scaled_columns_is_that_of_standardised_ones(units, tmp_path):
    X, y = units
    data = Dataset.from_arrays(X, y, weighting=SCALED)
    model = bigmc.SparseClassifier(alpha=0.0, ridge=1 / 300, loss="log_loss", fit_intercept=True, tol=1e-7)
    model.fit(data)
    model.save(tmp_path / "m")
    standard = StandardScaler().fit_transform(X)
    # Two classes have weights each here: a ridge on both is half of it on their difference.
    other = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(standard, y)
    chances = bigmc.load_model(tmp_path / "m").predict_proba(X)
    np.testing.assert_allclose(chances, other.predict_proba(standard), atol=2e-3)
    pipeline = bigmc.to_sklearn(tmp_path / "m")
    np.testing.assert_array_equal(pipeline.predict(X), model.predict(X))


@pytest.mark.parametrize("first", [10**6, 10**9])
def test_numbers_of_rows_become_about_one(first):
    """Far from 0 beside their deviations, descent would not end."""
    numbers = np.arange(first, first + 100.0)[:, np.newaxis]
    scale = Dataset.from_arrays(numbers, np.arange(100) % 2, weighting=SCALED).column_scale()
    np.testing.assert_allclose(scale * numbers[0], 1.0, rtol=1e-4)
