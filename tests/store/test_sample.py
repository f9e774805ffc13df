"""A sample holds whole rows of the dataset, the same ones in every run."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_groups, draw_rows, holdout_keys, take_rows


def rows_of(dataset):
    """Every row by its id: label, features and values."""
    found = {}
    for shard in dataset.shards:
        indptr = shard.indptr(0, shard.n_features)
        indices, data = np.empty(shard.nnz, np.uint16), np.empty(shard.nnz, np.float64)
        shard.read(0, shard.nnz, indices, data)
        matrix = scipy.sparse.csc_array((data, indices, indptr), (shard.n_rows, shard.n_features)).tocsr()
        table = shard.table(["row_id", "label", "norm", "entries"])
        for i, row in enumerate(table.to_pylist()):
            start, stop = matrix.indptr[i], matrix.indptr[i + 1]
            entries = sorted(
                zip(matrix.indices[start:stop].tolist(), matrix.data[start:stop].tolist(), strict=True)
            )
            found[row.pop("row_id")] = (row, entries)
    return found


@pytest.fixture(scope="module")
def whole():
    generator = np.random.default_rng(0)
    X = scipy.sparse.random(5000, 70, 0.05, format="csr", rng=generator)
    X.data = generator.integers(1, 9, X.nnz)
    return Dataset.from_arrays(X, generator.integers(0, 3, 5000), shard_rows=600)


def test_a_sample_has_some_whole_rows(whole):
    sample, positions = draw_rows(whole, 0.3, 0, ThreadEngine(2))
    everything, drawn = rows_of(whole), rows_of(sample)
    assert abs(len(drawn) - 1500) < 5 * np.sqrt(5000 * 0.3 * 0.7)
    assert {i: everything[i] for i in drawn} == drawn
    assert sample.n_shards == 1
    assert (whole.row_ids()[positions] == sample.row_ids()).all()
    assert (sample.classes == whole.classes).all()


def test_rows_are_taken_from_the_places_asked_for(whole):
    places = np.array([0, 599, 600, 1850, 4999])  # no row of some shards
    taken, everything, ids = take_rows(whole, places, ThreadEngine(2)), rows_of(whole), whole.row_ids()
    assert taken.row_ids().tolist() == ids[places].tolist()
    assert rows_of(taken) == {i: everything[i] for i in ids[places].tolist()}


def test_seed_and_share_alone_decide(whole):
    again = [set(rows_of(draw_rows(whole, 0.3, 5, ThreadEngine(n))[0])) for n in (1, 3)]
    assert again[0] == again[1]
    assert again[0] != set(rows_of(draw_rows(whole, 0.3, 6, ThreadEngine(1))[0]))
    assert again[0] < set(rows_of(draw_rows(whole, 0.5, 5, ThreadEngine(1))[0]))
    assert set(rows_of(draw_rows(whole, 1.0, 5, ThreadEngine(1))[0])) == set(range(5000))


def test_dense_shards_on_disk(tmp_path):
    X = np.random.default_rng(1).standard_normal((400, 5)).astype(np.float32)
    bigmc.ingest(X, tmp_path / "d.bigmc", label=np.arange(400) % 4, split={"train": 1.0})
    dataset = bigmc.open_dataset(tmp_path / "d.bigmc")
    drawn = rows_of(draw_rows(dataset, 0.25, 0, ThreadEngine(1))[0])
    assert 50 < len(drawn) < 150
    for i, (_, entries) in drawn.items():
        assert [j for j, _ in entries] == list(range(5))
        assert np.array_equal([value for _, value in entries], X[i].astype(np.float64))


def test_an_empty_sample_is_refused(whole):
    with pytest.raises(DataError, match="empty"):
        draw_rows(whole, 1e-9, 0, ThreadEngine(1))


def test_drawn_rows_are_in_shards_of_a_bounded_size(whole, monkeypatch):
    together, positions = draw_rows(whole, 0.5, 0, ThreadEngine(1))
    monkeypatch.setattr("bigmc.store.sample.MAX_ROWS", 700)
    apart, same = draw_rows(whole, 0.5, 0, ThreadEngine(2))
    assert together.n_shards == 1
    assert max(shard.n_rows for shard in apart.shards) <= 700
    assert rows_of(apart) == rows_of(together)
    np.testing.assert_array_equal(same, positions)


def test_many_shards_of_many_features_take_no_offset_for_each_feature_and_shard():
    n_rows, n_features, n_shards = 2000, 1 << 18, 100
    generator = np.random.default_rng(1)
    X = scipy.sparse.random(n_rows, n_features, 2e-5, format="csr", rng=generator)
    X.data = generator.integers(1, 9, X.nnz)
    labels = np.arange(n_rows) % 3
    dataset = Dataset.from_arrays(X, labels, shard_rows=n_rows // n_shards)
    draw_rows(dataset, 0.3, 0, ThreadEngine(1))  # compiles
    tracemalloc.start()
    sample, _ = draw_rows(dataset, 0.3, 0, ThreadEngine(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (sample.n_shards, dataset.n_shards) == (1, n_shards)
    assert rows_of(sample) == {i: row for i, row in rows_of(dataset).items() if i in sample.row_ids()}
    a_number_each = 8 * n_features
    assert peak < 12 * a_number_each < 4 * n_features * n_shards


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """Rows of 40 groups, and which group every row is of."""
    generator = np.random.default_rng(1)
    group = generator.integers(0, 40, 600)
    table = {"x": generator.random(600), "label": generator.integers(0, 2, 600), "of": group}
    to = tmp_path_factory.mktemp("groups") / "d.bigmc"
    data = bigmc.ingest(pa.table(table), to, dense=["x"], label="label", group="of", split={"train": 1.0})
    return data["train"], group[data["train"].row_ids()]


def test_whole_groups_are_drawn(grouped):
    data, group = grouped
    found = {}
    for share in (0.01, 0.3, 0.7, 0.99):
        sample, positions = draw_groups(data, share, 5, ThreadEngine(1))
        drawn = np.zeros(600, bool)
        drawn[positions] = True
        inside = set(group[drawn])
        assert inside
        assert inside.isdisjoint(group[~drawn])
        assert len(inside) < 40  # a group is left
        assert abs(len(inside) - 40 * share) < 12
        assert (data.row_ids()[positions] == sample.row_ids()).all()
        found[share] = inside
    assert found[0.01] <= found[0.3] <= found[0.7] <= found[0.99]
    assert draw_groups(data, 0.3, 5, ThreadEngine(1))[1].tolist() != (
        draw_groups(data, 0.3, 6, ThreadEngine(1))[1].tolist()
    )
    assert len(draw_groups(data, 1.0, 5, ThreadEngine(1))[1]) == 600


def test_rows_are_held_out_by_their_group_where_there_is_one(grouped, whole):
    data, group = grouped
    keys = holdout_keys(data)
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(keys, keys[first][inverse])
    assert len(set(keys.tolist())) == 40
    np.testing.assert_array_equal(holdout_keys(whole), whole.row_ids())
    rows, groups = (draw(whole, 0.3, 0, ThreadEngine(1))[1] for draw in (draw_rows, draw_groups))
    np.testing.assert_array_equal(rows, groups)


def test_shares_and_groups_that_leave_nothing_are_refused(whole, tmp_path):
    for share in (0.0, -0.1, 1.0001, np.nan):
        for draw in (draw_rows, draw_groups):
            with pytest.raises(DataError, match=f"the share of rows to sample is {share}"):
                draw(whole, share, 0, ThreadEngine(1))
    table = pa.table({"x": np.arange(20.0), "label": np.arange(20) % 2, "of": np.ones(20, int)})
    one = bigmc.ingest(table, tmp_path / "d.bigmc", dense=["x"], label="label", group="of")
    with pytest.raises(DataError, match="all samples belong to one group"):
        draw_groups(one, 0.5, 0, ThreadEngine(1))
