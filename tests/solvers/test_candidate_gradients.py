"""Gradients of the candidates at the dual point, and at the weights, beside passes that leave them out."""

from functools import partial

import numpy as np
import pytest
from dense import loss_and_gradient
from sparse_runs import solve
from test_chunk_rounds import PLAN, replace
from test_pass_norms import N_FEATURES, N_ROWS, made, task_of

from bigmc.objectives import objective
from bigmc.solvers.sparse.chunks.certificate import Certifier, with_gradients_of_written
from bigmc.solvers.sparse.chunks.evaluation import distance, evaluate_by_columns
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.scratch.row_scales import Norms, exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.store.dataset import Dataset

N_CLASSES, N_CHUNKS = 4, 4
ALPHAS = {"squared_hinge": 5e-2, "log_loss": 1e-2}
FURTHER = np.array([30, 77, 140, 299])


def certified(dataset, loss, fit_intercept, chosen, further=None):
    """Make a pass near the optimum, frequent features in two layers; return what it is of and finds."""
    task = task_of(dataset, loss, ALPHAS[loss])
    task = replace(task, descent=replace(task.descent, fit_intercept=fit_intercept))
    options = {"loss": loss, "fit_intercept": fit_intercept, "memory_limit": 1 << 30}
    near = solve(dataset, alpha=1.2 * ALPHAS[loss], **options)
    spill = Spill(dataset, None, N_CHUNKS, 0, None, exact_rows(dataset))
    for layer in (np.arange(0, 30, 2), np.arange(1, 30, 2)):
        spill.add(layer)
    assert 0 < len(near.features) < 30
    rows = np.pad(near.coef, ((0, 0), (0, task.width - N_CLASSES)))
    coef = Coefficients.zeros(task.width).updated([(near.features, rows)])
    point = evaluate_by_columns(task, spill, coef, near.intercept)
    certifier = Certifier(
        task, replace(PLAN, n_kept=task.objective.loss.n_kept(N_CLASSES), most_candidates=99)
    )
    return task, spill, point, certifier.certify(spill, point, chosen, Norms.EXACT, 1.0, further)


def dense(coef):
    W = np.zeros((N_FEATURES, N_CLASSES))
    W[coef.features] = coef.rows[:, :N_CLASSES]
    return W


@pytest.mark.parametrize("penalty", ["l1/l2", "l1"])
def test_the_gap_of_the_candidates_is_that_of_conjugates(penalty):
    """Of every feature: the regulariser, its conjugate and a product, by their textbook formulas."""
    X, y, dataset = made(N_CLASSES)
    ridge, alpha = 0.3, 0.02
    task = replace(
        task_of(dataset, "squared_hinge", alpha), objective=objective("squared_hinge", penalty, ridge=ridge)
    )
    layers = [np.arange(0, 30, 2), np.arange(1, 30, 2)]
    spill = Spill(dataset, None, N_CHUNKS, 0, None, exact_rows(dataset))
    try:
        for layer in layers:
            spill.add(layer)
        rows = np.zeros((2, task.width))
        rows[:, :N_CLASSES] = [[0.4, -0.1, 0.0, 0.2], [-0.3, 0.0, 0.1, 0.0]]
        coef = Coefficients.zeros(task.width).updated([(np.array([4, 7]), rows)])
        point = evaluate_by_columns(task, spill, coef, np.zeros(N_CLASSES))
        found = distance(task, point, layers).gap
    finally:
        spill.close()
    W = dense(coef)[:30]
    G = loss_and_gradient("squared_hinge", X.toarray(), y, dense(coef), np.zeros(N_CLASSES), np.ones(N_ROWS))[
        1
    ]
    sizes = np.abs if penalty == "l1" else partial(np.linalg.norm, axis=1)
    conjugates = np.maximum(sizes(G[:30]) - alpha, 0) ** 2 / (2 * ridge)
    regularisers = alpha * sizes(W).sum() + ridge / 2 * (W**2).sum()
    np.testing.assert_allclose(found, regularisers + conjugates.sum() + (W * G[:30]).sum(), rtol=1e-6)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ALPHAS)
def test_norms_are_those_of_the_dual_point(loss, fit_intercept):
    """Of every sample with the weights that it has in the pass, by dense arrays."""
    X, y, dataset = made(N_CLASSES)
    _, spill, point, found = certified(dataset, loss, fit_intercept, np.arange(100))
    try:
        assert found.moved
        left, gradient = np.ones(N_ROWS, bool), np.zeros((N_FEATURES, N_CLASSES))
        groups = []
        for own in found.moved:
            pieces = sorted(own.pieces, key=lambda piece: (piece.shard, piece.part))
            rows = np.concatenate([dataset.base[p.shard] + spill.samples_of([p])[1] for p in pieces])
            left[rows] = False
            groups.append((rows, own))
        for rows, own in [*groups, (np.flatnonzero(left), point)]:
            weights = dense(own.coef), own.intercept, np.ones(len(rows))
            part = loss_and_gradient(loss, X[rows].toarray(), y[rows], *weights)[1]
            gradient += part * (len(rows) / N_ROWS)
    finally:
        spill.close()
    expected = np.linalg.norm(gradient, axis=1)
    np.testing.assert_allclose(found.sums.norms[:100], expected[:100], rtol=1e-5, atol=1e-9)
    assert found.measured.largest_norm >= expected.max() * (1 - 1e-6)
    at_weights = loss_and_gradient(loss, X.toarray(), y, dense(point.coef), point.intercept, np.ones(N_ROWS))[
        1
    ]
    assert np.abs(np.linalg.norm(at_weights, axis=1)[:30] / expected[:30] - 1).max() > 1e-3


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ALPHAS)
def test_features_that_a_pass_writes_get_the_gradients_of_the_weights(loss, fit_intercept):
    _, _, dataset = made(N_CLASSES)
    chosen = np.arange(25, N_FEATURES)
    task, spill, point, found = certified(dataset, loss, fit_intercept, chosen, FURTHER)
    try:
        assert found.moved
        before = np.concatenate([layer.features for layer in spill.layers[:2]])
        again = with_gradients_of_written(task, spill, point, before, found)
        expected = evaluate_by_columns(task, spill, point.coef, point.intercept)
    finally:
        spill.close()
    assert found.written.tolist() == FURTHER.tolist()
    assert again.gradient.shape == (30 + len(FURTHER), task.width)
    np.testing.assert_allclose(again.gradient, expected.gradient, atol=1e-12)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_first_candidates_are_named_by_all_shards_where_these_differ(is_sorted):
    """Their norms add up to bounds of those of all. Else one of ten shards tells, and some are too small."""
    X, y, _ = made(N_CLASSES)
    order = np.argsort(y, kind="stable") if is_sorted else np.arange(N_ROWS)
    dataset = Dataset.from_arrays(X[order], y[order], shard_rows=N_ROWS // 10)
    task = task_of(dataset, "squared_hinge", 1e-2)
    spill = Spill(dataset, None, N_CHUNKS, 0, None, exact_rows(dataset))
    try:
        zero = Coefficients.zeros(task.width), np.zeros(N_CLASSES)
        point, before = evaluate_by_columns(task, spill, *zero), spill.n_bytes
        found = Certifier(task, PLAN).estimate(spill, point)
        n_bytes = spill.n_bytes - before
    finally:
        spill.close()
    weights = np.zeros((N_FEATURES, N_CLASSES)), np.zeros(N_CLASSES), np.ones(N_ROWS)
    gradient = loss_and_gradient("squared_hinge", X.toarray(), y, *weights)[1]
    assert (found >= (1 - 1e-5) * np.linalg.norm(gradient, axis=1)).all() == is_sorted
    assert (n_bytes > 0.9 * dataset.decoded_bytes) == is_sorted
