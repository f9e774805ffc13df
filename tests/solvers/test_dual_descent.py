"""Dual coordinates for ridge problems: against LIBLINEAR, and against the rounds that need no dual."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import LinearSVC
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.solvers.sparse import DualDescent
from bigmc.solvers.sparse.ridge import duals
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

N_ROWS, N_CLASSES = 400, 19


def texts(seed=3, n_features=3000, density=0.01):
    generator = np.random.default_rng(seed)
    X = scipy.sparse.random_array((N_ROWS, n_features), density=density, rng=generator, format="csr")
    X.data = generator.integers(1, 5, X.nnz).astype(float)
    return X, generator.integers(0, N_CLASSES, N_ROWS)


def as_seen(data):
    """The matrix that a dataset stands for, by the definition of its weighting."""
    dense = np.zeros((data.n_samples, data.n_features))
    for lo, shard in zip(data.base, data.shards, strict=False):
        indptr = shard.indptr(0, data.n_features)
        rows, values = np.empty(shard.nnz, np.uint16), np.empty(shard.nnz, np.float64)
        shard.read(0, shard.nnz, rows, values)
        columns = np.repeat(np.arange(data.n_features), np.diff(indptr))
        dense[lo + rows, columns] = values
    scale = data.column_scale()
    dense *= 1.0 if scale is None else scale
    return dense * data.row_scale(scale)[:, None]


def objective(X, y, start, ridge, weights, n_features):
    coef = np.zeros((n_features, N_CLASSES))
    coef[start.features] = start.coef
    signs = np.where(np.arange(N_CLASSES) == y[:, None], 1.0, -1.0)
    losses = (np.maximum(1.0 - signs * (X @ coef + start.intercept), 0.0) ** 2).sum(axis=1)
    return weights @ losses / weights.sum() + 0.5 * ridge * (coef**2).sum()


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True, idf=True), Weighting(binary=True)])
@pytest.mark.parametrize("ridge", [1.0, 0.05])
def test_the_weights_are_those_of_liblinear(weighting, ridge):
    X, y = texts()
    data = Dataset.from_arrays(X, y, weighting=weighting, shard_rows=150)
    found = DualDescent(data, ThreadEngine(1))
    found.descend(ridge / N_ROWS, 1e-6, 3000)
    seen = as_seen(data) if not weighting.binary else (X.toarray() > 0).astype(float)
    peer = LinearSVC(C=1 / ridge, tol=1e-8, max_iter=100_000).fit(seen, y)
    scores = found.scores(np.arange(N_ROWS))
    np.testing.assert_allclose(scores, peer.decision_function(seen), atol=2e-3)


@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_classes", "density", "most_labels"),
    [
        (60_000, 20, 2, 0.05, 1),
        (60_000, 20, 20, 0.05, 1),
        (500, 40_000, 20, 0.01, 1),
        (4000, 3000, 3, 0.1, 1),
        (20_000, 20, 24, 0.05, 20),
    ],
)
def test_memory_is_what_it_takes_and_not_much_more(n_rows, n_features, n_classes, density, most_labels):
    """Where samples, features, entries or sets take most of it: against what Python counts as allocated."""
    generator = np.random.default_rng(0)
    shape = n_rows, n_features
    X = scipy.sparse.random_array(shape, density=density, rng=generator, format="csr", dtype=np.float32)
    X.data[:] = 1
    labels = generator.integers(0, n_classes, n_rows)
    if most_labels > 1:
        labels = np.eye(n_classes, dtype=int)[labels]
        labels[::7, :most_labels] = 1
    data = Dataset.from_arrays(X, labels)
    DualDescent(data, ThreadEngine(1)).descend(0.1, 0.1, 1)  # whatever is made once
    tracemalloc.start()
    found = DualDescent(data, ThreadEngine(1))
    found.descend(0.1, 0.1, 2)
    start = found.start()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert start.coef.shape == (len(start.features), n_classes)
    assert peak < DualDescent.memory(data) < 1.8 * peak


def test_samples_are_put_in_row_order_shard_by_shard():
    """An entry in row order has 8 bytes, beside which 1 for the stored value of every one would be more."""
    X = scipy.sparse.random_array((4000, 500), density=0.2, rng=np.random.default_rng(0), format="csr")
    X.data[:] = 1
    data = Dataset.from_arrays(X, np.arange(4000) % 3, shard_rows=100)
    DualDescent(data, ThreadEngine(1))  # whatever is made once
    tracemalloc.start()
    DualDescent(data, ThreadEngine(1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 8 * X.nnz < peak < 9 * X.nnz


def test_any_number_of_threads_gives_the_same_bits():
    X, y = texts()
    data = Dataset.from_arrays(X, y)
    starts = []
    for n_threads in (1, 2, 3):
        found = DualDescent(data, ThreadEngine(n_threads), seed=7)
        found.descend(1 / N_ROWS, 0.01, 30)
        starts.append(found.start())
    for start in starts[1:]:
        np.testing.assert_array_equal(start.coef, starts[0].coef)
        np.testing.assert_array_equal(start.intercept, starts[0].intercept)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_descent_without_time_learns_from_some_samples_and_goes_on_later(monkeypatch, n_threads):
    X, y = texts()
    data, ridge = Dataset.from_arrays(X, y), 1 / N_ROWS
    width, entries = 24, X.nnz / N_ROWS
    monkeypatch.setattr(duals, "_WORK_AT_ONCE", int(50 * width * entries))  # the clock is looked at after 50
    found = DualDescent(data, ThreadEngine(n_threads), seed=7)
    found.descend(ridge, 0.01, 30, ends=0.0)
    assert found.n_visited == 50
    assert found.n_epochs == 3
    assert not found.is_whole
    variables, some = found.duals(), found.start()
    assert np.count_nonzero(variables.any(axis=1)) == 50
    weights = as_seen(data).T @ variables[:, :N_CLASSES]
    np.testing.assert_allclose(some.coef, weights[some.features], atol=1e-5)
    learned = np.flatnonzero(variables.any(axis=1))
    assert (found.scores(learned).argmax(axis=1) == y[learned]).mean() > 0.9
    found.descend(ridge, 0.001, 100)
    assert found.is_whole
    whole = DualDescent(data, ThreadEngine(1), seed=7)
    whole.descend(ridge, 0.001, 100)
    assert np.isclose(found.objective(ridge), whole.objective(ridge), rtol=1e-3)
    assert found.lower_bound(ridge) <= whole.objective(ridge) * (1 + 1e-6)


def test_after_a_reset_a_descent_is_the_first_one():
    X, y = texts()
    found = DualDescent(Dataset.from_arrays(X, y), ThreadEngine(1), seed=7)
    scores = []
    for ridge in (1.0, 0.1, 1.0):
        found.descend(ridge / N_ROWS, 0.01, 30)
        scores.append(found.scores(np.arange(N_ROWS)))
        found.reset()
        assert not found.scores(np.arange(N_ROWS)).any()
    np.testing.assert_array_equal(scores[0], scores[2])


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_bound_encloses_the_optimum(fit_intercept):
    X, y = texts()
    data = Dataset.from_arrays(X, y)
    weights = np.random.default_rng(1).integers(0, 4, N_ROWS).astype(float)
    ridge = 30.0 / weights.sum()  # of a smaller one the optimum takes ten times as long
    best = solve(
        data, alpha=0.0, ridge=ridge, loss="multitask_squared_hinge", fit_intercept=fit_intercept, tol=1e-7,
        sample_weight=weights, memory_limit=1 << 30,
    ).objective  # fmt: skip
    found = DualDescent(data, ThreadEngine(2), 0, weights, fit_intercept)
    for _ in range(4):
        found.descend(ridge, 0.0, 3)
        start = found.start()
        value = objective(X, y, start, ridge, weights, data.n_features)
        assert value >= best * (1 - 1e-6)
    bound = found.lower_bound(ridge)
    assert 0.5 * best < bound <= best
    more = DualDescent(data, ThreadEngine(1), 0, weights, fit_intercept)
    more.descend(ridge, 1e-5, 2000)
    bound = more.lower_bound(ridge)
    assert bound <= best
    # what the intercept costs where it is shrunk: little
    assert bound == pytest.approx(best, rel=0.06 if fit_intercept else 2e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_objective_is_that_of_the_definition(weighted):
    X, y = texts()
    weights = np.random.default_rng(1).integers(0, 4, N_ROWS).astype(float) if weighted else np.ones(N_ROWS)
    found = DualDescent(Dataset.from_arrays(X, y), ThreadEngine(1), 0, weights if weighted else None)
    found.descend(0.01, 0.0, 2)
    start = found.start()
    assert found.n_used == len(start.features)
    expected = objective(X, y, start, 0.01, weights, X.shape[1])
    assert found.objective(0.01) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("given", [slice(None), slice(0, N_ROWS, 2)])
def test_dual_variables_of_a_similar_problem_lead_to_the_same_weights_sooner(given):
    """Those of another ridge, of all samples or half of them, against LIBLINEAR and a start from nothing."""
    X, y = texts()
    data = Dataset.from_arrays(X, y, weighting=Weighting(l2=True))
    other = DualDescent(data, ThreadEngine(1))
    other.descend(1.0 / N_ROWS, 1e-3, 3000)
    cold, warm = (DualDescent(data, ThreadEngine(1)) for _ in range(2))
    cold.descend(0.4 / N_ROWS, 0.03, 3000)
    warm.start_from(other.duals()[given], np.arange(N_ROWS)[given])
    warm.descend(0.4 / N_ROWS, 0.03, 3000)
    assert warm.n_epochs < cold.n_epochs
    warm.descend(0.4 / N_ROWS, 1e-6, 3000)
    seen = as_seen(data)
    peer = LinearSVC(C=2.5, tol=1e-8, max_iter=100_000).fit(seen, y)
    np.testing.assert_allclose(warm.scores(np.arange(N_ROWS)), peer.decision_function(seen), atol=2e-3)


def test_a_start_takes_nothing_over_for_samples_without_weight():
    X, y = texts()
    data, weights = Dataset.from_arrays(X, y), (np.arange(N_ROWS) % 3 > 0).astype(float)
    whole = DualDescent(data, ThreadEngine(1))
    whole.descend(1 / N_ROWS, 1e-3, 3000)
    part = DualDescent(data, ThreadEngine(1), sample_weight=weights)
    part.start_from(whole.duals())
    assert not part.duals()[weights == 0].any()
    part.descend(1 / weights.sum(), 1e-6, 3000)
    kept = np.flatnonzero(weights)
    peer = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(X[kept], y[kept])
    np.testing.assert_allclose(part.scores(kept), peer.decision_function(X[kept]), atol=2e-3)


def test_samples_without_weight_change_nothing():
    X, y = texts()
    weights = (np.arange(N_ROWS) % 3 > 0).astype(float)
    some = Dataset.from_arrays(X[weights > 0], y[weights > 0])
    parts = DualDescent(some, ThreadEngine(1))
    whole = DualDescent(Dataset.from_arrays(X, y), ThreadEngine(1), sample_weight=weights)
    for found in (parts, whole):
        found.descend(1 / weights.sum(), 1e-6, 2000)
    kept = np.flatnonzero(weights)
    np.testing.assert_allclose(whole.scores(kept), parts.scores(np.arange(len(kept))), atol=1e-3)


def test_sets_of_labels_are_problems_of_their_own():
    X, _ = texts()
    marks = np.random.default_rng(2).random((N_ROWS, N_CLASSES)) < 0.15
    found = DualDescent(Dataset.from_arrays(X, marks.astype(int)), ThreadEngine(2))
    found.descend(1 / N_ROWS, 1e-6, 3000)
    scores = found.scores(np.arange(N_ROWS))
    for c in (0, 7, N_CLASSES - 1):
        peer = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(X, marks[:, c])
        np.testing.assert_allclose(scores[:, c], peer.decision_function(X), atol=2e-3)


def test_a_training_with_a_ridge_alone_starts_by_duals():
    """The certificate of one pass suffices, where rounds without this start take several."""
    X, y = texts()
    data = Dataset.from_arrays(X, y, weighting=Weighting(l2=True))
    found = solve(
        data, alpha=0.0, ridge=1 / N_ROWS, loss="multitask_squared_hinge",
        fit_intercept=True, tol=0.1, memory_limit=1 << 30,
    )  # fmt: skip
    assert found.certificate.gap <= 0.1
    assert len(found.history) == 1
