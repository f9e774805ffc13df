from __future__ import annotations

import os

import anndata
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from bigmc.errors import DataError, StoreError
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import SHARDS
from bigmc.store.shards import write
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.disk_shard import DenseShard, SparseShard
from bigmc.store.shards.zarr_chunks import ByteCounter
from bigmc.store.snapshot import open_shard

from .conftest import rows_of, table_of
from .shard_contract import DTYPES, ShardContract, values_of


def write_and_open(path, rows, n_features, n_rows, counter=None):
    entry = write.write_shard(path / SHARDS / "000000", rows, table_of([i % 3 for i in range(n_rows)]))
    return open_shard(path, entry, n_features, counter or ByteCounter())


def small_chunks(monkeypatch, size):
    class Writer(write.ArrayWriter):
        def __init__(self, *args, chunk=0, **options):
            super().__init__(*args, chunk=size, **options)

    monkeypatch.setattr(write, "ArrayWriter", Writer)


class TestSparseShard(ShardContract):
    def make(self, matrix, tmp_path, monkeypatch):
        small_chunks(monkeypatch, self.chunk)
        rows = rows_of(matrix)
        return write_and_open(tmp_path, rows, matrix.shape[1], matrix.shape[0])


class TestDenseShard(ShardContract):
    def make(self, matrix, tmp_path, monkeypatch):
        small_chunks(monkeypatch, 3 * self.chunk)
        shard = write_and_open(tmp_path, matrix.toarray(), matrix.shape[1], matrix.shape[0])
        dense = 2 * np.count_nonzero(matrix.toarray()) >= np.prod(matrix.shape)
        assert isinstance(shard, DenseShard) == dense
        return shard

    def matrix(self, dtype="int8", shape=(70, 13), density=0.8):
        return super().matrix(dtype, shape, density)

    def stored(self, matrix):
        dense = matrix.toarray()
        if not np.count_nonzero(dense) and dense.size:
            return sp.csc_array(matrix.shape, dtype=matrix.dtype)
        n, d = matrix.shape
        indptr = np.arange(d + 1) * n
        return sp.csc_array((dense.T.ravel(), np.tile(np.arange(n), d), indptr), shape=matrix.shape)


class TestMemoryShard(ShardContract):
    def make(self, matrix, tmp_path, monkeypatch):
        dataset = Dataset.from_arrays(matrix, np.arange(matrix.shape[0]) % 3)
        if not dataset.shards:  # arrays without rows make no shard
            pytest.skip("no rows")
        return dataset.shards[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_anndata_and_zarr_open_a_sparse_shard(dtype, tmp_path, monkeypatch):
    small_chunks(monkeypatch, 50)
    X = sp.random_array((90, 17), density=0.3, rng=np.random.default_rng(1)).tocsr()
    X.data = values_of(dtype, X.nnz, np.random.default_rng(2))
    shard = write_and_open(tmp_path, rows_of(X), 17, 90)
    assert isinstance(shard, SparseShard)
    group = zarr.open_group(shard.folder / "x", mode="r")
    S = X.tocsc()
    S.sort_indices()
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(group[name][:], getattr(S, name)), name
    assert (group["data"].dtype, group["indices"].dtype, group["indptr"].dtype) == (dtype, "uint16", "int32")
    read = anndata.io.read_elem(group)
    assert isinstance(read, sp.csc_matrix | sp.csc_array)
    assert np.array_equal(read.toarray(), X.toarray())
    assert read.nnz == X.nnz  # explicit zeros are there
    lazy = anndata.io.sparse_dataset(group)
    assert np.array_equal(lazy[:, 3:9].toarray(), X.toarray()[:, 3:9])


def test_zarr_refuses_a_chunk_whose_checksum_is_wrong(tmp_path):
    shard = write_and_open(tmp_path, rows_of(sp.csr_array(np.eye(90, 17))), 17, 90)
    chunk = shard.folder / "x" / "data" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")  # of the four bytes behind the packed values
    with pytest.raises(ValueError, match=r"(?i)checksum"):
        zarr.open_array(shard.folder / "x" / "data", mode="r")[:]


@pytest.mark.parametrize("dtype", DTYPES)
def test_anndata_and_zarr_open_a_dense_shard(dtype, tmp_path, monkeypatch):
    small_chunks(monkeypatch, 500)
    X = values_of(dtype, 90 * 17, np.random.default_rng(2)).reshape(90, 17)
    shard = write_and_open(tmp_path, X, 17, 90)
    array = zarr.open_array(shard.folder / "x", mode="r")
    assert array.chunks == (90, 5)
    assert array.dtype == dtype
    assert np.array_equal(array[:], X)
    assert np.array_equal(anndata.io.read_elem(array), X)


def test_a_full_shard_uses_every_row_id(tmp_path):
    n = 65_536
    rows = Rows(np.arange(n + 1), np.zeros(n, np.int32), np.ones(n), 2)
    shard = write_and_open(tmp_path, rows, 2, n)
    out = np.empty(n, np.uint16)
    shard.read(0, n, out, None)
    assert np.array_equal(out, np.arange(n))
    with pytest.raises(DataError, match="65536 per shard"):
        write.write_shard(tmp_path / "y", np.ones((n + 1, 1)), table_of([0] * (n + 1)))


@pytest.mark.parametrize("features", [[1, 1], [2, 1], [0, 4], [-1, 2]])
def test_rows_out_of_order_or_range_are_refused(features, tmp_path):
    rows = Rows(np.array([0, 0, 2]), np.array(features, np.int32), np.ones(2), 4)
    with pytest.raises(DataError, match="features of row 1 of shard 000000"):
        write_and_open(tmp_path, rows, 4, 2)


def test_mostly_zero_dense_is_stored_sparse(tmp_path):
    X = np.zeros((20, 6))
    X[::3, 1] = 2.5
    X[4, 5] = np.nan
    shard = write_and_open(tmp_path, X, 6, 20)
    assert isinstance(shard, SparseShard)
    assert shard.nnz == 8
    assert np.array_equal(
        anndata.io.read_elem(zarr.open_group(shard.folder / "x")).toarray(), X, equal_nan=True
    )


def test_a_kill_while_writing_shows_no_shard_and_a_retry_succeeds(tmp_path, monkeypatch):
    folder = tmp_path / SHARDS / "000000"
    real = os.replace

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write.write_shard(folder, np.ones((3, 2)), table_of([0, 1, 2]))
    assert not folder.exists()
    monkeypatch.setattr(os, "replace", real)
    first = write.write_shard(folder, np.ones((3, 2)), table_of([0, 1, 2]))
    again = write.write_shard(folder, np.ones((3, 2)), table_of([0, 1, 2]))
    assert first == again  # equal data make equal bytes
    assert [p.name for p in folder.parent.iterdir()] == ["000000"]


@pytest.mark.parametrize(
    "file", ["x/data/c/0", "x/indices/c/1", "x/indptr/c/0", "x/data/zarr.json", "rows.parquet"]
)
@pytest.mark.parametrize("harm", ["flip", "cut", "delete", "swap"])
def test_reading_damage_names_the_file(file, harm, tmp_path, monkeypatch):
    small_chunks(monkeypatch, 40)
    X = sp.random_array((90, 17), density=0.3, rng=np.random.default_rng(1)).tocsr()
    shard = write_and_open(tmp_path, rows_of(X), 17, 90)
    path = shard.folder / file
    content = path.read_bytes()
    if harm == "flip":
        at = 60 if file == "rows.parquet" else -9  # a parquet's footer has no checksum but the manifest's
        path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at:][1:])
    elif harm == "cut":
        path.write_bytes(content[:-3])
    elif harm == "delete":
        path.unlink()
    else:  # bytes of another chunk or file, of the right size: only verify can tell two like chunks apart
        path.write_bytes(
            (shard.folder / "rows.parquet").read_bytes()[: len(content)][::-1].ljust(len(content))
        )
    with pytest.raises(StoreError, match=f"{file}.*run bigmc verify"):  # noqa: PT012
        start, stop = shard.indptr(0, 17)[[0, -1]]
        shard.read(start, stop, np.empty(stop, np.uint16), np.empty(stop))
        shard.table()


def test_bytes_read_counts_the_files(tmp_path):
    X = sp.random_array((900, 40), density=0.3, rng=np.random.default_rng(1)).tocsr()
    counter = ByteCounter()
    shard = write_and_open(tmp_path, rows_of(X), 40, 900, counter)
    indptr = shard.indptr(0, 40)
    shard.read(0, int(indptr[-1]), np.empty(X.nnz, np.uint16), np.empty(X.nnz))
    matrix = [f.bytes for f in shard.entry.files if f.path.startswith("x/") and f.path != "x/zarr.json"]
    assert counter.total == sum(matrix)


def test_bytes_read_counts_the_columns_that_are_read(tmp_path):
    X = sp.random_array((900, 40), density=0.3, rng=np.random.default_rng(1)).tocsr()
    counter = ByteCounter()
    shard = write_and_open(tmp_path, rows_of(X), 40, 900, counter)
    with pq.ParquetFile(shard.folder / "rows.parquet") as file:
        group = file.metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
    sizes = {column.path_in_schema: column.total_compressed_size for column in columns}
    assert sizes.keys() > {"text", "label", "row_id"}
    for names in (["label"], ["text", "label"], [], None):
        counter.total = 0
        table = shard.table(names)
        assert names is None or table.column_names == names
        assert counter.total == sum(sizes[name] for name in (sizes if names is None else names))
    with pytest.raises(DataError, match=r"rows\.parquet has no column absent, other"):
        shard.table(["other", "label", "absent"])
