"""Figures of raw labelled files are those of the same rows as a dataset, and scikit-learn's."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import accuracy_score, log_loss

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError, ModelError
from bigmc.model import load_model

WORDS = {"ham": "hello dear friend meeting", "spam": "win money now cheap", "news": "vote law budget paper"}


def documents(n, seed, labels=tuple(WORDS)):
    rng = np.random.default_rng(seed)
    y = rng.choice(labels, n)
    pool = " ".join(WORDS.values()).split()
    texts = [" ".join([*rng.choice(WORDS[c].split(), 2), *rng.choice(pool, 3)]) for c in y]
    return pa.table({"text": texts, "label": y, "number": [tuple(WORDS).index(c) for c in y]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    pq.write_table(documents(400, 0), folder / "train.parquet")
    for label in ("label", "number"):
        data = bigmc.ingest(
            folder / "train.parquet",
            to=folder / label,
            text="text",
            label=label,
            hash_bits=8,
            split={"train": 1},
        )
        model = folder / f"{label}.model"
        api.train("sparse", data.path, model, loss="log_loss", alpha=1e-3, tol=1e-2)
    return folder


def written(table, path):
    """Return a table as a file of the format that the path's ending names."""
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("label", ["label", "number"])
@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_the_figures_are_those_of_the_rows_ingested(folder, tmp_path, ending, label):
    table = documents(150, 1)
    file = written(table, tmp_path / f"rows.{ending}")
    model = folder / f"{label}.model"
    found = api.evaluate(model, file, label=label, per_class=True, confusion=True)
    stored = bigmc.ingest(file, to=tmp_path / "d", text="text", label=label, hash_bits=8, split={"test": 1})
    expected = api.evaluate(model, stored, per_class=True, confusion=True)
    for ours, theirs in zip(found.pop("reliability"), expected.pop("reliability"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    for name in ("log_loss", "brier", "calibration_error"):
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=1e-5)
    assert found == expected
    known = bigmc.load_model(model)
    texts, y = table["text"].to_pylist(), table[label].to_numpy()
    assert found["accuracy"] == accuracy_score(y, known.predict(texts))
    again = api.evaluate(model, table, label=label)
    assert again["log_loss"] == pytest.approx(log_loss(y, known.predict_proba(texts)), rel=1e-6)


def test_parts_of_several_files_and_workers_add_up(folder, tmp_path):
    tables = [documents(n, seed) for seed, n in enumerate((3000, 40, 5000))]
    files = [written(table, tmp_path / f"{i}.csv") for i, table in enumerate(tables)]
    model = folder / "label.model"
    found = api.evaluate(model, files, label="label", engine=ThreadEngine(2), confusion=True)
    whole = api.evaluate(
        model, pa.concat_tables(tables), label="label", engine=ThreadEngine(1), confusion=True
    )
    assert found["log_loss"] == pytest.approx(whole["log_loss"], rel=1e-12)
    assert found["confusion"] == whole["confusion"]
    assert found["n_samples"] == 8040


def test_labels_that_the_model_does_not_know_are_missed(folder, tmp_path):
    table = documents(60, 2)
    labels = ["unseen", *table["label"].to_pylist()[1:]]
    file = written(table.set_column(1, "label", [labels]), tmp_path / "rows.csv")
    found = api.evaluate(folder / "label.model", file, label="label", per_class=True)
    assert found["n_unknown_labels"] == 1
    assert found["per_class"]["unseen"]["recall"] == 0
    file = written(table.set_column(1, "label", [["x"] * 60]), tmp_path / "none.csv")
    with pytest.raises(ModelError, match=r"no label of the data \(such as 'x'"):
        api.evaluate(folder / "label.model", file, label="label")


def test_what_cannot_be_measured_is_refused_with_the_cure(folder, tmp_path):
    table = documents(5, 3)
    file = written(table, tmp_path / "rows.csv")
    of_arrays = replace(load_model(folder / "label.model"), label_source=None)
    with pytest.raises(DataError, match="name it with --label"):
        api.evaluate(of_arrays, file)
    with pytest.raises(DataError, match="'topic'"):
        api.evaluate(folder / "label.model", file, label="topic")
    with pytest.raises(DataError, match="a dataset already has labels"):
        api.evaluate(folder / "label.model", folder / "label", label="label", split="train")
    with pytest.raises(DataError, match="raw data has no splits; leave --split out"):
        api.evaluate(folder / "label.model", file, split="train")
    with pytest.raises(DataError, match=r"gone\.bigmc: no such file or directory; check the path"):
        api.evaluate(folder / "label.model", tmp_path / "gone.bigmc", split="train")
    with pytest.raises(DataError, match="does not have the type of the model's classes, such as 0"):
        api.evaluate(folder / "number.model", file, label="label")
    with pytest.raises(DataError, match="standard input can be read only once; save the data to a file"):
        api.evaluate(folder / "label.model", "-")
    (tmp_path / "ragged.csv").write_text("text,label\nhello,ham\nmoney,spam,7\n")
    with pytest.raises(DataError, match=r"ragged\.csv:3: .*let ingest, fit or predict set bad rows aside"):
        api.evaluate(folder / "label.model", tmp_path / "ragged.csv", label="label")
    (tmp_path / "gap.csv").write_text("text,label\nhello,ham\nmoney,\n")
    with pytest.raises(DataError, match=r"gap\.csv: 3: the label is missing"):
        api.evaluate(folder / "label.model", tmp_path / "gap.csv", label="label")


def test_matrices_have_their_labels_beside_them(tmp_path):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((200, 12), density=0.4, rng=rng).tocsr()
    y = np.argmax(X @ rng.standard_normal((12, 3)), axis=1)
    model = bigmc.SparseClassifier(alpha=1e-3).fit(X, y)
    assert api.evaluate(model, X, label=y)["accuracy"] == accuracy_score(y, model.predict(X))
    dump_svmlight_file(X, y, str(tmp_path / "rows.svm"), zero_based=True)
    data = bigmc.ingest(tmp_path / "rows.svm", to=tmp_path / "d", split={"train": 1}, n_features=12)
    api.train("sparse", data.path, tmp_path / "m", alpha=1e-3)
    found = api.evaluate(tmp_path / "m", tmp_path / "rows.svm")
    expected = api.evaluate(tmp_path / "m", data, split="train")
    assert expected.pop("trained_on_these_rows")
    assert found == expected


@pytest.mark.parametrize("label", ["label", "number"])
def test_the_label_column_is_that_of_the_training_data(folder, tmp_path, label):
    model, table = folder / f"{label}.model", documents(60, 6)
    expected = accuracy_score(table[label], bigmc.load_model(model).predict(table["text"].to_pylist()))
    for rows in (table, table.to_pandas(), written(table, tmp_path / "rows.csv")):
        assert api.evaluate(model, rows)["accuracy"] == expected
    assert api.evaluate(bigmc.load_model(model), table)["accuracy"] == expected
    assert api.info(model)["label"] == label
    renamed = table.rename_columns(["text", "answer", "code"])
    with pytest.raises(DataError, match=f"'{label}'"):
        api.evaluate(model, renamed)
    assert (
        api.evaluate(model, renamed, label={"label": "answer", "number": "code"}[label])["accuracy"]
        == expected
    )


def test_the_separator_is_that_of_the_training_data(tmp_path):
    rng = np.random.default_rng(2)
    sets = [sorted({str(c) for c in rng.choice(list(WORDS), rng.integers(1, 3))}) for _ in range(200)]
    texts = [" ".join(WORDS[c] for c in labels) + " and" for labels in sets]
    lists = pa.table({"text": texts, "topics": sets})
    joined = written(
        lists.set_column(1, "topics", [["|".join(labels) for labels in sets]]), tmp_path / "rows.csv"
    )
    bigmc.ingest(joined, to=tmp_path / "d", text="text", label="topics", label_separator="|", hash_bits=8)
    api.train("sparse", tmp_path / "d", tmp_path / "m", alpha=1e-3, loss="multilabel_ranking")
    predicted = bigmc.load_model(tmp_path / "m").predict(texts)
    right = [
        set(np.array(sorted(WORDS))[row == 1]) == set(own) for row, own in zip(predicted, sets, strict=True)
    ]
    for rows in (joined, lists):  # lists need no separator
        assert api.evaluate(tmp_path / "m", rows)["accuracy"] == np.mean(right)


@pytest.mark.parametrize("separator", [None, "|"])
def test_sets_of_labels(tmp_path, separator):
    rng = np.random.default_rng(1)
    sets = [sorted({str(c) for c in rng.choice(list(WORDS), rng.integers(0, 3))}) for _ in range(300)]
    texts = [" ".join(WORDS[c] for c in labels) + " and" for labels in sets]
    train = pa.table({"text": texts, "topics": sets})
    data = bigmc.ingest(train, to=tmp_path / "d", text="text", label="topics", hash_bits=8, split={"test": 1})
    api.train("sparse", data.path, tmp_path / "m", loss="multilabel_ranking", alpha=1e-3, split="test")
    rows = train
    if separator:
        rows = pa.table({"text": texts, "topics": ["|".join(labels) or "[]" for labels in sets]})
    found = api.evaluate(tmp_path / "m", rows, label="topics", label_separator=separator)
    expected = api.evaluate(tmp_path / "m", data)
    assert expected.pop("trained_on_these_rows")
    assert found == {name: pytest.approx(value) for name, value in expected.items()}


def test_the_file_of_figures_is_of_these_rows(folder, tmp_path):
    file = written(documents(80, 4), tmp_path / "rows.csv")
    model, to = folder / "label.model", tmp_path / "figures.json"
    found = api.evaluate(model, file, label="label", to=to)
    before = to.stat().st_mtime_ns
    assert api.evaluate(model, file, label="label", to=to) == found
    assert to.stat().st_mtime_ns == before
    other = written(documents(90, 5), tmp_path / "other.csv")
    with pytest.raises(DataError):
        api.evaluate(model, other, label="label", to=to)
    with pytest.raises(DataError, match="is an input"):
        api.evaluate(model, file, label="label", to=file, overwrite=True)
