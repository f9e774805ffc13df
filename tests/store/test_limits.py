"""What changes at a limit changes there: at one byte, sample or feature more, and not before."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.store import block, publish, row_norms, sample
from bigmc.store.block import bytes_of_longest, cut_ranges, plan_blocks, read_block
from bigmc.store.dataset import Dataset
from bigmc.store.files.file_array import file_array
from bigmc.store.shards.sample_labels import code_labels
from bigmc.store.weighting import Weighting

from .conftest import store_dataset


def words(n=90, d=14, seed=0, **options):
    """Counts of words, in shards of 25 samples."""
    X = scipy.sparse.random_array((n, d), density=0.4, rng=np.random.default_rng(seed), format="csr")
    X.data = np.ceil(5 * X.data).astype(np.int8)
    return X, Dataset.from_arrays(X, np.arange(n) % 3, shard_rows=25, **options)


@pytest.mark.parametrize("n_bytes", [250, 333, 400, 900, 1500])
def test_blocks_are_as_large_as_they_may_be(n_bytes):
    """By the bytes of the blocks that are read."""
    _, data = words()
    ranges = plan_blocks(data.column_nnz(), data.n_shards, 1, n_bytes)
    assert [lo for lo, _ in ranges] == [0, *(hi for _, hi in ranges[:-1])]
    assert ranges[-1][1] == data.n_features
    for lo, hi in ranges:
        assert read_block(data, lo, hi).nbytes <= n_bytes
        assert hi == data.n_features or read_block(data, lo, hi + 1).nbytes > n_bytes


def test_a_block_may_be_as_large_as_the_longest_column_alone():
    _, data = words()
    sizes = [read_block(data, j, j + 1).nbytes for j in range(data.n_features)]
    assert bytes_of_longest(data.column_nnz(), data.n_shards, 1) == max(sizes)
    assert len(plan_blocks(data.column_nnz(), data.n_shards, 1, max(sizes))) > 1
    with pytest.raises(DataError, match=f"alone needs {max(sizes)} bytes"):
        plan_blocks(data.column_nnz(), data.n_shards, 1, max(sizes) - 1)
    whole = read_block(data, 0, data.n_features).nbytes
    assert plan_blocks(data.column_nnz(), data.n_shards, 1, whole) == [(0, data.n_features)]
    assert len(plan_blocks(data.column_nnz(), data.n_shards, 1, whole - 1)) == 2
    assert plan_blocks([], 3, 1, 0) == []


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_ranges_are_cut_into_as_few_as_there_must_be(most):
    cut = cut_ranges([(0, 5), (5, 5), (5, 12)], most)
    assert [j for lo, hi in cut for j in range(lo, hi)] == list(range(12))
    assert len(cut) == -(-5 // most) + -(-7 // most)
    assert max(hi - lo for lo, hi in cut) <= most


def test_features_outside_of_a_dataset_are_refused():
    _, data = words()
    for lo, hi in ((-1, 3), (3, 2), (3, 15)):
        with pytest.raises(DataError, match="outside the 14 features"):
            read_block(data, lo, hi)
    assert read_block(data, 3, 3).nnz == read_block(data, 14, 14).nnz == 0


@pytest.mark.parametrize("n_wide", [0, 39, 40])
def test_few_values_are_kept_as_floats(n_wide, monkeypatch):
    monkeypatch.setattr(block, "_MOST_WIDE_VALUES", n_wide)
    _, data = words()
    expected = np.float64 if n_wide == 40 else np.int8
    assert block.dtype_in_memory(data, 40, 1 << 30) == expected
    assert block.widened(np.ones(40, np.int8)).dtype == expected


def test_many_features_and_little_memory_keep_the_type_of_values(monkeypatch):
    monkeypatch.setattr(block, "_MOST_WIDE_VALUES", 100)
    few, many = (Dataset.from_arrays(np.ones((2, d), np.int8), [0, 1]) for d in (999, 1000))
    assert block.dtype_in_memory(few, 100, 16 * 700) == np.float64
    assert block.dtype_in_memory(few, 100, 16 * 700 - 1) == np.int8
    assert block.dtype_in_memory(many, 100, 1 << 30) == np.int8


def test_pieces_of_columns_have_as_many_entries_as_fit(monkeypatch):
    X, data = words()
    shard, n_read = data.shards[0], []
    for most, features in itertools.product((25, 26, 31, 1000), (3, 100)):
        monkeypatch.setattr(row_norms, "PIECE_ENTRIES", most)
        monkeypatch.setattr(row_norms, "PIECE_FEATURES", features)
        indices, values, at = np.empty(most, np.uint16), np.empty(most, np.int8), 0
        for lo, offsets in row_norms.column_pieces(shard, indices, values):
            hi = lo + len(offsets) - 1
            piece = X[:25, lo:hi].tocsc()
            piece.sort_indices()
            assert lo == at
            np.testing.assert_array_equal(offsets, piece.indptr)
            np.testing.assert_array_equal(indices[: offsets[-1]], piece.indices)
            np.testing.assert_array_equal(values[: offsets[-1]], piece.data)
            more = int(shard.indptr(lo, hi + 1)[-1] - shard.indptr(lo, hi + 1)[0]) if hi < 14 else most + 1
            assert len(offsets) - 1 == features or more > most or hi % features == 0
            at = hi
        n_read.append(at)
    assert n_read == [14] * 8


@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True), Weighting(binary=True, l2=True)])
@pytest.mark.parametrize("scaled", [False, True])
def test_row_scales_are_one_over_norms(weighting, scaled):
    X, data = words(weighting=weighting)
    scale = np.linspace(0.5, 2, 14).astype(np.float32) if scaled else None
    seen = (X.toarray() > 0).astype(float) if weighting.binary else X.toarray().astype(float)
    norms = np.linalg.norm(seen if scale is None else seen * scale, axis=1)
    expected = 1.0 / norms if weighting.l2 else np.ones(90)
    np.testing.assert_allclose(data.row_scale(scale), expected, rtol=1e-6)
    assert row_norms.inverse(np.array([0.0, 4.0])).tolist() == [0.0, 0.25]


def test_equal_rows_have_equal_digests_and_others_have_not():
    X, _ = words()
    twice = scipy.sparse.vstack([X, X]).tocsr()
    digests = row_norms.row_digests(Dataset.from_arrays(twice, shard_rows=40))
    np.testing.assert_array_equal(digests[:90], digests[90:])
    assert len(np.unique(digests)) == len(np.unique(X.toarray(), axis=0))
    assert np.ptp(digests) > 1.0  # sums of products, not only of a sample's first entries


@pytest.mark.parametrize("most", [24, 25, 26, 49, 50, 51])
def test_drawn_rows_fill_shards(most, monkeypatch):
    """Rows of neighbouring shards are put together while they fit."""
    monkeypatch.setattr(sample, "MAX_ROWS", most)
    X, data = words()
    drawn, positions = sample.draw_rows(data, 1.0, 0, ThreadEngine(1))
    np.testing.assert_array_equal(positions, np.arange(90))
    sizes = [shard.n_rows for shard in drawn.shards]
    assert sizes == ([50, 40] if most >= 50 else [25, 25, 25, 15] if most < 40 else [25, 25, 40])
    read = read_block(drawn, 0, 14)
    assert read.nnz == X.nnz


@pytest.mark.parametrize("share", [0.0, 1.0 + 1e-9, -0.5])
def test_shares_outside_of_0_and_1_are_refused(share):
    for draw in (sample.draw_rows, sample.draw_groups):
        with pytest.raises(DataError, match="share of rows"):
            draw(words()[1], share, 0, ThreadEngine(1))


@pytest.mark.parametrize(
    ("entries", "share", "beside", "stored"),
    [(6, 0.0, 0, True), (5, 0.0, 0, False), (0, 0.5, 0, True), (0, 0.24, 0, False), (0, 0.24, 4, True)],
)
def test_statistics_are_stored_where_they_are_few(entries, share, beside, stored, tmp_path, monkeypatch):
    """Six features of at most so many elements, or of a share of 24 entries, and of those of other data."""
    monkeypatch.setattr(publish, "SMALL_ENTRIES", entries)
    monkeypatch.setattr(publish, "SMALL_SHARE", share)
    X = scipy.sparse.csr_array(np.repeat(np.eye(6), 4, axis=0))
    data = store_dataset(
        tmp_path / "d.bigmc", [("train", X)], np.arange(24) % 3, ["a", "b", "c"], beside=beside
    )
    assert (tmp_path / "d.bigmc" / "statistics").exists() == stored
    assert data.column_nnz().tolist() == [4] * 6


@pytest.mark.parametrize(("entries", "stored"), [(17, False), (18, True)])
def test_statistics_by_class_are_stored_where_they_are_few(entries, stored, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "SMALL_ENTRIES", entries)
    X = scipy.sparse.csr_array(np.repeat(np.eye(6), 4, axis=0))
    data = store_dataset(tmp_path / "d.bigmc", [("train", X)], np.arange(24) % 3, ["a", "b", "c"])
    assert (tmp_path / "d.bigmc" / "statistics" / "train" / "class_sum").exists() == stored
    sums, squares = data.class_statistics(1, 5)
    codes = np.arange(24) % 3
    expected = np.array([X.toarray()[codes == c].sum(axis=0) for c in range(3)])[:, 1:5]
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(squares, expected)


def test_the_memory_of_statistics_is_for_blocks_of_all_threads():
    for memory, n_threads, longest, decoded in itertools.product(
        (1000, 5000, 100_000), (1, 2, 5), (100, 500), (3000, 10**6)
    ):
        told = publish._Means(memory, n_threads, print).divided(longest, decoded)
        threads = max(t for t in range(1, n_threads + 1) if t == 1 or 2 * longest * t <= memory)
        bytes_of_one = max(memory // (2 * threads + 2), longest)
        if threads > 1:
            bytes_of_one = max(longest, min(bytes_of_one, decoded // (2 * threads)))
        assert told == (threads, bytes_of_one)


def test_large_arrays_are_zeros_in_a_file_of_no_name(tmp_path):
    made = file_array((3, 4), np.float32, tmp_path)
    assert (made.shape, made.dtype) == ((3, 4), np.float32)
    assert not made.any()
    made[:] = 2
    assert made.sum() == 24
    assert list(tmp_path.iterdir()) == []
    assert file_array((0, 4), np.int8, tmp_path).shape == (0, 4)


def test_shards_have_so_many_rows_at_most():
    data = Dataset.from_arrays(scipy.sparse.csr_array((65_537, 1), dtype=np.int8))
    assert [shard.n_rows for shard in data.shards] == [65_536, 1]
    assert data.labels().tolist() == [-1] * 65_537


def test_labels_are_codes_of_their_sorted_values():
    classes, codes = code_labels(["b", "a", "b"], 3)
    assert (classes.tolist(), codes.tolist(), codes.dtype) == (["a", "b"], [1, 0, 1], np.int32)
    classes, codes = code_labels(None, 2)
    assert (classes.tolist(), codes.tolist(), codes.dtype) == ([], [-1, -1], np.int32)
    classes, codes = code_labels(np.array([[1, 0], [1, 1], [0, 0]]), 3)
    assert (classes.tolist(), codes.to_pylist()) == ([0, 1], [[0], [0, 1], []])
    for wrong in (["a", "b"], np.ones((3, 0)), np.ones((2, 2))):
        with pytest.raises(DataError, match="but X has 3 rows"):
            code_labels(wrong, 3)


def test_labels_of_sets_are_those_of_every_shard():
    marks = (np.random.default_rng(0).random((50, 4)) < 0.4).astype(int)
    data = Dataset.from_arrays(np.eye(50), marks, shard_rows=20)
    most = int(marks.sum(axis=1).max())
    expected = np.array([[*np.flatnonzero(row), *[-1] * most][:most] for row in marks])
    np.testing.assert_array_equal(data.label_sets(), expected)
    assert data.most_labels() == most
    assert [part.shape[1] for part in data.label_parts()] == [
        max(1, marks[lo : lo + 20].sum(axis=1).max()) for lo in (0, 20, 40)
    ]
    np.testing.assert_array_equal(data.class_counts(), marks.sum(axis=0))
    assert data.n_groups == 1
    assert [codes.tolist() for codes in data.group_codes()] == [[0] * 20, [0] * 20, [0] * 10]


def test_codes_of_many_samples_are_read_at_every_use():
    _, data = words()
    for most, is_list in ((90, True), (89, False), (None, True)):
        groups = data.group_codes(most)
        assert isinstance(groups, list) == is_list
        assert len(groups) == 4
        np.testing.assert_array_equal(np.concatenate(list(groups)), np.arange(90) % 3)


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_samples_keep_weights_and_scales(weighted):
    X, data = words(weighting=Weighting(l2=True, idf=True))
    weights = np.random.default_rng(1).random(90) if weighted else None
    own = data.class_labels, data.n_features, data.weighting, {}
    data = Dataset(data.shards, *own, sample_weights=weights)
    rows = np.r_[0:25, 75:90]
    part, subset = data.part([0, 3]), data.subset([0, 3])
    for some in (part, subset, data.subset([0, 3]).with_weighting(Weighting())):
        assert some.n_samples == 40
        np.testing.assert_array_equal(read_block(some, 0, 14).indptr[:, -1][-1], X[rows].nnz)
        if weighted:
            np.testing.assert_array_equal(some.sample_weights(), weights[rows])
        assert some.weight_sum == pytest.approx(40 if weights is None else weights[rows].sum())
    np.testing.assert_array_equal(part.column_scale(), data.column_scale())
    df = np.diff(X[rows].tocsc().indptr)
    np.testing.assert_allclose(subset.column_scale(), np.log(41 / (1 + df)) + 1, rtol=1e-6)
    other = np.linspace(1, 2, 14).astype(np.float32)
    np.testing.assert_array_equal(data.with_column_scale(other).column_scale(), other)
    assert data.with_column_scale(other).weight_sum == data.weight_sum
    assert data.with_weighting(Weighting()).column_scale() is None
