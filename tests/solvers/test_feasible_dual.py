"""Dual points that the samples of one chunk make feasible, against gradients by numpy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sparse_runs import solve
from test_chunk_rounds import PLAN
from test_rare_features import ALPHA, N_CLASSES, made, task_of

from bigmc.objectives import objective
from bigmc.solvers.sparse.chunks import feasible_dual
from bigmc.solvers.sparse.chunks.dual_point import dual_point
from bigmc.solvers.sparse.chunks.evaluation import evaluate_by_columns
from bigmc.solvers.sparse.chunks.feasible_dual import nearly_feasible
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.scratch.row_scales import exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

#: What most entries of the last test are: values of one byte, of which some differ by a hundredth.
UNIT = 100


def hinge_residuals(scores, labels):
    """Derivatives of the multiclass squared hinge by the scores."""
    slack = np.maximum(1.0 - scores[np.arange(len(labels)), labels][:, None] + scores, 0.0)
    slack[np.arange(len(labels)), labels] = 0.0
    residual = 2.0 * slack
    residual[np.arange(len(labels)), labels] = -residual.sum(axis=1)
    return residual


def log_residuals(scores, labels):
    """Derivatives of the log loss by the scores."""
    return softmax(scores, axis=1) - np.eye(scores.shape[1])[labels]


def places_of(dataset, spill, moved):
    """Return the numbers of the samples whose dual variables were moved."""
    pieces = sorted(moved.pieces, key=lambda piece: piece.shard)
    positions = spill.read(pieces).positions
    places = [dataset.base[piece.shard] + at for piece, at in zip(pieces, positions, strict=True)]
    return np.concatenate(places).astype(int)


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(
    ("weighting", "weighted"), [(Weighting(), True), (Weighting(l2=True, idf=True), False)]
)
@pytest.mark.parametrize(
    ("loss", "residuals_of", "alpha"),
    [("squared_hinge", hinge_residuals, ALPHA), ("log_loss", log_residuals, 0.3 * ALPHA)],
)
@pytest.mark.parametrize(("most_entries", "n_moved"), [(1 << 22, 2), (1 << 12, 1)])
def test_gradients_of_frequent_features_are_in_their_ball_and_the_intercept_has_no_gradient(
    weighting, weighted, loss, residuals_of, alpha, most_entries, n_moved, monkeypatch
):
    monkeypatch.setattr(feasible_dual, "_MOST_ENTRIES", most_entries)
    X, dataset = made(weighting)
    weights = np.random.default_rng(0).random(dataset.n_samples) if weighted else None
    options = {"sample_weight": weights, "fit_intercept": True, "memory_limit": 1 << 30}
    near = solve(dataset, alpha=1.2 * alpha, loss=loss, tol=1e-3, **options)
    task = replace(task_of(dataset, weights, 0.0), objective=objective(loss, "l1/l2"), alpha=alpha)
    rows = np.pad(near.coef, ((0, 0), (0, task.width - N_CLASSES)))
    start = Coefficients.zeros(task.width).updated([(near.features, rows)])
    spill = Spill(dataset, weights, 4, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        anchor = evaluate_by_columns(task, spill, start, near.intercept)
        found = nearly_feasible(task, spill, anchor, 1 << 20)
        assert len(found) == n_moved
        moved = [places_of(dataset, spill, own) for own in found]
    finally:
        spill.close()
    scale = dataset.column_scale()
    scaled = X.multiply(1.0 if scale is None else scale[None]).multiply(dataset.row_scale(scale)[:, None])
    scaled, used = scaled.tocsr(), np.ones(dataset.n_samples) if weights is None else weights

    def scores_at(coef, intercept):
        return scaled @ coef.take(np.arange(40))[:, :N_CLASSES] + intercept

    def residuals(scores):
        return residuals_of(scores, dataset.labels()) * (used / used.sum())[:, None]

    scores = scores_at(start, near.intercept)
    before = np.linalg.norm(scaled.T @ residuals(scores), axis=1)
    assert before[:20].max() > 1.1 * alpha
    for places, own in zip(moved, found, strict=True):
        scores[places] = scores_at(own.coef, own.intercept)[places]
    residual = residuals(scores)
    after = np.linalg.norm(scaled.T @ residual, axis=1)[:20]  # the others have too few entries in a chunk
    assert after.max() <= alpha * (1 + 1e-3)
    assert np.abs(residual.sum(axis=0)).max() <= 1e-8


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_chunk_that_cannot_make_up_for_the_others_gives_no_point_with_huge_weights(fit_intercept):
    X, dataset = made(Weighting())
    dataset = Dataset.from_arrays(X[:1000], dataset.labels()[:1000], shard_rows=250)
    task = replace(task_of(dataset, None, 0.0), alpha=1e-3 * ALPHA)
    task = replace(task, descent=replace(task.descent, fit_intercept=fit_intercept))
    spill = Spill(dataset, None, 10, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        anchor = evaluate_by_columns(task, spill, Coefficients.zeros(task.width), np.zeros(N_CLASSES))
        found = nearly_feasible(task, spill, anchor, 1 << 20)
    finally:
        spill.close()
    assert all(np.abs(moved.coef.rows).max(initial=0.0) < 1e3 for moved in found)


def test_weights_too_large_for_single_precision_are_no_dual_point(monkeypatch):
    def without_end(task, samples, anchor, rows, parts, chunks):
        for part in parts:
            part.rows[:] = 1e300
        return anchor.intercept.copy(), 0.0

    monkeypatch.setattr(feasible_dual, "_minimise", without_end)
    _, dataset = made(Weighting())
    task = replace(task_of(dataset, None, 0.0), dtype=np.dtype(np.float32))
    spill = Spill(dataset, None, 4, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        anchor = evaluate_by_columns(task, spill, Coefficients.zeros(task.width), np.zeros(N_CLASSES))
        found = nearly_feasible(task, spill, anchor, 1 << 20)
    finally:
        spill.close()
    assert found
    assert all(np.isfinite(moved.rows).all() for moved in found)


@pytest.mark.parametrize(
    ("loss", "residuals_of"), [("squared_hinge", hinge_residuals), ("log_loss", log_residuals)]
)
def test_features_that_add_up_to_the_same_in_every_sample_are_in_their_ball_without_an_intercept(
    loss, residuals_of
):
    generator = np.random.default_rng(1)
    codes = generator.integers(0, [3, 4, 2, 5], (4000, 4)) + np.array([0, 3, 7, 9])
    X = np.zeros((4000, 16), np.int8)
    np.put_along_axis(X, codes, UNIT, axis=1)
    X[:, 14:] = UNIT + generator.integers(0, 2, (4000, 2))  # and two that are nearly constant
    weights = generator.standard_normal((16, N_CLASSES)) / UNIT
    scores = X @ weights + generator.gumbel(size=(4000, N_CLASSES))
    dataset = Dataset.from_arrays(X, np.argmax(scores, axis=1), shard_rows=900)
    task = replace(task_of(dataset, None, 0.0), objective=objective(loss, "l1/l2"), alpha=UNIT * ALPHA)
    task = replace(task, descent=replace(task.descent, fit_intercept=False))
    near = solve(dataset, alpha=1.2 * UNIT * ALPHA, loss=loss, tol=1e-3, memory_limit=1 << 30)
    rows = np.pad(near.coef, ((0, 0), (0, task.width - N_CLASSES)))
    start = Coefficients.zeros(task.width).updated([(near.features, rows)])
    spill = Spill(dataset, None, 4, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(16))
        anchor = evaluate_by_columns(task, spill, start, np.zeros(N_CLASSES))
        found = nearly_feasible(task, spill, anchor, 1 << 20)
        places = [places_of(dataset, spill, own) for own in found]
    finally:
        spill.close()
    scores = X @ start.take(np.arange(16))[:, :N_CLASSES]
    for own, at in zip(found, places, strict=True):
        scores[at] = X[at] @ own.coef.take(np.arange(16))[:, :N_CLASSES]
    gradient = X.T.astype(float) @ residuals_of(scores, dataset.labels()) / dataset.n_samples
    assert np.linalg.norm(gradient, axis=1).max() <= UNIT * ALPHA * (1 + 1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("loss", "residuals_of", "alpha"),
    [("squared_hinge", hinge_residuals, ALPHA), ("log_loss", log_residuals, 0.3 * ALPHA)],
)
@pytest.mark.parametrize(("most", "times"), [(40, 1), (38, 10)])
def test_other_chunks_take_back_what_the_first_cannot(loss, residuals_of, alpha, most, times):
    """Half of the features have five entries in a chunk, with which it makes up for too little.

    That goes for all 40 candidates also where sweeps have memory for those of the longest gradients only.
    """
    alpha *= times
    plan = replace(PLAN, most_candidates=most, free_bytes=60_000, chunk_bytes=40_000)
    atol = 1e-8 if most == 40 else 1e-6  # in single precision
    X, dataset = made(Weighting())
    near = solve(dataset, alpha=1.1 * alpha, loss=loss, tol=1e-3, fit_intercept=True, memory_limit=1 << 30)
    task = replace(task_of(dataset, None, 0.0), objective=objective(loss, "l1/l2"), alpha=alpha)
    rows = np.pad(near.coef, ((0, 0), (0, task.width - N_CLASSES)))
    start = Coefficients.zeros(task.width).updated([(near.features, rows)])
    spill = Spill(dataset, None, 8, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        anchor = evaluate_by_columns(task, spill, start, near.intercept)
        first, dual = nearly_feasible(task, spill, anchor, 1 << 20), dual_point(task, plan, spill, anchor)
        places = [places_of(dataset, spill, own) for own in dual.moved]
    finally:
        spill.close()
    scores = X @ start.take(np.arange(40))[:, :N_CLASSES] + near.intercept
    largest = []
    for own, at in zip(dual.moved, places, strict=True):
        scores[at] = (X @ own.coef.take(np.arange(40))[:, :N_CLASSES] + own.intercept)[at]
        residual = residuals_of(scores, dataset.labels()) / dataset.n_samples
        gradient = X.T @ residual
        largest.append(np.linalg.norm(gradient, axis=1).max() / alpha)
    assert len(dual.moved) > len(first) > 0
    assert len(np.unique(np.concatenate(places))) == sum(map(len, places))
    assert largest[len(first) - 1] > 1.02
    assert largest[-1] < 1.001
    assert np.abs(residual.sum(axis=0)).max() <= atol
    np.testing.assert_allclose(dual.point.gradient[:, :N_CLASSES], gradient, atol=1e-3 * alpha)
