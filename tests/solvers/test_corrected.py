"""Passes by shards against dense numpy, and training on a corrected sample against training on everything."""

import time
from functools import cache

import dense
import numpy as np
import pytest
import scipy.sparse
from covered_pairs import covered_pairs
from sampled_runs import ALPHA, corrected, made, padded
from sparse_runs import largest_alpha, solve

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse import Start, in_memory
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.memory_plan import Size, plan_sample
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.sampled.passes import Job, full_pass
from bigmc.solvers.sparse.sampled.sample import SampleLoss
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows
from bigmc.store.weighting import Weighting

LOSSES = ["squared_hinge", "multitask_squared_hinge", "huber_hinge", "log_loss"]


@pytest.mark.exhaustive(keep=6)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block_bytes", [3000, 1 << 20])
def test_a_pass_adds_up_what_dense_formulas_do(loss, weighted, block_bytes):
    X, y, dataset = made()
    generator = np.random.default_rng(1)
    features = np.sort(generator.choice(60, 30, replace=False))
    W = np.zeros((60, 5))
    W[features] = 0.1 * generator.standard_normal((30, 5))
    b = 0.1 * generator.standard_normal(5)
    weights = generator.integers(0, 3, 6000).astype(float) if weighted else None
    if weighted:
        weights[700:1400] = 0  # a shard that counts for nothing
    sums = 6000.0 if weights is None else weights.sum()
    used = np.arange(10, 60)
    job = Job(
        objective(loss, "l1/l2"),
        padded(W[features], features),
        b,
        used,
        np.dtype(np.float64),
        block_bytes,
        1000,
    )
    found = full_pass(dataset, job, weights, sums, ThreadEngine(2))
    value, gradient, _ = dense.loss_and_gradient(
        loss, X, y, W, b, np.ones(len(y)) if weights is None else weights
    )
    assert np.allclose(found.gradient[:, :5], gradient[used], atol=1e-12)
    assert np.isclose(found.margins.total_loss / sums, value)
    assert not found.gradient[:, 5:].any()
    again = full_pass(dataset, job, weights, sums, ThreadEngine(3))
    assert np.array_equal(again.gradient, found.gradient)
    assert np.array_equal(again.curvature, found.curvature)
    small = 1e-6  # the curvature is the derivative of the gradient, the mean over the classes
    for j in used[::13]:
        second = 0.0
        for r in range(5):
            ahead, behind = W.copy(), W.copy()
            ahead[j, r] += small
            behind[j, r] -= small
            for sign, there in ((1, ahead), (-1, behind)):
                one = np.ones(len(y)) if weights is None else weights
                second += sign * dense.loss_and_gradient(loss, X, y, there, b, one)[1][j, r] / (2 * small)
        assert np.isclose(found.curvature[j - 10], second / 5, rtol=1e-3)


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(("loss", "penalty", "intercept"), list(covered_pairs(LOSSES)))
def test_a_corrected_sample_gives_the_optimum_of_all_samples(loss, penalty, intercept):
    X, y, dataset = made(n=3000)
    ridge = 0.0 if intercept else 1e-3
    options = {"loss": loss, "penalty": penalty, "ridge": ridge}
    tol = 1e-9 if penalty == "l1/l2" else 1e-6  # other penalties have no Newton steps, or short ones
    whole = solve(dataset, memory_limit=10**9, alpha=ALPHA, tol=tol, fit_intercept=intercept, **options)
    rounds, certificate = corrected(dataset, 0.5, tol, intercept=intercept, **options)
    assert rounds.state.intercept.any() == intercept
    assert certificate.gap <= tol
    assert abs(certificate.upper - whole.objective) <= 2 * tol * whole.objective
    W = np.zeros((60, 5))
    W[rounds.state.coef.features] = rounds.state.coef.rows[:, :5]
    value = dense.objective_value(loss, penalty, X, y, W, rounds.state.intercept, ALPHA, ridge)
    assert np.isclose(value, certificate.upper, rtol=1e-12)
    assert np.array_equal(rounds.state.coef.features, whole.features)


@pytest.mark.parametrize("penalty", ["l1", "l1/l2"])
def test_two_classes_with_the_log_loss(penalty):
    _, _, dataset = made(n=3000, n_classes=2)
    options = {"loss": "log_loss", "penalty": penalty}
    whole = solve(dataset, memory_limit=10**9, alpha=ALPHA, tol=1e-8, fit_intercept=True, **options)
    rounds, certificate = corrected(dataset, 0.4, tol=1e-8, intercept=True, **options)
    assert certificate.gap <= 1e-8
    assert abs(certificate.upper - whole.objective) <= 2e-8 * whole.objective
    assert np.array_equal(rounds.state.coef.features, whole.features)


def uneven(loss, seed, share, n=900):
    """Samples of uneven classes: one has shards to itself, and one, of three samples, is not drawn."""
    generator = np.random.default_rng(seed)
    X = scipy.sparse.random(n, 16, 0.3, format="csr", rng=generator)
    X.data = generator.integers(1, 4, X.nnz).astype(np.int8)
    scores = X @ generator.standard_normal((16, 4)) + [1.0, 0.0, 0.0, -1.0] + generator.gumbel(size=(n, 4))
    if loss == "multilabel_ranking":
        y = (scores > 1.5).astype(int)
    else:
        y = np.argmax(scores, axis=1)
        y[: n // 4] = 2
        positions = draw_rows(Dataset.from_arrays(X, y, shard_rows=100), share, 0, ThreadEngine(1))[1]
        y[np.setdiff1d(np.arange(n), positions)[-3:]] = 4
    return X.toarray().astype(float), y, Dataset.from_arrays(X, y, shard_rows=100)


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(
    ("loss", "seed", "weighted", "ridge"),
    [
        ("squared_hinge", 0, False, 0.0),
        ("squared_hinge", 2, True, 1e-2),
        ("multitask_squared_hinge", 2, True, 1e-2),
        ("huber_hinge", 0, False, 0.0),
        ("log_loss", 0, False, 0.0),
        ("log_loss", 2, True, 1e-2),
        ("multilabel_ranking", 2, True, 1e-2),
    ],
)
def test_the_bounds_of_every_pass_are_on_both_sides_of_the_optimum(loss, seed, weighted, ridge):
    X, y, dataset = uneven(loss, seed, 0.4)
    weights = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float) if weighted else None
    optimum = dense.fista(
        loss, "l1/l2", X, y, dataset.n_classes, ALPHA, ridge, weights=weights, intercept=True, n_iter=1000
    )
    options = {"loss": loss, "ridge": ridge, "weights": weights, "intercept": True}
    rounds, certificate = corrected(dataset, 0.4, tol=1e-7, max_passes=120, **options)
    assert certificate.gap <= 1e-7
    assert np.isclose(certificate.upper, optimum, rtol=2e-7)
    passes = rounds.state.history
    assert len(passes) > 3
    assert all(p["lower"] <= optimum * (1 + 1e-10) for p in passes)
    assert all(p["objective"] >= optimum * (1 - 1e-7) for p in passes)
    assert passes[3]["lower"] > 0.0


def near_the_best(dataset, minimised, coef):
    """The best intercept for weights of the first features; bounded residuals balance near it only."""
    problem = Problem(dataset, minimised, ALPHA, None, np.dtype(np.float64), ThreadEngine(1))
    source = BlockSource(dataset, [(0, dataset.n_features)], Residency.MEMORY)
    intercept = np.zeros(dataset.n_classes)
    problem.rebuild_scores(coef, intercept, source.columns_of(coef.features))
    improve_intercept(problem, intercept, 20)
    return intercept


@pytest.mark.parametrize("loss", [*LOSSES, "multilabel_ranking"])
def test_the_dual_point_of_a_pass_has_no_gradient_by_the_intercept(loss):
    X, y, _ = uneven(loss, 0, 0.4) if loss == "multilabel_ranking" else made(900, 16)
    X = np.hstack([X, np.ones((len(y), 1))])  # a feature that is what the intercept is
    dataset = Dataset.from_arrays(X, y, shard_rows=100)
    minimised = objective(loss, "l1/l2", sets=dataset.has_sets)
    sample, _ = draw_rows(dataset, 0.4, 0, ThreadEngine(1))
    problem = Problem(sample, minimised, ALPHA, None, np.dtype(np.float64), ThreadEngine(2))
    generator = np.random.default_rng(0)
    coef = padded(0.3 * generator.standard_normal((5, dataset.n_classes)), np.arange(5))
    intercept = near_the_best(dataset, minimised, coef) + 0.02 * generator.standard_normal(dataset.n_classes)
    dtype, scales = problem.scores.dtype, (0.5, 1.0)
    job = Job(minimised, coef, intercept, np.arange(17), dtype, 1 << 20, 1000, scales)
    found = full_pass(dataset, job, None, float(len(y)), ThreadEngine(2))
    assert np.abs(found.gradient[16]).max() > 1e-3
    held = SampleLoss(problem, BlockSource(sample, [(0, 17)], Residency.MEMORY))
    point = held.balanced(coef, intercept, found, float(len(y)))
    assert np.abs(point.gradient[16]).max() < 1e-13
    sums = point.margins
    dual = minimised.loss.dual_value(1.0, sums.total_residual, sums.dual_values, len(y), point.entropies)
    W = np.zeros((17, dataset.n_classes))
    W[:5] = coef.rows[:, : dataset.n_classes]
    for distance in (0.0, 0.1, 0.1, 1.0, 1.0):  # the loss is above what the dual point says, everywhere
        V = W + distance * generator.standard_normal(W.shape)
        level = intercept + distance * generator.standard_normal(dataset.n_classes)
        value = dense.loss_and_gradient(loss, X, y, V, level, np.ones(len(y)))[0]
        assert dual + (point.gradient[:, : dataset.n_classes] * V).sum() <= value


def test_a_sample_that_is_far_too_small_still_gets_there():
    _, _, dataset = made()
    whole = solve(dataset, alpha=ALPHA, tol=1e-6, memory_limit=10**9)
    rounds, certificate = corrected(dataset, 0.05, tol=1e-2, cold=True, max_passes=60)
    assert certificate.gap <= 1e-2
    assert certificate.lower <= whole.certificate.upper
    assert certificate.upper <= whole.objective * (1 + 1e-2)
    objectives = [entry["objective"] for entry in rounds.state.history]
    assert (np.diff(objectives) > 0).any()  # steps that were too long did occur, and were taken back


@pytest.mark.exhaustive
def test_without_time_there_is_one_pass_and_its_certificate_holds():
    dataset = made()[2]
    whole, optimum = corrected(dataset, 0.3, tol=1e-5)
    late, certificate = corrected(dataset, 0.3, tol=1e-5, ends=time.monotonic())
    assert [entry["n_passes"] for entry in late.state.history] == [1.0]
    assert len(whole.state.history) > 2
    assert certificate.lower <= optimum.upper <= certificate.upper
    assert certificate.gap > optimum.gap
    later, same = corrected(dataset, 0.3, tol=1e-5, ends=time.monotonic() + 3600)
    assert later.state.history == whole.state.history
    assert same == optimum


def test_weights_of_two_are_samples_given_twice():
    X, y, dataset = made(n=3000)
    twice = np.random.default_rng(4).random(3000) < 0.3
    weighted = corrected(dataset, 0.5, weights=np.where(twice, 2.0, 1.0), tol=1e-10)[1]
    repeated = Dataset.from_arrays(np.concatenate([X, X[twice]]), np.concatenate([y, y[twice]]))
    whole = solve(repeated, alpha=ALPHA, tol=1e-10, memory_limit=10**9)
    assert np.isclose(weighted.upper, whole.objective, rtol=1e-9)


def test_idf_is_that_of_all_samples():
    _, _, dataset = made(weighting=Weighting(l2=True, idf=True))
    whole = solve(dataset, alpha=ALPHA, tol=1e-6, memory_limit=10**9)
    assert np.isclose(corrected(dataset, 0.5, tol=1e-6)[1].upper, whole.objective, rtol=2e-6)


class Kept:
    """A checkpoint in memory that fails at the n-th save, after it."""

    def __init__(self, last=None):
        self.saves, self.last, self.content = 0, last, None

    def save(self, meta, arrays):
        self.content = meta, {name: array.copy() for name, array in arrays.items()}
        self.saves += 1
        if self.saves == self.last:
            raise KeyboardInterrupt

    def load(self):
        return self.content


@cache
def uninterrupted(loss, intercept):
    return corrected(made(n=3000)[2], 0.25, checkpoint=Kept(), tol=1e-5, loss=loss, intercept=intercept)


@pytest.mark.exhaustive(keep=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "loss", "intercept"),
    [
        (1, "squared_hinge", False),
        (4, "squared_hinge", False),
        (3, "squared_hinge", True),
        (1, "log_loss", True),
    ],
)
def test_stop_and_resume_equals_uninterrupted(last, loss, intercept):
    _, _, dataset = made(n=3000)
    options = {"tol": 1e-5, "loss": loss, "intercept": intercept}
    there, certificate = uninterrupted(loss, intercept)
    stopped = Kept(last)
    with pytest.raises(KeyboardInterrupt):
        corrected(dataset, 0.25, checkpoint=stopped, **options)
    again, bounds = corrected(dataset, 0.25, checkpoint=stopped, workers=1, **options)
    assert bounds == certificate
    assert np.array_equal(again.state.coef.rows, there.state.coef.rows)
    assert np.array_equal(again.state.intercept, there.state.intercept)
    assert again.state.history == there.state.history


@cache
def large():
    """Samples that do not fit into 4 MB."""
    generator = np.random.default_rng(0)
    n = 40_000
    X = scipy.sparse.hstack(
        [scipy.sparse.random(n, 20, 0.6, rng=generator), scipy.sparse.random(n, 380, 0.03, rng=generator)],
        format="csr",
    )
    X.data = np.ones(X.nnz, np.int8)
    signal = generator.standard_normal((20, 6))
    y = np.argmax(X[:, :20] @ signal + generator.gumbel(size=(n, 6)), axis=1)
    return Dataset.from_arrays(X, y, shard_rows=2000)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
def test_data_that_does_not_fit_is_trained_on_a_sample(intercept):
    dataset = large()
    options = {"alpha": 0.02, "tol": 1e-3, "fit_intercept": intercept}
    streamed = solve(dataset, memory_limit=4_000_000, **options)
    assert streamed.plan is None
    assert streamed.certificate.gap <= 1e-3
    assert streamed.n_passes <= 6
    whole = solve(dataset, memory_limit=10**9, **options | {"tol": 1e-6})
    assert streamed.certificate.lower <= whole.objective <= streamed.objective
    assert streamed.objective <= whole.objective * (1 + 1e-3)
    other = solve(dataset, memory_limit=4_000_000, engine=ThreadEngine(1), **options)
    assert np.array_equal(other.coef, streamed.coef)
    assert np.array_equal(other.intercept, streamed.intercept)
    # at the largest penalty the intercept is the best one for no weights, in memory or not
    options = {"fit_intercept": intercept}
    largest = [largest_alpha(dataset, memory_limit=limit, **options) for limit in (4_000_000, 10**9)]
    assert np.isclose(*largest, rtol=1e-5)


def test_the_share_does_not_depend_on_the_workers_and_grows_with_memory():
    size = Size(
        n_samples=10_000_000, n_features=1 << 18, n_classes=18, nnz=330_000_000, n_shards=200, width=24,
        itemsize=1, tol=1e-3,
    )  # fmt: skip
    plans = {limit: plan_sample(limit * 10**6, 2, 55_000, 65_536, size) for limit in (512, 1024, 2048)}
    assert [plan.share for plan in plans.values()] == sorted(plan.share for plan in plans.values())
    assert plans[2048].share > plans[512].share
    many = plan_sample(1024 * 10**6, 64, 55_000, 65_536, size)
    assert many.share == plans[1024].share
    assert 1 <= many.n_workers < 64
    assert plan_sample(20 * 10**6, 2, 55_000, 65_536, size) is None


@pytest.mark.exhaustive
@pytest.mark.slow
def test_large_data_in_memory_starts_on_a_sample_of_its_own(monkeypatch):
    monkeypatch.setattr(in_memory, "MANY_ENTRIES", 1_000_000)
    generator = np.random.default_rng(0)
    n = 15_000
    X = scipy.sparse.random(n, 350, 0.25, format="csr", rng=generator)
    X.data = np.ones(X.nnz, np.int8)
    y = np.argmax(X[:, :20] @ generator.standard_normal((20, 4)) + generator.gumbel(size=(n, 4)), axis=1)
    dataset = Dataset.from_arrays(X, y)
    seen = []
    begun = solve(dataset, alpha=0.01, tol=1e-5, memory_limit=10**9, progress=seen.append)
    assert "train on a sample" in {progress.stage for progress in seen}
    nothing = Start(np.empty(0, np.int64), np.empty((0, 4)), np.zeros(4))
    alone = solve(dataset, alpha=0.01, tol=1e-5, memory_limit=10**9, start=nothing)
    assert abs(begun.objective - alone.objective) <= 1e-5 * alone.objective
    part, _ = draw_rows(dataset, 0.25, 0, ThreadEngine(1))
    assert draw_rows(part, 0.25, 1, ThreadEngine(1))[0].n_samples < 0.3 * part.n_samples


def of_many_rows():
    """Samples of few features, of which 32 MB hold more than a round needs."""
    generator = np.random.default_rng(0)
    X = generator.integers(-3, 4, (400_000, 25)).astype(np.int8)
    y = np.argmax(
        X[:, :10] @ generator.standard_normal((10, 4)) + 6 * generator.gumbel(size=(len(X), 4)), axis=1
    )
    return Dataset.from_arrays(X, y)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_of_a_sample_that_is_larger_than_a_round_needs_a_part_is_trained_on(monkeypatch):
    monkeypatch.setattr(in_memory, "MANY_ENTRIES", 100_000)
    dataset = of_many_rows()
    options = {"alpha": 0.05, "tol": 1e-5, "fit_intercept": True, "memory_limit": 32_000_000}
    kept = Kept()
    streamed = solve(dataset, checkpoint=kept, engine=ThreadEngine(1), **options)
    assert streamed.plan is None
    assert kept.content[0]["corrected"]
    assert 0 < kept.content[0]["sample_rows"] < 25_000
    whole = solve(dataset, **options | {"memory_limit": 10**9, "tol": 1e-7})
    assert streamed.certificate.lower <= whole.objective
    assert whole.certificate.lower <= streamed.objective <= whole.objective * (1 + 1e-5)
    stopped = Kept(2)
    with pytest.raises(KeyboardInterrupt):
        solve(dataset, checkpoint=stopped, **options)
    again = solve(dataset, checkpoint=stopped, **options)
    assert np.array_equal(again.coef, streamed.coef)
    assert again.history == streamed.history
