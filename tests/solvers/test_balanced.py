"""Dual points that the samples of one chunk make feasible, against gradients by numpy."""

from dataclasses import replace

import numpy as np
import pytest
from sparse_runs import solve
from test_rare_features import ALPHA, N_CLASSES, made, task_of

from bigmc.solvers.sparse.balanced import balanced
from bigmc.solvers.sparse.chunk_loss import evaluate
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.row_scales import exact_rows
from bigmc.solvers.sparse.spill import Spill
from bigmc.store.weighting import Weighting


def slopes(scores, labels, weights):
    """Derivatives of the multiclass squared hinge by the scores, over the sum of the weights."""
    slack = np.maximum(1.0 - scores[np.arange(len(labels)), labels][:, None] + scores, 0.0)
    slack[np.arange(len(labels)), labels] = 0.0
    slope = 2.0 * slack
    slope[np.arange(len(labels)), labels] = -slope.sum(axis=1)
    return slope * (weights / weights.sum())[:, None]


@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True, idf=True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_frequent_features_are_in_their_ball_and_the_intercept_has_no_slope(weighting, weighted):
    X, dataset = made(weighting)
    weights = np.random.default_rng(0).random(dataset.n_samples) if weighted else None
    options = {"sample_weight": weights, "fit_intercept": True, "memory_limit": 1 << 30}
    near = solve(dataset, alpha=1.2 * ALPHA, tol=1e-3, **options)
    task = task_of(dataset, weights, 0.0)
    rows = np.pad(near.coef, ((0, 0), (0, task.width - N_CLASSES)))
    start = Coefficients.zeros(task.width).updated([(near.features, rows)])
    spill = Spill(dataset, weights, 4, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        anchor = evaluate(task, spill, start, near.intercept)
        found = balanced(task, spill, anchor)
        chunk = spill.chunk(found.chunk)
        pieces = [piece for piece in spill.pieces if piece.chunk == found.chunk]
        moved = np.concatenate(
            [dataset.base[p.shard] + at for p, at in zip(pieces, chunk.positions, strict=True)]
        ).astype(int)
    finally:
        spill.close()
    scale = dataset.column_scale()
    scaled = X.multiply(1.0 if scale is None else scale[None]).multiply(dataset.row_scale(scale)[:, None])
    scaled, used = scaled.tocsr(), np.ones(dataset.n_samples) if weights is None else weights

    def scores_at(coef, intercept):
        return scaled @ coef.take(np.arange(40))[:, :N_CLASSES] + intercept

    scores = scores_at(start, near.intercept)
    before = np.linalg.norm(scaled.T @ slopes(scores, dataset.labels(), used), axis=1)
    assert before[:20].max() > 1.1 * ALPHA
    scores[moved] = scores_at(found.coef, found.intercept)[moved]
    slope = slopes(scores, dataset.labels(), used)
    after = np.linalg.norm(scaled.T @ slope, axis=1)[:20]  # the others have too few entries in a chunk
    assert after.max() <= ALPHA * (1 + 1e-3)
    assert np.abs(slope.sum(axis=0)).max() <= 1e-8


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_chunk_that_cannot_make_up_for_the_others_gives_no_point_with_huge_weights(fit_intercept):
    _, dataset = made(Weighting())
    task = replace(task_of(dataset, None, 0.0), alpha=1e-3 * ALPHA)
    task = replace(task, descent=replace(task.descent, fit_intercept=fit_intercept))
    spill = Spill(dataset, None, 40, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        anchor = evaluate(task, spill, Coefficients.zeros(task.width), np.zeros(N_CLASSES))
        found = balanced(task, spill, anchor)
    finally:
        spill.close()
    assert found is None or np.abs(found.coef.rows).max(initial=0.0) < 1e3
