"""The MLflow flavour against bigmc's own functions, with a real store of files."""

import os

import numpy as np
import pandas as pd
import pytest

import bigmc

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before it is imported
mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")

import bigmc.mlflow  # noqa: E402

WORDS = {"fish": "river sea boat scales", "bird": "sky wing nest feather"}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield tmp_path
    bigmc.mlflow.autolog(disable=True)
    mlflow.set_tracking_uri(before)


def documents(n=300):
    rng = np.random.default_rng(0)
    labels = rng.choice([*WORDS], n)
    every = " ".join(WORDS.values()).split()
    texts = [" ".join([*rng.choice(WORDS[label].split(), 2), *rng.choice(every, 2)]) for label in labels]
    return pd.DataFrame({"text": texts, "label": labels})


def trained(folder):
    bigmc.ingest(documents(), folder / "d", text="text", label="label", hash_bits=12)
    bigmc.train("sparse", folder / "d", folder / "m.model", memory_limit="200MB")
    return folder / "m.model"


def test_a_model_comes_back_as_it_was(store):
    path = trained(store)
    table = documents()
    own = bigmc.load_model(path)
    bigmc.mlflow.save_model(path, store / "saved")
    bigmc.mlflow.save_model(own, store / "saved_again")
    for folder in (store / "saved", store / "saved_again"):
        assert (folder / "data" / "model.bigmc").read_bytes() == path.read_bytes()
        assert f"bigmc=={bigmc.__version__}" in (folder / "requirements.txt").read_text().split()
        assert not [*folder.rglob("*.pkl")]
        loaded = bigmc.mlflow.load_model(str(folder))
        np.testing.assert_array_equal(loaded.predict(table), own.predict(table))
        generic = mlflow.pyfunc.load_model(str(folder))
        np.testing.assert_array_equal(generic.predict(table[["text"]]), own.predict(table))
    with pytest.raises(bigmc.errors.DataError, match="not an empty folder"):
        bigmc.mlflow.save_model(path, store / "saved")


def test_a_logged_model_is_found_by_its_address(store):
    path = trained(store)
    with mlflow.start_run():
        info = bigmc.mlflow.log_model(path, name="reviews")
    assert set(info.flavors) == {"bigmc", "python_function"}
    table = documents()
    loaded = bigmc.mlflow.load_model(info.model_uri)
    np.testing.assert_array_equal(loaded.predict(table), bigmc.load_model(path).predict(table))


def test_a_generic_model_gives_probabilities_if_asked(store):
    table = documents()
    bigmc.ingest(table, store / "d", text="text", label="label", hash_bits=12)
    bigmc.train("sparse", store / "d", store / "m.model", loss="log_loss", memory_limit="200MB")
    bigmc.mlflow.save_model(store / "m.model", store / "saved")
    generic = mlflow.pyfunc.load_model(str(store / "saved"))
    own = bigmc.load_model(store / "m.model")
    np.testing.assert_array_equal(generic.predict(table), own.predict(table))
    np.testing.assert_array_equal(generic.predict(table, {"proba": True}), own.predict_proba(table))
    np.testing.assert_array_equal(generic.predict(table.assign(more=1)), own.predict(table))


def test_an_example_and_a_signature_are_stored(store):
    path = trained(store)
    example = documents()[["text"]].head(3)
    signature = mlflow.models.infer_signature(example)
    with mlflow.start_run():
        info = bigmc.mlflow.log_model(path, name="reviews", input_example=example, signature=signature)
        plain = bigmc.mlflow.log_model(path, name="plain", input_example=example, metadata={"team": "a"})
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    pd.testing.assert_frame_equal(loaded.input_example, example)
    assert loaded.metadata.signature == signature
    own = bigmc.load_model(path)
    np.testing.assert_array_equal(loaded.predict(example), own.predict(example))
    again = mlflow.pyfunc.load_model(plain.model_uri)
    pd.testing.assert_frame_equal(again.input_example, example)
    assert again.metadata.metadata == {"team": "a"}
    np.testing.assert_array_equal(again.predict(example), own.predict(example))


def test_a_fit_is_recorded(store):
    bigmc.mlflow.autolog()
    result = bigmc.fit(
        documents(), store / "f.model", text="text", label="label", time_limit=1, memory_limit="500MB"
    )
    [run] = mlflow.search_runs(output_format="list")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test_accuracy"] == pytest.approx(result["test"]["accuracy"])
    assert run.data.metrics["certificate_gap"] == pytest.approx(result["certificate"]["gap"])
    assert run.data.params["learner"] == result["learner"]
    assert run.data.params["text"] == "text"
    [model] = mlflow.search_logged_models(output_format="list")
    loaded = bigmc.mlflow.load_model(model.model_uri)
    assert loaded.predict(["river sea boat"]).tolist() == ["fish"]


def test_every_training_within_a_run_is_recorded(store):
    bigmc.ingest(documents(), store / "d", text="text", label="label", hash_bits=12)
    bigmc.mlflow.autolog()
    results = {}
    with mlflow.start_run() as outer:
        for alpha in (1e-2, 1e-3, 1e-4):
            model = store / f"{alpha}.model"
            results[str(alpha)] = bigmc.train("sparse", store / "d", model, alpha=alpha, memory_limit="200MB")
    runs = {run.data.params["alpha"]: run for run in mlflow.search_runs(output_format="list")}
    assert runs.keys() == results.keys()
    for alpha, run in runs.items():
        assert run.info.status == "FINISHED"
        assert run.data.metrics["objective"] == pytest.approx(results[alpha]["objective"])
        parent = None if alpha == "0.01" else outer.info.run_id
        assert run.data.tags.get("mlflow.parentRunId") == parent
    models = mlflow.search_logged_models(output_format="list")
    assert sorted(model.name for model in models) == sorted(alpha.replace(".", "-") for alpha in results)
