"""Columns that alone tell the class of every row are found by `fit`, and no others."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

from bigmc.ingestion.columns.column_kinds import with_column_kinds
from bigmc.ingestion.columns.label_copies import Codes, LabelCopy


def notes_on(source, **options):
    """Return the columns that a note says tell the class."""
    notes = with_column_kinds(source, {"label": "y", **options}).notes
    return [note.split(" alone tells the class of all ")[0] for note in notes if " alone tells " in note]


def frame(n=1000):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, n)
    return pd.DataFrame(
        {"x": rng.normal(size=n) + y, "y": np.array(["no", "yes", "maybe"])[y], "code": y * 5 % 7}
    )


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_a_code_a_name_and_a_number_that_was_cut_into_classes_are_found(kind, is_sorted, tmp_path):
    rows = frame()
    rng = np.random.default_rng(0)
    rows["score"] = rows.code + rng.random(len(rows))
    rows["known"] = np.where(rows.y == "no", np.nan, 1.5)  # tells one class of three
    rows["name"] = rows.y.str.upper()
    rows["part"] = rows.y + " " + pd.Series(rng.integers(0, 9, len(rows)).astype(str))
    rows["own text"] = [f"text {k}" for k in range(len(rows))]
    rows["often"] = np.where(np.arange(len(rows)) % 200 == 7, "other", rows.y)
    if is_sorted:
        rows = rows.sort_values("y")
    source = rows
    if kind != "frame":
        source = tmp_path / f"rows.{kind}"
        getattr(rows, f"to_{kind}")(source, index=False)
    assert sorted(notes_on(source)) == ["code", "name", "part", "score"]


def test_classes_of_few_rows_are_told_by_chance():
    rows = frame()
    rows["y"] = np.where(np.arange(len(rows)) == rows.x.argmax(), "rare", "usual")
    assert notes_on(rows[["x", "y"]]) == []
    rows["y"] = "one"
    assert notes_on(rows) == []


def test_label_sets_and_features_that_are_named_are_left_alone(tmp_path):
    rows = frame()
    lists = pa.table({"code": rows.code.to_numpy(), "y": [[label] for label in rows.y]})
    assert notes_on(lists) == []
    assert notes_on(rows, dense=["code"]) == []


@pytest.mark.parametrize("seed", range(30))
def test_numbers_tell_the_class_if_a_tree_of_a_leaf_for_each_class_is_right_on_all_rows(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 40, 400).astype(float)
    classes = (values > 10).astype(int) + (values > rng.integers(11, 39))
    if seed % 3:
        values[rng.integers(0, 400, seed % 3)] = rng.integers(0, 40)
    tree = DecisionTreeClassifier(max_leaf_nodes=3).fit(values[:, None], classes)
    pure = pd.Series(classes).groupby(values).nunique().max() == 1
    copy, codes = LabelCopy(), Codes()
    for rows in np.array_split(np.arange(400), 4):
        copy.add(pa.array(values[rows]), codes.of(pa.array(classes[rows])))
    assert copy.found == (tree.score(values[:, None], classes) == 1.0 or pure)


@pytest.mark.parametrize("n_rows", [8, 50, 1000])
def test_texts_of_small_batches_are_codes_or_are_not_kept(n_rows):
    rng = np.random.default_rng(1)
    code, own, long, labels = LabelCopy(), LabelCopy(), LabelCopy(), Codes()
    for start in range(0, max(400, 3 * n_rows), n_rows):
        classes = rng.integers(0, 30, n_rows)
        rows = labels.of(pa.array(classes))
        code.add(pa.array([f"class {label}" for label in classes]), rows)
        own.add(pa.array([f"text {k}" for k in range(start, start + n_rows)]), rows)
        long.add(pa.array([f"{label} {'x' * 200}" for label in classes]), rows)
    assert max(len(pickle.dumps(column)) for column in (own, long)) < 20_000  # texts are not kept
    assert (code.found, own.found, long.found) == (True, False, False)
