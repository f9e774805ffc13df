"""The functions a notebook calls: everything the command line does, with arrays and objects."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import bigmc
from bigmc.errors import DataError


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((600, 40), density=0.3, rng=rng, format="csr")
    y = np.array(["low", "middle", "high"])[np.argmax(X @ rng.normal(size=(40, 3)), axis=1)]
    return X, y


@pytest.fixture(scope="module")
def dataset(data, tmp_path_factory):
    X, y = data
    to = tmp_path_factory.mktemp("api") / "d.bigmc"
    return bigmc.ingest(X, to, label=y, split={"train": 0.7, "test": 0.3}, memory_limit="100MB")


@pytest.fixture(scope="module")
def model(dataset):
    to = dataset.path.parent / "m.model"
    result = bigmc.train("sparse", dataset, to, alpha=1e-3, fit_intercept=True)
    assert result["model"] == str(to)
    return to


def test_a_classifier_fits_a_split(dataset, model):
    fitted = bigmc.SparseClassifier(alpha=1e-3, fit_intercept=True).fit(dataset["train"])
    loaded = bigmc.load_model(model)
    np.testing.assert_array_equal(fitted.coef_.toarray(), loaded.coef_.toarray())
    assert loaded.get_params()["alpha"] == 1e-3
    assert fitted.certificate_ == loaded.certificate_
    test = bigmc.open_dataset(dataset.path)["test"]
    assert loaded.score(test) == bigmc.evaluate(model, dataset)["accuracy"]
    assert bigmc.evaluate(loaded.model_, dataset.path)["n_samples"] == test.n_samples


def test_arrays_and_their_dataset_are_predicted_alike(data, dataset, model, tmp_path):
    X, _ = data
    expected = bigmc.load_model(model).predict(X)
    for name, source in (("sparse", X), ("dense", X.toarray())):
        result = bigmc.predict(model, source, tmp_path / name)
        assert result["n_samples"] == len(expected)
        assert pq.read_table(tmp_path / name)["predicted_label"].to_pylist() == expected.tolist()
    bigmc.predict(model, dataset, tmp_path / "dataset", scores=True)
    table = pq.read_table(tmp_path / "dataset")
    assert table.column_names == ["row_id", "predicted_label", "score_high", "score_low", "score_middle"]
    ids = table["row_id"].to_numpy()
    assert table["predicted_label"].to_pylist() == expected[ids].tolist()
    scores = bigmc.load_model(model).decision_function(X)[ids]
    np.testing.assert_allclose(np.column_stack([table[c] for c in table.column_names[2:]]), scores, atol=1e-9)


def test_prediction_says_what_it_cannot_use(data, model, tmp_path):
    X, _ = data
    with pytest.raises(DataError, match="39 features"):
        bigmc.predict(model, X.toarray()[:, :39], tmp_path / "p")
    with pytest.raises(DataError, match="41 features"):
        bigmc.predict(model, scipy.sparse.hstack([X, X[:, :1]], format="csr"), tmp_path / "p")
    with pytest.raises(DataError, match="raw data has no splits"):
        bigmc.predict(model, X, tmp_path / "p", split="test")
    with pytest.raises(DataError, match=r"gone\.bigmc: no such file or directory; check the path"):
        bigmc.predict(model, tmp_path / "gone.bigmc", tmp_path / "p", split="test")
    assert not (tmp_path / "p").exists()


def test_a_split_of_a_dataset_is_predicted_alone_beside_its_labels(data, dataset, model, tmp_path):
    bigmc.predict(model, dataset.path, tmp_path / "p", split="test", keep="label")
    part = dataset["test"]
    assert 0 < part.n_samples < dataset.n_samples
    ids = np.concatenate([shard.table(["row_id"])["row_id"].to_numpy() for shard in part.shards])
    table = pq.read_table(tmp_path / "p")
    assert table["row_id"].to_numpy().tolist() == ids.tolist()
    assert table["label"].to_pylist() == data[1][ids].tolist()
    for name in ("text", "norm"):
        with pytest.raises(DataError, match=f"no column '{name}' to copy; the columns are: label; ingest"):
            bigmc.predict(model, dataset.path, tmp_path / "q", keep=name)


def test_inspect_orders_by_weight(model):
    for entry in bigmc.inspect(model, top=5)["classes"]:
        weights = [abs(feature["weight"]) for feature in entry["features"]]
        assert weights == sorted(weights, reverse=True)


def test_only_datasets_on_disk_are_trained_by_name(data, tmp_path):
    from bigmc.store.dataset import Dataset

    with pytest.raises(DataError, match="only in memory"):
        bigmc.train("sparse", Dataset.from_arrays(*data), tmp_path / "m", split="all")
    with pytest.raises(DataError, match="no learner is called 'dense'; use one of sparse"):
        bigmc.train("dense", tmp_path, tmp_path / "m")


def test_names_are_bounded_by_memory(tmp_path):
    from bigmc.training.feature_names import feature_names

    rows = "".join(f"word{i} common,{'ab'[i % 2]}\n" for i in range(3000))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    options = {"text": "text", "label": "label", "hash_bits": 8, "memory_limit": "100MB"}
    dataset = bigmc.ingest(tmp_path / "rows.csv", tmp_path / "d", **options)
    every = np.arange(256)
    names = feature_names(dataset, every, 10**6)
    some = feature_names(dataset, every, 12_000)
    assert some.nbytes <= 12_000
    assert 0 < some.num_rows < names.num_rows
    most = {}
    for row in names.to_pylist():
        most[row["bucket"]] = max(most.get(row["bucket"], 0), row["count"])
    assert {row["bucket"] for row in some.to_pylist()} == set(most)
    assert all(row["count"] == most[row["bucket"]] for row in some.to_pylist()[:1])
    assert feature_names(dataset, every, 100) is None
