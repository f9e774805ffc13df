"""The preconditioner of Newton steps against the inverse of the matrix it stands for."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.kernels.linear.arguments import Rows
from bigmc.objectives import objective
from bigmc.solvers.sparse import margins
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.preconditioner import block_bytes, preconditioner
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting


def curvature(X, y, n_classes, weights):
    """Mean over the samples of x x', and of half the Hessian of the squared hinge by scores of zero."""
    moments = (X * weights[:, None]).T @ X / weights.sum()
    coupling = np.zeros((n_classes, n_classes))
    for own, weight in zip(y, weights, strict=True):
        step = np.eye(n_classes) - np.eye(n_classes)[own]
        coupling += weight * step.T @ step
    return moments, 2.0 * coupling / weights.sum()


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_block_is_the_inverse_of_the_product_of_moments_and_curvature(weighted, by_class, monkeypatch):
    if by_class:
        monkeypatch.setattr(margins, "MOST_PAIRED_CLASSES", 2)
    generator = np.random.default_rng(0)
    n, d, n_classes = 200, 7, 4
    X = scipy.sparse.random(n, d, 0.5, format="csr", rng=generator)
    y = np.arange(n) % n_classes
    weights = generator.integers(1, 4, n).astype(float) if weighted else np.ones(n)
    problem = Problem(
        Dataset.from_arrays(X, y),
        objective("squared_hinge", "l1/l2"),
        1e-3,
        weights if weighted else None,
        np.dtype(float),
        ThreadEngine(1),
    )
    problem.rebuild_scores(Coefficients.zeros(problem.width), np.zeros(n_classes), [])
    rows = Rows(X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data, True)
    scale, damping = generator.uniform(0.5, 2, d + 1), generator.uniform(0.1, 1, d + 1)
    scale[-1] = 1.0
    free = generator.random((d + 1, problem.width)) < 0.9
    diagonal = np.ones((d + 1, problem.width))
    found = preconditioner(problem, rows, scale, diagonal, damping, free)

    scaled = np.column_stack([X.toarray(), np.ones(n)]) * scale
    moments, coupling = curvature(scaled, y, n_classes, weights)
    if by_class:
        coupling = np.diag(np.diag(coupling))
    matrix = np.kron(moments, coupling) + np.kron(np.diag(damping), np.eye(n_classes))
    mask = free[:, :n_classes].ravel()
    residual = generator.standard_normal((d + 1, problem.width))
    expected = mask * np.linalg.solve(matrix, mask * residual[:, :n_classes].ravel())
    np.testing.assert_array_equal(found.block, np.arange(d + 1))
    np.testing.assert_allclose(found.over_block(residual).ravel(), expected, rtol=1e-9)
    assert not found.diagonal.any()


def test_dense_samples_take_little_memory_and_give_the_moments_that_they_have(monkeypatch):
    generator = np.random.default_rng(0)
    n, d = 400, 3000
    X = generator.standard_normal((n, d))
    problem = Problem(
        Dataset.from_arrays(X, np.arange(n) % 3),
        objective("squared_hinge", "l1/l2"),
        1e-3,
        None,
        np.dtype(float),
        ThreadEngine(1),
    )
    problem.rebuild_scores(Coefficients.zeros(problem.width), np.zeros(3), [])
    entries = scipy.sparse.csr_array(X)
    rows = Rows(entries.indptr.astype(np.int64), entries.indices.astype(np.uint32), entries.data, False)
    ones, free = np.ones(d), np.ones((d, problem.width), bool)
    given = problem, rows, ones, np.ones((d, problem.width)), ones, free
    with monkeypatch.context() as patched:
        patched.setattr("bigmc.solvers.sparse.steps.preconditioner._ENTRIES", 1 << 30)
        at_once = preconditioner(*given)
    tracemalloc.start()
    found = preconditioner(*given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < block_bytes(d, 3) + 64 * (1 << 17) + 8 * found.diagonal.size
    np.testing.assert_array_equal(found.block, at_once.block)
    residual = generator.standard_normal((d, problem.width))
    np.testing.assert_array_equal(found.over_block(residual), at_once.over_block(residual))
    own = found.block
    moments, coupling = curvature(X[:, own], np.arange(n) % 3, 3, np.ones(n))
    matrix = np.kron(moments, coupling) + np.eye(3 * len(own))
    expected = np.linalg.solve(matrix, residual[own, :3].ravel())
    np.testing.assert_allclose(found.over_block(residual).ravel(), expected, rtol=1e-8)


def test_rare_features_keep_their_diagonal():
    X = scipy.sparse.csr_matrix(np.column_stack([np.ones(500), np.arange(500) < 3]).astype(float))
    dataset = Dataset.from_arrays(X, np.arange(500) % 3)
    problem = Problem(
        dataset, objective("squared_hinge", "l1/l2"), 1e-3, None, np.dtype(float), ThreadEngine(1)
    )
    problem.rebuild_scores(Coefficients.zeros(problem.width), np.zeros(3), [])
    rows = Rows(X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data, False)
    diagonal = np.full((2, problem.width), 4.0)
    found = preconditioner(problem, rows, np.ones(2), diagonal, np.ones(2), diagonal > 0)
    np.testing.assert_array_equal(found.block, [0])
    np.testing.assert_array_equal(found.diagonal, [[0.0] * problem.width, [0.25] * problem.width])


def test_features_in_nearly_every_sample_are_certified():
    generator = np.random.default_rng(0)
    n, d, n_classes = 3000, 80, 6
    counts = generator.poisson(generator.uniform(1, 30, d), (n, d))
    y = np.argmax(np.log1p(counts[:, :n_classes]) + generator.gumbel(size=(n, n_classes)) / 3, axis=1)
    dataset = Dataset.from_arrays(
        scipy.sparse.csr_matrix(counts.astype(np.int16)), y, weighting=Weighting(l2=True)
    )
    found = solve(dataset, alpha=2e-5, tol=1e-3, max_passes=12, memory_limit=1 << 30, fit_intercept=True)
    assert found.converged
