"""Stochastic steps against the same rules sample by sample, and runs over chunks that start from them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from covered_pairs import covered_pairs
from sparse_runs import solve
from test_chunk_rounds import PLAN, Stopping, made, run

from bigmc.engine import ThreadEngine
from bigmc.objectives import PENALTIES, objective
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse.chunks.stochastic_read import plan_read, read
from bigmc.solvers.sparse.chunks.stochastic_start import ShardSamples, StochasticSteps
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.scratch.row_scales import exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

LABEL_LOSSES = ["squared_hinge", "log_loss", "huber_hinge", "multitask_squared_hinge"]

#: Leaves memory for stochastic steps, but not for all columns.
ROOMY = replace(PLAN, free_bytes=100_000)


def task_of(dataset, loss="log_loss", penalty="l1/l2", weights=None, ridge=0.0, fit_intercept=False):
    minimised = objective(loss, penalty, ridge=ridge, sets=dataset.has_sets)
    descent, engine = Descent("line_search", fit_intercept, 0), ThreadEngine(1)
    return ChunkTask(dataset, weights, minimised, 2e-2, 1e-3, descent, np.dtype(float), RunContext(engine))


def shrunk(z, curve, threshold, penalty):
    """Minimise ``<z, w> + curve / 2 ||w||² + threshold * penalty(w)``: by formula, or by SciPy."""
    if penalty == "l1":
        return -np.sign(z) * np.maximum(np.abs(z) - threshold, 0.0) / curve
    if penalty == "l1/l2":
        return -max(0.0, 1.0 - threshold / max(np.linalg.norm(z), 1e-300)) * z / curve
    if penalty == "l1/linf":  # the rest is the projection onto the ball of the l1 norm
        total = np.abs(z).sum()
        if total <= threshold:
            return np.zeros_like(z)
        low = scipy.optimize.brentq(
            lambda c: np.maximum(np.abs(z) - c, 0.0).sum() - threshold, 0.0, np.abs(z).max()
        )
        return -np.clip(z, -low, low) / curve
    return shrunk(-shrunk(z, 1.0, 0.5 * threshold, "l1"), curve, 0.5 * threshold, "l1/l2")


def residual_of(loss, scores, label):
    if loss == "log_loss":
        chances = np.exp(scores - scores.max())
        residual = chances / chances.sum()
        residual[label] -= 1.0
        return residual
    margins = np.maximum(1.0 - scores[label] + scores, 0.0)
    margins[label] = 0.0
    residual = 2.0 * margins
    residual[label] = -residual.sum()
    return residual


def by_hand(X, y, weights, order, rates, how):
    """Follow the samples in double precision, by the definition of the weights after each of them."""
    loss, penalty, alpha, ridge, intercept = how
    n_classes = int(y.max()) + 1
    linear, squares = np.zeros((X.shape[1] + 1, n_classes)), np.zeros(X.shape[1] + 1)
    total = 0.0
    # the intercept is one more feature that nothing penalises
    X = np.hstack([X, np.full((len(X), 1), float(intercept))])

    def weights_of(j):
        if squares[j] == 0:
            return np.zeros(n_classes)
        last = j == X.shape[1] - 1
        curve = np.sqrt(squares[j]) / rates[j] + (0.0 if last else ridge * total)
        return shrunk(linear[j], curve, 0.0 if last else alpha * total, "l1/l2" if last else penalty)

    for i in order:
        if weights[i] == 0:
            continue
        total += weights[i]
        used = np.flatnonzero(X[i])
        rows = np.array([weights_of(j) for j in used]).reshape(-1, n_classes)
        residual = weights[i] * residual_of(loss, X[i, used] @ rows, y[i])
        for j, row in zip(used, rows, strict=True):
            after = squares[j] + X[i, j] ** 2 * (residual @ residual)
            linear[j] += X[i, j] * residual - (np.sqrt(after) - np.sqrt(squares[j])) / rates[j] * row
            squares[j] = after
    return np.array([weights_of(j) for j in range(X.shape[1])]), np.linalg.norm(linear[:-1], axis=1) / total


class Given:
    """An order of samples."""

    def __init__(self, order):
        self.order = order

    def permutation(self, _):
        return self.order


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
@pytest.mark.parametrize("penalty", sorted(PENALTIES))
@pytest.mark.parametrize(("ridge", "fit_intercept", "n_classes"), [(0.0, False, 3), (1e-2, True, 10)])
def test_steps_are_those_of_the_definition(loss, penalty, ridge, fit_intercept, n_classes):
    X, dataset = made(n=600, d=20, n_classes=n_classes)
    generator = np.random.default_rng(3)
    weights = generator.integers(0, 3, dataset.n_samples).astype(float)
    task = task_of(dataset, loss, penalty, weights, ridge, fit_intercept)
    table, order = np.arange(20), generator.permutation(600)
    steps = StochasticSteps(task, table, np.zeros(n_classes), 4000)
    spill = Spill(dataset, weights, 3, 0, None, exact_rows(dataset))
    try:
        samples = ShardSamples.of(spill, 0, table, np.arange(600), weights)
        steps.follow(samples, Given(order))
        found = steps.result()
    finally:
        spill.close()
    dense = X.toarray().astype(float)
    unit = 1.0 / np.sqrt((dense != 0).sum() / 600)
    sizes = np.sqrt((dense**2).sum(axis=0) / (dense != 0).sum(axis=0))
    how = (loss, penalty, task.alpha, ridge, fit_intercept)
    wanted, norms = by_hand(dense, dataset.labels(), weights, order, np.append(unit / sizes, unit), how)
    np.testing.assert_allclose(found.coef.take(table)[:, :n_classes], wanted[:-1], rtol=2e-2, atol=2e-4)
    if fit_intercept:
        np.testing.assert_allclose(found.intercept, wanted[-1], rtol=2e-2, atol=2e-4)
    if penalty == "l1/l2":
        np.testing.assert_allclose(found.norms, norms, rtol=2e-2)


def first_weights(dataset, plan=ROOMY, **options):
    """Read once; return what came of it and its objective, and the spill's bytes."""
    task = task_of(dataset, **options)
    reading = plan_read(task, plan)
    spill = Spill(dataset, task.sample_weight, 3, 0, None, exact_rows(dataset))
    spill.n_bytes = 0
    try:
        return read(task, spill, reading, np.zeros(dataset.n_classes)), spill.n_bytes
    finally:
        spill.close()


def test_it_reads_the_data_once():
    _, dataset = made()
    started, n_bytes = first_weights(dataset)
    assert n_bytes == dataset.nnz * 3
    assert len(started.coef.features) > 20


def with_zeros():
    """Samples in no order, in shards of 700: feature 3 has only stored zeros, 5 has them in the first shards.

    Of 7 to 19 most entries are stored zeros, and the values of feature 4 have squares too small to be told.
    """
    X, dataset = made()
    order = np.random.default_rng(5).permutation(dataset.n_samples)
    X = X[order].tocsc().astype(np.float32)
    entries = [slice(X.indptr[j], X.indptr[j + 1]) for j in range(20)]
    X.data[entries[3]] = 0
    X.data[entries[4]] *= np.float32(1e-30)
    X.data[entries[5]][X.indices[entries[5]] < 2200] = 0
    many = slice(X.indptr[7], X.indptr[20])
    X.data[many][np.random.default_rng(6).random(many.stop - many.start) < 0.9] = 0
    return Dataset.from_arrays(X, dataset.labels()[order], shard_rows=700)


@pytest.mark.parametrize("loss", ["log_loss", "multitask_squared_hinge"])
def test_stored_zeros_move_nothing(loss):
    dataset = with_zeros()
    assert dataset.column_nnz()[3] > 300
    started, _ = first_weights(dataset, loss=loss)
    moved = started.coef.slots(np.arange(60)) >= 0
    assert moved[[0, 1, 5]].all()
    assert not moved[[3, 4]].any()
    assert (started.norms[[3, 4]] == 0).all()
    best = solve(dataset, alpha=2e-2, tol=1e-6, memory_limit=1 << 30, loss=loss).certificate
    seen = []
    _, certificate = run(dataset, ROOMY, loss=loss, progress=seen.append)
    assert "first weights" in {step.stage for step in seen}
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_of_the_features_do_not_matter(factor):
    """Without a penalty to speak of, weights times units stay the same."""
    X, dataset = made()
    scaled = Dataset.from_arrays(
        (X.astype(np.float32) * np.float32(factor)).tocsr(), dataset.labels(), shard_rows=700
    )
    found = []
    for data, alpha in ((dataset, 1e-9), (scaled, 1e-9 * factor)):
        task = replace(task_of(data), alpha=alpha)
        steps = StochasticSteps(task, np.arange(60), np.zeros(5), 4000)
        spill = Spill(data, None, 3, 0, None, exact_rows(data))
        try:
            for s in range(data.n_shards):
                n_rows = data.shards[s].n_rows
                samples = ShardSamples.of(spill, s, np.arange(60), np.arange(n_rows), np.ones(n_rows))
                steps.follow(samples, np.random.default_rng(s))
        finally:
            spill.close()
        found.append(steps.result().coef.rows)
    np.testing.assert_allclose(found[1] * factor, found[0], rtol=1e-2, atol=1e-3)


def shuffled(**how):
    """The same samples, in an order that has nothing to do with their classes."""
    X, dataset = made(**how)
    order = np.random.default_rng(5).permutation(dataset.n_samples)
    weighting = how.get("weighting", Weighting())
    return Dataset.from_arrays(X[order], dataset.labels()[order], shard_rows=700, weighting=weighting)


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(("loss", "penalty", "fit_intercept"), list(covered_pairs(LABEL_LOSSES)))
def test_rounds_that_start_from_it_come_to_the_optimum(loss, penalty, fit_intercept):
    dataset = shuffled()
    options = {"loss": loss, "penalty": penalty, "ridge": 1e-3, "fit_intercept": fit_intercept}
    best = solve(dataset, alpha=2e-2, tol=1e-5, memory_limit=1 << 30, **options).certificate
    seen = []
    _, certificate = run(dataset, ROOMY, progress=seen.append, **options)
    assert {step.stage for step in seen} >= {"first weights", "train"}
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)


def test_it_is_near_the_optimum():
    dataset = shuffled(n=20_000)
    started, _ = first_weights(dataset)
    solved = solve(dataset, alpha=2e-2, tol=1e-6, memory_limit=1 << 30, loss="log_loss")
    X = scipy.sparse.vstack([shard_rows(dataset, s) for s in range(dataset.n_shards)])
    scores = X @ started.coef.take(np.arange(60))[:, :5]
    scores -= scores.max(axis=1, keepdims=True)
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(scores)), dataset.labels()]
    reached = losses.mean() + 2e-2 * np.linalg.norm(started.coef.rows, axis=1).sum()
    assert solved.objective <= reached <= 1.03 * solved.objective


def shard_rows(dataset, s):
    shard = dataset.shards[s]
    indptr = shard.indptr(0, shard.n_features)
    rows, values = np.empty(indptr[-1], np.uint16), np.empty(indptr[-1], dataset.dtype)
    shard.read(0, int(indptr[-1]), rows, values)
    return scipy.sparse.csc_array((values.astype(float), rows, indptr), (shard.n_rows, shard.n_features))


def test_where_samples_are_sorted_by_class_it_is_given_up():
    """Shards of one class each draw the weights to the last of them: worse than none."""
    _, dataset = made()
    seen = []
    _, certificate = run(dataset, ROOMY, loss="log_loss", fit_intercept=True, progress=seen.append)
    first = next(step.facts["objective"] for step in seen if "objective" in step.facts)
    assert "first weights" in {step.stage for step in seen}
    assert certificate.gap <= 1e-3
    assert first <= np.log(5)


@cache
def uninterrupted(weighting):
    dataset = shuffled(weighting=weighting)
    options = {"alpha": 1e-2, "loss": "log_loss"}
    return dataset, options, run(dataset, ROOMY, **options)[0]


@pytest.mark.parametrize("saves", [1, 2, 3])
@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True, idf=True)])
def test_resumed_runs_and_any_threads_give_the_same_bits(saves, weighting):
    dataset, options, whole = uninterrupted(weighting)
    checkpoint = Stopping(saves)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, ROOMY, checkpoint=checkpoint, **options)
    if saves == 1:  # after the first read: a model, and no layer yet
        saved = checkpoint.kept[1]
        assert len(saved["features"]) > 5
        assert not len(saved["layers"])
    again, _ = run(dataset, ROOMY, checkpoint=checkpoint, threads=1, **options)
    assert again.coef.rows.tobytes() == whole.coef.rows.tobytes()
    assert again.coef.features.tobytes() == whole.coef.features.tobytes()
    assert again.history == whole.history


def test_a_read_that_is_interrupted_begins_anew():
    dataset = shuffled()
    whole, _ = run(dataset, ROOMY, loss="log_loss")
    checkpoint = Stopping(100)

    def stop(step):
        if step.stage == "first weights" and step.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(dataset, ROOMY, checkpoint=checkpoint, loss="log_loss", progress=stop)
    assert checkpoint.kept is None
    again, _ = run(dataset, ROOMY, checkpoint=checkpoint, loss="log_loss")
    assert again.coef.rows.tobytes() == whole.coef.rows.tobytes()
    assert again.history == whole.history


def test_with_little_memory_frequent_features_and_some_samples_take_part():
    dataset = shuffled()
    plans = [plan_read(task_of(dataset), replace(ROOMY, free_bytes=n)) for n in (20_000, 75_000, 100_000)]
    assert plans[0] is None
    assert plans[1].share < 1.0 == plans[2].share
    started, n_bytes = first_weights(dataset, replace(ROOMY, free_bytes=75_000))
    assert n_bytes == dataset.nnz * 3
    assert len(started.coef.features) > 20


def test_chunks_start_from_steps_along_their_samples():
    """Where memory has no space for samples of whole shards: the first weights are near the optimum."""
    _, dataset = made(n=12_000)
    best = solve(dataset, alpha=2e-2, tol=1e-6, memory_limit=1 << 30, loss="log_loss")
    assert plan_read(task_of(dataset), PLAN) is None
    seen = []
    _, certificate = run(dataset, PLAN, loss="log_loss", progress=seen.append)
    first = [step for step in seen if step.stage == "first weights"]
    assert [step.done for step in first] == list(range(first[0].total))
    assert first[0].total > 3
    objective = next(step.facts["objective"] for step in seen if "objective" in step.facts)
    assert best.objective <= objective * (1 + 1e-9) <= 1.02 * best.objective < 0.9 * np.log(5)
    assert certificate.lower <= best.certificate.upper * (1 + 1e-9)
