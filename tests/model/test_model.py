import io
import json
import pickle
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

import bigmc
from bigmc.errors import DataError, ModelError
from bigmc.model import LinearModel, LinearScorer, load_model, verify_model
from bigmc.model import column_reader as columns_module
from bigmc.model import linear_scoring as scoring_module
from bigmc.store.dataset import Dataset
from bigmc.store.publish import finish_dataset
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.write import write_shard
from bigmc.store.weighting import Weighting

WEIGHTINGS = [Weighting(b, l2, idf) for b in (False, True) for l2 in (False, True) for idf in (False, True)]


def counts(n_rows=200, n_features=300, seed=0, dtype=np.int8):
    """Hashed-text-like counts with explicit zeros, empty rows and empty columns."""
    rng = np.random.default_rng(seed)
    X = scipy.sparse.random_array(
        (n_rows, n_features), density=0.05, format="csr", rng=rng,
        data_sampler=lambda size: rng.integers(-2, 3, size),
    ).astype(dtype)  # fmt: skip
    assert (X.data == 0).any()
    X = scipy.sparse.vstack([X, scipy.sparse.csr_array((2, n_features), dtype=dtype)]).tocsr()
    X.sort_indices()
    return X


def as_rows(X):
    return Rows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, X.shape[1])


def random_model(n_features=300, n_classes=5, nonzero=40, seed=1, dtype=np.float32, **fields):
    rng = np.random.default_rng(seed)
    fields = {
        "kind": "sparse",
        "classes": np.arange(n_classes) * 10,
        "n_features": n_features,
        "features": np.sort(rng.choice(n_features, nonzero, replace=False)),
        "coef": rng.standard_normal((nonzero, n_classes)).astype(dtype),
        "intercept": rng.standard_normal(n_classes),
        **fields,
    }
    return LinearModel(**fields)


def dense_weights(model):
    weights = np.zeros((model.n_features, model.n_classes))
    weights[model.features] = model.coef
    return weights


def weighted(X, weighting, fitted_on):
    """The same values by scikit-learn."""
    X, train = (scipy.sparse.csr_matrix(m, dtype=np.float64) for m in (X, fitted_on))
    if weighting.binary:
        X.data[:] = 1
        train.data[:] = 1
    if weighting.idf:
        X = TfidfTransformer(norm=None).fit(train).transform(X)
    return normalize(X) if weighting.l2 else X


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=str)
def test_scores_of_rows_and_shards_are_scikit_learns_weighting_times_the_weights(weighting):
    X = counts()
    train = Dataset.from_arrays(X, np.arange(X.shape[0]) % 5, weighting=weighting, shard_rows=64)
    model = random_model(weighting=weighting, column_scale=train.column_scale())
    test = counts(seed=5)
    expected = weighted(test, weighting, X) @ dense_weights(model) + model.intercept
    np.testing.assert_allclose(model.scores(as_rows(test)), expected, rtol=1e-6, atol=1e-6)

    stored = Dataset.from_arrays(test, np.arange(test.shape[0]) % 5, weighting=weighting, shard_rows=64)
    model.check_features(stored)
    by_shard = np.vstack([model.shard_scores(stored, s) for s in range(stored.n_shards)])
    np.testing.assert_allclose(by_shard, expected, rtol=1e-6, atol=1e-6)
    codes = np.concatenate([model.shard_codes(stored, s) for s in range(stored.n_shards)])
    np.testing.assert_array_equal(codes, np.argmax(expected, axis=1))


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32, np.float64])
def test_every_stored_type_is_scored(dtype):
    X = counts(dtype=dtype)
    X.data = X.data * dtype(np.iinfo(np.int32).max if dtype == np.int32 else 300.5)
    model = random_model(dtype=np.float64)
    expected = X.astype(np.float64) @ dense_weights(model) + model.intercept
    np.testing.assert_allclose(model.scores(as_rows(X)), expected, rtol=1e-12)
    stored = Dataset.from_arrays(X, np.arange(X.shape[0]) % 5)
    np.testing.assert_allclose(model.shard_scores(stored, 0), expected, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    gap=st.integers(0, 30),
    read=st.integers(40, 200),
    window=st.integers(1, 80),
    nonzero=st.integers(0, 60),
)
def test_columns_are_read_once_however_the_reads_are_cut(seed, gap, read, window, nonzero):
    X = counts(n_rows=38, n_features=60, seed=seed)
    model = random_model(n_features=60, nonzero=nonzero, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "GAP_ENTRIES", gap)
        patch.setattr(columns_module, "MOST_ENTRIES", read)
        patch.setattr(columns_module, "WINDOW_FEATURES", window)
        stored = Dataset.from_arrays(X)
        expected = X @ dense_weights(model) + model.intercept
        np.testing.assert_allclose(model.shard_scores(stored, 0), expected, atol=1e-9)


def test_only_columns_with_weight_are_read(monkeypatch):
    X = counts(n_rows=500, n_features=1000)
    stored = Dataset.from_arrays(X)
    shard = stored.shards[0]
    entries = []
    read = shard.read
    monkeypatch.setattr(shard, "read", lambda lo, hi, i, d: (entries.append(hi - lo), read(lo, hi, i, d)))
    monkeypatch.setattr(columns_module, "GAP_ENTRIES", 10)
    model = random_model(n_features=1000, nonzero=3, weighting=Weighting(l2=True))
    model.shard_codes(stored, 0)
    assert sum(entries) == np.diff(X.tocsc().indptr)[model.features].sum()


def test_many_classes_are_scored_tile_by_tile_with_the_lowest_code_on_ties():
    X = counts()
    model = random_model(n_classes=11)
    coef = model.coef.copy()
    coef[:, 7] = coef[:, 2]
    coef[:, 2:8:5] += 3 * np.sign(coef[:, [2]])
    model = random_model(n_classes=11, coef=coef, intercept=np.zeros(11))
    stored = Dataset.from_arrays(X)
    expected = np.argmax(model.shard_scores(stored, 0), axis=1)
    assert (expected == 2).any()
    assert not (expected == 7).any()
    for width in (1, 3, 4, 11):
        room = 2 * 8 * X.shape[0] * width
        np.testing.assert_array_equal(model.shard_codes(stored, 0, room), expected)


def test_a_search_replaces_the_table_when_there_are_too_many_features(monkeypatch):
    X = counts()
    model = random_model()
    expected = model.scores(as_rows(X))
    monkeypatch.setattr(scoring_module, "TABLE_FEATURES", 10)
    np.testing.assert_array_equal(random_model().scores(as_rows(X)), expected)
    assert random_model(nonzero=0).scores(as_rows(X)).shape == expected.shape


def test_features_up_to_two_billion():
    features = np.array([3, 2**31 - 2])
    scorer = LinearScorer(features, np.array([[1.0, 2], [3, 4]]), np.zeros(2), 2**31 - 1, Weighting(), None)
    rows = Rows(np.array([0, 2, 3]), np.array([3, 2**31 - 2, 7], np.int32), np.ones(3, np.int8), 2**31 - 1)
    assert scorer.rows(rows).tolist() == [[4, 6], [0, 0]]


def test_predict_gives_labels_and_the_first_class_on_a_tie():
    model = random_model(n_classes=3, classes=np.array(["ham", "spam", "ähm"]))
    assert model.predict(np.array([[0, 2, 2], [1, 1, 1], [0, 0, 1.0]])).tolist() == ["spam", "ham", "ähm"]


def test_rows_of_another_width_are_refused():
    with pytest.raises(DataError, match="299 features, the model 300"):
        random_model().scores(as_rows(counts(n_features=299)))


def spec(text="review", **hashing):
    hasher = {"analyzer": "word", "ngrams": (1, 2), "hash_bits": 18, **hashing}
    return {"text": (text,), "categorical": (), "numeric": (), "dense": (), "hasher": hasher, "n_own": 0}


SPEC = spec()


def test_a_dataset_hashed_otherwise_is_refused_naming_each_difference():
    X = counts()
    model = random_model(feature_spec=SPEC, weighting=Weighting(l2=True))
    renamed = spec(text="body")
    model.check_features(Dataset.from_arrays(X, features=renamed, weighting=Weighting(l2=True)))
    other = Dataset.from_arrays(X[:, :200], features=spec(analyzer="char_wb", ngrams=(3, 5)))
    with pytest.raises(ModelError) as caught:
        model.check_features(other)
    message = str(caught.value)
    for part in (
        "n_features is 300 in the model and 200 in the dataset",
        "weighting is l2 in the model and counts in the dataset",
        "analyzer is word in the model and char_wb in the dataset",
        "ngrams is [1, 2] in the model and [3, 5] in the dataset",
    ):
        assert part in message
    assert "hash_bits" not in message
    assert "\n" not in message


def full_model(**fields):
    names = pa.table(
        {
            "bucket": [250, 1, 1, 4, 0, 1],
            "name": ["zwei wörter", "b", "a", "unknown", "first", "often"],
            "sign": [1, -1, 1, 1, 1, -1],
            "count": [3, 5, 5, 9, 2, 70],
        }
    )
    defaults = {
        "classes": np.array(["ham", "spam", "ähm", "d", "e"]),
        "features": np.r_[0, 1, 250, np.arange(260, 297)],
        "weighting": Weighting(l2=True, idf=True),
        "column_scale": np.linspace(1, 2, 300).astype(np.float32),
        "feature_spec": SPEC,
        "params": {"alpha": np.float64(1e-4), "tol": 1e-3, "loss": "squared_hinge"},
        "certificate": {"lower": -np.inf, "upper": 0.25, "gap": np.inf},
        "objective": 0.1 + 0.2,
        "n_iter": 7,
        "n_passes": 3,
        "history": [{"pass": 1, "gap": float("inf")}, {"pass": 2, "gap": np.float32(0.5)}],
        "names": names,
    }
    return random_model(**{**defaults, **fields})


def assert_equal_models(a, b):
    for name in ("classes", "features", "coef", "intercept", "column_scale"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    plain = (
        "kind", "n_features", "weighting", "feature_spec", "params", "certificate", "objective", "n_iter",
        "n_passes", "history",
    )  # fmt: skip
    for name in plain:
        assert getattr(a, name) == getattr(b, name), name
    assert a.names.to_pylist() == b.names.to_pylist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_weights_that_are_mostly_zero_take_less_room_and_come_back(tmp_path, dtype, share):
    dense = random_model(n_classes=300, dtype=dtype)
    coef = np.where(np.random.default_rng(3).random(dense.coef.shape) < share, dense.coef, dtype(0))
    model = random_model(n_classes=300, dtype=dtype, coef=coef)
    model.save(tmp_path / "m")
    dense.save(tmp_path / "dense")
    loaded = load_model(tmp_path / "m")
    assert loaded.coef.dtype == dtype
    np.testing.assert_array_equal(loaded.coef, coef)
    assert verify_model(tmp_path / "m") == []
    most = 1.0 if share > 0.5 else share + 0.4
    assert (tmp_path / "m").stat().st_size <= most * (tmp_path / "dense").stat().st_size
    assert model.nbytes >= coef.nbytes


def test_a_model_comes_back_as_it_was_saved_and_equal_models_are_equal_bytes(tmp_path):
    model = full_model()
    model.save(tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model")
    assert_equal_models(model, loaded)
    assert loaded.objective == 0.1 + 0.2
    assert loaded.certificate["gap"] == np.inf
    loaded.save(tmp_path / "b.model")
    full_model().save(tmp_path / "c.model")
    raw = (tmp_path / "a.model").read_bytes()
    assert (tmp_path / "b.model").read_bytes() == raw
    assert (tmp_path / "c.model").read_bytes() == raw
    assert verify_model(tmp_path / "a.model") == []
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".model"] == []


@pytest.mark.parametrize(
    "classes",
    [
        np.array([-5, 2**40]), np.array(["a", "ü 漢字"]), np.array([False, True]), np.array([0.5, 1e300]),
        np.array(["a", "b"], object), np.array([1, 2], object), np.array([True, False], object),
        np.array([0.5, 2], np.float16), np.array([-5, 300], ">i4"), np.array(["a", "ü"], ">U1"),
    ],
    ids=lambda c: f"{c.dtype}",
)  # fmt: skip
def test_labels_of_every_type_keep_type_and_value(tmp_path, classes):
    random_model(n_classes=2, classes=classes).save(tmp_path / "m")
    loaded = load_model(tmp_path / "m").classes
    assert loaded.tolist() == classes.tolist()
    assert [type(label) for label in loaded.tolist()] == [type(label) for label in classes.tolist()]
    assert loaded.dtype.kind in "biufU"


@pytest.mark.parametrize(
    "classes", [["a", 1], [None, "a"], ["a", "a\0"], [2**70, 3], ["a", "a"], [b"x", b"y"]], ids=str
)
def test_labels_that_cannot_be_kept_are_refused(classes):
    with pytest.raises(ModelError, match=r"labels|different classes"):
        random_model(n_classes=2, classes=np.array(classes, object))


def test_names_are_kept_for_features_with_weight_only_and_the_most_frequent_ones():
    model = full_model()
    assert model.names.column("name").to_pylist() == ["first", "often", "a", "b", "zwei wörter"]
    crowd = pa.table(
        {
            "bucket": np.repeat([1, 2, 250], 100),
            "name": [f"n{i}" for i in range(300)],
            "sign": np.ones(300, np.int8),
            "count": np.arange(300),
        }
    )
    kept = full_model(names=crowd).names
    assert kept.column("bucket").to_pylist() == [1] * 8 + [250] * 8
    assert kept.column("count").to_pylist()[:8] == list(range(99, 91, -1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": np.arange(40)[::-1]}, "increasing"),
        ({"features": np.arange(280, 320)}, "outside 0 to 299"),
        ({"coef": np.zeros((40, 4))}, "do not fit 40 features and 5 classes"),
        ({"coef": np.zeros((40, 5), np.int64)}, "float32 or float64"),
        ({"coef": np.full((40, 5), np.nan)}, "not finite"),
        ({"column_scale": np.ones(300, np.float32), "weighting": Weighting()}, "exactly if"),
        ({"column_scale": np.ones(299, np.float32)}, "column scales for"),
        ({"classes": np.array([1])}, "at least 2"),
    ],
)
def test_parts_that_do_not_fit_make_no_model(fields, message):
    with pytest.raises(ModelError, match=message):
        full_model(**fields)


def test_every_flipped_byte_is_found_and_never_loads_as_another_model(tmp_path):
    model = random_model(n_features=6, nonzero=2, n_classes=2, history=[{"pass": 1}], column_scale=None)
    path = tmp_path / "m"
    model.save(path)
    raw = path.read_bytes()
    refused = 0
    for at in range(0, len(raw), 3):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << (at // 3 % 8)
        path.write_bytes(damaged)
        problems = verify_model(path)
        assert problems, f"byte {at} of {len(raw)}"
        assert all("\n" not in problem for problem in problems)
        try:
            loaded = load_model(path)
        except ModelError:
            refused += 1
            continue
        np.testing.assert_array_equal(loaded.coef, model.coef)
        assert loaded.info() == model.info()
    assert refused > 0.25 * len(raw)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "m"
    full_model().save(path)
    raw = path.read_bytes()
    for size in {0, 1, 20, 60, 200, len(raw) // 2, len(raw) - 1}:
        path.write_bytes(raw[:size])
        with pytest.raises(ModelError, match=r"truncated|empty"):
            load_model(path)
        assert verify_model(path)
    path.write_bytes(raw + b"x")
    assert verify_model(path)


def rewritten(path, change):
    """Save again with some members or header fields changed, as a forger would."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["model.json"])
    change(members, header)
    members["model.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", members.pop("model.json"))
        for name, content in members.items():
            archive.writestr(name, content)


def pickled(_, header=None):
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}, 2], object), allow_pickle=True)
    return stream.getvalue()


def test_forged_files_are_refused_with_the_reason(tmp_path):
    import hashlib

    def swap_in_pickle(members, header):
        members["classes.npy"] = pickled(None)
        header["members"]["classes.npy"] = hashlib.sha256(members["classes.npy"]).hexdigest()

    changes = {
        "coef.npy is damaged": lambda m, h: m.update({"coef.npy": m["intercept.npy"]}),
        "version 7.*reads versions 1 and 2": lambda m, h: h.update(version=7),
        "not a bigmc model": lambda m, h: h.update(format="other"),
        "extra.npy is missing or unexpected": lambda m, h: m.update({"extra.npy": b""}),
        "classes.npy is missing or unexpected": lambda m, h: m.pop("classes.npy"),
        "classes.npy is not a plain array": swap_in_pickle,
        "'n_iter' is missing": lambda m, h: h.pop("n_iter"),
        "is inconsistent": lambda m, h: h.update(n_features="many"),
    }
    for message, change in changes.items():
        path = tmp_path / "m"
        full_model().save(path)
        rewritten(path, change)
        with pytest.raises(ModelError, match=message) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
        assert verify_model(path)


def test_other_files_are_no_models(tmp_path):
    (tmp_path / "text").write_text("hello " * 100)
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a.txt", "hello" * 100)
    (tmp_path / "pickle").write_bytes(pickle.dumps({"coef": 1}))
    for name in ("text", "zip", "pickle"):
        with pytest.raises(ModelError, match="is not a bigmc model"):
            load_model(tmp_path / name)
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"folder .* does not exist"):
        full_model().save(tmp_path / "nowhere" / "m")


def test_info_is_strict_json_and_the_lookup_table_is_not_pickled():
    model = full_model()
    info = json.loads(json.dumps(model.info(), allow_nan=False))
    assert info["n_nonzero_features"] == 40
    assert info["weighting"] == "l2+idf"
    before = len(pickle.dumps(model))
    model.scores(as_rows(counts()))
    copy = pickle.loads(pickle.dumps(model))
    assert len(pickle.dumps(model)) == before
    np.testing.assert_array_equal(copy.scores(as_rows(counts())), model.scores(as_rows(counts())))


@pytest.mark.parametrize("weighting", [Weighting(l2=True), Weighting(True, True, True)], ids=str)
def test_shards_on_disk_are_scored_like_those_in_memory(tmp_path, weighting):
    X, labels = counts(), np.arange(202, dtype=np.int32) % 5
    memory = Dataset.from_arrays(X, labels, weighting=weighting, shard_rows=101)
    entries = []
    for s, start in enumerate((0, 101)):
        rows = as_rows(X[start : start + 101])
        table = pa.table({"label": labels[start : start + 101], "row_id": np.arange(start, start + 101)})
        entries.append(write_shard(tmp_path / "d" / "shards" / f"{s:06}", rows, table))
    stored = finish_dataset(
        tmp_path / "d", entries, classes=np.arange(5) * 10, n_features=300, weighting=weighting,
        features=SPEC, provenance={}, rows_in=202,
    )  # fmt: skip
    model = random_model(weighting=weighting, column_scale=memory.column_scale(), feature_spec=SPEC)
    model.check_features(stored)
    for s in range(2):
        expected = model.shard_scores(memory, s)
        np.testing.assert_array_equal(model.shard_scores(stored, s), expected)
        np.testing.assert_array_equal(model.shard_codes(stored, s), np.argmax(expected, axis=1))


@pytest.mark.parametrize("density", [1.0, 0.05])
def test_opening_a_large_model_takes_what_its_size_says(tmp_path, density):
    """And so does asking for its size: against what Python counts as allocated."""
    rng = np.random.default_rng(0)
    coef = rng.standard_normal((3000, 400)) * (rng.random((3000, 400)) < density)
    coef[:, 0] = 1.0
    model = LinearModel("sparse", np.arange(400), 5000, np.arange(3000), coef, np.zeros(400))
    model.save(tmp_path / "a.model")
    load_model(tmp_path / "a.model")
    tracemalloc.start()
    n_bytes = load_model(tmp_path / "a.model").nbytes
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = sum(array.nbytes for array in model.to_arrays().values())
    assert n_bytes >= coef.nbytes + (held if density < 1 else 0)
    assert peak < 1.1 * n_bytes + 2_500_000


def test_a_model_of_arrays_takes_the_dataset_of_arrays_and_no_other(tmp_path):
    X = np.random.default_rng(31).standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(int)
    model = bigmc.SparseClassifier().fit(X, y)
    same = bigmc.ingest(X, tmp_path / "same.bigmc", label=y)
    assert model.score(same) == model.score(X, y)
    assert bigmc.evaluate(model, same)["accuracy"] == model.score(same["test"])
    wider = bigmc.ingest(np.hstack([X, X]), tmp_path / "wider.bigmc", label=y)
    with pytest.raises(ModelError, match="n_features is 3 in the model and 6 in the dataset"):
        model.score(wider)
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": y}
    named = bigmc.ingest(pa.table(table), tmp_path / "named.bigmc", dense=("a", "b", "c"), label="label")
    with pytest.raises(ModelError, match="dense is not given in the model"):
        model.score(named)
