"""Sweeps on the model of the log loss: never larger objectives, and the optimum that scipy finds."""

import numpy as np
import pytest
from dense import loss_and_gradient
from scipy.optimize import minimize
from scipy.special import logsumexp

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.model_sweeps import sweeper_of
from bigmc.solvers.sparse.steps.sweeps import Course
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

ALPHA, RIDGE = 0.01, 0.02


def _drawn(n_classes, scale):
    generator = np.random.default_rng(n_classes)
    X = generator.normal(0, scale, (400, 12)) * (generator.random((400, 12)) < 0.6)
    y = (X @ generator.normal(size=(12, n_classes)) + generator.normal(0, 0.3, (400, n_classes))).argmax(1)
    return X, y


def _value(W, X, y):
    """Objective of weights of shape (n_features, n_classes)."""
    scores = X @ W
    loss = (logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).mean()
    return loss + ALPHA * np.linalg.norm(W, axis=1).sum() + RIDGE / 2 * (W**2).sum()


def _gradient(W, X, y):
    """Gradient of `_value` where no row of weights is zero."""
    gradient = loss_and_gradient("log_loss", X, y, W, 0, np.ones(len(y)))[1]
    return gradient + ALPHA * W / np.linalg.norm(W, axis=1, keepdims=True) + RIDGE * W


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize("scale", [0.3, 30.0])
@pytest.mark.parametrize("n_classes", [2, 9])
def test_objectives_fall_to_the_optimum(n_classes, scale):
    X, y = _drawn(n_classes, scale)
    dataset = Dataset.from_arrays(X, y, shard_rows=150)
    problem = Problem(
        dataset, objective("log_loss", "l1/l2", ridge=RIDGE), ALPHA, None, np.dtype(float), ThreadEngine(2)
    )
    sweeper = sweeper_of(problem, Descent("line_search", False, 0), 10**9, 0)  # no room for Newton steps
    block = next(BlockSource(dataset, [(0, 12)], Residency.MEMORY).stream([0]))[1]
    held, intercept = [Columns.of(0, block, np.arange(12))], np.zeros(n_classes)
    coef, values = Coefficients.zeros(problem.width), [np.log(n_classes)]
    for sweep in range(3000):
        problem.rebuild_scores(coef, intercept, held)
        changes, _ = sweeper.sweep_until(held, coef, intercept, Course(ALPHA, 1e-12, 1, sweep))
        coef = coef.updated(changes)
        W = coef.take(np.arange(12))[:, :n_classes]
        values.append(_value(W, X, y))
        assert np.allclose(problem.scores[:, :n_classes], X @ W, atol=1e-10)
        if values[-2] - values[-1] < 1e-11:
            break
    assert (np.diff(values) <= 1e-12).all()
    best = minimize(
        lambda flat: _value(flat.reshape(12, n_classes), X, y),
        W.ravel() + 0.01 * np.random.default_rng(0).normal(size=W.size),
        jac=lambda flat: _gradient(flat.reshape(12, n_classes), X, y).ravel(),
        method="L-BFGS-B",
        options={"maxiter": 10**4, "maxfun": 10**6, "ftol": 1e-14},
    )
    assert values[-1] <= best.fun + 1e-7
