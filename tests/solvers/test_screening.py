"""Features that screening leaves out, against optima whose conditions are checked by dense formulas."""

import numpy as np
import pytest
from dense import loss_and_gradient, objective_value, prox
from sparse_runs import largest_alpha, solve
from test_pairs import LIMIT, RATIO, Memory, bits, options_of

from bigmc.engine import ThreadEngine
from bigmc.kernels.linear.arguments import Norm
from bigmc.kernels.linear.penalties import formulas
from bigmc.objectives import LOSSES, PENALTIES, objective
from bigmc.solvers.loop import Limits
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.memory_plan import Size, plan_memory
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.solvers.sparse.state import Start
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.sweeps import Sweeper
from bigmc.solvers.sparse.working_set.gradient import gradient_pass
from bigmc.solvers.sparse.working_set.rounds import Rounds
from bigmc.solvers.sparse.working_set.state import MemoryState
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

DOUBLE = np.dtype(np.float64)


#: Values are whole numbers of tenths, and kernels those that bytes are enough for, as in most other tests.
UNIT = 10


def made(loss, n=90, d=40, m=3, seed=0):
    """Samples whose labels depend on a few of the features, which are of all sizes."""
    generator = np.random.default_rng(seed)
    X = generator.random((n, d)) * (generator.random((n, d)) < 0.4) * generator.uniform(0.1, 1.5, d)
    X = np.round(UNIT * X)
    scores = X[:, : 2 * m].reshape(n, 2, m).sum(axis=1) / UNIT + 0.3 * generator.normal(size=(n, m))
    return X, (scores > 0.8).astype(int) if loss == "multilabel_ranking" else scores.argmax(axis=1)


class Watched:
    """Notes what the rule is given, and what it leaves out."""

    def __init__(self, monkeypatch):
        self.seen = []
        update = Screening.update

        def watched(screening, weighted, alpha, conversion, scale, upper, lower, precision):
            left = ~screening.zero
            update(screening, weighted, alpha, conversion, scale, upper, lower, precision)
            gap = max(upper - lower, 0.0)  # rounding may make it negative
            reach = conversion * np.sqrt(2 * gap * np.maximum(screening.curvatures, 0))
            known = left & (screening.curvatures >= 0)
            self.seen.append((known, scale * screening.norms, reach, screening.zero.copy()))

        monkeypatch.setattr(Screening, "update", watched)

    def check(self, norms, alpha, support):
        """Return the largest share of a radius that is used, and how many features were left out."""
        share, most = 0.0, 0
        for known, here, reach, zero in self.seen:
            away = np.abs(here - norms)[known]
            assert (away <= reach[known] * (1 + 1e-6) + 1e-6).all()
            far = reach[known] > 1e-4
            share = max(share, (away[far] / reach[known][far]).max(initial=0.0))
            assert not zero[support].any()
            assert (norms[zero] < alpha).all()
            most = max(most, int(zero.sum()))
        return share, most


def evaluated(dataset, problem, coef, intercept, lower, fit_intercept):
    """Return what the pass of a round at given weights leaves out, as if the gap had been small before."""
    n, d = problem.n_samples, len(coef)
    plan = plan_memory(LIMIT, Size(n, d, problem.n_classes, n * d, 1, problem.width, itemsize=8, tol=1e-9))
    sweeper = Sweeper(problem, Descent("line_search", fit_intercept, 0), 10**6, 0)
    source = BlockSource(dataset, [(0, d)], Residency.MEMORY)
    found = Rounds(problem, source, plan, sweeper, Limits(1e-9, 100, LIMIT))
    rows = np.zeros((d, problem.width))
    rows[:, : problem.n_classes] = coef
    used = np.flatnonzero(rows.any(axis=1))
    found.resume(MemoryState(Coefficients(used, rows[used]), intercept, lower, history=[{"gap": 0.0}]).pack())
    found.certify()
    return np.unpackbits(found.pack().arrays["screened"], count=d).astype(bool)


def problem_of(dataset, loss, penalty, alpha, ridge=0.0, weights=None):
    ratio = RATIO if penalty == "sparse_group" else None
    minimised = objective(loss, penalty, ratio, ridge, sets=dataset.has_sets)
    return Problem(dataset, minimised, alpha, weights, DOUBLE, ThreadEngine(2))


def dual_norms(penalty, gradient):
    code = Norm(PENALTIES[penalty].code, RATIO if penalty == "sparse_group" else PENALTIES[penalty].l1_ratio)
    return np.array([formulas.dual_norm(code, g) for g in gradient])


KINDS = ((0.0, False, False), (5.0, False, True), (0.0, True, False), (2.0, True, True))


def pairs():
    """Yield every pair with a kind of ridge, intercept and weights: each loss and each penalty has all."""
    for i, loss in enumerate(LOSSES):
        for j, penalty in enumerate(PENALTIES):
            yield loss, penalty, *KINDS[(i + j) % 4]


def test_features_leave_where_the_ball_of_their_gradient_is_just_within_the_penalty():
    """Its radius is that of Fercoq et al. with the curvature along the feature: sqrt(2 h gap)."""
    generator = np.random.default_rng(11)
    gap, alpha, conversion, scale = 0.02, 0.7, 1.3, 0.9
    curvatures, inside = generator.uniform(0.1, 3.0, 300), generator.random(300) < 0.5
    farthest = alpha * np.where(inside, 1 - 1e-3, 1 + 1e-3)
    screening = Screening(np.ones(300, np.int64), np.empty(0, np.int64))
    screening.norms[:] = (farthest - conversion * np.sqrt(2 * curvatures * gap)) / scale
    screening.curvatures[:] = np.where(np.arange(300) % 11, curvatures, -1)  # of every eleventh not known
    weighted = np.arange(3, 300, 7)
    screening.update(weighted, alpha, conversion, scale, 1.0 + gap, 1.0, DOUBLE)
    stays = ~inside | (np.arange(300) % 11 == 0)
    stays[weighted] = True
    np.testing.assert_array_equal(screening.zero, ~stays)
    screening.update(weighted, alpha, conversion, scale, 9.0, 1.0, DOUBLE)  # what is proved once stays so
    np.testing.assert_array_equal(screening.zero, ~stays)


@pytest.mark.exhaustive(keep=6)
@pytest.mark.parametrize(("loss", "penalty", "ridge", "intercept", "weighted"), list(pairs()))
def test_only_features_that_are_zero_at_the_optimum_are_left_out(
    loss, penalty, ridge, intercept, weighted, monkeypatch
):
    X, y = made(loss)
    m = 3
    dataset = Dataset.from_arrays(X, y)
    generator = np.random.default_rng(1)
    monkeypatch.setattr("bigmc.solvers.sparse.screening.NEAR", 2.0)
    weights = generator.uniform(0.2, 3, len(y)) if weighted else None
    c = np.ones(len(y)) if weights is None else weights
    options = options_of(penalty, loss=loss, ridge=ridge, fit_intercept=intercept, sample_weight=weights)
    alpha = 0.25 * largest_alpha(dataset, **options)
    with monkeypatch.context() as off:
        off.setattr("bigmc.solvers.sparse.screening.NEAR", -1.0)
        best = solve(dataset, alpha=alpha, tol=1e-12, **options)
        assert best.history[-1]["n_screened"] == 0
    W = np.zeros((X.shape[1], m))
    W[best.features] = best.coef
    # it is the optimum: the dense gradient meets the conditions of optimality
    _, G, g = loss_and_gradient(loss, X, y, W, best.intercept, c)
    kept = np.array([prox(penalty, z, alpha, RATIO) for z in W - G - ridge * W])
    np.testing.assert_allclose(kept, W, atol=1e-5)
    assert not intercept or np.abs(g).max() < 1e-6
    norms = dual_norms(penalty, G)
    least = objective_value(loss, penalty, X, y, W, best.intercept, alpha, ridge, RATIO, weights)
    support = np.abs(W).max(axis=1) > 1e-5

    with monkeypatch.context() as here:
        watched = Watched(here)
        found = solve(dataset, alpha=alpha, tol=1e-10, **options)
        assert watched.check(norms, alpha, support)[1] > 0
        assert found.history[-1]["n_screened"] > 0
    assert found.objective == pytest.approx(least, rel=1e-9)

    problem = problem_of(dataset, loss, penalty, alpha, ridge, weights)
    with monkeypatch.context() as here:
        watched = Watched(here)
        for size in np.logspace(-4, 0, 9):  # weights near the optimum and far from it
            noise = generator.normal(size=W.shape) * generator.choice([0, 1], (len(W), 1), p=[0.8, 0.2])
            near = W * (1 + size * generator.normal()) + size * noise / UNIT
            lower = least * (1 - 1e-12)
            zero = evaluated(dataset, problem, near, best.intercept, lower, intercept)
            assert not zero[near.any(axis=1)].any()
        share, most = watched.check(norms, alpha, support)
    assert most > 0
    assert share > (0.05 if intercept else 0.1)  # the balls are not far too large


@pytest.mark.parametrize("penalty", ["l1/l2", "l1", "l1/linf"])
def test_at_the_optimum_all_features_within_the_penalty_are_left_out(penalty):
    """Without an intercept the gradients of the pass are those that decide, neither more nor less."""
    X, y = made("squared_hinge")
    dataset, options = Dataset.from_arrays(X, y), options_of(penalty)
    alpha = 0.25 * largest_alpha(dataset, **options)
    best = solve(dataset, alpha=alpha, tol=1e-13, **options)
    W = np.zeros((X.shape[1], 3))
    W[best.features] = best.coef
    norms = dual_norms(penalty, loss_and_gradient("squared_hinge", X, y, W, 0, np.ones(len(y)))[1])
    problem = problem_of(dataset, "squared_hinge", penalty, alpha)
    zero = evaluated(dataset, problem, W, np.zeros(3), best.objective, False)
    clear = np.abs(norms - alpha) > 1e-3 * alpha
    np.testing.assert_array_equal(zero[clear], (norms < alpha)[clear])
    assert 0 < zero.sum() < clear.sum() + W.any(axis=1).sum()
    assert ((norms > alpha / 2) & zero).any()


def weights_with(norm, penalty, loss, X, y, m, sample_weight):
    """Weights of the first feature alone with which the gradient of it has a given norm."""
    _, G, _ = loss_and_gradient(loss, X, y, np.zeros((X.shape[1], m)), 0, sample_weight)
    low, high = 0.0, 1.0
    for _ in range(60):
        t = (low + high) / 2
        W = np.zeros((X.shape[1], m))
        W[0] = -t * G[0] / np.linalg.norm(G[0])
        here = dual_norms(penalty, loss_and_gradient(loss, X, y, W, 0, sample_weight)[1])[0]
        low, high = (t, high) if here > norm else (low, t)
    return W


@pytest.mark.parametrize(
    ("loss", "penalty"), [*((loss, "l1/l2") for loss in LOSSES), ("multitask_squared_hinge", "l1/linf")]
)
def test_the_rule_is_as_sharp_as_it_can_be(loss, penalty):
    """Two features that say the same: weights beyond those of the one nearly hide that the other is needed.

    Along the weights the curvature is as large as it can be, and the gradient changes by the whole radius.
    A sample of little weight has but one of them: by so much the gradient of that is the larger one at zero.
    """
    m = 2 if loss == "log_loss" else 3
    x = np.array([10, 4, 8, 0, 0, 0])
    y = np.array([0, 0, 0, 0, 1, m - 1])
    if loss == "multilabel_ranking":
        y = np.eye(m, dtype=int)[y]
    for share, larger, left_out in ((2e-4, 1, False), (0.02, 0, True)):
        X, weights = np.stack([x, x], axis=1), np.array([1, 2.5, 0.5, 0, 1, 1])
        X[3, larger], weights[3] = 10, share * (weights @ x) / 10
        dataset = Dataset.from_arrays(X, y)
        _, G, _ = loss_and_gradient(loss, X, y, np.zeros((2, m)), 0, weights)
        alpha = 0.9 * dual_norms(penalty, G)[0]
        options = options_of(penalty, loss=loss, sample_weight=weights)
        best = solve(dataset, alpha=alpha, tol=1e-13, **options)
        assert list(best.features) == ([0] if left_out else [1])
        far = weights_with(0.8 / 0.9 * alpha, penalty, loss, X, y, m, weights)
        problem = problem_of(dataset, loss, penalty, alpha, weights=weights)
        zero = evaluated(dataset, problem, far, np.zeros(m), best.objective, False)
        assert list(zero) == [False, left_out]


def test_with_an_intercept_the_gap_is_that_of_the_dual_point():
    """Samples in pairs that differ in sign and class, so that no intercept is the best one.

    The gradients of the pass are those of a scaled dual point. Where the scale is far from 1 the objective
    may be near its optimum and the point is not: its own value says so.
    """
    y = np.arange(8) % 2
    cases = (
        # a feature like the first, which has weights beyond its best: the scale is above 1
        (np.stack([np.ones(8), np.full(8, 1.0002)], axis=1), 0.9, 0.8),
        # one that needs weights, others too large for what the first has: the scale is below 1
        (np.repeat([[10.0, 0], [10, 0], [0, 1], [0, 1]], 2, axis=0), 0.0999, 0.0999 * 1.05),
    )
    for X, share, wanted in cases:
        X = X * (1 - 2.0 * y)[:, None]
        _, G, _ = loss_and_gradient("squared_hinge", X, y, np.zeros((2, 2)), 0, np.ones(8))
        norm = np.linalg.norm(G[0])
        dataset = Dataset.from_arrays(X, y)
        best = solve(dataset, alpha=share * norm, tol=1e-13, fit_intercept=True, memory_limit=LIMIT)
        assert 1 in best.features
        np.testing.assert_allclose(best.intercept, best.intercept.mean(), atol=1e-9)
        far = weights_with(wanted * norm, "l1/l2", "squared_hinge", X, y, 2, np.ones(8))
        problem = problem_of(dataset, "squared_hinge", "l1/l2", share * norm)
        zero = evaluated(dataset, problem, far, np.zeros(2), best.objective, True)
        assert not zero.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_curvatures_bound_the_largest_eigenvalues_of_hessians(loss):
    """At zero the margins are all active: there, of one class, the squared hinges reach the bound."""
    X, y = made(loss, d=12)
    m = 3
    if loss == "multilabel_ranking":
        y[:, 1:] = 0
        y[y.sum(axis=1) == 0, 2] = 1
        X[y[:, 0] == 0, 0] = 0
    else:
        X[y != 1, 0] = 0
    weights = np.random.default_rng(2).uniform(0.2, 3, len(y))
    dataset = Dataset.from_arrays(X, y, weighting=Weighting(l2=True, idf=True))
    problem = problem_of(dataset, loss, "l1/l2", 1.0, weights=weights)
    source = BlockSource(dataset, [(0, 6), (6, 12)], Residency.MEMORY)
    values = np.empty(X.shape)  # with the scales of rows and columns
    for j in range(12):
        row = np.eye(1, problem.width)
        feature = np.array([j])
        problem.rebuild_scores(Coefficients(feature, row), np.zeros(m), source.columns_of(feature))
        values[:, j] = problem.scores[:, 0]
    nothing = Coefficients.zeros(problem.width)
    problem.rebuild_scores(nothing, np.zeros(m), [])
    screening = Screening(dataset.column_nnz(), np.empty(0, np.int64))
    screening.gap = 0.0
    gradient_pass(problem, source, nothing, np.empty((0, m)), screening)
    for j in range(12):
        hessian = np.empty((m, m))
        for r in range(m):
            step = np.zeros((12, m))
            step[j, r] = 1e-4
            up, down = (loss_and_gradient(loss, values, y, s * step, 0, weights)[1][j] for s in (1, -1))
            hessian[r] = (up - down) / 2e-4
        largest = np.linalg.eigvalsh(hessian)[-1]
        assert largest <= screening.curvatures[j] * (1 + 1e-6)
        assert largest >= 0.3 * screening.curvatures[j]
        # the Huberised hinge is curved on one side of these margins only
        if j == 0 and loss not in ("log_loss", "huber_hinge"):
            assert largest == pytest.approx(screening.curvatures[j], rel=1e-5)


def blocks_of_noise(shard_rows=50):
    """Blocks of features that say nothing, after some that do."""
    X, y = made("squared_hinge", n=150, d=120, m=4, seed=3)
    X[:, 24:] = np.ceil(0.2 * X[:, 24:])
    X[:, 90:] = 0  # no entries at all
    return Dataset.from_arrays(X, y, shard_rows=shard_rows)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    ("loss", "penalty", "intercept"),
    [
        ("squared_hinge", "l1/l2", False),
        ("log_loss", "l1/linf", False),
        ("multitask_squared_hinge", "sparse_group", True),
    ],
)
def test_features_left_out_are_passed_over_and_resuming_gives_the_same_bits(
    loss, penalty, intercept, monkeypatch
):
    # Newton steps would be done before anything is left out.
    monkeypatch.setattr("bigmc.solvers.sparse.steps.sweeps._SWEEPS_FIRST", 100)
    dataset = blocks_of_noise()
    options = options_of(
        penalty, loss=loss, tol=1e-9, fit_intercept=intercept, ridge=0.1,
        alpha=0.2 if penalty == "l1/l2" else 0.1,
    )  # fmt: skip
    kept = Memory()
    whole = solve(dataset, checkpoint=kept, engine=ThreadEngine(1), **options)
    with monkeypatch.context() as off:
        off.setattr("bigmc.solvers.sparse.screening.NEAR", -1.0)
        without = solve(dataset, **options)
    assert whole.objective == pytest.approx(without.objective, rel=2e-9)
    screened = [entry["n_screened"] for entry in whole.history]
    assert screened[0] == 0
    assert (np.diff(screened) >= 0).all()
    assert screened[-2] >= 40
    assert whole.n_passes < without.n_passes
    started = [saved for saved in kept.saved if saved[1]["screened_norms"].any()]
    assert started
    for saved in (kept.saved[0], started[0], kept.saved[-1]):
        again = solve(dataset, checkpoint=Memory(saved), engine=ThreadEngine(2), **options)
        assert bits(again) == bits(whole)
        assert again.norms.tobytes() == whole.norms.tobytes()
        assert [e["n_screened"] for e in again.history] == screened


@pytest.mark.slow
def test_single_precision_scores_leave_out_no_feature_with_weights(monkeypatch):
    monkeypatch.setattr("bigmc.solvers.sparse.memory_plan.SMALL_SCORES", 0)
    monkeypatch.setattr("bigmc.solvers.sparse.screening.NEAR", 2.0)
    X, y = made("squared_hinge", n=400, d=120, m=3, seed=4)
    dataset = Dataset.from_arrays(X, y)
    best = solve(dataset, alpha=0.2, tol=1e-11, memory_limit=LIMIT)
    assert best.plan.score_dtype == np.float64
    W = np.zeros((120, 3))
    W[best.features] = best.coef
    norms = dual_norms("l1/l2", loss_and_gradient("squared_hinge", X, y, W, 0, np.ones(400))[1])
    watched = Watched(monkeypatch)
    found = solve(dataset, alpha=0.2, tol=1.1e-5, memory_limit=LIMIT)
    assert found.plan.score_dtype == np.float32
    watched.seen = [(k, n, r + 0.2 * 1e-4, z) for k, n, r, z in watched.seen]
    assert watched.check(norms, 0.2, W.any(axis=1))[1] > 20


def test_nothing_is_left_where_all_weights_are_zero():
    dataset = blocks_of_noise()
    problem = problem_of(dataset, "squared_hinge", "l1/l2", 100.0)
    source = BlockSource(dataset, [(0, 60), (60, 120)], Residency.DISK)
    screening = Screening(dataset.column_nnz(), np.empty(0, np.int64))
    problem.rebuild_scores(Coefficients.zeros(problem.width), np.zeros(4), [])
    assert list(np.flatnonzero(screening.zero)) == list(range(90, 120))
    upper = problem.value([])
    args = (problem, source, Coefficients.zeros(problem.width), np.empty((0, 4)), screening)
    screening.gap = 0.0
    found = gradient_pass(*args)
    screening.update(np.empty(0, np.int64), 100.0, 1.0, 1.0, upper, upper, DOUBLE)
    assert screening.zero.all()
    read, norms = source.bytes_read, screening.norms.copy()
    again = gradient_pass(*args)
    assert (source.bytes_read, again.nnz, again.largest_norm) == (read, 0, 0.0)
    assert found.nnz == dataset.nnz
    assert len(again.features) == 0
    np.testing.assert_array_equal(screening.norms, norms)


def test_what_is_left_out_is_asked_anew_for_every_alpha():
    """Only weights and norms are carried over to a smaller penalty; the optima along a path are right."""
    dataset = blocks_of_noise()
    start = None
    for alpha in (0.5, 0.2, 0.05):
        found = solve(dataset, alpha=alpha, tol=1e-8, memory_limit=LIMIT, start=start)
        cold = solve(dataset, alpha=alpha, tol=1e-8, memory_limit=LIMIT)
        assert found.objective == pytest.approx(cold.objective, rel=2e-8)
        start = Start(found.features, found.coef, found.intercept, found.norms)
