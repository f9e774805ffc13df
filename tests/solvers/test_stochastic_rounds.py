"""Rounds of stochastic steps, against the definition of each step and against training in memory."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from covered_pairs import covered_pairs
from sparse_runs import solve
from test_candidate_columns import noisy
from test_chunk_rounds import Stopping, made, run
from test_stochastic_start import ROOMY, Given, residual_of, shrunk, shuffled, task_of

from bigmc.objectives import PENALTIES
from bigmc.solvers.sparse.chunks import damping
from bigmc.solvers.sparse.chunks.candidate_gradients import gradient_changes
from bigmc.solvers.sparse.chunks.evaluation import evaluate_by_columns
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.feasible_intercept import feasible_by_intercept
from bigmc.solvers.sparse.chunks.rare_features import RareFeatures
from bigmc.solvers.sparse.chunks.stochastic_rounds import (
    Damped,
    Point,
    RowSteps,
    evaluate_by_rows,
    follow_rows,
    gradient_changes_by_rows,
)
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.scratch.row_scales import exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.store.weighting import Weighting

#: Sweeps have memory for 12 of 60 candidates, stochastic steps for all.
NARROW = replace(ROOMY, most_candidates=12, free_bytes=120_000)
LOSSES = ["squared_hinge", "log_loss", "huber_hinge", "multitask_squared_hinge", "multilabel_ranking"]


@pytest.fixture
def opened():
    """Make scratch files that are closed at the end."""
    spills = []

    def make(dataset, features, weights=None, n_chunks=3):
        spills.append(Spill(dataset, weights, n_chunks, 0, None, exact_rows(dataset)))
        spills[-1].add(features)
        return spills[-1]

    yield make
    for spill in spills:
        spill.close()


def some_weights(features, n_classes, width=8):
    rows = np.zeros((len(features), width))
    rows[:, :n_classes] = np.random.default_rng(1).standard_normal((len(features), n_classes)).astype("f4")
    return Coefficients(features, rows)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True, idf=True)])
def test_objective_and_gradient_are_those_of_columns(loss, weighting, opened):
    _, dataset = made(sets=loss == "multilabel_ranking", weighting=weighting)
    weights = np.random.default_rng(3).integers(0, 3, dataset.n_samples).astype(float)
    task = task_of(dataset, loss, weights=weights, fit_intercept=True)
    spill = opened(dataset, np.arange(3, 50), weights)
    coef, intercept = some_weights(np.arange(5, 45, 3), 5), np.linspace(-1, 1, 5)
    found = evaluate_by_rows(task, spill, Point(coef, intercept), 4000)
    wanted = evaluate_by_columns(task, spill, coef, intercept)
    assert found.objective == pytest.approx(wanted.objective, rel=1e-6)
    np.testing.assert_allclose(found.gradient[:, :5], wanted.gradient[:, :5], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.intercept_gradient, wanted.intercept_gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_other_weights_of_some_samples_change_what_they_do_by_columns(loss, opened):
    _, dataset = made(sets=loss == "multilabel_ranking")
    weights = np.random.default_rng(3).integers(0, 3, dataset.n_samples).astype(float)
    task = task_of(dataset, loss, weights=weights, fit_intercept=True)
    spill = opened(dataset, np.arange(3, 50), weights)
    coef, intercept = some_weights(np.arange(5, 45, 3), 5), np.linspace(-1, 1, 5)
    pieces = frozenset(piece for piece in spill.pieces if piece.chunk == 1)
    other = np.roll(coef.rows[:7], 1, axis=0)
    moved = [MovedSamples(pieces, coef, coef.features[:7], other, intercept[::-1].copy(), 0.0)]
    point = evaluate_by_columns(task, spill, coef, intercept)
    found = gradient_changes_by_rows(task, spill, Point(coef, intercept), moved, 4000)
    wanted = gradient_changes(task, spill, point, moved)
    np.testing.assert_allclose(found[:, :5], wanted[:, :5], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("loss", "tilt", "all_chunks"),
    [("log_loss", 0.0, False), ("log_loss", 4.0, True), ("squared_hinge", 4.0, False)],
)
def test_levels_of_a_chunk_or_of_all_balance_all_samples(loss, tilt, all_chunks, opened):
    dataset = shuffled()
    task = task_of(dataset, loss, fit_intercept=True)
    best = solve(dataset, alpha=2e-2, tol=1e-3, memory_limit=1 << 30, loss=loss)
    spill = opened(dataset, np.arange(60))
    coef = Coefficients(best.features, np.pad(best.coef, ((0, 0), (0, 3))))
    intercept = tilt * np.linspace(-1, 1, 5)
    anchor = evaluate_by_rows(task, spill, Point(coef, intercept), 4000)
    found = feasible_by_intercept(task, spill, anchor)
    assert spill.n_chunks > 1
    assert len(found) == (spill.n_chunks if all_chunks else 1)
    assert np.abs(anchor.intercept_gradient).max() > 1e-3
    level = np.tile(intercept, (dataset.n_samples, 1))
    for moved in found:
        for piece in moved.pieces:
            positions = spill.load(piece).positions[0].astype(int)
            level[dataset.base[piece.shard] + positions] = moved.intercept
    scores, y = dense(dataset)[:, best.features] @ best.coef + level, dataset.labels()
    total = sum(residual_of(loss, s, label) for s, label in zip(scores, y, strict=True))
    np.testing.assert_allclose(total / dataset.n_samples, 0.0, atol=1e-5)


def by_hand(X, y, order, anchor, damping, how):
    """Follow samples in double precision; returns the weights, the last row those of the intercept."""
    loss, penalty, alpha, ridge = how
    n, n_classes = len(X), int(y.max()) + 1
    X = np.hstack([X, np.ones((n, 1))])
    residuals = np.array([residual_of(loss, x @ anchor, label) for x, label in zip(X, y, strict=True)])
    gradient, square = X.T @ residuals / n, (residuals**2).sum(axis=1)
    unit = 1.0 / np.sqrt((X[:, :-1] != 0).sum() / n)
    size = np.sqrt((X**2).sum(axis=0) / (X != 0).sum(axis=0))
    curve = damping * np.sqrt((X**2).T @ square) * size / unit
    total, done = np.zeros((X.shape[1], n_classes)), 0

    def weights_of(j, t):
        linear = total[j] + done * gradient[j] - curve[j] * anchor[j]
        if j == X.shape[1] - 1:
            return -linear / curve[j]
        return shrunk(linear, curve[j] + ridge * t, alpha * t, penalty)

    for i in order:
        rows = np.array([weights_of(j, done + 1) for j in range(X.shape[1])])
        total += np.outer(X[i], residual_of(loss, X[i] @ rows, y[i]) - residuals[i])
        done += 1
    return np.array([weights_of(j, done) for j in range(X.shape[1])])


@pytest.mark.exhaustive(keep=6)
@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
@pytest.mark.parametrize("penalty", sorted(PENALTIES))
@pytest.mark.parametrize(("ridge", "n_classes"), [(0.0, 3), (1e-2, 10)])
def test_steps_are_those_of_the_definition(loss, penalty, ridge, n_classes, opened):
    dataset = shuffled(n=300, d=20, n_classes=n_classes)
    task = replace(task_of(dataset, loss, penalty, None, ridge, fit_intercept=True), alpha=5e-3)
    spill, features = opened(dataset, np.arange(20), n_chunks=1), np.arange(20)
    coef, intercept = some_weights(np.arange(0, 20, 2), n_classes, task.width), np.linspace(0, 1, n_classes)
    anchor = evaluate_by_rows(task, spill, Point(coef, intercept), 4000)
    chunk = spill.chunk(0)
    rows = np.concatenate([base + at for base, at in zip(dataset.base, chunk.positions, strict=False)])
    order = np.random.default_rng(4).permutation(300)
    steps = RowSteps(task, features, anchor, damped(20, 0), 4000)
    steps.follow(chunk, Given(order))
    found, level = steps.result()
    X = dense(dataset)[rows]
    start = np.vstack([coef.take(features)[:, :n_classes], intercept])
    how = (loss, penalty, task.alpha, ridge)
    wanted = by_hand(X, dataset.labels()[rows], order, start, 0.5, how)
    np.testing.assert_allclose(found.take(features)[:, :n_classes], wanted[:-1], rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(level, wanted[-1], rtol=2e-2, atol=1e-3)


def test_steps_go_along_a_chunk_twice_before_the_next_is_read(opened):
    dataset = shuffled(n=500, d=20, n_classes=3)
    task = replace(task_of(dataset, "squared_hinge", "l1/l2", None, 1e-2, fit_intercept=True), alpha=5e-3)
    spill = opened(dataset, np.arange(20), n_chunks=2)
    coef, intercept = some_weights(np.arange(0, 20, 2), 3, task.width), np.linspace(0, 1, 3)
    anchor = evaluate_by_rows(task, spill, Point(coef, intercept), 1 << 20)
    generator, order = np.random.default_rng(np.random.SeedSequence([task.seed, 7])), []
    for number in generator.permutation(2):
        positions = spill.chunk(number).positions
        shards = [piece.shard for piece in spill.pieces if piece.chunk == number]
        rows = np.concatenate([dataset.base[s] + own for s, own in zip(shards, positions, strict=True)])
        order += [rows[generator.permutation(len(rows))] for _ in range(2)]
    found, level = follow_rows(task, spill, anchor, damped(20, 7), 1 << 20)
    start = np.vstack([coef.take(np.arange(20))[:, :3], intercept])
    how = ("squared_hinge", "l1/l2", task.alpha, 1e-2)
    wanted = by_hand(dense(dataset), dataset.labels(), np.concatenate(order), start, 0.5, how)
    np.testing.assert_allclose(found.take(np.arange(20))[:, :3], wanted[:-1], rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(level, wanted[-1], rtol=2e-2, atol=1e-3)


def damped(n_features, n_iter):
    return Damped(np.full(n_features, 0.5), 0.5, n_iter)


def dense(dataset):
    """Return all samples, in their order."""
    X = np.zeros((dataset.n_samples, dataset.n_features))
    for s, shard in enumerate(dataset.shards):
        indptr = shard.indptr(0, shard.n_features)
        rows, values = np.empty(indptr[-1], np.uint16), np.empty(indptr[-1], dataset.dtype)
        shard.read(0, int(indptr[-1]), rows, values)
        for j in range(shard.n_features):
            some = slice(indptr[j], indptr[j + 1])
            X[dataset.base[s] + rows[some].astype(int), j] = values[some]
    return X


def test_at_the_optimum_they_stay(opened):
    """What a sample adds vanishes there, whatever the sample: so do all steps."""
    dataset = shuffled()
    best = solve(dataset, alpha=2e-2, tol=1e-7, memory_limit=1 << 30, loss="log_loss")
    task, spill = task_of(dataset), opened(dataset, np.arange(60))
    coef = Coefficients(best.features, np.pad(best.coef, ((0, 0), (0, 3))))
    anchor = evaluate_by_rows(task, spill, Point(coef, np.zeros(5)), 4000)
    found, _ = follow_rows(task, spill, anchor, damped(60, 0), 4000)
    again = evaluate_by_rows(task, spill, Point(found, np.zeros(5)), 4000)
    assert again.objective == pytest.approx(best.objective, rel=1e-6)


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(("loss", "penalty", "fit_intercept"), list(covered_pairs(LOSSES[:-1])))
def test_they_come_to_the_optimum_where_sweeps_have_no_memory(loss, penalty, fit_intercept):
    dataset = shuffled()
    options = {"alpha": 5e-3, "loss": loss, "penalty": penalty, "ridge": 1e-3, "fit_intercept": fit_intercept}
    best = solve(dataset, tol=1e-6, memory_limit=1 << 30, **options)
    assert len(best.features) > NARROW.most_candidates
    state, certificate = run(dataset, NARROW, max_passes=6, **options)
    assert best.certificate.lower <= certificate.upper <= best.certificate.upper * 1.01
    assert certificate.lower <= best.certificate.upper
    assert state.coef.rows.dtype == np.float32


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    ("loss", "weighted"), list(zip(LOSSES[:-1], (False, True, True, False), strict=True))
)
def test_an_intercept_is_certified_where_sweeps_have_no_memory(loss, weighted):
    dataset = shuffled()
    weights = np.random.default_rng(3).integers(0, 3, dataset.n_samples).astype(float) if weighted else None
    options = {"alpha": 5e-3, "loss": loss, "ridge": 1e-3, "fit_intercept": True}
    best = solve(dataset, tol=1e-6, memory_limit=1 << 30, sample_weight=weights, **options)
    assert len(best.features) > NARROW.most_candidates
    _, certificate = run(dataset, NARROW, max_passes=20, weights=weights, **options)
    assert certificate.lower <= best.certificate.upper
    assert certificate.gap <= 0.03


def test_sweeps_go_on_where_few_features_keep_weights():
    """The first weights are more than sweeps have memory for, those of the optimum are not."""
    dataset = shuffled()
    best = solve(dataset, alpha=2e-2, tol=1e-6, memory_limit=1 << 30, loss="log_loss").certificate
    plan = replace(NARROW, most_candidates=30)
    state, certificate = run(dataset, plan, loss="log_loss")
    assert certificate.gap <= 1e-3
    assert best.lower <= certificate.upper * (1 + 1e-9)
    assert sum(map(len, state.layers)) <= 30


def test_candidates_change_until_all_that_need_weights_are_among_them():
    """Sweeps have memory for 12 features, the first pass knows few of the 91 that the optimum needs."""
    dataset, options = noisy(800), {"alpha": 8e-2, "loss": "squared_hinge"}
    best = solve(dataset, tol=1e-6, memory_limit=1 << 30, **options)
    state, certificate = run(dataset, replace(NARROW, free_bytes=40_000), **options)
    assert sum(map(len, state.layers)) < 140
    assert 12 < len(best.features) < 140
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.certificate.upper
    assert certificate.upper <= best.certificate.upper * 1.001


@pytest.mark.exhaustive
def test_resumed_runs_with_other_candidates_give_the_same_bits():
    dataset, plan = noisy(800), replace(NARROW, free_bytes=40_000)
    options = {"alpha": 8e-2, "loss": "squared_hinge", "max_passes": 12}
    whole, _ = run(dataset, plan, **options)
    for saves in (4, 9):
        checkpoint = Stopping(saves)
        with pytest.raises(KeyboardInterrupt):
            run(dataset, plan, checkpoint=checkpoint, **options)
        again, _ = run(dataset, plan, checkpoint=checkpoint, threads=1, **options)
        assert again.coef.rows.tobytes() == whole.coef.rows.tobytes()


def test_rare_features_are_solved_for_before_a_pass(monkeypatch):
    """A chunk has a few entries of each feature, and gradients of some stay outside of their balls."""
    solved, solve_for = [], RareFeatures.solve

    def noted(self, coef, n_iter):
        found = solve_for(self, coef, n_iter)
        solved.append((self.features, coef, found))
        return found

    monkeypatch.setattr(RareFeatures, "solve", noted)
    state, certificate = run(
        noisy(800), replace(NARROW, free_bytes=200_000), alpha=8e-2, loss="squared_hinge"
    )
    assert certificate.gap <= 1e-3
    assert solved
    for features, before, after in solved:
        others = np.setdiff1d(before.features, features)
        assert len(features) > 0
        assert after.rows.dtype == before.rows.dtype == np.float32
        np.testing.assert_array_equal(after.take(others), before.take(others))
    assert state.coef.rows.dtype == np.float32


@cache
def uninterrupted(fit_intercept):
    dataset = shuffled(weighting=Weighting(l2=True, idf=True))
    options = {"alpha": 1e-3, "loss": "squared_hinge", "fit_intercept": fit_intercept, "max_passes": 6}
    return dataset, options, run(dataset, NARROW, **options)[0]


@pytest.mark.parametrize(
    ("saves", "fit_intercept"), [(1, False), (2, True), (3, False), (5, True), (1, True)]
)
def test_resumed_runs_and_any_threads_give_the_same_bits(saves, fit_intercept):
    dataset, options, whole = uninterrupted(fit_intercept)
    checkpoint = Stopping(saves)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, NARROW, checkpoint=checkpoint, **options)
    again, _ = run(dataset, NARROW, checkpoint=checkpoint, threads=1, **options)
    assert again.coef.rows.tobytes() == whole.coef.rows.tobytes()
    assert again.coef.features.tobytes() == whole.coef.features.tobytes()
    assert again.intercept.tobytes() == whole.intercept.tobytes()
    assert again.history == whole.history


def test_steps_that_are_too_long_are_given_up(monkeypatch):
    dataset = shuffled()
    options = {"alpha": 5e-3, "loss": "squared_hinge"}
    best = solve(dataset, tol=1e-6, memory_limit=1 << 30, **options).certificate
    monkeypatch.setattr(damping, "_STEPS", 1e-3)
    seen = []
    _, certificate = run(dataset, NARROW, max_passes=12, progress=seen.append, **options)
    objectives = [step.facts["objective"] for step in seen if "objective" in step.facts]
    assert objectives == sorted(objectives, reverse=True)
    assert best.lower <= certificate.upper <= best.upper * 1.03
