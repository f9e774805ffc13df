from __future__ import annotations

import itertools
import shutil
import threading

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import normalize

import bigmc
from bigmc.errors import DataError, StoreError
from bigmc.store import publish
from bigmc.store.block import BlockBuffers, plan_blocks, read_block, stream_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

from .conftest import store_dataset


def block_matrix(block, n_samples):
    """The block as a dense matrix, by the documented meaning of its arrays."""
    X = np.zeros((n_samples, block.hi - block.lo))
    for s in range(block.indptr.shape[0]):
        for j in range(block.hi - block.lo):
            entries = slice(block.indptr[s, j], block.indptr[s, j + 1])
            X[block.base[s] + block.indices[entries].astype(int), j] = block.data[entries]
    return X


def weighted(dataset, column_scale="own"):
    """The matrix a learner sees."""
    columns = dataset.column_scale() if isinstance(column_scale, str) else column_scale
    X = block_matrix(read_block(dataset, 0, dataset.n_features), dataset.n_samples)
    X = X * dataset.row_scale(columns)[:, None]
    return X if columns is None else X * columns


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Shards of different kinds and dtypes in two splits, and the same as one matrix."""
    rng = np.random.default_rng(0)
    parts = [
        ("train", sp.random_array((40, 11), density=0.2, rng=rng).tocsr()),
        ("test", sp.csr_array(rng.poisson(0.5, (30, 11)))),
        ("train", rng.normal(size=(20, 11)).astype(np.float32)),
        ("train", sp.csr_array((0, 11))),
        ("train", sp.csr_array(rng.integers(-300, 300, (25, 11)))),
        ("test", sp.csr_array((5, 11))),
    ]
    labels = rng.integers(0, 4, 120)
    classes = ["bär", "cat", "dog", "äpfel"]
    path = tmp_path_factory.mktemp("mixed") / "mixed.bigmc"
    dataset = store_dataset(path, parts, labels, classes)
    matrix = np.vstack([p.toarray() if sp.issparse(p) else p for _, p in parts])
    return dataset, matrix, labels, np.repeat([s for s, _ in parts], [p.shape[0] for _, p in parts])


def test_what_a_dataset_says_of_itself(mixed):
    dataset, matrix, labels, splits = mixed
    assert (dataset.n_samples, dataset.n_features, dataset.n_classes, dataset.n_shards) == (120, 11, 4, 6)
    assert dataset.classes.tolist() == ["bär", "cat", "dog", "äpfel"]
    assert dataset.splits == {"train": 85, "test": 35}
    assert [s.dtype.name for s in dataset.shards] == ["float64", "int8", "float32", "int8", "int16", "int8"]
    assert dataset.dtype == np.float64
    assert dataset["test"].dtype == np.int8
    for split in ("train", "test"):
        view = dataset[split]
        assert np.array_equal(view.labels(), labels[splits == split])
        assert np.array_equal(view.row_ids(), np.flatnonzero(splits == split))
        X = block_matrix(read_block(view, 0, 11), view.n_samples)
        assert np.array_equal(X, matrix[splits == split])
    with pytest.raises(DataError, match=r"called 'dev'; the dataset has train \(85 rows\), test \(35 rows\)"):
        dataset["dev"]
    info = dataset.info()
    files = [f for f in dataset.path.rglob("*") if f.is_file()]
    assert info.pop("bytes") == sum(f.stat().st_size for f in files)
    assert info == {
        "n_samples": 120, "n_features": 11, "n_classes": 4, "nnz": dataset.nnz, "n_shards": 6,
        "splits": {"train": 85, "test": 35},
    }  # fmt: skip


def test_every_block_of_mixed_shards(mixed):
    dataset, matrix, _, _ = mixed
    buffers = BlockBuffers()
    for lo, hi in itertools.combinations_with_replacement(range(12), 2):
        block = read_block(dataset, lo, hi, buffers)
        assert block.data.dtype == np.float64
        assert np.array_equal(block_matrix(block, 120), matrix[:, lo:hi])
    with pytest.raises(DataError, match="features 3 to 12"):
        read_block(dataset, 3, 12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_blocks_of_random_shards_equal_scipy_slices(data):
    n, d = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    X = sp.random_array((n, d), density=data.draw(st.sampled_from([0, 0.1, 0.6, 1])), rng=rng).tocsr()
    X.data[::3] = 0.0
    dataset = Dataset.from_arrays(X, rng.integers(0, 3, n), shard_rows=data.draw(st.integers(1, n)))
    lo = data.draw(st.integers(0, d))
    hi = data.draw(st.integers(lo, d))
    block = read_block(dataset, lo, hi)
    assert np.array_equal(block_matrix(block, n), X[:, lo:hi].toarray())
    assert block.nnz == X.tocsc()[:, lo:hi].nnz
    assert np.array_equal(dataset.column_nnz(), np.diff(X.tocsc().indptr))
    assert np.array_equal(dataset.column_nnz(np.arange(lo, hi)), np.diff(X[:, lo:hi].tocsc().indptr))
    assert (np.diff(block.indptr, axis=1) >= 0).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.integers(1, 5),
    st.sampled_from([1, 4, 8]),
    st.integers(600, 3000),
)
def test_planned_blocks_cover_fit_and_are_few(counts, n_shards, itemsize, limit):
    def nbytes(lo, hi):
        return sum(counts[lo:hi]) * (2 + itemsize) + n_shards * (hi - lo + 1) * 8

    ranges = plan_blocks(counts, n_shards, itemsize, limit)
    assert [j for lo, hi in ranges for j in range(lo, hi)] == list(range(len(counts)))
    assert all(nbytes(lo, hi) <= limit for lo, hi in ranges)
    assert all(nbytes(lo, hi + 1) > limit for lo, hi in ranges[:-1])  # none could have been longer


def test_a_feature_larger_than_a_block_is_refused():
    with pytest.raises(DataError, match="feature 1 alone needs 316 bytes, but a block may have only 100"):
        plan_blocks([3, 100, 3], 1, 1, 100)
    assert plan_blocks([], 3, 1, 100) == []


def test_planned_bytes_are_those_of_the_blocks(mixed):
    dataset = mixed[0]
    ranges = dataset.plan(1500)
    assert len(ranges) > 3
    sizes = [block.nbytes for block in stream_blocks(dataset, ranges)]
    assert max(sizes) <= 1500
    assert max(sizes) > 900


def test_streamed_blocks_come_in_order_and_stay_valid_until_the_next(mixed):
    dataset, matrix, _, _ = mixed
    ranges = [(0, 3), (3, 3), (7, 11), (2, 9), (0, 11)] * 4
    for (lo, hi), block in zip(ranges, stream_blocks(dataset, iter(ranges)), strict=True):
        assert np.array_equal(block_matrix(block, 120), matrix[:, lo:hi])


def test_streaming_raises_when_its_block_is_due_and_stops_its_thread(mixed):
    stream = stream_blocks(mixed[0], [(0, 3), (5, 99), (0, 1)])
    assert next(stream).hi == 3
    with pytest.raises(DataError, match="features 5 to 99"):
        next(stream)
    stream = stream_blocks(mixed[0], itertools.repeat((0, 11)))
    next(stream)
    assert any(t.name.startswith("bigmc-read") for t in threading.enumerate())
    stream.close()
    assert not any(t.name.startswith("bigmc-read") for t in threading.enumerate())


TEXTS = [f"{a} {b} {b} {c}" for a, b, c in itertools.product(["one", "two", "six"], "pqrxyz", ["in", "on"])]


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("name", ["counts", "binary", "l2", "tfidf"])
def test_weighting_is_that_of_scikit_learn(where, name, tmp_path):
    def hashed(**options):
        return HashingVectorizer(n_features=16, analyzer="char", ngram_range=(1, 2), **options).transform(
            TEXTS
        )

    raw = hashed(norm=None)
    raw.data[raw.indptr[3] : raw.indptr[4]] = 0  # a row of explicit zeros
    raw.data[20:24] = 0
    weighting = Weighting.named(name)
    if where == "memory":
        dataset = Dataset.from_arrays(raw, np.zeros(len(TEXTS)), shard_rows=10, weighting=weighting)
    else:
        parts = [("train", raw[:10]), ("train", raw[10:])]
        dataset = store_dataset(tmp_path / "t.bigmc", parts, np.zeros(36, int), [0], weighting)
    X = weighted(dataset)
    if name == "counts":
        assert np.array_equal(X, raw.toarray())
    elif name == "binary":
        ones = raw.copy()
        ones.data[:] = 1
        assert np.array_equal(X, ones.toarray())
        assert dataset.dtype == np.int8
    elif name == "l2":
        assert np.allclose(X, normalize(raw).toarray(), rtol=3e-7)
        assert not X[3].any()
    else:
        expected = TfidfTransformer().fit_transform(raw)
        assert np.allclose(X, expected.toarray(), rtol=3e-6)


def test_binary_l2_and_the_idf_of_other_samples(counts):
    dataset = Dataset.from_arrays(counts, weighting=Weighting(binary=True, l2=True))
    ones = counts.copy()
    ones.data[:] = 1
    assert np.allclose(weighted(dataset), normalize(ones).toarray(), rtol=3e-7)
    train = Dataset.from_arrays(counts[:40], weighting=Weighting.named("tfidf"))
    test = Dataset.from_arrays(counts[40:], weighting=Weighting.named("tfidf"))
    expected = TfidfTransformer().fit(counts[:40]).transform(counts[40:]).toarray()
    assert np.allclose(weighted(test, train.column_scale()), expected, rtol=3e-6)
    with pytest.raises(DataError, match="no weighting is called 'bm25'; use one of counts, binary"):
        Weighting.named("bm25")


@pytest.mark.parametrize("most", [0, 20, 100], ids=["none stored", "by feature", "by class"])
@pytest.mark.parametrize(("binary", "n_threads"), [(False, 1), (True, 1), (False, 3)])
def test_statistics_equal_numpy(binary, n_threads, most, tmp_path, counts, monkeypatch):
    monkeypatch.setattr(publish, "SMALL_ENTRIES", most)
    monkeypatch.setattr(publish, "SMALL_SHARE", 0)
    parts = [("train", counts[:20]), ("test", counts[20:35]), ("train", counts[35:])]
    labels = np.random.default_rng(2).integers(0, 3, 60)
    dataset = store_dataset(
        tmp_path / "s.bigmc",
        parts,
        labels,
        [5, 6, 7],
        Weighting(binary=binary),
        memory_limit=6000,
        n_threads=n_threads,
    )
    stored = {p.parent.name for p in dataset.path.glob("statistics/train/*/zarr.json")}
    assert len(stored) == {0: 0, 20: 3, 100: 5}[most]
    X = counts.toarray()
    if binary:
        ones = counts.copy()
        ones.data[:] = 1
        X = ones.toarray()
    test = np.zeros(60, bool)
    test[20:35] = True
    everything = np.ones(60, bool)
    fold = np.zeros(60, bool)
    fold[:35] = True
    views = [
        (dataset, everything),
        (dataset["train"], ~test),
        (dataset["test"], test),
        (dataset.subset([0, 1]), fold),
    ]
    for view, rows in views:
        one_hot = np.eye(3)[labels[rows]]
        for lo, hi in [(0, 16), (3, 9), (4, 4)]:
            sums, squares = view.class_statistics(lo, hi)
            assert sums.shape == (3, hi - lo)
            assert np.array_equal(sums, one_hot.T @ X[rows, lo:hi])
            assert np.array_equal(squares, one_hot.T @ X[rows, lo:hi] ** 2)
        assert np.array_equal(view.column_nnz(), np.diff(counts[np.flatnonzero(rows)].tocsc().indptr))
    with pytest.raises(DataError, match="labelled"):
        Dataset.from_arrays(counts).class_statistics(0, 3)


@pytest.mark.parametrize(
    "classes", [[-3, 8], ["a", "ß"], [False, True], [0.5, 2.0]], ids=["int", "str", "bool", "float"]
)
def test_labels_keep_their_type(classes, tmp_path):
    y = np.array(classes * 3)
    dataset = store_dataset(tmp_path / "c.bigmc", [("all", np.ones((6, 2)))], [0, 1] * 3, classes)
    assert dataset.classes.dtype.kind == y.dtype.kind
    assert np.array_equal(dataset.classes[dataset.labels()], y)
    memory = Dataset.from_arrays(np.ones((6, 2)), y)
    assert np.array_equal(memory.classes[memory.labels()], y)


def test_finish_refuses_lost_rows_and_entries_that_are_not_counted(tmp_path):
    with pytest.raises(StoreError, match="7 rows in, but 4 stored and 2 quarantined"):
        store_dataset(tmp_path / "a", [("all", np.ones((4, 2)))], [0] * 4, [0], rows_in=7, rows_quarantined=2)
    with pytest.raises(DataError, match="dense data stores all entries"):
        store_dataset(tmp_path / "b", [("all", np.ones((4, 2)))], [0] * 4, [0], Weighting.named("tfidf"))
    with pytest.raises(DataError, match=r"invalid name of a split: '\.\./x'"):
        store_dataset(tmp_path / "c", [("../x", np.ones((4, 2)))], [0] * 4, [0])
    for wrong in (1, -2):  # -1 stands for no label
        with pytest.raises(StoreError, match="labels outside the 1 classes"):
            store_dataset(tmp_path / "d", [("all", np.ones((4, 2)))], [0, 0, 0, wrong], [0])
    for name in "abcd":
        assert not (tmp_path / name / "manifest.json").exists()


def test_bytes_read(mixed):
    dataset = Dataset.open(mixed[0].path)
    before = dataset.bytes_read
    read_block(dataset["test"], 0, 11)
    assert dataset.bytes_read > before


def test_files_beside_the_shards_are_found_by_their_names(tmp_path):
    path = tmp_path / "d.bigmc"
    path.mkdir()
    (path / "names.parquet").write_bytes(b"names")
    rows = ("train", sp.csr_array(np.eye(6, 4)))
    dataset = store_dataset(path, [rows], np.arange(6) % 2, ["a", "b"], extra_files=["names.parquet"])
    assert dataset.files("names.parquet") == [path / "names.parquet"]
    assert dataset.files("rejects.parquet") == []


def test_a_worker_refuses_another_dataset_in_the_place_of_the_one_it_was_sent(tmp_path):
    """Opened where it lies, as by a process of a cluster, only if its signature is that of the sender's."""
    rows = sp.csr_array(np.eye(6, 4))
    path, labels, classes = tmp_path / "d.bigmc", np.arange(6) % 2, ["a", "b"]
    store_dataset(path, [("train", rows)], labels, classes, signature="first")
    opened, arguments = Dataset.open(path).__reduce__()
    assert np.array_equal(opened(*arguments).labels(), labels)
    shutil.rmtree(path)
    store_dataset(path, [("train", rows)], labels, classes, signature="second")
    opened.cache_clear()
    with pytest.raises(StoreError, match="has been replaced during the run"):
        opened(*arguments)


@pytest.mark.parametrize(("memory", "stored"), [(1 << 20, True), (30_000, True), (9_000, False)])
def test_a_feature_of_every_row_is_taken_alone_or_its_statistics_are_left_out(memory, stored, tmp_path):
    """A block needs a whole feature: three bytes of 4,000 rows here, and two offsets."""
    X = np.zeros((4000, 300), np.int8)
    X[:, 7] = 1
    X[np.arange(300), np.arange(300)] = 2
    labels = np.arange(4000) % 2
    dataset = store_dataset(tmp_path / "d", [("train", sp.csr_array(X))], labels, [0, 1], memory_limit=memory)
    assert any((tmp_path / "d").glob("statistics/*")) == stored
    sums, squares = dataset.class_statistics(0, 300)
    for c in (0, 1):
        np.testing.assert_array_equal(sums[c], X[labels == c].sum(axis=0))
        np.testing.assert_array_equal(squares[c], (X[labels == c].astype(int) ** 2).sum(axis=0))


def test_weights_of_samples_are_those_of_the_column_that_was_ingested(tmp_path):
    table = pa.table(
        {"x": [1.0, 2.0, 0.0, 4.0], "label": ["a", "b", "a", "b"], "times": [1.0, 0.5, 3.0, 2.0]}
    )
    options = {"dense": "x", "label": "label", "split": {"train": 1.0}}
    data = bigmc.ingest(table, tmp_path / "d", weight="times", **options)["train"]
    assert data.sample_weights().tolist() == [1.0, 0.5, 3.0, 2.0]
    assert data.weight_sum == 6.5
    without = bigmc.ingest(table, tmp_path / "e", **options)["train"]
    assert without.sample_weights() is None
    assert without.weight_sum == 4.0


def test_groups_that_take_too_much_are_read_when_they_are_asked_for():
    codes = np.random.default_rng(0).integers(0, 300, 2000)
    data = Dataset.from_arrays(np.ones((2000, 1)), codes, shard_rows=700)
    kept, read = data.group_codes(2 * 2000), data.group_codes(2 * 2000 - 1)
    assert len(kept) == len(read) == data.n_shards == 3
    assert [groups.dtype for groups in kept] == [np.dtype(np.int16)] * 3  # 300 classes and -1
    for groups in (kept, read):
        assert (np.concatenate(list(groups)) == data.labels()).all()
    sets = Dataset.from_arrays(np.ones((50, 1)), np.eye(50, dtype=int), shard_rows=30)
    assert [groups.tolist() for groups in sets.group_codes(0)] == [[0] * 30, [0] * 20]
