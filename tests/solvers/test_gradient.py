"""The gradient kernel against finite differences of the loss as defined."""

import numpy as np
import pytest
from instances import instance, loss_and_gradient

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.solvers.sparse.working_set.gradient import gradient_pass
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_norms_are_those_of_finite_differences(weighted):
    X, y = instance("iris")
    generator = np.random.default_rng(0)
    weights = generator.random(len(y)) + 0.5 if weighted else None
    W, b = generator.normal(size=(4, 3)), generator.normal(size=3)
    dataset = Dataset.from_arrays(X, y, shard_rows=40)
    problem = Problem(
        dataset, objective("squared_hinge", "l1/l2"), 0.1, weights, np.dtype(np.float64), ThreadEngine(2)
    )
    rows = np.zeros((4, problem.width))
    rows[:, :3] = W
    coef = Coefficients(np.arange(4), rows)
    source = BlockSource(dataset, [(0, 4)], Residency.MEMORY)
    block = next(source.stream([0]))[1]
    problem.rebuild_scores(coef, b, [Columns.of(0, block, np.arange(4))])
    np.testing.assert_allclose(problem.scores[:, :3], X @ W + b, rtol=1e-12)
    screening = Screening(dataset.column_nnz(), coef.features)
    found = gradient_pass(problem, source, coef, np.empty((0, 3)), screening)
    c = np.ones(len(y)) if weights is None else weights
    gradient = np.empty((4, 3))
    for j, r in np.ndindex(4, 3):
        step = np.zeros((4, 3))
        step[j, r] = 1e-6
        up, down = (loss_and_gradient(X, y, W + s * step, b, c)[0] for s in (1, -1))
        gradient[j, r] = (up - down) / 2e-6
    assert found.largest_norm == pytest.approx(np.linalg.norm(gradient, axis=1).max(), rel=1e-6)
    left = gradient + 0.1 * W / np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(found.violations, np.linalg.norm(left, axis=1), rtol=1e-5)
