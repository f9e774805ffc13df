"""The Newton step against the same formulas in dense numpy, and against sweeps alone."""

import dense
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from instances import loss_and_gradient
from sklearn.datasets import load_digits

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers import solve
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.newton import Support
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.terms import Terms
from bigmc.store.dataset import Dataset

ALPHA = 1e-6


def made(n_classes, dtype=np.float64, n_workers=1, weights=None, seed=0):
    """A random sparse problem, its columns, weights for some of them, and the scores they give."""
    generator = np.random.default_rng(seed)
    X = scipy.sparse.random(300, 40, 0.2, format="csr", rng=generator)
    X.data = generator.integers(1, 5, X.nnz).astype(np.int8)
    y = np.arange(300) % n_classes
    dataset = Dataset.from_arrays(X, y)
    engine = ThreadEngine(n_workers)
    problem = Problem(dataset, objective("squared_hinge", "l1/l2"), ALPHA, weights, np.dtype(dtype), engine)
    (_, block), *_ = BlockSource(dataset, [(0, 40)], keep=True).stream([0])
    held = [Columns.of(0, block, np.arange(0, 20)), Columns.of(1, block, np.arange(20, 40))]
    features = np.array([1, 2, 5, 11, 19, 20, 33, 39])
    rows = np.zeros((len(features), problem.width))
    rows[:, :n_classes] = 0.3 * generator.standard_normal((len(features), n_classes))
    problem.rebuild_scores(Coefficients(features, rows), np.zeros(n_classes), held)
    chosen = [features[features < 20], features[features >= 20] - 20]
    return X.toarray().astype(float), y, problem, Support(problem, held, chosen), features, rows, held


def value(X, y, W, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    return loss_and_gradient(X, y, W, 0, weights)[0] + ALPHA * np.linalg.norm(W, axis=1).sum()


@pytest.mark.parametrize("n_classes", [2, 3, 9, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_with_the_hessian_are_differences_of_gradients(n_classes, weighted):
    weights = np.random.default_rng(1).integers(0, 3, 300).astype(float) if weighted else None
    X, y, problem, support, features, rows, _ = made(n_classes, weights=weights)
    weights = np.ones(300) if weights is None else weights
    gradient, diagonal = support._gradient()
    W = np.zeros((40, n_classes))
    W[features] = rows[:, :n_classes]
    assert np.allclose(gradient[:, :n_classes], loss_and_gradient(X, y, W, 0, weights)[1][features])
    direction = np.zeros_like(rows)
    direction[:, :n_classes] = np.random.default_rng(2).standard_normal((len(features), n_classes))
    small = 1e-7
    moved = [W.copy(), W.copy()]
    for sign, there in zip((1, -1), moved, strict=True):
        there[features] += sign * small * direction[:, :n_classes]
    ahead, behind = (loss_and_gradient(X, y, there, 0, weights)[1][features] for there in moved)
    product = problem.two_over_n * support._product(direction)
    assert np.allclose(product[:, :n_classes], (ahead - behind) / (2 * small), rtol=1e-4, atol=1e-6)
    unit = np.zeros_like(rows)
    unit[3, 1] = 1.0
    assert np.isclose((problem.two_over_n * support._product(unit))[3, 1], diagonal[3, 1])
    assert not product[:, n_classes:].any()


@pytest.mark.parametrize("n_classes", [3, 40])
def test_a_step_moves_weights_and_scores_alike_and_gets_lower(n_classes):
    X, y, problem, support, features, rows, _ = made(n_classes)
    W = np.zeros((40, n_classes))
    W[features] = rows[:, :n_classes]
    before = value(X, y, W)
    assert support.newton_step(rows, ALPHA, Terms.ridge(0.0, *rows.shape), 50)
    W[features] = rows[:, :n_classes]
    assert value(X, y, W) < before
    assert np.allclose(problem.scores[:, :n_classes], X @ W)


@pytest.mark.parametrize("n_classes", [3, 12])
def test_steps_reach_the_minimum_that_scipy_finds(n_classes):
    X, y, problem, support, features, rows, held = made(n_classes)

    def restricted(flat):
        W = np.zeros((40, n_classes))
        W[features] = flat.reshape(len(features), n_classes)
        lengths = np.linalg.norm(W[features], axis=1, keepdims=True)
        _, gradient, _ = loss_and_gradient(X, y, W, 0, np.ones(len(y)))
        return value(X, y, W), (gradient[features] + ALPHA * W[features] / lengths).ravel()

    start = rows[:, :n_classes].ravel()
    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-12}
    best = scipy.optimize.minimize(restricted, start, jac=True, method="L-BFGS-B", options=options)
    near = best.x.reshape(len(features), n_classes)
    near = near * (1 + 0.2 * np.random.default_rng(3).random(near.shape))
    rows[:, :n_classes] = near
    coef = Coefficients(features, rows)
    problem.rebuild_scores(coef, np.zeros(n_classes), held)
    steps = 0
    while steps < 30 and support.newton_step(rows, ALPHA, Terms.ridge(0.0, *rows.shape), 200):
        steps += 1
    assert steps < 30
    assert abs(restricted(rows[:, :n_classes].ravel())[0] - best.fun) < 1e-9


def test_any_number_of_workers_gives_the_same_bits():
    outcomes = []
    for n_workers in (1, 3):
        *_, support, _, rows, _ = made(9, np.float32, n_workers)
        support.newton_step(rows, ALPHA, Terms.ridge(0.0, *rows.shape), 30)
        outcomes.append(rows)
    assert (outcomes[0] == outcomes[1]).all()


def test_sweeps_with_and_without_newton_steps_meet_at_the_optimum():
    data = load_digits()
    dataset = Dataset.from_arrays(data.data / 16, data.target)
    with_steps = solve(dataset, alpha=1e-2, memory_limit=1 << 30, tol=1e-9, max_passes=1000)
    without = solve(dataset, alpha=1e-2, memory_limit=1 << 30, tol=1e-9, max_passes=1000, step="constant")
    assert with_steps.converged
    assert without.converged
    assert abs(with_steps.objective - without.objective) < 1e-8
    assert (with_steps.features == without.features).all()
    assert with_steps.n_iter < without.n_iter


@pytest.mark.parametrize("loss", ["squared_hinge", "multitask_squared_hinge"])
@pytest.mark.parametrize("intercept", [False, True])
def test_steps_of_both_hinges_with_ridge_and_intercept_reach_a_stationary_point(loss, intercept):
    n_classes, ridge = 5, 1e-3
    generator = np.random.default_rng(4)
    X = scipy.sparse.random(200, 12, 0.3, format="csr", rng=generator)
    X.data = generator.integers(1, 5, X.nnz).astype(np.int8)
    y = np.arange(200) % n_classes
    weights = generator.integers(0, 3, 200).astype(float)
    dataset = Dataset.from_arrays(X, y)
    both = objective(loss, "l1/l2", ridge=ridge)
    problem = Problem(dataset, both, ALPHA, weights, np.dtype(np.float64), ThreadEngine(1))
    (_, block), *_ = BlockSource(dataset, [(0, 12)], keep=True).stream([0])
    held = [Columns.of(0, block, np.arange(12))]
    rows = np.zeros((12 + intercept, problem.width))
    start = dense.loss_and_gradient(loss, X.toarray(), y, np.zeros((12, n_classes)), 0, weights)[1]
    rows[:12, :n_classes] = -0.01 * start
    coef, b = Coefficients(np.arange(12), rows[:12].copy()), np.zeros(n_classes)
    problem.rebuild_scores(coef, b + rows[12:, :n_classes].sum(axis=0), held)
    support = Support(problem, held, [np.arange(12)], intercept)
    steps = 0
    while steps < 50 and support.newton_step(rows, ALPHA, Terms.ridge(ridge, 12, problem.width), 200):
        steps += 1
    W, b = rows[:12, :n_classes], rows[12:, :n_classes].sum(axis=0)
    assert np.allclose(problem.scores[:, :n_classes], X @ W + b)
    _, gradient, slope = dense.loss_and_gradient(loss, X.toarray(), y, W, b, weights)
    left = gradient + ridge * W + ALPHA * W / np.linalg.norm(W, axis=1, keepdims=True)
    assert steps > 0
    assert np.abs(left).max() < 1e-7
    assert not intercept or np.abs(slope).max() < 1e-7


def test_steps_with_a_linear_term_and_ridges_reach_the_minimum_that_scipy_finds():
    X, y, problem, support, features, rows, held = made(3)
    generator = np.random.default_rng(7)
    tilt = np.zeros_like(rows)
    tilt[:, :3] = 1e-3 * generator.standard_normal((len(features), 3))
    terms = Terms(tilt, 0.01 * generator.random(len(features)))

    def restricted(flat):
        W = np.zeros((40, 3))
        W[features] = flat.reshape(len(features), 3)
        lengths = np.linalg.norm(W[features], axis=1, keepdims=True)
        slope = loss_and_gradient(X, y, W, 0, np.ones(len(y)))[1][features]
        slope += ALPHA * W[features] / lengths + tilt[:, :3] + terms.ridges[:, None] * W[features]
        more = (tilt[:, :3] * W[features]).sum()
        more += 0.5 * (terms.ridges[:, None] * W[features] ** 2).sum()
        return value(X, y, W) + more, slope.ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-12}
    best = scipy.optimize.minimize(
        restricted, rows[:, :3].ravel(), jac=True, method="L-BFGS-B", options=options
    )
    rows[:, :3] = best.x.reshape(len(features), 3) * 1.1
    problem.rebuild_scores(Coefficients(features, rows), np.zeros(3), held)
    steps = 0
    while steps < 30 and support.newton_step(rows, ALPHA, terms, 200):
        steps += 1
    assert steps < 30
    assert abs(restricted(rows[:, :3].ravel())[0] - best.fun) < 1e-9
