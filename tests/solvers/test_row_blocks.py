"""Dual coordinates of one block of samples after the other: against LIBLINEAR and the solver in memory."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import LinearSVC
from sparse_runs import run_of, solve

from bigmc.engine import ThreadEngine
from bigmc.solvers import loop
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.solvers.sparse.ridge.row_blocks import (
    BlockPlan,
    RowBlockDescent,
    descend_blocks,
    is_unfinished,
    plan_blocks,
)
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

N_ROWS, N_CLASSES = 900, 11
RIDGE = {"alpha": 0.0, "loss": "multitask_squared_hinge", "memory_limit": 1 << 30}


def texts(n_features=1600, **options):
    """Five shards of counts of words, and labels that depend on them."""
    generator = np.random.default_rng(4)
    X = scipy.sparse.random_array((N_ROWS, n_features), density=0.01, rng=generator, format="csr")
    X.data = generator.integers(1, 5, X.nnz).astype(float)
    y = np.argmax(X @ generator.normal(size=(n_features, N_CLASSES)), axis=1)
    return X, y, Dataset.from_arrays(X, y, shard_rows=200, **options)


def blocks(data, n_shards=2):
    """Return a plan of so many shards together."""
    shards = [list(range(lo, min(lo + n_shards, data.n_shards))) for lo in range(0, data.n_shards, n_shards)]
    return BlockPlan(shards, np.flatnonzero(data.column_nnz()))


def weights_of(trained, data):
    coef = np.zeros((data.n_features, data.n_classes))
    coef[trained.state.coef.features] = trained.state.coef.rows[:, : data.n_classes]
    return coef


def objective(seen, marks, coef, intercept, ridge, weights):
    losses = (np.maximum(1.0 - np.where(marks, 1.0, -1.0) * (seen @ coef + intercept), 0.0) ** 2).sum(axis=1)
    return weights @ losses / weights.sum() + 0.5 * ridge * (coef**2).sum()


@pytest.mark.parametrize("n_shards", [1, 3])
def test_the_weights_are_those_of_liblinear(n_shards):
    X, y, data = texts()
    run = run_of(data, ridge=0.5 / N_ROWS, fit_intercept=True, tol=1e-4, max_passes=400, **RIDGE)
    trained = descend_blocks(run, blocks(data, n_shards), None)
    peer = LinearSVC(C=2.0, tol=1e-8, max_iter=100_000).fit(X, y)
    scores = X @ weights_of(trained, data) + trained.state.intercept
    np.testing.assert_allclose(scores, peer.decision_function(X), atol=0.03)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    "weighting", [Weighting(), Weighting(l2=True, idf=True), Weighting(binary=True, l2=True)]
)
def test_the_certificate_is_of_the_objective_and_encloses_the_optimum(weighting, fit_intercept):
    X, y, data = texts(weighting=weighting)
    weights = np.random.default_rng(1).integers(0, 4, N_ROWS).astype(float)
    options = {"ridge": 1.0 / weights.sum(), "fit_intercept": fit_intercept, "sample_weight": weights}
    best = solve(data, tol=1e-7, **RIDGE, **options)
    seen = X.toarray() if not weighting.binary else (X.toarray() > 0).astype(float)
    seen = seen * (1.0 if data.column_scale() is None else data.column_scale())
    if weighting.l2:
        seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    for tol in (0.3, 0.02):
        trained = descend_blocks(run_of(data, tol=tol, **RIDGE, **options), blocks(data), None)
        coef, certificate = weights_of(trained, data), trained.certificate
        marks = y[:, None] == np.arange(N_CLASSES)
        value = objective(seen, marks, coef, trained.state.intercept, options["ridge"], weights)
        assert certificate.upper == pytest.approx(value, rel=1e-5)
        assert certificate.lower <= best.objective
        assert best.certificate.lower <= certificate.upper
        assert fit_intercept or certificate.gap <= tol  # of so few samples a shrunk intercept is another one


def test_sets_of_labels_are_problems_of_their_own():
    X, _, _ = texts()
    marks = np.random.default_rng(2).random((N_ROWS, N_CLASSES)) < 0.15
    data = Dataset.from_arrays(X, marks.astype(int), shard_rows=200)
    run = run_of(data, ridge=1 / N_ROWS, fit_intercept=True, tol=1e-4, max_passes=400, **RIDGE)
    trained = descend_blocks(run, blocks(data), None)
    scores = X @ weights_of(trained, data) + trained.state.intercept
    for c in (0, N_CLASSES - 1):
        peer = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(X, marks[:, c])
        np.testing.assert_allclose(scores[:, c], peer.decision_function(X), atol=0.03)


def test_any_number_of_threads_gives_the_same_bits():
    _, _, data = texts()
    found = []
    for n_threads in (1, 2, 3):
        run = run_of(data, ridge=1 / N_ROWS, fit_intercept=True, engine=ThreadEngine(n_threads), **RIDGE)
        found.append(descend_blocks(run, blocks(data), None))
    for other in found[1:]:
        np.testing.assert_array_equal(other.state.coef.rows, found[0].state.coef.rows)
        assert other.certificate == found[0].certificate


class Killed(Exception):
    """Stands for a kill after a state was saved."""


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_killed_descent_goes_on_to_the_same_bits(after):
    _, _, data = texts()
    make = partial(run_of, data, ridge=1 / N_ROWS, fit_intercept=True, tol=5e-3, **RIDGE)
    whole = descend_blocks(make(), blocks(data), None)

    class Dying(MemoryCheckpoint):
        def save(self, meta, arrays):
            super().save(meta, {name: array.copy() for name, array in arrays.items()})
            self.n_saved = getattr(self, "n_saved", 0) + 1
            if self.n_saved == after + 1:
                raise Killed

    checkpoint = Dying()
    with pytest.raises(Killed):
        descend_blocks(make(checkpoint=checkpoint), blocks(data), None)
    run = make(checkpoint=checkpoint)
    saved = loop.load(run.context, run.fingerprint)
    assert is_unfinished(saved)
    resumed = descend_blocks(run, blocks(data), saved)
    np.testing.assert_array_equal(resumed.state.coef.rows, whole.state.coef.rows)
    assert (resumed.certificate, resumed.state.history) == (whole.certificate, whole.state.history)


def test_a_training_larger_than_memory_goes_on_from_there_to_its_tolerance():
    """Where the intercept is shrunk the gap ends above 0; chunks of the samples then lead on."""
    _, _, data = texts()
    options = {"ridge": 1 / N_ROWS, "fit_intercept": True, **RIDGE}
    found = solve(data, tol=1e-5, chunk_bytes=1 << 20, **options)
    best = solve(data, tol=1e-7, **options)
    assert found.converged
    assert found.objective == pytest.approx(best.objective, rel=2e-5)
    assert "violation" not in found.history[0]  # of the descent through blocks
    assert "violation" in found.history[-1]  # of a pass over chunks


def test_passes_and_bytes_are_what_was_read():
    _, _, data = texts()
    found = solve(data, ridge=1 / N_ROWS, tol=0.1, chunk_bytes=1 << 20, **RIDGE)
    assert found.converged
    [figures] = found.history
    assert found.n_passes == figures["n_passes"] == figures["n_iter"] / 3 + 1
    assert found.bytes_read == found.n_passes * data.nnz * (2 + data.dtype.itemsize)
    few = solve(data, ridge=1 / N_ROWS, tol=1e-6, max_passes=3, chunk_bytes=1 << 20, **RIDGE)
    assert few.n_passes == 3
    assert not few.converged


@pytest.mark.parametrize(
    "other", [{"alpha": 1e-3}, {"loss": "squared_hinge"}, {"max_passes": 1}, {"step": "constant"}]
)
def test_other_problems_go_other_ways(other):
    _, _, data = texts()
    assert plan_blocks(run_of(data, **{"ridge": 0.1, **RIDGE})) is not None
    assert plan_blocks(run_of(data, **{"ridge": 0.1, **RIDGE, **other})) is None


@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_classes", "density"),
    [(60_000, 1200, 2, 0.001), (60_000, 1200, 20, 0.001), (2_000, 40_000, 20, 0.01), (40_000, 3000, 3, 0.05)],
)
def test_blocks_fit_into_the_memory_they_are_planned_for(n_rows, n_features, n_classes, density):
    """Where samples, features or entries take most of it: against what Python counts as allocated."""
    generator = np.random.default_rng(0)
    shape = n_rows, n_features
    X = scipy.sparse.random_array(shape, density=density, rng=generator, format="csr", dtype=np.float32)
    data = Dataset.from_arrays(X, generator.integers(0, n_classes, n_rows), shard_rows=n_rows // 8)

    def make(memory_limit):
        options = {**RIDGE, "memory_limit": memory_limit, "tol": 1e-3, "max_passes": 3}
        return run_of(data, ridge=0.1, engine=ThreadEngine(1), **options)

    sizes = range(20 << 20, 200 << 20, 1 << 20)
    limit = next(size for size in sizes if (plan := plan_blocks(make(size))) and len(plan.blocks) <= 4)
    plan = plan_blocks(make(limit))
    assert len(plan.blocks) > 1
    RowBlockDescent(make(limit), plan).improve()  # whatever is made once
    tracemalloc.start()
    descend_blocks(make(limit), plan, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + (18 << 20) <= limit < 3.5 * peak + (18 << 20)
