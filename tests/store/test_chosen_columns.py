"""Some columns of a shard, against slices of the whole matrix."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.store import chosen_columns
from bigmc.store.block import read_block
from bigmc.store.chosen_columns import ChosenColumns, ChosenShard, frequent_columns

from .conftest import store_dataset
from .shard_contract import ShardContract
from .test_shards import TestSparseShard as SparseShardContract

CHOSEN = np.array([1, 2, 3, 6, 9, 10, 19, 22, 23, 24, 25, 28, 29])
"""Some alone, some neighbours; neither the first nor the last is among them."""


class TestChosenShard(ShardContract):
    def make(self, matrix, tmp_path, monkeypatch):
        """The shard of a matrix with columns between those of the matrix, read in pieces of offsets."""
        monkeypatch.setattr(chosen_columns, "_OFFSETS", 4)
        chosen = CHOSEN[: matrix.shape[1]]
        n_rows, width = matrix.shape[0], chosen[-1] + 3 if len(chosen) else 3
        whole = sp.random_array((n_rows, width), density=0.4, rng=np.random.default_rng(1)).tolil()
        whole = whole.tocsc() * 100
        columns = [sp.csc_array(whole[:, [j]].astype(matrix.dtype)) for j in range(width)]
        for j, feature in enumerate(chosen):
            columns[feature] = matrix[:, [j]]
        all_columns = sp.hstack(columns, format="csc", dtype=matrix.dtype)
        return ChosenShard(SparseShardContract.make(self, all_columns, tmp_path, monkeypatch), chosen)

    def test_table(self, tmp_path, monkeypatch):
        """The table is that of whole rows."""
        shard = self.make(self.matrix("float32"), tmp_path, monkeypatch)
        assert shard.table(["row_id"]).column_names == ["row_id"]
        assert shard.table()["row_id"].to_pylist() == list(range(70))
        assert min(shard.table()["entries"].to_pylist()) > 0


@pytest.fixture
def dataset(tmp_path):
    generator = np.random.default_rng(2)
    X = generator.integers(1, 9, (120, 30)) * (generator.random((120, 30)) < np.linspace(0.05, 0.9, 30))
    parts = [("train", sp.csr_array(X[:70])), ("train", sp.csr_array(X[70:]))]
    return store_dataset(tmp_path / "x.bigmc", parts, np.arange(120) % 3, ["a", "b", "c"]), X


def test_blocks_have_the_columns_of_all_shards(dataset):
    stored, X = dataset
    columns = ChosenColumns(stored, CHOSEN)
    assert columns.nnz == np.count_nonzero(X[:, CHOSEN])
    for lo, hi in [(0, 13), (2, 7), (12, 13), (4, 4)]:
        block = read_block(columns, lo, hi)
        for s, (first, last) in enumerate([(0, 70), (70, 120)]):
            part = sp.csc_array(X[first:last, CHOSEN[lo:hi]])
            entries = slice(block.indptr[s, 0], block.indptr[s, -1])
            np.testing.assert_array_equal(block.indptr[s] - block.indptr[s, 0], part.indptr)
            np.testing.assert_array_equal(block.indices[entries], part.indices)
            np.testing.assert_array_equal(block.data[entries], part.data)


def test_what_is_not_of_features_is_that_of_the_dataset(dataset):
    stored, _ = dataset
    columns = pickle.loads(pickle.dumps(ChosenColumns(stored, CHOSEN)))
    for name in ("weighting", "dtype", "n_samples", "n_classes", "n_shards"):
        assert getattr(columns, name) == getattr(stored, name), name
    np.testing.assert_array_equal(columns.base, [0, 70, 120])
    assert columns.n_features == len(CHOSEN)
    blocks = columns.plan(600)
    assert len(blocks) > 2
    assert [feature for lo, hi in blocks for feature in range(lo, hi)] == list(range(len(CHOSEN)))
    assert max(read_block(columns, lo, hi).nbytes for lo, hi in blocks) <= 600


def test_frequent_columns_are_those_of_a_share_of_the_samples(dataset):
    stored, X = dataset
    columns = frequent_columns(stored, 0.5)
    np.testing.assert_array_equal(columns.chosen, np.flatnonzero((X != 0).mean(axis=0) >= 0.5))
    assert 0 < columns.n_features < 30
    for share in (0.0, 1.1):  # all columns, and none
        assert frequent_columns(stored, share) is stored


def test_only_the_chosen_columns_are_decoded(tmp_path):
    """Of 400 columns of 8,000 entries, the chunks with the first and the last two are read."""
    X = np.random.default_rng(3).integers(1, 100, (8_000, 400)).astype(np.int8)
    X[0] = 0  # a sparse matrix has no zeros
    written = store_dataset(tmp_path / "x.bigmc", [("train", sp.csr_array(X))], [0] * 8_000, ["a"])
    before = written.bytes_read
    block = read_block(ChosenColumns(written, np.array([0, 398, 399])), 0, 3)
    np.testing.assert_array_equal(block.data, X[1:, [0, 398, 399]].T.ravel())
    few = written.bytes_read - before
    read_block(written, 0, 400)
    everything = written.bytes_read - before - few
    assert few < everything / 5
