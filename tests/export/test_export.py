"""Models in other forms: the same decisions by scikit-learn and onnxruntime, and a card."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import HashingVectorizer

import bigmc
from bigmc import api
from bigmc.errors import DataError, ModelError
from bigmc.model.calibration import POWER, SIGMOID, Calibration
from bigmc.store.weighting import Weighting

TEXTS = [
    f"{'good' if i % 3 else 'bad'} thing number w{i % 29} über v{i % 7} x{i % 2} w{i % 29}"
    for i in range(300)
] + [""]


def frame(n_classes):
    labels = [f"class {i % n_classes}" for i in range(len(TEXTS))]
    return pd.DataFrame({"t": TEXTS, "y": labels, "a": np.arange(len(TEXTS)) % 5, "b": 1.5})


def trained_on_words(folder, n_classes, weighting):
    """Train with a weighting of texts; that of binary tf-idf is one that `bigmc fit` tries."""
    named = {"binary tfidf": "tfidf"}.get(weighting, weighting)
    trained(folder, n_classes, text="t", hash_bits=8, weighting=named)
    if named != weighting:
        data = api.open_dataset(folder / "d.bigmc").with_weighting(Weighting(binary=True, l2=True, idf=True))
        bigmc.SparseClassifier(alpha=1e-4).fit(data["train"]).save(folder / "m.model")


def trained(tmp_path, n_classes=3, alpha=1e-4, **options):
    frame(n_classes).to_parquet(tmp_path / "rows.parquet")
    api.ingest(tmp_path / "rows.parquet", tmp_path / "d.bigmc", label="y", **options)
    api.train("sparse", tmp_path / "d.bigmc", tmp_path / "m.model", alpha=alpha)
    return api.load_model(tmp_path / "m.model")


@pytest.fixture(scope="module")
def model_of_words(tmp_path_factory):
    """Return what gives the file of a model of words for a number of classes and a weighting."""

    @cache
    def path(n_classes, weighting):
        folder = tmp_path_factory.mktemp("words")
        trained_on_words(folder, n_classes, weighting)
        return folder / "m.model"

    return path


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighting", ["counts", "l2", "tfidf", "binary", "binary tfidf"])
def test_a_pipeline_of_scikit_learn_decides_the_same(model_of_words, n_classes, weighting):
    path = model_of_words(n_classes, weighting)
    model, pipeline = api.load_model(path), bigmc.to_sklearn(path)
    assert all(type(step).__module__.startswith("sklearn.") for _, step in pipeline.steps)
    assert pipeline.predict(TEXTS).tolist() == model.predict(TEXTS).tolist()
    scores = model.decision_function(TEXTS)
    expected = scores if n_classes > 2 or scores.ndim == 1 else scores[:, 1] - scores[:, 0]
    assert np.abs(pipeline.decision_function(TEXTS) - expected).max() < 1e-5
    assert pipeline.classes_.tolist() == model.classes_.tolist()


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "calibration",
    [
        Calibration(1.7),
        Calibration(0.6, label_noise=0.3),
        Calibration(3.0, -1.5, SIGMOID),
        Calibration(2.0, 0.5, POWER, 0.4),
        Calibration(2.0, 0.5, POWER, 2.5, label_noise=0.1),
    ],
    ids=["softmax", "noise", "sigmoid", "power", "power-noise"],
)
def test_a_pipeline_has_the_calibrated_probabilities(model_of_words, tmp_path, n_classes, calibration):
    model = api.load_model(model_of_words(n_classes, "tfidf")).model_
    replace(model, calibration=calibration).save(tmp_path / "c.model")
    expected = api.load_model(tmp_path / "c.model")
    written = pickle.dumps(bigmc.to_sklearn(tmp_path / "c.model"))
    assert b"bigmc" not in written
    pipeline = pickle.loads(written)
    chances = expected.predict_proba(TEXTS)
    assert chances.std() > 0.02
    np.testing.assert_allclose(pipeline.predict_proba(TEXTS), chances, atol=1e-6)
    assert pipeline.predict(TEXTS).tolist() == expected.predict(TEXTS).tolist()
    logarithms, decisions = np.log(chances), pipeline.decision_function(TEXTS)
    if n_classes == 2:
        np.testing.assert_allclose(decisions, logarithms[:, 1] - logarithms[:, 0], atol=1e-4)
    else:
        constant = logarithms - decisions
        np.testing.assert_allclose(constant, np.repeat(constant[:, :1], 3, axis=1), atol=1e-4)


def test_a_pipeline_of_a_calibrated_model_takes_dense_and_sparse_numbers(tmp_path):
    model = trained(tmp_path, dense=["a", "b"]).model_
    replace(model, calibration=Calibration(2.0, 0.5, POWER, 0.4)).save(tmp_path / "c.model")
    X = frame(3)[["a", "b"]].to_numpy(float)
    chances = api.load_model(tmp_path / "c.model").predict_proba(X)
    pipeline = bigmc.to_sklearn(tmp_path / "c.model")
    np.testing.assert_allclose(pipeline.predict_proba(X), chances, atol=1e-6)
    np.testing.assert_allclose(pipeline.predict_proba(scipy.sparse.csr_array(X)), chances, atol=1e-6)


def test_a_pipeline_of_a_model_without_such_probabilities_has_none(tmp_path):
    trained(tmp_path, dense=["a", "b"])
    assert not hasattr(bigmc.to_sklearn(tmp_path / "m.model"), "predict_proba")
    minimax = bigmc.MinimaxRiskClassifier(k_max=3).fit(np.arange(40.0)[:, np.newaxis], np.arange(40) % 2)
    assert not hasattr(bigmc.to_sklearn(minimax), "predict_proba")
    logistic = bigmc.SparseClassifier(loss="log_loss", fit_intercept=True)
    X = frame(3)[["a", "b"]].to_numpy(float)
    logistic.fit(X, frame(3)["y"])
    chances = bigmc.to_sklearn(logistic).predict_proba(X)
    np.testing.assert_allclose(chances, logistic.predict_proba(X), atol=1e-6)


def test_a_model_of_numbers_takes_numbers(tmp_path):
    model = trained(tmp_path, dense=["a", "b"])
    X = frame(3)[["a", "b"]].to_numpy(float)
    assert bigmc.to_sklearn(model).predict(X).tolist() == model.predict(X).tolist()
    assert bigmc.to_sklearn(model).predict(scipy.sparse.csr_array(X)).tolist() == model.predict(X).tolist()


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize("weighting", ["counts", "tfidf", "l2", "binary", "binary tfidf"])
def test_an_onnx_graph_gives_the_same_scores_and_labels(model_of_words, tmp_path, weighting):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = model_of_words(3, weighting)
    model, said = api.load_model(path), api.export(path, tmp_path / "m.onnx")
    assert said["bytes"] == (tmp_path / "m.onnx").stat().st_size
    hashing = HashingVectorizer(n_features=256, norm=None, ngram_range=(1, 2), binary="binary" in weighting)
    X = hashing.transform(TEXTS)
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    labels, scores = session.run(["label", "scores"], {"X": X.toarray().astype(np.float32)})
    assert labels.tolist() == model.predict(TEXTS).tolist()
    assert np.abs(scores - model.decision_function(TEXTS)).max() < 1e-4


def test_models_without_such_a_form_are_refused(tmp_path):
    binary = trained(tmp_path, numeric=["a", "b"], hash_bits=8, weighting="binary")
    with pytest.raises(ModelError, match="several columns"):
        bigmc.to_sklearn(binary)
    X = scipy.sparse.csr_array(frame(3)[["a", "b"]].to_numpy(float))
    data = bigmc.ingest(X, tmp_path / "x.bigmc", label=frame(3)["y"], weighting="binary")
    with pytest.raises(ModelError, match="no binary weighting of columns"):
        bigmc.to_sklearn(bigmc.SparseClassifier(alpha=1e-4).fit(data))
    api.train("boost", tmp_path / "d.bigmc", tmp_path / "trees.model", n_rounds=2)
    with pytest.raises(ModelError, match="is not linear"):
        bigmc.to_sklearn(tmp_path / "trees.model")
    with pytest.raises(DataError, match=r"ends with \.md or \.onnx"):
        api.export(binary, tmp_path / "m.pkl")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ModelError, match="several columns"):
        bigmc.to_sklearn(trained(other, text="t", categorical="a", hash_bits=8))


def test_a_card_says_what_is_known(tmp_path):
    model = trained(tmp_path, text="t", hash_bits=10)
    api.export(tmp_path / "m.model", tmp_path / "card.md", dataset=tmp_path / "d.bigmc")
    card = (tmp_path / "card.md").read_text()
    accuracy = api.evaluate(tmp_path / "m.model", tmp_path / "d.bigmc")["accuracy"]
    assert f"| accuracy | {accuracy:.6g} |" in card
    assert (
        f"lies between {model.model_.certificate['lower']:.6g} and {model.model_.certificate['upper']:.6g}"
        in card
    )
    assert "`class 0`, `class 1`, `class 2`" in card
    assert 'bigmc.load_model("m.model")' in card
    api.export(
        tmp_path / "m.model", tmp_path / "card.md", dataset=tmp_path / "d.bigmc"
    )  # the same: nothing to do
    with pytest.raises(DataError):
        api.export(tmp_path / "m.model", tmp_path / "card.md")  # another card
    api.export(tmp_path / "m.model", tmp_path / "card.md", overwrite=True)
    assert "Not measured" in (tmp_path / "card.md").read_text()


def test_labels_cannot_break_the_card(tmp_path):
    rows = frame(2)
    rows["y"] = np.where(rows["y"] == "class 0", "a|b`\n<script>", "[x](http://y)")
    rows.to_parquet(tmp_path / "rows.parquet")
    api.ingest(tmp_path / "rows.parquet", tmp_path / "d.bigmc", text="t", label="y", hash_bits=8)
    api.train("sparse", tmp_path / "d.bigmc", tmp_path / "m.model", alpha=1e-3)
    api.export(tmp_path / "m.model", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "<script>" not in card
    assert "[x](" not in card.replace("\\[x](", "")
