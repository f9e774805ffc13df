"""Columns far from 0 in data larger than memory: times, years, pressures. They are read less their mean."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sparse_runs import largest_alpha, run_of, solve

import bigmc
from bigmc.engine.base import sum_in_groups
from bigmc.engine.threads import ThreadEngine
from bigmc.errors import ModelError
from bigmc.solvers.sparse.out_of_core import chunk_plan, train_out_of_core
from bigmc.solvers.sparse.ridge.block_plan import BlockPlan
from bigmc.solvers.sparse.ridge.block_reader import RowBlock
from bigmc.solvers.sparse.ridge.row_blocks import descend_blocks
from bigmc.store.centred import CentredDataset, centred
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import FileCheckpoint

RIDGE = 1e-3
OPTIONS = {"alpha": 0.0, "ridge": RIDGE, "loss": "log_loss", "fit_intercept": True, "tol": 1e-4}
SAMPLED = {"memory_limit": 1 << 30, "chunk_bytes": 200_000}
CHUNKS = {"memory_limit": 5 << 19}


class Copies(ThreadEngine):
    """Parts run on copies of everything, as other processes get it."""

    n_pickled = 0

    def local(self):
        return ThreadEngine()

    def map(self, fn, parts, *shared):
        for part in parts:
            self.n_pickled += 1
            yield part, fn(*pickle.loads(pickle.dumps((part, *shared))))

    def reduce(self, fn, add, parts, *shared):
        return sum_in_groups((result for _, result in self.map(fn, parts, *shared)), add)


@pytest.fixture(scope="module")
def table():
    """Return four columns of deviation 1, of which three are far from 0, and labels of them all."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(16_000, 4))
    y = (X @ rng.normal(size=(4, 3)) + rng.gumbel(size=(16_000, 3))).argmax(axis=1)
    return np.round(X, 3) + np.array([1e4, -2e3, 1e6, 0.0]), y


def ingested(table, folder, weighting):
    return bigmc.ingest(table[0], folder, label=table[1], weighting=weighting, split="train=1")


@pytest.fixture(scope="module")
def dataset(table, tmp_path_factory):
    return ingested(table, tmp_path_factory.mktemp("far") / "d", "counts")


def best(table, with_std):
    """Return scikit-learn's weights for the same columns less their means."""
    X = StandardScaler(with_std=with_std).fit_transform(table[0])
    return LogisticRegression(C=1 / (RIDGE * len(X)), tol=1e-9, max_iter=1000).fit(X, table[1]).coef_.T


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [SAMPLED, CHUNKS], ids=["sampled", "chunks"])
def test_out_of_core_they_are_certified_in_a_few_passes(way, table, dataset):
    found = solve(dataset, **OPTIONS, **way)
    assert found.converged
    assert found.plan is None
    assert found.n_passes < 20  # as many as without the offsets; as they are 100 passes have a gap of 1
    np.testing.assert_allclose(found.coef, best(table, False), atol=5e-3)


@pytest.mark.exhaustive
def test_scaled_columns_are_divided_by_their_own_deviation(table, tmp_path):
    found = solve(ingested(table, tmp_path / "d", "scaled"), **OPTIONS, **CHUNKS)
    assert found.converged
    np.testing.assert_allclose(found.coef, best(table, True), atol=5e-3)
    np.testing.assert_allclose(1 / found.column_scale, table[0].std(axis=0), rtol=1e-4)


def test_other_processes_read_them_less_their_means(dataset):
    engine = Copies(2)
    found = solve(dataset, **OPTIONS, **SAMPLED, engine=engine)
    assert engine.n_pickled > dataset.n_shards
    here = solve(dataset, **OPTIONS, **SAMPLED)
    np.testing.assert_array_equal(found.coef, here.coef)
    np.testing.assert_array_equal(found.intercept, here.intercept)


def test_the_largest_alpha_is_that_of_centred_columns(table, dataset):
    X = table[0] - table[0].mean(axis=0)
    options = {"loss": "log_loss", "fit_intercept": True, "memory_limit": 1 << 30}
    expected = largest_alpha(Dataset.from_arrays(X, table[1]), **options)
    assert largest_alpha(dataset, **options) == pytest.approx(expected, rel=1e-4)
    assert largest_alpha(dataset, **options | CHUNKS) == pytest.approx(expected, rel=1e-4)


def test_blocks_of_rows_read_them_less_their_means(table):
    X, y = table[0][:600], table[1][:600]
    moved = centred(Dataset.from_arrays(X, y, shard_rows=200)).dataset
    expected = Dataset.from_arrays(X - X.mean(axis=0), y, shard_rows=200)
    blocks = [RowBlock([0, 1], 0, 400), RowBlock([2], 400, 500), RowBlock([2], 500, 600)]
    plan = BlockPlan(blocks, np.arange(4), False)
    options = OPTIONS | {"loss": "multitask_squared_hinge", "memory_limit": 1 << 30, "tol": 0.1}
    found, other = (descend_blocks(run_of(data, **options), plan, None) for data in (moved, expected))
    np.testing.assert_allclose(found.state.coef.rows, other.state.coef.rows, atol=2e-2)


@pytest.mark.exhaustive
def test_a_checkpoint_of_columns_as_they_are_is_refused(dataset, tmp_path):
    """Versions that did not centre them, or not out of core, left weights of another intercept."""
    checkpoint = FileCheckpoint(tmp_path / "c")
    run = run_of(dataset, **OPTIONS, **CHUNKS, max_passes=2, checkpoint=checkpoint)
    assert run.fingerprint["centred"] is None
    train_out_of_core(run, chunk_plan(run, None), None, None)
    with pytest.raises(ModelError, match="centred=None"):
        solve(dataset, **OPTIONS, **CHUNKS, max_passes=2, checkpoint=checkpoint)


def test_a_copy_of_centred_columns_has_their_scale_and_labels(table, tmp_path):
    moved = centred(ingested(table, tmp_path / "d", "scaled")).dataset
    copy = pickle.loads(pickle.dumps(moved))
    assert isinstance(copy, CentredDataset)
    assert copy.centring == moved.centring
    np.testing.assert_array_equal(copy.column_scale(), moved.column_scale())
    np.testing.assert_array_equal(copy.labels(), moved.labels())
    np.testing.assert_array_equal(copy.column_nnz(), moved.column_nnz())
    for one, other in zip(copy.class_statistics(0, 4), moved.class_statistics(0, 4), strict=True):
        np.testing.assert_array_equal(one, other)
