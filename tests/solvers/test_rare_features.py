"""Exact steps for rare features, and layers that are written while a pass reads the shards."""

import numpy as np
import pytest
import scipy.sparse

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse.chunks import rare_features as rare_module
from bigmc.solvers.sparse.chunks.evaluation import evaluate_by_columns
from bigmc.solvers.sparse.chunks.rare_features import RareFeatures, rare_features
from bigmc.solvers.sparse.chunks.stochastic_rounds import Point, evaluate_by_rows
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.scratch.row_scales import RowNorms, exact_rows, rough_rows
from bigmc.solvers.sparse.scratch.shard_blocks import Block
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

ALPHA, N_CLASSES = 2e-3, 5


def made(weighting):
    """Half of the features in a fifth of the samples, half in a hundredth; all say something of the class."""
    generator = np.random.default_rng(3)
    X = scipy.sparse.hstack(
        [scipy.sparse.random(4000, 20, share, format="csr", rng=generator) for share in (0.2, 0.01)]
    ).tocsr()
    X.data = generator.integers(1, 4, X.nnz).astype(np.int8)
    scores = X @ generator.standard_normal((40, N_CLASSES)) + generator.gumbel(size=(4000, N_CLASSES))
    return X, Dataset.from_arrays(X, np.argmax(scores, axis=1), shard_rows=900, weighting=weighting)


def task_of(dataset, weights, ridge):
    minimised = objective("squared_hinge", "l1/l2", ridge=ridge)
    descent = Descent("line_search", True, 0)
    return ChunkTask(
        dataset, weights, minimised, ALPHA, 1e-3, descent, np.dtype(float), RunContext(ThreadEngine(1))
    )


def gradients(X, labels, weights, W, intercept):
    """Gradient of the mean multiclass squared hinge, sum_r max(0, 1 - (s_y - s_r))^2, by numpy."""
    scores = X @ W + intercept
    own = scores[np.arange(len(labels)), labels]
    slack = np.maximum(1.0 - own[:, None] + scores, 0.0)
    slack[np.arange(len(labels)), labels] = 0.0
    residual = 2.0 * slack
    residual[np.arange(len(labels)), labels] = -residual.sum(axis=1)
    return X.T @ (residual * (weights / weights.sum())[:, None])


@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True, idf=True)])
@pytest.mark.parametrize(("weighted", "piece_rows"), [(False, 1 << 16), (True, 50)])
@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("layers", [2, 1], ids=["by columns", "by rows"])
def test_rare_features_end_at_their_optimum_and_others_stay(
    weighting, weighted, piece_rows, ridge, layers, monkeypatch
):
    monkeypatch.setattr(rare_module, "PIECE_ROWS", piece_rows)
    X, dataset = made(weighting)
    generator = np.random.default_rng(0)
    weights = generator.random(dataset.n_samples) if weighted else None
    task = task_of(dataset, weights, ridge)
    W = np.zeros((40, N_CLASSES))
    W[:20] = 0.3 * generator.standard_normal((20, N_CLASSES))
    W[30:] = generator.standard_normal((10, N_CLASSES))
    start = Coefficients.zeros(task.width).updated(
        [(np.arange(40), np.pad(W, ((0, 0), (0, task.width - N_CLASSES))))]
    )
    intercept = generator.standard_normal(N_CLASSES)
    chosen = np.arange(22, 38)
    spill = Spill(dataset, weights, 4, 0, None, exact_rows(dataset))
    try:
        for first in range(layers):
            spill.add(np.arange(first, 40, layers))
        rare = RareFeatures(task, chosen)
        if layers == 1:
            before = evaluate_by_rows(task, spill, Point(start, intercept), 1 << 13, rare)
        else:
            before = evaluate_by_columns(task, spill, start, intercept, rare)
        found = rare.solve(start, 0)
        after = evaluate_by_columns(task, spill, found, intercept)
    finally:
        spill.close()
    moved = found.take(np.arange(40))[:, :N_CLASSES]
    others = np.setdiff1d(np.arange(40), chosen)
    np.testing.assert_array_equal(moved[others], W[others])
    assert after.objective < before.objective
    scale = dataset.column_scale()
    scaled = X.multiply(1.0 if scale is None else scale[None]).multiply(dataset.row_scale(scale)[:, None])
    used = np.ones(dataset.n_samples) if weights is None else weights
    G = gradients(scaled.tocsr(), dataset.labels(), used, moved, intercept) + ridge * moved
    for j in chosen:
        norm = np.linalg.norm(moved[j])
        left = G[j] + ALPHA * moved[j] / norm if norm else G[j]
        assert np.linalg.norm(left) <= ALPHA * (1e-2 if norm else 1.0 + 1e-2)


def test_the_rarest_that_violate_are_solved_for_as_far_as_memory_goes():
    _, dataset = made(Weighting())
    task = task_of(dataset, None, 0.0)
    spill = Spill(dataset, None, 4, 0, None, exact_rows(dataset))
    try:
        spill.add(np.arange(40))
        point = evaluate_by_columns(task, spill, Coefficients.zeros(task.width), np.zeros(N_CLASSES))
    finally:
        spill.close()
    nnz = dataset.column_nnz()
    every = rare_features(task, point, np.arange(40), nnz, 1 << 30)
    some = rare_features(task, point, np.arange(40), nnz, 200_000)
    assert 0 < len(some) < len(every)
    assert nnz[some].max() <= nnz[np.setdiff1d(every, some)].min()
    norms = np.linalg.norm(point.gradient, axis=1)
    assert (norms[every] > ALPHA).all()
    assert not len(rare_features(task, point, np.arange(40), nnz, 0))


def columns_of(spill):
    """Everything the chunks hold, and the bytes read for it."""
    chunks = [spill.chunk(number) for number in range(spill.n_chunks)]
    arrays = [
        array
        for chunk in chunks
        for columns in chunk.held
        for array in (columns.indptr, columns.indices, columns.data)
    ]
    return arrays, [chunk.n_bytes for chunk in chunks]


@pytest.mark.parametrize("step", [1, 7, 40])
def test_a_layer_written_during_a_pass_is_the_one_written_by_itself(step):
    X, dataset = made(Weighting())
    first, second = np.array([1, 5, 6]), np.array([0, 2, 9, 30, 39])
    alone, within = (Spill(dataset, None, 3, 0, None, exact_rows(dataset), 1 << 20) for _ in range(2))
    try:
        alone.add(first)
        alone.add(second)
        within.add(first)
        writer = within.writer(second)
        for s in reversed(range(dataset.n_shards)):
            rows = X[dataset.base[s] : dataset.base[s + 1]].tocsc()
            seen = writer.of_shard(s, rows.shape[0])
            for lo in range(0, 40, step):
                part = rows[:, lo : lo + step]
                if part.nnz:
                    values = part.data.astype(dataset.dtype)
                    indptr = part.indptr.astype(np.int64)
                    seen.add(Block(lo, lo + part.shape[1], indptr, part.indices.astype(np.uint16), values))
            seen.finish()
        within.put(writer)
        for wanted, found in zip(*(columns_of(spill) for spill in (alone, within)), strict=True):
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        alone.close()
        within.close()


def test_norms_of_rows_are_found_while_columns_are_written():
    _, dataset = made(Weighting(l2=True, idf=True))
    spill = Spill(dataset, None, 3, 0, None, rough_rows(dataset))
    try:
        spill.add(np.array([3, 20]), [RowNorms(dataset.column_scale(), spill.put_scales)])
        assert spill.n_bytes >= dataset.nnz * (2 + dataset.dtype.itemsize)
        for s in range(dataset.n_shards):
            for wanted, found in zip(exact_rows(dataset)(s), spill.rows_of_shard(s), strict=True):
                np.testing.assert_array_equal(found, wanted)
    finally:
        spill.close()
