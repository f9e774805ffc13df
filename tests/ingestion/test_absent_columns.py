"""JSON lines without a column that a model or a dataset has: its values are missing there."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigmc
from bigmc.errors import DataError
from bigmc.ingestion.readers import jsonl

KIND = pa.struct([("k", pa.string()), ("n", pa.float64()), ("day", pa.string())])
TYPES = pa.schema(
    [("s", KIND), ("x", pa.float64()), ("c", pa.string()), ("t", pa.string()), ("y", pa.string())]
)
ROWS = [
    {
        "s": {"k": "ab"[i % 2], "n": float(i % 7), "day": f"2026-11-{1 + i % 28:02}"},
        "x": float(i % 5),
        "c": "uvw"[i % 3],
        "t": f"word{i % 4} more",
        "y": "pq"[i % 2],
    }
    for i in range(60)
]
USES = {
    "categorical": "s.k", "dense": ["s.n", "x"], "date": "s.day", "one_hot": "c", "text": "t", "label": "y",
    "hash_bits": 8,
}  # fmt: skip
LACKING = {
    "null": lambda row: {**row, "s": None, "x": None, "c": None},
    "empty": lambda row: {"s": {}, "t": row["t"], "y": row["y"]},
    "absent": lambda row: {"t": row["t"], "y": row["y"]},
    "partly": lambda row: {"s": {"other": 1}, "t": row["t"], "y": row["y"]},
}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset that takes missing values, and a model of it."""
    folder = tmp_path_factory.mktemp("made")
    data = bigmc.ingest(write(folder / "rows.jsonl", ROWS), to=folder / "d", missing="fill", **USES)
    return data, bigmc.SparseClassifier().fit(data)


def shards_of(dataset):
    files = (path for path in sorted(dataset.path.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(dataset.path)): path.read_bytes() for path in files if "shards" in path.parts
    }


@pytest.mark.parametrize("how", LACKING)
def test_a_file_without_the_columns_is_read_like_nulls_of_their_types(how, made, tmp_path):
    """As Parquet has them, and as samples in memory are read."""
    data, model = made
    lacking = write(tmp_path / "lacking.jsonl", map(LACKING[how], ROWS))
    nulls = [{"s": None, "x": None, "c": None, "t": row["t"], "y": row["y"]} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(nulls, schema=TYPES), tmp_path / "nulls.parquet")
    appended = []
    for source, name in ((lacking, "a"), (tmp_path / "nulls.parquet", "b")):
        shutil.copytree(data.path, tmp_path / name)
        appended.append(shards_of(bigmc.ingest(source, to=tmp_path / name, append=True)))
        bigmc.predict(model, source, tmp_path / f"{name}.csv", scores=True)
    assert appended[0] == appended[1]
    assert len(appended[0]) > len(shards_of(data))
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert model.predict(lacking).tolist() == model.predict(nulls).tolist()
    assert bigmc.evaluate(model, lacking)["accuracy"] == np.mean(
        model.predict(nulls) == [r["y"] for r in ROWS]
    )


def test_rows_after_the_first_ones_keep_the_values_they_have(made, tmp_path, monkeypatch):
    _, model = made
    rows = [*map(LACKING["absent"], ROWS[:20]), *ROWS[20:]]
    memory = [{"s": None, "x": None, "c": None, **row} for row in rows]
    monkeypatch.setattr(jsonl, "_HEAD_BYTES", 200)
    found = model.decision_function(write(tmp_path / "t.jsonl", rows))
    np.testing.assert_array_equal(found, model.decision_function(memory))


def test_rows_without_a_value_are_bad_where_missing_ones_are_not_taken(tmp_path):
    data = bigmc.ingest(write(tmp_path / "rows.jsonl", ROWS), to=tmp_path / "d", **USES)
    model = bigmc.SparseClassifier().fit(data)
    lacking = write(tmp_path / "no.jsonl", map(LACKING["absent"], ROWS))
    for command in (
        lambda: bigmc.ingest(lacking, to=tmp_path / "d", append=True),
        lambda: bigmc.predict(model, lacking, tmp_path / "p.csv"),
        lambda: model.predict(lacking),
    ):
        with pytest.raises(DataError, match=r"no\.jsonl:1: column 's\.k' is missing"):
            command()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: {"S": row["s"]}, r"no column 's\.k'; did you mean 'S\.k'"),
        (lambda row: {"s": {"K": "a"}}, r"no column 's\.k'; did you mean 's\.K'"),
        (lambda row: {"s": "text"}, r"no column 's\.k'; the columns are"),
    ],
)
def test_a_misspelt_key_is_named(change, message, made, tmp_path):
    data, model = made
    odd = write(tmp_path / "odd.jsonl", ({"t": row["t"], "y": row["y"], **change(row)} for row in ROWS))
    shutil.copytree(data.path, tmp_path / "d")
    for command in (
        lambda: bigmc.ingest(odd, to=tmp_path / "d", append=True),
        lambda: bigmc.predict(model, odd, tmp_path / "p.csv"),
    ):
        with pytest.raises(DataError, match=message):
            command()


def test_rows_of_other_data_are_refused(made, tmp_path):
    other = write(tmp_path / "other.jsonl", [{"price": 3, "colour": "red"}] * 9)
    with pytest.raises(DataError, match=r"no column 's\.k'; the columns are: price, colour"):
        bigmc.predict(made[1], other, tmp_path / "p.csv")


def test_columns_of_a_new_dataset_must_be_in_its_first_file(tmp_path):
    write(tmp_path / "a.jsonl", map(LACKING["absent"], ROWS))
    with pytest.raises(DataError, match=r"no column 's\.k'"):
        bigmc.ingest(tmp_path / "a.jsonl", to=tmp_path / "d", missing="fill", **USES)
