"""The classifier of texts as a scikit-learn estimator."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import MultiLabelBinarizer

import bigmc
from bigmc import TextClassifier
from bigmc.errors import DataError, ModelError

RNG = np.random.default_rng(1)
TOPICS = {"fish": "river sea boat scales net", "bird": "sky wing nest feather egg"}


def documents(n=200):
    every = " ".join(TOPICS.values()).split()
    labels = RNG.choice(list(TOPICS), n)
    return [" ".join([*RNG.choice(TOPICS[x].split(), 3), *RNG.choice(every, 3)]) for x in labels], labels


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier(memory_limit="1GB").fit(*documents())


def test_it_labels_texts_with_probabilities(fitted, tmp_path):
    texts, labels = documents()
    assert fitted.score(texts, labels) > 0.8
    chances = fitted.predict_proba(texts)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    right = np.mean(chances.max(axis=1))
    assert right == pytest.approx(fitted.score(texts, labels), abs=0.12)
    fitted.save(tmp_path / "m")
    np.testing.assert_array_equal(bigmc.load_model(tmp_path / "m").predict_proba(texts), chances)
    assert "wing" in {word for entry in fitted.explain("wing sea").classes for word, _ in entry.words}


def test_cross_validation_and_clones():
    texts, labels = documents(90)
    learner = TextClassifier(analyzer="word", time_limit="0s", memory_limit="1GB")
    assert clone(learner).get_params() == learner.get_params()
    assert cross_val_score(learner, np.array(texts), labels, cv=2).mean() > 0.7


def test_what_is_no_text_is_refused(fitted):
    with pytest.raises(DataError, match="a single text"):
        fitted.predict("wing")
    with pytest.raises(DataError, match=r"the text '\\ud800' has half a surrogate pair"):
        fitted.predict(["wing", "\ud800"])
    with pytest.raises(DataError, match="0 texts of fewer than 2 classes"):
        TextClassifier().fit([], [])
    with pytest.raises(DataError, match="row 1 is 2, not a text"):
        fitted.predict(["wing", 2])
    with pytest.raises(DataError, match="row 1 is nan, not a text"):
        fitted.predict(pd.Series(["wing", np.nan]))
    frame = pd.DataFrame({"text": ["wing", "sea"], "other": ["a", "b"]})
    for table in (frame, frame[["text"]], pl.DataFrame(frame), pa.table(frame), frame.to_numpy()):
        with pytest.raises(DataError, match="a table, not texts; give one of its columns"):
            fitted.predict(table)
    numbers = pa.array([1, 2])
    for wrong in (
        numbers,
        pa.chunked_array([numbers]),
        numbers.dictionary_encode(),
        numbers.cast(pa.bool_()),
    ):
        with pytest.raises(DataError, match=r"row 0 is (1|True), not a text"):
            fitted.predict(wrong)
    texts = [frame["text"], pl.Series(frame["text"]), pa.table(frame)["text"], frame["text"].to_numpy()]
    assert [fitted.predict(column).tolist() for column in texts] == [["bird", "fish"]] * 4


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_labels_are_refused_with_their_row(missing):
    texts, labels = documents(20)
    given = [*labels[:19], missing]
    for y in (given, pd.Series(given), np.array(given, object)):
        with pytest.raises(DataError, match="row 19: the label is missing"):
            TextClassifier(analyzer="word").fit(texts, y)


@pytest.mark.parametrize(
    "form",
    [
        list,
        lambda sets: [set(labels) for labels in sets],
        lambda sets: [[*labels, "z"][:2] for labels in sets],
        pd.Series,
        pl.Series,
        pa.array,
        lambda sets: MultiLabelBinarizer().fit_transform(sets),
        lambda sets: MultiLabelBinarizer(sparse_output=True).fit_transform(sets),
    ],
)
def test_label_sets_are_refused_with_what_takes_them(form, tmp_path):
    texts, labels = documents(60)
    sets = [[label, "long"] if i % 2 else [label] for i, label in enumerate(labels.tolist())]
    with pytest.raises(DataError, match=r"one label for each text, or to bigmc\.fit a table with") as said:
        TextClassifier().fit(texts, form(sets))
    assert "\n" not in str(said.value)


def test_what_takes_label_sets_is_true(tmp_path):
    texts, labels = documents(60)
    sets = [[label, "long"] if i % 2 else [label] for i, label in enumerate(labels.tolist())]
    bigmc.fit(pd.DataFrame({"t": texts, "y": sets}), tmp_path / "m", text="t", label="y", analyzer="word")
    assert bigmc.load_model(tmp_path / "m").classes_.tolist() == ["bird", "fish", "long"]


def test_a_column_of_labels_is_no_set():
    texts, labels = documents(40)
    for column in ([[label] for label in labels], labels[:, np.newaxis], pd.DataFrame({"y": labels})):
        with pytest.warns(DataConversionWarning):
            model = TextClassifier(analyzer="word", time_limit=0.0).fit(texts, column)
        assert model.classes_.tolist() == ["bird", "fish"]


@pytest.mark.parametrize(("dtype", "kind"), [("Int64", "i"), ("boolean", "b"), ("int64[pyarrow]", "i")])
def test_labels_of_nullable_types_stay_what_they_are(dtype, kind):
    texts, labels = documents(60)
    numbers = (labels == "fish") + (2**53 if kind == "i" else 0)
    y = pd.Series(numbers).astype(dtype)
    model = TextClassifier(analyzer="word", time_limit=0.0).fit(texts, y)
    assert model.classes_.dtype.kind == kind
    assert model.classes_.tolist() == np.unique(numbers).tolist()
    assert model.score(texts, y) == np.mean(model.predict(texts) == numbers) > 0.8


@pytest.mark.filterwarnings("error")
def test_a_missing_label_among_numbers_is_refused_with_its_row():
    texts, labels = documents(20)
    numbers = [float(label == "fish") for label in labels[:19]]
    for y in ([*numbers, np.nan], np.array([*numbers, np.nan]), pd.Series([*numbers, pd.NA], dtype="Int64")):
        with pytest.raises(DataError, match="row 19: the label is missing"):
            TextClassifier(analyzer="word").fit(texts, y)


def test_features_are_as_few_as_asked_for_and_chosen_by_their_weights():
    """Of 1,500 words that say nothing and ten that decide, these ten are kept."""
    generator = np.random.default_rng(3)
    labels = generator.choice(["fish", "bird"], 600)
    noise = [" ".join(f"w{k}" for k in generator.integers(0, 1500, 12)) for _ in labels]
    texts = [
        f"{generator.choice(TOPICS[label].split())} {rest}" for label, rest in zip(labels, noise, strict=True)
    ]
    small = TextClassifier(analyzer="word", ngrams=(1, 1), max_features=10, memory_limit="1GB")
    small.fit(texts[:400], labels[:400])
    assert small.classifier_.model_.used_features.size <= 10
    assert small.score(texts[400:], labels[400:]) > 0.95
    assert small.course_.sizes[-1].n_features <= 10
    with pytest.raises(DataError, match="max_features is 0"):
        TextClassifier(max_features=0).fit(texts[:100], labels[:100])


def test_functions_take_a_fitted_classifier_as_they_take_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts, labels = documents(60)
    model = TextClassifier(analyzer="word", time_limit=0.0).fit(texts, labels)
    model.save("m")
    table = pa.table({"text": texts, "label": labels})
    assert bigmc.inspect(model) == bigmc.inspect("m")
    assert bigmc.explain(model, texts[0]).to_dict() == bigmc.explain("m", texts[0]).to_dict()
    asked = {"label": "label", "memory_limit": "64MB"}
    assert bigmc.evaluate(model, table, **asked)["accuracy"] == model.score(texts, labels)
    bigmc.predict(model, table, "predicted.csv", proba=True)
    np.testing.assert_array_equal(pd.read_csv("predicted.csv")["predicted_label"], model.predict(texts))
    expected = model.predict_proba(texts)
    np.testing.assert_allclose(bigmc.to_sklearn(model).predict_proba(texts), expected, atol=1e-6)


@pytest.mark.parametrize("model", [TextClassifier(), bigmc.SparseClassifier(), 5, TextClassifier])
def test_what_is_no_fitted_model_is_refused_with_what_is(model, tmp_path):
    for call in (bigmc.inspect, bigmc.to_sklearn, lambda model: bigmc.report(model, tmp_path / "r.html")):
        with pytest.raises(ModelError, match="give the path of a model"):
            call(model)
