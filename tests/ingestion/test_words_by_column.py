"""Words of several text columns told apart: the same hashes, names and explanations as by brute force."""

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from read_back import assert_same_matrix, read_back
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import murmurhash3_32

import bigmc
from bigmc import api
from bigmc.errors import DataError, ModelError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.kernels.hashing.rows import SORTED

COLUMNS = ("title", "body")
ASKED = {"text": COLUMNS, "label": "y", "words_by_column": True, "categorical": "kind", "hash_bits": 16}
TITLES = ["a good day", "Bad Bad day", "", "Größe good", "river " * 3]
BODIES = ["bad good", "so good so bad", "good", "İx ΟΔΟΣ", " ".join(f"w{i}" for i in range(SORTED))]


def expected_counts(hasher, row):
    """Return the signed counts of a row: one hash for each n-gram, XORed with that of its column."""
    analyze = CountVectorizer(analyzer=hasher.analyzer, ngram_range=hasher.ngrams).build_analyzer()
    counts = Counter()
    for column, text in row.items():
        mark = murmurhash3_32(column, positive=True)
        for ngram in analyze(text):
            signed = np.uint32(murmurhash3_32(ngram, positive=True) ^ mark).astype(np.int32)
            counts[abs(int(signed)) % hasher.n_features] += 1 if signed >= 0 else -1
    return {bucket: count for bucket, count in counts.items() if count}


@pytest.mark.parametrize(
    ("analyzer", "ngrams"), [("word", (1, 1)), ("word", (1, 2)), ("char", (1, 3)), ("char_wb", (1, 4))]
)
def test_features_equal_those_of_brute_force(analyzer, ngrams):
    hasher = TextHasher(analyzer, ngrams, 22, by_column=True)
    rows = FeatureSpec(COLUMNS, hasher=hasher).transform(
        pa.RecordBatch.from_pydict({"title": TITLES, "body": BODIES})
    )
    matrix = scipy.sparse.csr_array((rows.data, rows.indices, rows.indptr), (rows.n_rows, rows.n_features))
    for i, texts in enumerate(zip(TITLES, BODIES, strict=True)):
        row = matrix[[i]]
        found = {j: v for j, v in zip(row.indices.tolist(), row.data.tolist(), strict=True) if v}
        assert found == expected_counts(hasher, dict(zip(COLUMNS, texts, strict=True)))


def opposite_rows(n=600):
    """Return rows in which a good title, or a bad body, makes the label."""
    rng = np.random.default_rng(0)
    good = rng.random(n) < 0.5
    words = np.array(["bad", "good"])
    other = [" ".join(f"w{k}" for k in rng.integers(0, 40, 5)) for _ in range(n)]
    title = [f"{words[int(g)]} {text}" for g, text in zip(good, other, strict=True)]
    body = [f"{text} {words[int(not g)]}" for g, text in zip(good, other, strict=True)]
    label = np.where(good, "yes", "no")
    return pd.DataFrame({"title": title, "body": body, "kind": rng.integers(0, 3, n).astype(str), "y": label})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    opposite_rows().to_csv(folder / "rows.csv", index=False)
    api.ingest(folder / "rows.csv", folder / "d.bigmc", **ASKED)
    api.train("sparse", folder / "d.bigmc", folder / "m.model", alpha=1e-4)
    return folder


def test_a_word_means_other_things_in_other_columns(made):
    model = api.load_model(made / "m.model")
    good = {"title": "good", "body": "bad", "kind": "0"}
    swapped = {"title": "bad", "body": "good", "kind": "0"}
    assert model.predict([good, swapped]).tolist() == ["yes", "no"]
    table = pd.read_csv(made / "rows.csv", dtype=str)
    api.predict(made / "m.model", made / "rows.csv", made / "p.parquet")
    assert pd.read_parquet(made / "p.parquet")["predicted_label"].tolist() == table["y"].tolist()


def test_names_and_explanations_say_the_column(made):
    model = api.load_model(made / "m.model")
    explained = model.explain({"title": "good w3", "body": "w3 bad", "kind": "1"}, top=20)
    yes = next(entry for entry in explained.classes if entry.label == "yes")
    values = dict(yes.words)
    assert values["title=good"] > 0 < values["body=bad"]
    features = api.inspect(made / "m.model", top=50)["classes"]
    hashed = [feature for entry in features for feature in entry["features"]]
    names = {each["name"] for feature in hashed for each in feature["names"]}
    assert {"title=good", "body=bad"} <= names
    assert not {"good", "bad"} & names


def test_an_append_tells_columns_apart_too(made, tmp_path):
    rows = opposite_rows()
    for part, some in (("all", rows), ("first", rows[:400]), ("rest", rows[400:])):
        some.to_csv(tmp_path / f"{part}.csv", index=False)
    api.ingest(tmp_path / "first.csv", tmp_path / "parts.bigmc", split={"test": 1.0}, **ASKED)
    api.ingest(tmp_path / "rest.csv", tmp_path / "parts.bigmc", append=True)
    evaluated = [api.evaluate(made / "m.model", tmp_path / name) for name in ("parts.bigmc", "all.csv")]
    assert [each["n_samples"] for each in evaluated] == [600, 600]
    assert [each["accuracy"] for each in evaluated] == [1.0, 1.0]
    with pytest.raises(DataError, match="by_column: it has true"):
        api.ingest(tmp_path / "all.csv", tmp_path / "parts.bigmc", append=True, words_by_column=False)


def test_a_dataset_of_joined_words_is_refused(made, tmp_path):
    api.ingest(made / "rows.csv", tmp_path / "joined.bigmc", **{**ASKED, "words_by_column": False})
    with pytest.raises(ModelError, match=r"words_by_column is \['title', 'body'\] in the model"):
        api.evaluate(made / "m.model", tmp_path / "joined.bigmc")


def test_other_forms_are_refused(made, tmp_path):
    pytest.importorskip("onnx")
    with pytest.raises(ModelError, match="tells apart the same word in several columns"):
        api.export(made / "m.model", tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="tells apart the same word in several columns"):
        bigmc.to_sklearn(made / "m.model")


def test_one_text_column_is_stored_as_ever(tmp_path):
    rows = opposite_rows()
    plain, asked = (
        api.ingest(rows, tmp_path / name, text="title", label="y", words_by_column=flag)
        for name, flag in (("plain", False), ("asked", True))
    )
    assert plain.features == asked.features
    assert "by_column" not in plain.features["hasher"]
    assert_same_matrix(read_back(asked)[0], read_back(plain)[0])


@pytest.mark.exhaustive
def test_fit_finds_out_whether_columns_differ(tmp_path):
    rows = opposite_rows()
    said = api.fit(rows, tmp_path / "m.model", label="y", text=COLUMNS, time_limit="60s")
    assert said["test"]["accuracy"] > 0.95
    assert "words are told apart by column in title, body" in said["notes"]
