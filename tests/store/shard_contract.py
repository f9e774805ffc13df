"""What every kind of shard must do; inherit `TestShardContract` as the tests in test_shards.py do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

DTYPES = ["int8", "int16", "int32", "float32", "float64"]


def values_of(dtype: str, size: int, rng) -> np.ndarray:
    """Values that need `dtype` to be exact, some of them explicit zeros."""
    if dtype.startswith("int"):
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, size, endpoint=True).astype(dtype)
        x[: size // 3] = limits.max
    else:
        x = rng.normal(size=size).astype(dtype)
    x[-2:] = 0
    return x


class ShardContract:
    """`make` returns the shard that holds a matrix with labels i % 3 and row ids i."""

    chunk = 64  # tests write arrays in chunks this small, so that ranges cross many

    def make(self, matrix: sp.csc_array, tmp_path, monkeypatch):
        raise NotImplementedError

    def stored(self, matrix: sp.csc_array) -> sp.csc_array:
        """The entries the shard stores of `matrix`."""
        return matrix

    def matrix(self, dtype="int8", shape=(70, 13), density=0.3) -> sp.csc_array:
        rng = np.random.default_rng(5)
        X = sp.random_array(shape, density=density, rng=rng).tocsc()
        X.sort_indices()
        return sp.csc_array((values_of(dtype, X.nnz, rng), X.indices, X.indptr), shape=shape)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_range_of_columns_reads_exactly(self, dtype, tmp_path, monkeypatch):
        X = self.matrix(dtype)
        shard = self.make(X, tmp_path, monkeypatch)
        S = self.stored(X)
        assert (shard.n_rows, shard.n_features, shard.nnz, shard.dtype) == (*X.shape, S.nnz, np.dtype(dtype))
        for lo in range(14):
            for hi in range(lo, 14):
                indptr = shard.indptr(lo, hi)
                assert indptr.dtype == np.int64
                assert np.array_equal(indptr, S.indptr[lo : hi + 1])
                n = int(indptr[-1] - indptr[0])
                indices, data = np.empty(n, np.uint16), np.empty(n, dtype)
                shard.read(int(indptr[0]), int(indptr[-1]), indices, data)
                assert np.array_equal(indices, S.indices[indptr[0] : indptr[-1]])
                assert np.array_equal(data, S.data[indptr[0] : indptr[-1]])

    def test_any_range_of_entries_reads_in_any_order(self, tmp_path, monkeypatch):
        X = self.matrix()
        shard = self.make(X, tmp_path, monkeypatch)
        S = self.stored(X)
        rng = np.random.default_rng(0)
        for _ in range(100):
            start, stop = np.sort(rng.integers(0, S.nnz + 1, 2))
            indices = np.empty(stop - start, np.uint16)
            shard.read(start, stop, indices, None)
            assert np.array_equal(indices, S.indices[start:stop])
            data = np.empty(stop - start, np.float64)
            shard.read(start, stop, None, data)  # values convert to the buffer's dtype
            assert np.array_equal(data, S.data[start:stop])

    def test_buffers_longer_than_the_range_keep_their_tail(self, tmp_path, monkeypatch):
        shard = self.make(self.matrix(), tmp_path, monkeypatch)
        indices, data = np.full(10, 9, np.uint16), np.full(10, 9, np.int8)
        shard.read(0, 4, indices, data)
        assert (indices[4:] == 9).all()
        assert (data[4:] == 9).all()

    @pytest.mark.parametrize("shape", [(0, 5), (4, 0), (6, 5)])
    def test_empty_shards(self, shape, tmp_path, monkeypatch):
        X = sp.csc_array(shape, dtype=np.int8)
        shard = self.make(X, tmp_path, monkeypatch)
        assert np.array_equal(shard.indptr(0, shape[1]), self.stored(X).indptr)
        shard.read(0, 0, np.empty(0, np.uint16), np.empty(0, np.int8))
        assert shard.table().num_rows == shape[0]

    def test_table(self, tmp_path, monkeypatch):
        X = self.matrix("float32")
        shard = self.make(X, tmp_path, monkeypatch)
        S = self.stored(X)
        table = shard.table(["row_id", "label"])
        assert table.column_names == ["row_id", "label"]
        assert table.schema.types == [pa.int64(), pa.int32()]
        assert table["label"].to_pylist() == [i % 3 for i in range(70)]
        assert table["row_id"].to_pylist() == list(range(70))
        table = shard.table()
        assert table.schema.field("norm").type == pa.float32()
        assert table.schema.field("entries").type == pa.int32()
        assert np.allclose(table["norm"], np.linalg.norm(X.toarray(), axis=1), rtol=1e-6)
        assert np.array_equal(table["entries"], np.bincount(S.indices, minlength=70))

    def test_threads_read_at_once(self, tmp_path, monkeypatch):
        X = self.matrix()
        shard = self.make(X, tmp_path, monkeypatch)
        S = self.stored(X)

        def read(seed):
            rng = np.random.default_rng(seed)
            for _ in range(50):
                start, stop = np.sort(rng.integers(0, S.nnz + 1, 2))
                indices, data = np.empty(stop - start, np.uint16), np.empty(stop - start, np.int8)
                shard.read(start, stop, indices, data)
                assert np.array_equal(indices, S.indices[start:stop])
                assert np.array_equal(data, S.data[start:stop])
            return True

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(8)))
