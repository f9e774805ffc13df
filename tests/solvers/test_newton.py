"""The Newton step against the same formulas in dense numpy, and against sweeps alone."""

from dataclasses import replace

import dense
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from instances import loss_and_gradient
from sklearn.datasets import load_digits
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.newton import Support
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.store.block import Residency
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
    (_, block), *_ = BlockSource(dataset, [(0, 40)], Residency.MEMORY).stream([0])
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
    gradient, diagonal = support.gradient()
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
    product = problem.two_over_n * support.product(direction)
    assert np.allclose(product[:, :n_classes], (ahead - behind) / (2 * small), rtol=1e-4, atol=1e-6)
    unit = np.zeros_like(rows)
    unit[3, 1] = 1.0
    assert np.isclose((problem.two_over_n * support.product(unit))[3, 1], diagonal[3, 1])
    assert not product[:, n_classes:].any()


def test_numbers_in_row_order_are_as_precise_as_the_scores():
    """What a step costs in memory, and what it does to weights and scores, beside double precision."""
    moved = {}
    for dtype in (np.float64, np.float32):
        problem, _, features, rows, held = made(3, dtype)[2:]
        wide = [replace(columns, data=columns.data * 0.1) for columns in held]
        chosen = [features[features < 20], features[features >= 20] - 20]
        problem.rebuild_scores(Coefficients(features, rows), np.zeros(3), wide)
        support, terms = Support(problem, wide, chosen), Terms.ridge(0.1, len(features), problem.width)
        assert support.newton_step(rows, ALPHA, terms, 200) == 1.0
        needed = [Support.memory(problem, nnz, wide[0].data.dtype, len(features)) for nnz in (1000, 0)]
        assert needed[0] - needed[1] == 1000 * (4 + np.dtype(dtype).itemsize)
        after = problem.scores.copy()
        problem.rebuild_scores(Coefficients(features, rows), np.zeros(3), wide)
        np.testing.assert_allclose(after, problem.scores, atol=1e-5)
        moved[dtype] = rows
    np.testing.assert_allclose(moved[np.float32], moved[np.float64], atol=1e-4)


def test_a_damped_step_is_the_minimum_of_the_damped_model():
    alpha, damping, m = 1e-2, 0.5, 3
    X, y, _, support, features, rows, _ = made(m)
    before = rows[:, :m].copy()

    def gradient(flat):
        W = np.zeros((40, m))
        W[features] = flat.reshape(-1, m)
        return loss_and_gradient(X, y, W, 0, np.ones(len(y)))[1][features].ravel()

    small, w = 1e-6, before.ravel()
    steps = small * np.eye(len(w))
    hessian = np.array([(gradient(w + s) - gradient(w - s)) / (2 * small) for s in steps])
    lengths = np.linalg.norm(before, axis=1)
    most = 2.0 / len(y) * (X[:, features] ** 2).sum(axis=0)
    for j, (row, length) in enumerate(zip(before, lengths, strict=True)):
        here = slice(m * j, m * j + m)
        across = np.eye(m) - np.outer(row, row) / length**2
        hessian[here, here] += alpha / length * across
        hessian[here, here] += damping * (most[j] + alpha / length) * np.eye(m)
    derivative = gradient(w) + alpha * (before / lengths[:, None]).ravel()
    assert support.newton_step(rows, alpha, Terms.ridge(0.0, *rows.shape), 50, damping) == 1.0
    expected = -np.linalg.solve(hessian, derivative).reshape(-1, m)
    np.testing.assert_allclose(rows[:, :m] - before, expected, rtol=1e-5, atol=1e-8)


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
    while steps < 100 and support.newton_step(rows, ALPHA, Terms.ridge(0.0, *rows.shape), 200):
        steps += 1
    assert steps < 100  # the last ones change no more than rounding does: how many depends on the libraries
    assert abs(restricted(rows[:, :n_classes].ravel())[0] - best.fun) < 1e-9


def test_any_number_of_workers_gives_the_same_bits():
    outcomes = []
    for n_workers in (1, 3):
        *_, support, _, rows, _ = made(9, np.float32, n_workers)
        support.newton_step(rows, ALPHA, Terms.ridge(0.0, *rows.shape), 30)
        outcomes.append(rows)
    assert (outcomes[0] == outcomes[1]).all()


@pytest.mark.slow
def test_sweeps_with_and_without_newton_steps_meet_at_the_optimum():
    data = load_digits()
    dataset = Dataset.from_arrays(data.data[:500], data.target[:500])
    options = {"alpha": 0.8, "memory_limit": 1 << 30, "tol": 1e-9, "max_passes": 1000}
    with_steps = solve(dataset, **options)
    without = solve(dataset, step="constant", **options)
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
    (_, block), *_ = BlockSource(dataset, [(0, 12)], Residency.MEMORY).stream([0])
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
    _, gradient, by_intercept = dense.loss_and_gradient(loss, X.toarray(), y, W, b, weights)
    left = gradient + ridge * W + ALPHA * W / np.linalg.norm(W, axis=1, keepdims=True)
    assert steps > 0
    assert np.abs(left).max() < 1e-7
    assert not intercept or np.abs(by_intercept).max() < 1e-7


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
        derivative = loss_and_gradient(X, y, W, 0, np.ones(len(y)))[1][features]
        derivative += ALPHA * W[features] / lengths + tilt[:, :3] + terms.ridges[:, None] * W[features]
        more = (tilt[:, :3] * W[features]).sum()
        more += 0.5 * (terms.ridges[:, None] * W[features] ** 2).sum()
        return value(X, y, W) + more, derivative.ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-12}
    best = scipy.optimize.minimize(
        restricted, rows[:, :3].ravel(), jac=True, method="L-BFGS-B", options=options
    )
    rows[:, :3] = best.x.reshape(len(features), 3) * 1.1
    problem.rebuild_scores(Coefficients(features, rows), np.zeros(3), held)
    steps = 0
    while steps < 100 and support.newton_step(rows, ALPHA, terms, 200):
        steps += 1
    assert steps < 100  # the last ones change no more than rounding does: how many depends on the libraries
    assert abs(restricted(rows[:, :3].ravel())[0] - best.fun) < 1e-9


PAIRS = [
    ("log_loss", "l1/l2"),
    ("log_loss", "l1"),
    ("log_loss", "sparse_group"),
    ("squared_hinge", "l1"),
    ("squared_hinge", "sparse_group"),
    ("multitask_squared_hinge", "l1"),
    ("multitask_squared_hinge", "sparse_group"),
    ("multilabel_ranking", "l1"),
]


def any_pair(loss, penalty, n_classes=5, *, intercept=False, ridge=0.0, dtype=np.float64, n_workers=1):
    """A problem of a pair, some weights of 12 features, a third of them zero, and the dense definition."""
    n = 200 if n_workers == 1 else 9000
    generator = np.random.default_rng(n_classes)
    X = generator.integers(1, 5, (n, 12)) * (generator.random((n, 12)) < 0.3)
    sets = loss == "multilabel_ranking"
    likely = X @ generator.standard_normal((12, n_classes)) + 3 * generator.standard_normal((n, n_classes))
    y = (likely > 1).astype(int) if sets else likely.argmax(axis=1)
    y[:n_classes] = np.eye(n_classes) if sets else np.arange(n_classes)
    weights = generator.integers(0, 3, n).astype(float)
    dataset = Dataset.from_arrays(scipy.sparse.csr_matrix(X, dtype=np.int8), y)
    pair = objective(loss, penalty, ridge=ridge, sets=sets)
    problem = Problem(dataset, pair, ALPHA, weights, np.dtype(dtype), ThreadEngine(n_workers))
    (_, block), *_ = BlockSource(dataset, [(0, 12)], Residency.MEMORY).stream([0])
    held = [Columns.of(0, block, np.arange(12))]

    def smooth(rows):
        """The loss and the ridge at some weights, and their gradient, the intercept in the last row."""
        W, b = rows[:12, :n_classes], rows[12:, :n_classes].sum(axis=0)
        value, gradient, by_intercept = dense.loss_and_gradient(loss, X, y, W, b, weights)
        gradient = gradient + ridge * W
        gradient = np.vstack([gradient, by_intercept[None]]) if intercept else gradient
        return value + ridge / 2 * (W**2).sum(), gradient

    rows = np.zeros((12 + intercept, problem.width))
    downhill = -smooth(rows)[1]
    rows[:, :n_classes] = 0.05 * downhill / np.abs(downhill).max()
    if penalty != "l1/l2":
        rows[:12, : n_classes - 1 : 3] = 0.0
    constant = rows[12:, :n_classes].sum(axis=0)
    problem.rebuild_scores(Coefficients(np.arange(12), rows[:12].copy()), constant, held)
    return problem, held, rows, smooth


@pytest.mark.parametrize("n_classes", [2, 5, 8, 9, 41])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_derivatives_of_the_log_loss_are_those_of_the_definition(n_classes, intercept, dtype):
    pair = ("log_loss", "l1/l2", n_classes)
    problem, held, rows, smooth = any_pair(*pair, intercept=intercept, dtype=dtype)
    support = Support(problem, held, [np.arange(12)], intercept)
    close = {"rtol": 1e-10, "atol": 1e-13} if dtype == np.float64 else {"rtol": 1e-4, "atol": 2e-6}
    gradient, diagonal = support.gradient()
    np.testing.assert_allclose(gradient[:, :n_classes], smooth(rows)[1], **close)
    direction = np.zeros(rows.shape, dtype)
    direction[:, :n_classes] = np.random.default_rng(2).standard_normal((len(rows), n_classes))
    product = problem.two_over_n * support.product(direction)
    small = 1e-6
    ahead, behind = (smooth(rows + way * direction.astype(float))[1] for way in (small, -small))
    close = {"rtol": 1e-5, "atol": 1e-8} if dtype == np.float64 else {"rtol": 1e-3, "atol": 1e-5}
    np.testing.assert_allclose(product[:, :n_classes], (ahead - behind) / (2 * small), **close)
    assert not product[:, n_classes:].any()
    for place in ((3, 1), (len(rows) - 1, n_classes - 1)):
        unit = np.zeros(rows.shape, dtype)
        unit[place] = 1
        assert (problem.two_over_n * support.product(unit))[place] == pytest.approx(
            diagonal[place], rel=1e-10 if dtype == np.float64 else 1e-4
        )
    for part in (1.0, 1e-3):
        change = smooth(rows + part * direction.astype(float))[0] - smooth(rows)[0]
        assert support.loss_change(direction, part) == pytest.approx(
            change, rel=1e-9 if dtype == np.float64 else 1e-4, abs=1e-13 if dtype == np.float64 else 1e-7
        )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_log_loss_of_scores_far_apart_stays_finite(dtype):
    problem, held, rows, _ = any_pair("log_loss", "l1/l2", dtype=dtype)
    support = Support(problem, held, [np.arange(12)])
    problem.scores[::2, :5] += np.array([0, 400, -400, 1e4, 90], dtype)
    problem.scores[1, :5] = 0
    gradient, diagonal = support.gradient()
    assert np.isfinite(gradient).all()
    assert (diagonal >= 0).all()
    up = support.scaled(100.0 * np.sign(rows))
    assert np.isfinite(support.product(up)).all()
    assert support.loss_change(up, 1.0) > 0
    assert np.isfinite(support.loss_change(support.scaled(-gradient), 1.0))


@pytest.mark.parametrize(("loss", "penalty"), PAIRS)
@pytest.mark.parametrize("intercept", [False, True])
def test_steps_of_all_pairs_reach_a_stationary_point_of_the_weights_that_are_left(loss, penalty, intercept):
    alpha, ridge, n_classes = 1e-5, 1e-3, 5
    problem, held, rows, smooth = any_pair(loss, penalty, intercept=intercept, ridge=ridge)
    zero = rows[:12, :n_classes] == 0

    def value():
        return smooth(rows)[0] + alpha * dense.penalty_value(penalty, rows[:12])

    values = [value()]
    while len(values) < 60:
        used = np.flatnonzero(rows[:12].any(axis=1))
        left = Support(problem, held, [used], intercept)
        moved = rows[[*used, *range(12, len(rows))]]
        if not left.newton_step(moved, alpha, Terms.ridge(ridge, len(used), problem.width), 200):
            break
        rows[[*used, *range(12, len(rows))]] = moved
        values.append(value())
        if values[-2] - values[-1] < 1e-15 * values[0]:
            break  # the rest is rounding
    assert 3 < len(values) < 60
    assert np.diff(values).max() < 1e-15 * values[0]
    W, b = rows[:12, :n_classes], rows[12:, :n_classes].sum(axis=0)
    assert np.allclose(problem.scores[:, :n_classes], X_of(held) @ W + b)
    assert not rows[:, n_classes:].any()
    gradient = smooth(rows)[1]
    share = {"l1/l2": 0.0, "l1": 1.0, "sparse_group": 0.5}[penalty]
    if share:
        assert not W[zero].any()
    lengths = np.linalg.norm(W, axis=1, keepdims=True)
    moving = (W != 0) | ((share == 0) & (lengths > 0))
    rest = gradient[:12] + share * alpha * np.sign(W)
    rest += (1 - share) * alpha * W / np.where(lengths > 0, lengths, 1)
    assert moving.sum() >= 15
    assert np.abs(rest[moving]).max() < 1e-7
    assert not intercept or np.abs(gradient[12]).max() < 1e-7


def X_of(held):
    (columns,) = held
    return scipy.sparse.csc_matrix((columns.data, columns.indices, columns.indptr[0])).toarray()


@pytest.mark.parametrize("penalty", ["l1/l2", "l1", "sparse_group"])
def test_any_number_of_workers_gives_the_same_bits_of_the_log_loss(penalty):
    outcomes = []
    for n_workers in (2, 3):
        problem, held, rows, _ = any_pair("log_loss", penalty, dtype=np.float32, n_workers=n_workers)
        support = Support(problem, held, [np.arange(12)])
        assert support.newton_step(rows, 1e-3, Terms.ridge(0.0, 12, problem.width), 30)
        outcomes.append((rows, problem.scores))
    assert all((a == b).all() for a, b in zip(*outcomes, strict=True))


@pytest.mark.exhaustive(keep=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [("log_loss", "l1/l2"), ("log_loss", "l1"), ("squared_hinge", "l1")],
)
def test_other_pairs_with_and_without_newton_steps_meet_at_the_optimum(loss, penalty, monkeypatch):
    data = load_digits()
    dataset = Dataset.from_arrays(data.data[:100].astype(np.int8), data.target[:100])
    weights = np.random.default_rng(0).integers(0, 3, 100).astype(float)
    options = {
        "loss": loss, "penalty": penalty, "alpha": 0.16, "memory_limit": 1 << 30, "max_passes": 1000,
        "fit_intercept": True, "sample_weight": weights,
    }  # fmt: skip
    with_steps = solve(dataset, tol=1e-6, **options)
    monkeypatch.setattr(Support, "memory", lambda *_: 1 << 40)
    without = solve(dataset, tol=1e-5, **options)
    assert with_steps.converged
    assert without.converged
    assert abs(with_steps.objective - without.objective) < 1e-5
    assert with_steps.certificate.lower <= without.objective
    assert without.certificate.lower <= with_steps.objective
    assert (with_steps.coef != without.coef).any()


@pytest.mark.exhaustive
def test_newton_steps_over_several_blocks_end_where_those_over_one_do(monkeypatch):
    """Every block gets its own part of the step, at once from the first sweep on."""
    digits = load_digits()
    dataset = Dataset.from_arrays(scipy.sparse.csr_array(digits.data / 16.0), digits.target)
    n_blocks, begin = [], Support.__init__

    def counted(support, problem, held, *arguments):
        n_blocks[-1] = max(n_blocks[-1], len(held))
        begin(support, problem, held, *arguments)

    monkeypatch.setattr("bigmc.solvers.sparse.steps.sweeps._SWEEPS_FIRST", 0)
    monkeypatch.setattr(Support, "__init__", counted)
    found = []
    for coef_bytes in (1 << 20, 2000):  # weights of all columns, and of some
        monkeypatch.setattr("bigmc.solvers.sparse.memory_plan._BLOCK_COEF", coef_bytes)
        n_blocks.append(0)
        found.append(solve(dataset, alpha=1e-3, tol=1e-6, memory_limit=1 << 28))
    whole, parts = found
    assert n_blocks[0] == 1
    assert n_blocks[1] > 2
    assert parts.certificate.gap <= 1e-6
    assert parts.objective == pytest.approx(whole.objective, rel=2e-6)
    assert parts.n_iter <= 2 * whole.n_iter  # wrong parts of steps are undone by sweeps, at a cost
