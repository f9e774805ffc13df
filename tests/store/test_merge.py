from __future__ import annotations

import itertools
import os

import anndata
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import zarr

from bigmc.errors import DataError
from bigmc.store.files.layout import SHARDS, FileEntry, ShardEntry, file_entry
from bigmc.store.publish import finish_dataset
from bigmc.store.shards import merge
from bigmc.store.shards.merge import group_small, merge_shards, plan_merges
from bigmc.store.shards.write import write_shard
from bigmc.store.shards.zarr_chunks import ByteCounter
from bigmc.store.snapshot import open_shard
from bigmc.store.verify import verify
from bigmc.store.weighting import Weighting

from .conftest import rows_of, table_of
from .shard_contract import values_of


def sparse(n_rows, n_features, dtype, seed, density=0.3):
    """A matrix with explicit zeros and an empty column."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_rows, n_features), density=density, rng=rng).tolil()
    X[:, [n_features // 2]] = 0
    X = X.tocsr()
    X.data = values_of(dtype, X.nnz, rng)
    return X


def sources_of(path, matrices, tables=None, split="all"):
    shards, first = [], 0
    for i, X in enumerate(matrices):
        n = X.shape[0]
        table = tables[i] if tables else table_of([k % 3 for k in range(first, first + n)], first)
        folder = path / "parts" / SHARDS / f"{i:03d}"
        entry = write_shard(folder, rows_of(X), table, split=split)
        shards.append(open_shard(path / "parts", entry, X.shape[1], ByteCounter()))
        first += n
    return shards


@pytest.mark.parametrize("memory", [1, 3000, 64 << 20])
@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["int8", "int8", "int8"], "int8"),
        (["int8", "int16", "int8"], "int16"),
        (["int8", "float64", "int16"], "float64"),
        (["int32", "float32"], "float64"),
    ],
)
def test_merged_is_the_stack_of_its_sources(dtypes, expected, memory, tmp_path):
    matrices = [sparse(20 + 13 * i, 31, dtype, i) for i, dtype in enumerate(dtypes)]
    matrices.insert(1, sp.csr_array((4, 31), dtype=np.int8))  # no entries
    matrices.append(sp.csr_array((0, 31), dtype=np.int8))  # no rows
    sources = sources_of(tmp_path, matrices)
    target = tmp_path / "d" / SHARDS / "000000"
    entry = merge_shards(target, sources, memory=memory)
    X = sp.vstack([m.astype(np.float64) for m in matrices]).tocsc()
    X.sort_indices()
    assert (entry.rows, entry.nnz, entry.dtype, entry.kind) == (*(X.shape[0], X.nnz), expected, "sparse")
    group = zarr.open_group(target / "x", mode="r")
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(group[name][:], getattr(X, name)), name
    assert (group["indptr"].dtype, group["indices"].dtype, group["data"].dtype) == (
        "int32", "uint16", expected,
    )  # fmt: skip
    read = anndata.io.read_elem(group)
    assert read.nnz == X.nnz
    assert np.array_equal(read.toarray(), X.toarray())
    shard = open_shard(tmp_path / "d", entry, 31, ByteCounter())
    assert shard.table().equals(pa.concat_tables([s.table() for s in sources], promote_options="default"))
    assert [p.name for p in target.parent.iterdir()] == ["000000"]
    files = {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()}
    assert {f.path for f in entry.files} == files
    assert all(file_entry(target / f.path, target) == f for f in entry.files)
    finish_dataset(
        tmp_path / "d",
        [entry],
        classes=np.array(["a", "b", "c"]),
        n_features=31,
        weighting=Weighting(),
        features={},
        provenance={},
        rows_in=X.shape[0],
    )
    assert verify(tmp_path / "d") == []


def test_merged_matrix_has_the_bytes_of_one_written_at_once(tmp_path):
    matrices = [sparse(300, 40, "int8", i) for i in range(5)]
    sources = sources_of(tmp_path, matrices)
    table = table_of([k % 3 for k in range(1500)])
    at_once = write_shard(tmp_path / "at once" / "000000", rows_of(sp.vstack(matrices)), table)
    for memory in (4000, 64 << 20):
        merged = merge_shards(tmp_path / "000000", sources, memory=memory)
        assert merged.files[:-1] == at_once.files[:-1]
        assert merged.files[-1].path == "rows.parquet"  # other row groups and pages, the same rows


def test_a_full_shard_uses_every_row_id_across_chunks_of_offsets(tmp_path, monkeypatch):
    n, n_features = 65_536, 70
    monkeypatch.setattr(merge, "INDPTR_CHUNK", 8)
    features = (np.arange(n, dtype=np.int32) * 7) % n_features
    pieces = [slice(0, 1), slice(1, 40_000), slice(40_000, n)]
    matrices = []
    for piece in pieces:
        own = features[piece]
        matrices.append(
            sp.csr_array((np.ones(len(own)), own, np.arange(len(own) + 1)), (len(own), n_features))
        )
    sources = sources_of(tmp_path, matrices)
    entry = merge_shards(tmp_path / SHARDS / "000000", sources, memory=100_000)
    shard = open_shard(tmp_path, entry, n_features, ByteCounter())
    out = np.empty(n, np.uint16)
    shard.read(0, n, out, None)
    assert np.array_equal(out, np.argsort(features, kind="stable"))
    with pytest.raises(DataError, match="65537 rows"):
        merge_shards(tmp_path / "y", [*sources, sources[0]])


def test_tables_differ_and_are_long(tmp_path):
    tables = [table_of([0, 1]), table_of([1, 0], 2).append_column("more", pa.array(["x", "y"]))]
    tables.append(table_of([1, 1], 4).set_column(2, "text", pa.nulls(2)))
    mark = {b"bigmc": b"final"}
    tables = [table.replace_schema_metadata(mark) for table in tables]
    sources = sources_of(tmp_path, [sparse(2, 10, "int8", i, 0.6) for i in range(3)], tables)
    entry = merge_shards(tmp_path / SHARDS / "000000", sources, memory=10)  # a row group for each
    table = open_shard(tmp_path, entry, 10, ByteCounter()).table()
    assert table.column("row_id").to_pylist() == list(range(6))
    assert table.column("text").to_pylist() == ["row 0", "row 1", "row 2", "row 3", None, None]
    assert table.column("more").to_pylist() == [None, None, "x", "y", None, None]
    assert mark.items() <= table.schema.metadata.items()


def test_sources_of_several_splits_or_dense_are_refused(tmp_path):
    one = sources_of(tmp_path / "a", [sparse(5, 10, "int8", 0)], split="train")
    other = sources_of(tmp_path / "b", [sparse(5, 10, "int8", 0)], split="test")
    with pytest.raises(ValueError, match="one split"):
        merge_shards(tmp_path / "000000", [*one, *other])
    dense = write_shard(tmp_path / SHARDS / "000001", np.ones((3, 10)), table_of([0, 1, 2]))
    with pytest.raises(ValueError, match="only sparse"):
        merge_shards(tmp_path / "000000", [open_shard(tmp_path, dense, 10, ByteCounter())])


def test_a_kill_while_merging_leaves_no_shard_and_keeps_the_sources(tmp_path, monkeypatch):
    sources = sources_of(tmp_path, [sparse(5, 10, "int8", i) for i in range(3)])

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            merge_shards(tmp_path / "000000", sources)
    assert not (tmp_path / "000000").exists()
    assert merge_shards(tmp_path / "000000", sources) == merge_shards(tmp_path / "000000", sources)


def test_groups():
    def rows_of_groups(rows, entries=None, **limits):
        return [[rows[i] for i in g] for g in group_small(rows, entries or [1] * len(rows), **limits)]

    assert group_small([], []) == []
    assert rows_of_groups([65_536, 10]) == [[65_536], [10]]
    assert rows_of_groups([60_000] * 3) == [[60_000]] * 3
    assert rows_of_groups([40_000, 20_000, 40_000, 20_000]) == [[40_000, 20_000]] * 2
    assert [len(g) for g in group_small([700] * 613, [1] * 613)] == [93] * 6 + [55]
    assert rows_of_groups([1, 1, 1], [2**30] * 3) == [[1], [1], [1]]
    assert rows_of_groups([1, 1, 1], [2, 2, 2], max_entries=4) == [[1, 1], [1]]
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = rng.integers(0, 40, rng.integers(0, 30)).tolist()
        groups = rows_of_groups(rows, max_rows=50)
        assert list(itertools.chain(*groups)) == rows
        sums = [sum(g) for g in groups]
        assert max(sums, default=0) <= 50
        assert all(a + b > 50 for a, b in itertools.pairwise(sums))


def test_plan_keeps_splits_kinds_and_order():
    def entry(split, rows, kind="sparse"):
        return ShardEntry("000", split, rows, rows, "int8", kind, (FileEntry("x", 1, ""),))

    entries = [
        entry("train", 10),
        entry("test", 5),
        entry("train", 10),
        entry("train", 3, "dense"),
        entry("test", 5),
        entry("train", 60_000),
        entry("train", 10_000),
        entry("train", 7),
    ]
    assert plan_merges(entries) == [[0, 2], [1, 4], [3], [5], [6, 7]]
    assert plan_merges([]) == []
