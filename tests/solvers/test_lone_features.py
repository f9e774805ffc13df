"""Features of one sample alone, whose weights are not kept, against the sums that define all weights."""

import numpy as np
import pytest
import scipy.sparse

from bigmc.engine import ThreadEngine
from bigmc.solvers.sparse import DualDescent
from bigmc.store.dataset import Dataset

N_ROWS, N_FEATURES, N_CLASSES = 300, 4000, 11
LABELS = np.random.default_rng(6).integers(0, N_CLASSES, N_ROWS)


@pytest.fixture
def problem():
    generator = np.random.default_rng(5)
    X = scipy.sparse.random_array((N_ROWS, N_FEATURES), density=0.001, rng=generator, format="csr")
    data = Dataset.from_arrays(X, LABELS, shard_rows=100)
    counts = np.bincount(X.indices, minlength=N_FEATURES)
    assert 300 < np.count_nonzero(counts == 1) < 2000
    assert np.count_nonzero(counts > 1) > 100
    weights = np.random.default_rng(1).integers(0, 3, N_ROWS).astype(float)
    found = DualDescent(data, ThreadEngine(2), sample_weight=weights)
    found.descend(0.5 / weights.sum(), 0.01, 30)
    return X.toarray(), found, weights


def test_weights_are_sums_over_samples(problem):
    X, found, _ = problem
    duals = found.duals()[:, :N_CLASSES].astype(float)
    kept = np.concatenate(list(found.weights()))
    np.testing.assert_allclose(kept, (X.T @ duals)[found.features], atol=1e-5)
    np.testing.assert_allclose(
        found.scores(np.arange(N_ROWS)), X @ (X.T @ duals) + found.intercept, atol=1e-4
    )
    assert found.n_used == np.count_nonzero(kept.any(axis=1))
    start = found.start()
    np.testing.assert_array_equal(start.coef, kept[kept.any(axis=1)])
    np.testing.assert_array_equal(start.features, found.features[kept.any(axis=1)])


def test_weights_are_changed_wherever_they_are(problem):
    X, found, sample_weights = problem
    before = np.concatenate(list(found.weights()))
    found.change_weights(lambda weights: np.round(weights, 1))
    after = np.concatenate(list(found.weights()))
    np.testing.assert_array_equal(after, np.round(before, 1))
    some = np.array([5, 0, 77, 78, 250])
    coef = np.zeros((N_FEATURES, N_CLASSES))
    coef[found.features] = after
    np.testing.assert_allclose(found.scores(some), X[some] @ coef + found.intercept, atol=1e-5)
    signs = np.where(np.arange(N_CLASSES) == LABELS[:, None], 1.0, -1.0)
    losses = (np.maximum(1.0 - signs * (X @ coef + found.intercept), 0.0) ** 2).sum(axis=1)
    expected = sample_weights @ losses / sample_weights.sum() + 0.5 * 0.3 * (coef**2).sum()
    assert found.objective(0.3) == pytest.approx(expected, rel=1e-5)
    bound = found.lower_bound(0.5 / sample_weights.sum())
    assert 0 < bound < expected
