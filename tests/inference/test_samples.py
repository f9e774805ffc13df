"""Models label what users have in memory: texts, dicts, tables and paths, as they do through files."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

import bigmc
from bigmc.inference.samples import SampleReader
from bigmc.ingestion.columns.features import FeatureSpec

TEXTS = ["the red apple is sweet", "a green pear", "red roses smell", "Äpfel und Birnen", "", "the the the"]
LABELS = ["fruit", "fruit", "flower", "fruit", "flower", "flower"]


FIELDS = {"doc": pl.Struct({"text": pl.String, "more": pl.Struct({"w": pl.Int64})}), "label": pl.String}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a classifier of texts loaded from its file, and the folder it is in."""
    folder = tmp_path_factory.mktemp("texts")
    table = pa.table({"text": TEXTS * 5, "label": LABELS * 5})
    dataset = bigmc.ingest(
        table, folder / "d", text="text", label="label", weighting="tfidf", split={"train": 1.0}
    )
    bigmc.train("sparse", dataset, folder / "m", alpha=1e-3, ridge=1e-2, fit_intercept=True)
    return bigmc.load_model(folder / "m"), folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Return a classifier of a text, a category, a number and a dense column."""
    folder = tmp_path_factory.mktemp("mixed")
    table = mixed_table()
    bigmc.ingest(
        table, folder / "d", text="text", label="label", categorical="shop", numeric="price",
        dense="weight", weighting="counts", split={"train": 1.0},
    )  # fmt: skip
    bigmc.train("sparse", folder / "d", folder / "m", alpha=1e-4, ridge=1e-2)
    return bigmc.load_model(folder / "m"), table


def mixed_table():
    return pa.table(
        {
            "text": TEXTS,
            "label": LABELS,
            "shop": ["a", "b", "a", "b", "b", "a"],
            "price": [1.0, 2.5, 0.0, 4.0, 3.0, 1.0],
            "weight": [0.5, 0.0, 1.5, 2.0, 1.0, 1.0],
        }
    )


def through_files(model, table, folder):
    pq.write_table(table, folder / "in.parquet")
    bigmc.predict(model, folder / "in.parquet", folder / "out.parquet", scores=True)
    out = pq.read_table(folder / "out.parquet").to_pandas()
    return out["predicted_label"].to_numpy(), out.filter(like="score_").to_numpy()


def test_texts_have_the_scores_of_files(trained):
    model, folder = trained
    labels, scores = through_files(model, pa.table({"text": TEXTS}), folder)
    np.testing.assert_array_equal(model.predict(TEXTS), labels)
    np.testing.assert_array_equal(model.decision_function(TEXTS), scores[:, 1] - scores[:, 0])


def test_scores_of_texts_are_those_of_scikit_learns_hashing(trained):
    model, _ = trained
    counts = HashingVectorizer(n_features=2**18, norm=None, ngram_range=(1, 2)).transform(TEXTS)
    weighted = counts.multiply(model.model_.column_scale).tocsr()
    norms = np.sqrt(weighted.multiply(weighted).sum(axis=1))
    scores = (weighted @ model.coef_.T).toarray() / np.maximum(np.asarray(norms).reshape(-1, 1), 1e-300)
    wanted = scores + model.intercept_
    np.testing.assert_allclose(model.decision_function(TEXTS), wanted[:, 1] - wanted[:, 0], atol=1e-6)


class Frame:
    """A data frame as other libraries have it: names, and Arrow's stream."""

    def __init__(self, table):
        self.columns = table.column_names
        self.__arrow_c_stream__ = table.__arrow_c_stream__


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        lambda texts: np.array(texts),
        lambda texts: np.array(texts, object),
        pd.Series,
        pa.array,
        lambda texts: pa.chunked_array([texts[:2], texts[2:]]),
        lambda texts: [{"text": text, "other": 1} for text in texts],
        lambda texts: pd.DataFrame({"other": 1, "text": texts}),
        lambda texts: pa.table({"other": texts, "text": texts}),
        lambda texts: Frame(pa.table({"text": texts})),
    ],
)  # fmt: skip
def test_every_form_of_texts_is_the_same(trained, form):
    model, _ = trained
    np.testing.assert_array_equal(model.decision_function(form(TEXTS)), model.decision_function(TEXTS))


@pytest.mark.parametrize(
    "form",
    [
        lambda t: t.to_pylist(),
        lambda t: t.to_pandas().assign(other=[1, "of another type"] * 3),
        lambda t: t,
        lambda t: t.set_column(4, "weight", t["weight"].dictionary_encode()),
        lambda t: pl.from_arrow(t).with_columns(pl.col("shop").cast(pl.Categorical)),
    ],
)
def test_rows_of_several_columns(mixed, tmp_path, form):
    model, table = mixed
    labels, scores = through_files(model, table, tmp_path)
    np.testing.assert_array_equal(model.predict(form(table)), labels)
    np.testing.assert_array_equal(model.decision_function(form(table)), scores[:, 1] - scores[:, 0])


def test_columns_of_a_frame_may_be_numbered():
    reader = SampleReader(FeatureSpec(dense=("0", "1")), 2)
    samples = pd.DataFrame([[2.0, 3.0]])
    for form in (samples, samples.to_dict("records")):
        [rows] = reader.batches(form)
        np.testing.assert_array_equal(rows.data, [2.0, 3.0])


def test_fields_of_objects_are_found_as_in_files(tmp_path):
    rows = [
        {"doc": {"text": text, "more": {"w": w}}, "label": label}
        for w, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True))
    ] + [{"doc": None, "label": "fruit"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    bigmc.ingest(
        tmp_path / "t.jsonl", tmp_path / "d", text="doc.text", dense="doc.more.w", label="label",
        missing="fill", split={"train": 1.0},
    )  # fmt: skip
    bigmc.train("sparse", tmp_path / "d", tmp_path / "m", alpha=1e-4, ridge=1e-2)
    model = bigmc.load_model(tmp_path / "m")
    expected = model.decision_function(str(tmp_path / "t.jsonl"))
    for form in (rows, pd.DataFrame(rows), pl.read_ndjson(tmp_path / "t.jsonl", schema_overrides=FIELDS)):
        np.testing.assert_array_equal(model.decision_function(form), expected)
    assert model.explain(rows[0]).label == model.predict(rows[:1])[0]


@pytest.mark.parametrize("as_type", [str, lambda path: path])
def test_the_path_of_a_file(trained, tmp_path, as_type):
    model, _ = trained
    pd.DataFrame({"text": TEXTS[:4]}).to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(model.predict(as_type(tmp_path / "t.csv")), model.predict(TEXTS[:4]))


def test_many_texts_are_scored_in_batches(trained):
    model, _ = trained
    many = [f"{text} {i % 7}{i % 11}" for i, text in enumerate(TEXTS * 1500)]
    np.testing.assert_array_equal(
        model.decision_function(many)[5000:5010], model.decision_function(many[5000:5010])
    )


def test_no_texts(trained):
    model, _ = trained
    assert len(model.predict([])) == 0
    assert model.decision_function([]).shape == (0,)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (["good", None], "sample 1: column 'text' is missing"),
        (["good", 3], "not all texts"),
        ([{"text": "x"}, None], "sample 1 is None, others are dicts; give dicts of all columns"),
        ([{"text": "x"}, "good"], "sample 1 is 'good', others are dicts"),
        ([{"words": "x"}], "sample 0 has no 'text'; give the columns text"),
        ([{"txt": "x"}], "sample 0 has no 'text' but 'txt'"),
        (pa.table({"words": ["x"]}), "no column 'text'"),
        ("a text and no list", "there is no file"),
    ],
)
def test_what_cannot_be_used_is_named(trained, samples, message):
    with pytest.raises(bigmc.errors.DataError, match=message):
        trained[0].predict(samples)


def test_a_text_is_not_enough_for_several_columns(mixed):
    with pytest.raises(bigmc.errors.DataError, match="needs the columns text, shop, price, weight"):
        mixed[0].predict(["red"])


@pytest.mark.parametrize(
    ("samples", "kind", "cure"),
    [
        (lambda: (text for text in TEXTS), "generator", "give a list"),
        (lambda: {"text": "apple"}, "dict", "give a list"),
        (lambda: pl.DataFrame({"text": TEXTS}).lazy(), "LazyFrame", r"call its method collect\(\)"),
    ],
)
def test_one_dict_and_what_has_no_length_are_no_samples(trained, samples, kind, cure):
    for call in (trained[0].predict, trained[0].decision_function):
        with pytest.raises(bigmc.errors.DataError, match=f"a {kind} is no list of samples; {cure}"):
            call(samples())


@pytest.mark.filterwarnings("ignore:stopped after")
def test_what_a_model_of_arrays_can_tell_instead_is_true():
    """Boosted models have no ``coef_``."""
    X = np.arange(40.0)[:, np.newaxis]
    model = bigmc.MultiBoostClassifier(n_rounds=3, max_depth=1).fit(X, X[:, 0] > 20)
    with pytest.raises(bigmc.errors.DataError, match=r"bigmc\.inspect lists"):
        model.explain(X[0])
    assert any(found["features"] for found in bigmc.inspect(model)["classes"])


class Sequence:
    """What has a length and items, as a data set of Hugging Face or a column of it, and is no list."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, item):
        return self.items[item]


@pytest.mark.parametrize("columns", [lambda text: text, lambda text: {"text": text, "more": 1}])
def test_any_sequence_of_samples_is_a_list_of_them(trained, columns):
    rows = [columns(text) for text in TEXTS]
    expected = trained[0].decision_function(rows)
    np.testing.assert_array_equal(trained[0].decision_function(Sequence(rows)), expected)


def test_files_are_named_by_a_pattern_an_address_or_paths(trained, tmp_path):
    names = [tmp_path / f"{number}.parquet" for number in range(2)]
    for name, part in zip(names, (TEXTS[:4], TEXTS[4:]), strict=True):
        pq.write_table(pa.table({"text": part}), name)
    expected = trained[0].decision_function(TEXTS)
    for files in (
        f"{tmp_path}/*.parquet",
        f"file://{tmp_path}/*.parquet",
        str(tmp_path),
        names,
        tuple(names),
    ):
        np.testing.assert_array_equal(trained[0].decision_function(files), expected)
    with pytest.raises(bigmc.errors.DataError, match="give texts as a list"):
        trained[0].predict("good apples? [some]")


def test_a_loaded_model_takes_the_place_of_its_path(trained, tmp_path):
    model, folder = trained
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    bigmc.predict(model, tmp_path / "in.parquet", tmp_path / "a.parquet")
    bigmc.predict(folder / "m", tmp_path / "in.parquet", tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert bigmc.evaluate(model, folder / "d", split="train")["n_samples"] == 30


def test_what_words_add_makes_the_score(mixed):
    model, table = mixed
    row = table.to_pylist()[1]
    explained = model.explain(row, top=100)
    for entry in explained.classes:
        intercept = model.intercept_[model.classes_.tolist().index(entry.label)]
        assert sum(value for _, value in entry.words) + intercept == pytest.approx(entry.score)
    assert explained.label == model.predict([row])[0]
    assert {"green", "pear", "shop=b", "price"} <= {word for word, _ in explained.classes[0].words}


def test_a_word_adds_its_weighted_value_times_its_weight(trained):
    model, _ = trained
    before, after = model.decision_function(["red apple", "red apple zzzz"])
    explained = model.explain("red apple zzzz")
    signed = {entry.label: dict(entry.words) for entry in explained.classes}
    second, first = (signed[label] for label in model.classes_[::-1])
    total = sum(second.values()) - sum(first.values())
    assert total + model.intercept_[1] - model.intercept_[0] == pytest.approx(after)
    assert before != after
    assert "zzzz" not in second


def test_characters_within_words_are_explained_by_word(tmp_path):
    table = pa.table({"text": TEXTS * 20, "label": LABELS * 20})
    options = {"analyzer": "char_wb", "ngrams": (2, 3), "split": {"train": 1.0}}
    bigmc.ingest(table, tmp_path / "d", text="text", label="label", **options)
    bigmc.train("sparse", tmp_path / "d", tmp_path / "m", alpha=1e-4)
    model = bigmc.load_model(tmp_path / "m")
    explained = model.explain("Red apple red Zz", top=100)
    for entry in explained.classes:
        assert {word for word, _ in entry.words} <= {"red", "apple", "zz"}
        intercept = model.intercept_[model.classes_.tolist().index(entry.label)]
        assert sum(value for _, value in entry.words) + intercept == pytest.approx(entry.score)
    assert "apple" in {word for word, _ in explained.classes[0].words}


def test_characters_across_words_are_explained_by_the_words_they_touch(tmp_path):
    table = pa.table({"text": TEXTS * 5, "label": LABELS * 5})
    options = {"analyzer": "char", "ngrams": (1, 5), "split": {"train": 1.0}}
    bigmc.ingest(table, tmp_path / "d", text="text", label="label", **options)
    bigmc.train("sparse", tmp_path / "d", tmp_path / "m", alpha=1e-3, ridge=1e-2)
    model = bigmc.load_model(tmp_path / "m")
    explained = model.explain("Red apple \t is", top=100)
    for entry in explained.classes:
        intercept = model.intercept_[model.classes_.tolist().index(entry.label)]
        assert sum(value for _, value in entry.words) + intercept == pytest.approx(entry.score)
    words = {word for entry in explained.classes for word, _ in entry.words}
    assert words <= {"red", "apple", "is", "red apple", "apple is", "red apple is", " "}
    assert {"red", "apple", "red apple", "apple is"} <= words


def test_a_saved_model_explains_texts_and_rows(trained, mixed):
    model, folder = trained
    explained = bigmc.explain(folder / "m", "red apple")
    assert explained == model.explain("red apple")
    assert json.loads(json.dumps(explained.to_dict()))["label"] == explained.label
    row = mixed[1].to_pylist()[1]
    of_json = bigmc.explain(mixed[0], json.dumps(row))
    assert of_json == bigmc.explain(mixed[0], row) == mixed[0].explain(row)


@pytest.mark.parametrize("top", [0, -1, 2.0])
def test_a_number_of_words_is_at_least_one(trained, top):
    with pytest.raises(bigmc.errors.DataError, match=f"top is {top}; give a whole number of at least 1"):
        bigmc.explain(trained[0], "red apple", top)


@pytest.mark.parametrize(("sample", "message"), [("red", "several columns"), ("[1]", "not an object")])
def test_a_text_is_no_row_to_explain(mixed, sample, message):
    with pytest.raises(bigmc.errors.DataError, match=f"{message}.*text, shop, price, weight"):
        bigmc.explain(mixed[0], sample)


def test_probabilities_are_explained_where_there_are_some(trained, tmp_path):
    assert trained[0].explain("red apple").classes[0].probability is None
    table = pa.table({"text": TEXTS * 20, "label": LABELS * 20})
    options = {"memory_limit": "200MB", "time_limit": 0.0}
    bigmc.fit(table, tmp_path / "m", text="text", label="label", **options)
    model = bigmc.load_model(tmp_path / "m")
    found = {entry.label: entry.probability for entry in model.explain("red apple").classes}
    np.testing.assert_allclose([found[c] for c in model.classes_], model.predict_proba(["red apple"])[0])


def test_trees_are_explained_by_leaving_words_out(tmp_path):
    table = pa.table({"text": TEXTS * 20, "label": LABELS * 20})
    bigmc.ingest(table, tmp_path / "d", text="text", label="label", ngrams=(1, 1), split={"train": 1.0})
    bigmc.train("boost", tmp_path / "d", tmp_path / "m", C=10.0, n_rounds=5)
    model = bigmc.load_model(tmp_path / "m")
    explained = model.explain("the red apple is sweet")
    without = model.decision_function(["the red is sweet"])[0]
    whole = model.decision_function(["the red apple is sweet"])[0]
    adds = {entry.label: dict(entry.words).get("apple", 0.0) for entry in explained.classes}
    assert adds[model.classes_[1]] - adds[model.classes_[0]] == pytest.approx(whole - without)


@pytest.mark.parametrize("mapped", [{"standardize": True}, {"fourier": 6}])
def test_columns_of_mapped_features_add_up_to_the_score_or_are_refused(tmp_path, mapped):
    """A Fourier feature is of all columns; features were given the names of columns in their order."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    table = pa.table({"a": x[:, 0], "b": x[:, 1] + 5, "c": x[:, 2], "label": (x[:, 0] > 0).astype(int)})
    bigmc.ingest(table, tmp_path / "d", dense=["a", "b", "c"], label="label", split={"train": 1.0}, **mapped)
    bigmc.train("sparse", tmp_path / "d", tmp_path / "m")
    model, row = bigmc.load_model(tmp_path / "m"), {"a": 1.0, "b": 2.0, "c": -1.0}
    if "fourier" in mapped:
        with pytest.raises(bigmc.errors.DataError, match="no column has a share"):
            model.explain(row)
        return
    for entry in model.explain(row).classes:
        total = sum(value for _, value in entry.words) + model.intercept_[entry.label]
        assert total == pytest.approx(entry.score)


def test_arrays_have_no_words():
    model = bigmc.SparseClassifier().fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(bigmc.errors.DataError, match="no words"):
        model.explain("text")
