"""Descent on dense ridge problems: against other minimisers, and only where fit asks."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from bigmc.engine import Resources, ThreadEngine
from bigmc.learners import learner_of
from bigmc.options.learners import FitSparseOptions, SparseOptions
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse.ridge import dense_descent
from bigmc.store.dataset import Dataset

N_CLASSES, N_ROWS, N_FEATURES = 12, 700, 40


def rows(seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(N_CLASSES, size=N_ROWS)
    centres = rng.normal(size=(N_CLASSES, N_FEATURES))
    return centres[labels] + noise * rng.normal(size=(N_ROWS, N_FEATURES)), labels


def run_of(X, y, weights=None, ridge=1.0, *, n_threads=1, ends=math.inf, **options):
    data = Dataset.from_arrays(X, y)
    learner = learner_of(FitSparseOptions(ridge=ridge / N_ROWS, **options))
    return learner.solver_run(data, weights, 1 << 30, RunContext(ThreadEngine(n_threads), ends=ends))


def minimum(X, signs, weights, ridge):
    """Return the least objective of one class by L-BFGS."""
    A = np.column_stack([X, np.ones(len(X))])
    n = weights.sum()

    def value(w):
        left = np.maximum(1.0 - signs * (A @ w), 0.0)
        slope = -2.0 * A.T @ (weights * signs * left) / n
        slope[:-1] += ridge * w[:-1]
        return weights @ left**2 / n + 0.5 * ridge * w[:-1] @ w[:-1], slope

    found = minimize(value, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 5000})
    return found.fun, value


@pytest.mark.parametrize("noise", [0.5, 4.0])  # separable, and not at all
def test_every_class_is_at_its_minimum(noise):
    X, y = rows(noise=noise)
    weights = np.random.default_rng(1).integers(0, 3, N_ROWS).astype(float)
    run = run_of(X, y, weights, n_threads=2)
    start = dense_descent.start_by_descent(run, 1e-6)
    for r in (0, N_CLASSES - 1):
        least, value = minimum(X, np.where(y == r, 1.0, -1.0), weights, run.task.objective.ridge)
        assert value(np.append(start.coef[:, r], start.intercept[r]))[0] <= least * (1 + 1e-4)


@pytest.mark.parametrize("noise", [0.5, 4.0])
@pytest.mark.parametrize("spread", [1.0, 30.0])  # of the columns
def test_the_log_loss_is_at_its_minimum(noise, spread):
    X, y = rows(noise=noise)
    X *= np.geomspace(1.0, spread, N_FEATURES)
    weights = np.random.default_rng(1).integers(0, 3, N_ROWS).astype(float)
    run = run_of(X, y, weights, loss="log_loss", n_threads=2)
    start = dense_descent.start_by_descent(run, 1e-4)
    strength = 1.0 / (run.task.objective.ridge * weights.sum())
    peer = LogisticRegression(C=strength, max_iter=5_000).fit(X, y, weights)

    def value(coef, intercept):
        scores = X @ coef + intercept
        losses = logsumexp(scores, axis=1) - scores[np.arange(N_ROWS), y]
        return weights @ losses + 0.5 / strength * np.sum(coef**2)

    assert value(start.coef, start.intercept) <= value(peer.coef_.T, peer.intercept_) * (1 + 1e-3)


@pytest.mark.parametrize("loss", ["multitask_squared_hinge", "log_loss"])
def test_any_number_of_threads_gives_the_same_bits(loss):
    X, y = (np.concatenate([part] * 9) for part in rows())  # several parts of rows
    one, two = (dense_descent.start_by_descent(run_of(X, y, loss=loss, n_threads=n), 1e-2) for n in (1, 2))
    assert np.array_equal(one.coef, two.coef)


def test_without_an_intercept_there_is_none():
    run = run_of(*rows(), fit_intercept=False)
    assert not dense_descent.start_by_descent(run, 1e-3).intercept.any()


def test_without_time_it_starts_from_least_squares():
    X, y = rows()
    start = dense_descent.start_by_descent(run_of(X, y, ends=-math.inf), 1e-3)
    A = np.column_stack([X, np.ones(N_ROWS)])
    ridges = np.diag([0.5] * N_FEATURES + [0.0])
    own = np.linalg.solve(A.T @ A + ridges, A.T @ np.where(y == 3, 1.0, -1.0))
    assert np.allclose(start.coef[:, 3], own[:-1], atol=1e-6)


def test_sparse_wide_and_small_data_are_left_to_sweeps():
    X, y = rows()
    assert dense_descent.is_dense(run_of(X, y).task)
    assert not dense_descent.is_dense(
        run_of(np.where(np.random.default_rng(2).random(X.shape) < 0.09, X, 0), y).task
    )
    assert not dense_descent.is_dense(run_of(np.tile(X, 25), y).task)
    assert not dense_descent.is_dense(run_of(X[:50], y[:50]).task)


@pytest.mark.parametrize(("n_rows", "is_dense"), [(200, True), (199, False)])
def test_columns_are_no_more_than_rows(n_rows, is_dense):
    X, y = rows()
    assert dense_descent.is_dense(run_of(np.tile(X, 5)[:n_rows], y[:n_rows]).task) is is_dense


@pytest.mark.parametrize("loss", ["multitask_squared_hinge", "log_loss"])
def test_one_pass_certifies_the_model_of_a_fit_and_the_learner_by_itself_stays_as_it_was(loss):
    X, y = rows(noise=0.5)
    data, resources = Dataset.from_arrays(X, y), Resources(ThreadEngine(1), 1 << 30)
    quick = learner_of(FitSparseOptions(loss=loss)).train(data, resources).model
    plain = learner_of(SparseOptions(loss=loss)).train(data, resources).model
    assert [quick.n_passes, quick.certificate["gap"] <= 0.03] == [1.0, True]
    assert plain.n_passes > 1.0
    assert quick.objective <= 1.01 * plain.objective
    assert quick.params == plain.params


def test_label_sets_are_solved_too():
    X, y = rows()
    marks = np.eye(N_CLASSES, dtype=int)[y]
    marks[::3, 0] = 1
    options = FitSparseOptions(loss="multitask_squared_hinge", max_passes=1)
    model = (
        learner_of(options).train(Dataset.from_arrays(X, marks), Resources(ThreadEngine(1), 1 << 30)).model
    )
    assert model.certificate["gap"] <= 0.1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_columns_too_unequal_for_a_factorisation_are_left_to_sweeps():
    X, y = rows()
    X[:, 0] *= 1e150
    run = run_of(X.astype(float), y)
    run = replace(run, task=replace(run.task, objective=replace(run.task.objective, ridge=1e-30)))
    with np.errstate(all="ignore"):
        assert dense_descent.start_by_descent(run, 1e-3) is None
