"""Tables whose columns nobody has described: numbers, categories and texts, with some missing."""

import csv
import json
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bigmc
from bigmc import api
from bigmc.errors import DataError, ModelError
from bigmc.ingestion.columns.column_kinds import with_column_kinds
from bigmc.ingestion.columns.value_formats import MISSING_TEXTS

pytestmark = pytest.mark.usefixtures("few_rounds_of_boosting")


def table(n_rows: int, seed: int) -> pd.DataFrame:
    """Return rows whose label depends on a number, on a category, and on a number that is missing."""
    rng = np.random.default_rng(seed)
    size = rng.normal(5_000.0, 800.0, n_rows)
    colour = rng.choice(["red", "green", "blue"], n_rows)
    late = rng.random(n_rows) < 0.2
    score = (size - 5_000) / 800 + 2.0 * (colour == "red") - 3.0 * late
    frame = pd.DataFrame({"size": size.round(1), "colour": colour, "delay": rng.random(n_rows)})
    frame.loc[late, "delay"] = np.nan
    frame.loc[::50, "colour"] = None
    frame["constant"] = 7
    frame["label"] = np.where(score + 0.3 * rng.normal(size=n_rows) > 0.5, "yes", "no")
    return frame


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return the folder of a model of such a table, and what the fit said."""
    folder = tmp_path_factory.mktemp("columns")
    table(300, 0).to_csv(folder / "t.csv", index=False)
    return folder, bigmc.fit(str(folder / "t.csv"), folder / "m", label="label")


def test_columns_become_what_they_are(fitted):
    _, result = fitted
    assert result["columns"] == {
        "one_hot": ["colour"],
        "dense": ["size", "delay", "constant"],
        "filled": ["delay"],
    }


def test_the_model_is_as_good_as_a_pipeline_that_was_told(fitted):
    folder, _ = fitted
    train, new = table(300, 0), table(2_000, 1)
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = make_column_transformer(
        (numbers, ["size", "delay", "constant"]), (OneHotEncoder(handle_unknown="ignore"), ["colour"])
    )
    told = make_pipeline(columns, LogisticRegression()).fit(train.drop(columns="label"), train.label)
    expected = told.score(new.drop(columns="label"), new.label)
    model = bigmc.load_model(folder / "m")
    assert np.mean(model.predict(new) == new.label) >= expected - 0.015
    chances = model.predict_proba(new)
    own = chances[np.arange(len(new)), np.searchsorted(model.classes_, new.label)]
    rows = told.predict_proba(new.drop(columns="label"))
    other = rows[np.arange(len(new)), np.searchsorted(told.classes_, new.label)]
    assert -np.log(own).mean() <= -np.log(other).mean() + 0.02


def test_files_frames_and_dicts_are_labelled_alike(fitted):
    folder, _ = fitted
    new = table(60, 2).drop(columns="label")
    new.loc[3, "colour"] = "violet"  # not seen: as if it were missing
    new.to_csv(folder / "new.csv", index=False)
    model = bigmc.load_model(folder / "m")
    expected = model.predict(new)
    bigmc.predict(folder / "m", str(folder / "new.csv"), folder / "said.csv")
    with open(folder / "said.csv", newline="") as file:
        assert [row["predicted_label"] for row in csv.DictReader(file)] == expected.tolist()
    np.testing.assert_array_equal(model.predict(new.to_dict("records")), expected)


def has_type_for(values):
    """Return whether Arrow has a type for all of them; before 19 it had none for UUIDs."""
    try:
        return len(pa.array(values)) > 0
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False


@pytest.mark.parametrize("mixed", [False, True])
def test_uuids_intervals_periods_and_booleans_are_what_csv_has(tmp_path, mixed):
    frame = table(200, 0)[["size", "label"]]
    # values of several types, which Arrow refuses
    frame["key"] = ["a" if mixed and k % 3 == 0 else UUID(int=k % 3) for k in range(200)]
    frame["range"] = pd.cut(frame["size"], 3)
    frame["month"] = pd.period_range("2026-01", periods=4, freq="M").repeat(50)
    frame["late"] = pd.array([None, True, False, True] * 50, dtype="boolean")
    said = bigmc.fit(frame, tmp_path / "m", label="label", time_limit=0.0)["columns"]
    assert said == {
        "one_hot": ["key", "range", "month"],
        "dense": ["size", "late"],
        "filled": ["late"],
    }
    model, new = bigmc.load_model(tmp_path / "m"), frame.drop(columns="label")
    expected = model.decision_function(new)
    new.to_csv(tmp_path / "t.csv", index=False)
    for source in (str(tmp_path / "t.csv"), new.to_dict("records")):
        np.testing.assert_array_equal(model.decision_function(source), expected)
    if mixed or not has_type_for(frame["key"]):  # no file of Parquet has such a column
        return
    new[["size", "key", "late"]].to_parquet(tmp_path / "t.parquet")
    kinds = with_column_kinds(str(tmp_path / "t.parquet"), {"label": "key"}).options
    assert (kinds["dense"], kinds.get("text")) == (("size", "late"), None)
    assert bigmc.ingest(str(tmp_path / "t.parquet"), tmp_path / "d", label="key", dense="size").n_classes == 3


def test_a_model_that_makes_its_columns_is_not_exported_as_one_of_numbers(fitted, tmp_path):
    folder, _ = fitted
    train = bigmc.train("sparse", folder / "m.dataset", tmp_path / "linear")
    with pytest.raises(ModelError, match="has one-hot columns"):
        bigmc.to_sklearn(train["model"])
    with pytest.raises(ModelError, match="has one-hot columns"):
        api.export(train["model"], tmp_path / "m.onnx")


def test_what_was_never_missing_in_training_may_be_missing_later(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200).round(2), "z": rng.normal(size=200).round(2)})
    frame["label"] = np.where(frame.x + frame.z > 0, "a", "b")
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = bigmc.fit(str(tmp_path / "t.csv"), tmp_path / "m", label="label", time_limit=0.0)
    assert result["columns"] == {"dense": ["x", "z"]}
    model = bigmc.load_model(tmp_path / "m")
    new = pd.DataFrame({"x": ["0.5", "n/a", ""], "z": ["-1.25", "2", "2"]})
    told = pd.DataFrame({"x": [0.5, frame.x.mean(), frame.x.mean()], "z": [-1.25, 2.0, 2.0]})
    np.testing.assert_allclose(model.decision_function(new), model.decision_function(told), atol=1e-6)


def test_features_are_named(fitted, tmp_path):
    folder, _ = fitted
    features = bigmc.open_dataset(folder / "m.dataset").features
    assert features["columns"] == [
        "size",
        "delay",
        "constant",
        "delay is missing",
        *(f"colour={value}" for value in features["one_hot"][0]["values"]),
    ]
    assert sorted(features["one_hot"][0]["values"]) == ["", "blue", "green", "red"]


@pytest.mark.parametrize("value", ["n/a", "?", "-", "NA", ""])
def test_a_column_of_missing_values_only_is_left_out(value):
    """`fit` of a file with a column of nothing but `n/a` ended with a Python error."""
    frame = pd.DataFrame({"x": np.arange(60) / 7, "none": [value] * 60, "label": ["a", "b"] * 30})
    found, left_out, _ = with_column_kinds(frame, {"label": "label"})
    assert found["dense"] == ("x",)
    assert left_out == ("none",)


def test_rows_appended_later_become_the_same_columns(tmp_path):
    table(300, 0).to_csv(tmp_path / "a.csv", index=False)
    table(300, 1).replace("green", "black").to_csv(tmp_path / "b.csv", index=False)
    options = {"label": "label", "dense": ["size", "delay"], "one_hot": ["colour"], "missing": "fill"}
    first = bigmc.ingest(str(tmp_path / "a.csv"), to=tmp_path / "d", **options)
    later = bigmc.ingest(str(tmp_path / "b.csv"), to=tmp_path / "d", append=True)
    assert later.features == first.features
    assert later.n_samples == 600


@pytest.mark.slow
def test_numbers_beside_texts_do_not_outweigh_them(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(60)])
    frame = pd.DataFrame({"population": rng.integers(0, 10**7, 400), "label": rng.choice(["a", "b"], 400)})
    places = [rng.integers(0, 40, 5) + 20 * (label == "b") for label in frame.label]
    frame["text"] = [" ".join(words[each]) for each in places]
    frame.iloc[:300].to_csv(tmp_path / "t.csv", index=False)
    # of one trial: none of a search may make up for it
    result = bigmc.fit(str(tmp_path / "t.csv"), tmp_path / "m", label="label", time_limit=0.0)
    assert result["columns"] == {"text": ["text"], "dense": ["population"]}
    new = frame.iloc[300:]
    assert np.mean(bigmc.load_model(tmp_path / "m").predict(new) == new.label) > 0.9


def test_what_was_asked_for_stays(tmp_path):
    table(100, 0).to_csv(tmp_path / "t.csv", index=False)
    path = str(tmp_path / "t.csv")
    asked = {"label": "label", "dense": ("size",), "categorical": ("colour",), "hash_bits": 10}
    usual = {"missing": "fill", "missing_text": MISSING_TEXTS}
    assert with_column_kinds(path, asked).options == {**asked, "standardize": True, **usual}
    kept = {"label": "label", "dense": ("delay",), "missing": "keep", "missing_text": ("none yet",)}
    completed = {**kept, "missing_text": (*MISSING_TEXTS, "none yet")}
    assert with_column_kinds(path, kept).options == completed
    texts = {"label": "label", "text": ("colour",)}
    assert with_column_kinds(path, texts) == (texts, (), ())


@pytest.mark.parametrize(("times", "kind"), [(50, "categorical"), (49, "text")])
def test_many_values_are_categories_if_each_is_frequent(times, kind):
    zones = [f"zone {k}" for k in range(300)] * times
    frame = pd.DataFrame({"zone": zones, "x": np.arange(len(zones)) % 7, "label": np.arange(len(zones)) % 2})
    options = with_column_kinds(frame, {"label": "label"}).options
    assert {name: options[name] for name in ("text", "categorical", "one_hot") if name in options} == {
        kind: ("zone",)
    }


def test_lists_of_several_types_and_ids_that_numbers_do_not_hold_are_left_out(tmp_path):
    big = 2**60 + 1
    rows = [
        {"x": 2 * i, "tags": [1, {}], "id": big + i, "shop": big + i % 3, "label": i % 2} for i in range(40)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    frame = pd.DataFrame(rows).drop(columns="tags")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, str(tmp_path / "t.csv"), str(tmp_path / "t.jsonl")):
        options, left_out, notes = with_column_kinds(source, {"label": "label"})
        assert (options["dense"], options["one_hot"]) == (("x",), ("shop",))
        assert set(left_out) - {"tags"} == {"id"}
        assert notes == (
            f"id has integers that are not exact as numbers, such as {big}: left out",
            f"shop has integers that are not exact as numbers, such as {big}: categories",
        )


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(4), pa.binary_view()])
@pytest.mark.parametrize("n_values", [2, 500])
def test_bytes_are_left_out_however_long_they_may_be(tmp_path, kind, n_values):
    codes = pa.array([b"%04d" % (k % n_values) for k in range(500)]).cast(kind)
    columns = {"size": np.arange(500) % 7, "code": codes, "label": ["no", "yes"] * 250}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    options, left_out, _ = with_column_kinds(tmp_path / "t.parquet", {"label": "label"})
    assert left_out == ("code",)
    assert options["dense"] == ("size",)
    assert not options.keys() & {"categorical", "one_hot"}


@pytest.mark.parametrize("other", [{}, {"nested": ["a"]}])
def test_labels_in_lists_and_kept_lists_are_not_called_left_out(tmp_path, other):
    rows = [{"x": 2 * i % 7, "label": ["a", "b"][: i % 3], "ids": [i], **other} for i in range(40)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = str(tmp_path / "t.jsonl")
    options, left_out, _ = with_column_kinds(path, {"label": "label", "keep": ("ids",)})
    assert options["dense"] == ("x",)
    assert left_out == tuple(other)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_infinite_numbers_are_missing_and_named(tmp_path, ending):
    frame = table(300, 5)
    frame.loc[3::10, "size"], frame.loc[4, "size"] = np.inf, -np.inf
    path = tmp_path / f"t.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    result = bigmc.fit(str(path), tmp_path / "m", label="label", time_limit=0.0)
    assert result["columns"]["filled"] == ["size", "delay"]
    place = ("line 5", "line 6") if ending == "csv" else ("row 3", "row 4")
    [note] = result["notes"]
    assert note.startswith("31 of 300 values of size are no number or date and count as missing")
    assert all(f"{text!r} in {at}" in note for text, at in zip(("inf", "-inf"), place, strict=True))
    model = bigmc.load_model(tmp_path / "m")
    with pytest.warns(UserWarning, match="31 values"):
        found = model.decision_function(frame)
    finite = frame.replace([np.inf, -np.inf], np.nan)
    np.testing.assert_array_equal(found, model.decision_function(finite))


def test_dates_become_numbers_and_times_of_day_are_left_out(tmp_path):
    frame = table(100, 0).assign(day=pd.date_range("2026-01-01", periods=100))
    frame["never"] = [f"2026-02-{k % 30 + 1:02d}" for k in range(100)]  # 30 February is no date
    for source in (frame, str(tmp_path / "t.csv")):
        frame.to_csv(tmp_path / "t.csv", index=False)
        found, left_out, notes = with_column_kinds(source, {"label": "label"})
        assert not notes
        assert left_out == ("never",)
        assert found["date"] == ("day",)
        assert found["dense"] == ("size", "delay", "constant")
        assert found["one_hot"] == ("colour",)
        assert "text" not in found
    said = bigmc.fit(frame, tmp_path / "m", label="label", time_limit=0.0)["columns"]
    assert said["left_out"] == ["never"]
    assert said["dates"] == ["day"]


def test_a_missing_number_is_told_as_missing(tmp_path):
    table(100, 0).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"column 'delay' is missing.*--missing fill"):
        bigmc.ingest(str(tmp_path / "t.csv"), to=tmp_path / "d", label="label", dense="delay")


def with_gaps(n, seed):
    """Return a table of notes, categories and numbers, with a hole in every kind of column."""
    rng = np.random.default_rng(seed)
    label = rng.choice(["a", "b", "c"], n)
    words = np.array([f"word{i}" for i in range(30)])
    notes = [
        " ".join(words[rng.integers(0, 20, 6) + 5 * "abc".index(own)]) + f" note{i}"
        for i, own in enumerate(label)
    ]
    frame = pd.DataFrame({"note": notes, "label": label})
    frame["colour"] = np.where(rng.random(n) < 0.6, label, rng.choice(["x", "y"], n))
    frame["code"] = pd.array(rng.integers(0, 5, n), "Int64")
    frame["size"] = rng.normal(size=n)
    for place, column in enumerate(("note", "colour", "size")):
        frame.loc[place::11, column] = None
    return frame


@pytest.mark.slow
def test_a_table_with_texts_and_missing_values_is_learned_from(tmp_path):
    """Of every three rows one lacks a text, a category or a number: none is refused or left out."""
    frame, new = with_gaps(300, 0), with_gaps(200, 1)
    result = bigmc.fit(frame, tmp_path / "m", label="label", time_limit=0.0)
    kinds = {kind: set(names) for kind, names in result["columns"].items()}
    assert kinds["text"] == {"note"}
    assert kinds["categorical"] == {"colour"}
    assert result["n_quarantined"] == 0
    data = bigmc.open_dataset(tmp_path / "m.dataset")
    assert data.n_samples == 300
    model = bigmc.load_model(tmp_path / "m")
    assert np.mean(model.predict(new) == new.label) > 0.7
    whole = new.assign(note=new.note.fillna(""), colour=new.colour.fillna(""))
    np.testing.assert_allclose(model.decision_function(new), model.decision_function(whole), atol=1e-9)
    row = {"note": None, "colour": float("nan"), "code": 1, "size": None}
    told = bigmc.explain(tmp_path / "m", row)
    assert told == bigmc.explain(tmp_path / "m", {**row, "note": "", "colour": ""})


@pytest.mark.parametrize("source", ["t.csv", "t.parquet"])
def test_missing_texts_and_categories_are_empty_ones(tmp_path, source):
    frame = with_gaps(300, 0)
    frame.loc[7::13, "code"] = None
    path = tmp_path / source
    frame.to_csv(path, index=False) if source == "t.csv" else frame.to_parquet(path)
    options = {"label": "label", "text": "note", "categorical": ["colour", "code"], "hash_bits": 12}
    found = bigmc.ingest(str(path), to=tmp_path / "d", missing="fill", split={"all": 1.0}, **options)
    told = frame.assign(note=frame.note.fillna(""), colour=frame.colour.fillna(""))
    told["code"] = frame.code.astype("string").fillna("")
    whole = bigmc.ingest(told, to=tmp_path / "e", split={"all": 1.0}, **options)
    assert (found.n_samples, found.nnz) == (300, whole.nnz)
    np.testing.assert_array_equal(found.column_nnz(), whole.column_nnz())
    columns = [pq.read_table(each.files("names.parquet")[0]).column("name") for each in (found, whole)]
    names = [set(column.to_pylist()) for column in columns]
    assert "colour=" in names[0]
    assert names[0] == names[1]


def test_missing_texts_are_refused_unless_they_may_be_filled(tmp_path):
    frame = with_gaps(50, 0)
    for missing in ({}, {"missing": "keep", "dense": "size"}):
        with pytest.raises(DataError, match="column 'note' is missing"):
            bigmc.ingest(frame, to=tmp_path / "d", label="label", text="note", **missing)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"c;y\nred;p\nblue;q\n", "--delimiter ';'"),
        (b"c\ty\nred\tp\nblue\tq\n", "--delimiter tab"),
        ("c,y\ncafé,p\nnaïve,q\n".encode("latin-1"), "--encoding latin-1"),
        (b"y\np\nq\n", "no usable feature columns"),
        (b"c,y\n", r"t\.csv: no rows"),
        (b"c;y\n1,5;p\n2,5;q\n", r"t\.csv:2: 2 fields, the header has 1 .*--delimiter ';'"),
    ],
)
def test_tables_that_cannot_be_read_say_what_would_help(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        bigmc.fit(str(tmp_path / "t.csv"), tmp_path / "m", label="y")


def test_a_table_of_objects_alone_says_how_their_fields_are_named(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"doc": {"text": "a b"}, "y": 1}\n{"doc": {"text": "c"}, "y": 2}\n')
    with pytest.raises(DataError, match=r"name fields of 'doc': --text doc\.FIELD"):
        bigmc.fit(str(tmp_path / "t.jsonl"), tmp_path / "m", label="y")


@pytest.mark.filterwarnings("error")
def test_one_number_of_infinite_square_leaves_its_column_useful(tmp_path):
    rng = np.random.default_rng(0)
    size = rng.normal(10, 3, 600)
    frame = pd.DataFrame({"size": size, "text": [f"note {i} about {i % 7}" for i in range(600)]})
    frame["label"] = np.where(size > 10, "a", "b")
    frame.loc[5, "size"] = 1e300
    options = with_column_kinds(frame, {"label": "label"}).options
    data = bigmc.ingest(frame, to=tmp_path / "d", **options)
    others = np.delete(size, 5)
    assert data.features["filling"]["values"] == pytest.approx([others.mean()])
    assert data.features["filling"]["deviations"] == pytest.approx([others.std()])
    bigmc.ingest(frame[["size", "label"]], to=tmp_path / "e", label="label", dense="size", weighting="scaled")
    assert bigmc.open_dataset(tmp_path / "e").column_scale()[0] >= 0.0


@pytest.mark.parametrize("named", [{}, {"text": "c"}])
def test_a_stream_is_to_be_ingested_before_a_fit(tmp_path, named):
    rows = [{"c": f"word{i % 7}", "y": "ab"[i % 2]} for i in range(60)]
    with pytest.raises(DataError, match="a pipe or a stream; make a dataset with bigmc ingest"):
        bigmc.fit(iter(rows), tmp_path / "m", label="y", **named)
    with pytest.raises(DataError, match="one row, not a source of rows; pass a data frame of the rows, or"):
        bigmc.fit(rows, tmp_path / "m", label="y", **named)
    assert not list(tmp_path.iterdir())
    assert bigmc.fit(pd.DataFrame(rows), tmp_path / "f", label="y", time_limit=0, **named)["n_classes"] == 2
    bigmc.ingest(iter(rows), to=tmp_path / "d", text="c", label="y")
    assert bigmc.fit(tmp_path / "d", tmp_path / "m", time_limit=0)["n_classes"] == 2
