"""Labels mean the same whatever type a source gave them: files of pandas, and frames of the same rows."""

import datetime
import decimal
import hashlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigmc
from bigmc import api
from bigmc.errors import DataError
from bigmc.ingestion.columns.known_labels import KnownLabels

DAYS = [datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), datetime.date(2025, 1, 1)]
TIMES = [datetime.datetime(2024, 1, 31, hour, 30) for hour in (8, 9, 10)]
KINDS = {
    "whole numbers": [1.0, 2.0, 3.0],
    "numbers": [0.5, 1.25, 2.0],
    "integers": [1, 2, 3],
    "booleans": [True, False, True],
    "dates": DAYS,
    "midnights": [datetime.datetime.combine(day, datetime.time()) for day in DAYS],
    "texts": ["a", "B", "1.10"],
}


def rows(values, n=240):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    words = np.array(["red apple", "green pear", "blue plum"])[y]
    texts = [f"{word} {rng.integers(9)}" for word in words]
    label = pd.Series([values[k] for k in y])
    return pd.DataFrame({"text": texts, "label": label})


def model_of(source, folder):
    data = api.ingest(source, folder / "d", text="text", label="label", hash_bits=8, split={"train": 1.0})
    api.train("sparse", data, folder / "m.model")
    return bigmc.load_model(folder / "m.model")


def figures(model, source):
    found = api.evaluate(model, source, label="label", per_class=True)
    return found["accuracy"], found["n_unknown_labels"], found["per_class"]


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_a_file_is_measured_on_frames_and_the_other_way_round(kind, tmp_path):
    frame = rows(KINDS[kind])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    pl = pytest.importorskip("polars")
    frames = [frame, pa.Table.from_pandas(frame), pl.from_pandas(frame)]
    for k, (source, others) in enumerate(((tmp_path / "rows.csv", frames), (frame, [tmp_path / "rows.csv"]))):
        (tmp_path / str(k)).mkdir()
        model = model_of(source, tmp_path / str(k))
        expected = figures(model, source)
        assert expected[0] > 0.9
        assert expected[1] == 0
        for other in others:
            assert figures(model, other) == expected
            made = api.ingest(
                other,
                tmp_path / f"{k}-{type(other).__module__}",
                text="text",
                label="label",
                hash_bits=8,
                split={"test": 1.0},
            )
            stored = api.evaluate(model, made, per_class=True)
            assert (stored["accuracy"], stored["per_class"]) == (expected[0], expected[2])


@pytest.mark.parametrize("kind", ["dates", "midnights"])
def test_dates_as_labels_make_one_dataset_from_every_source(kind, tmp_path):
    frame = rows(KINDS[kind])
    table = pa.Table.from_pandas(frame)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.assign(label=frame.label.astype(str)).to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    pq.write_table(table, tmp_path / "c.parquet")
    seen = set()
    for k, source in enumerate([*sorted(tmp_path.iterdir()), frame, table]):
        data = api.ingest(source, tmp_path / f"d{k}", text="text", label="label", hash_bits=8)
        digest = hashlib.sha256()
        for file in sorted((tmp_path / f"d{k}" / "shards").rglob("*")):
            digest.update(file.read_bytes() if file.is_file() else b"")
        seen.add((digest.hexdigest(), tuple(data.classes.tolist())))
    assert [classes for _, classes in seen] == [tuple(str(day) for day in DAYS)]


def test_times_and_decimal_numbers_are_the_texts_of_a_file(tmp_path):
    kinds = {
        "2024-01-31 08:30:00": pa.array(TIMES, pa.timestamp("ns")),
        "2024-01-31 08:30:00+00:00": pa.array(TIMES, pa.timestamp("ms", "UTC")),
        "1.50": pa.array([decimal.Decimal(text) for text in ("1.50", "2.00", "2.25")]),
        1: pa.array([decimal.Decimal(k) for k in (1, 2, 3)], pa.decimal128(38, 0)),
    }
    for k, (first, labels) in enumerate(kinds.items()):
        table = pa.table({"x": [1.0, 2.0, 3.0], "label": labels})
        assert api.ingest(table, tmp_path / str(k), dense="x", label="label").classes.tolist()[0] == first


def test_an_append_takes_labels_of_another_type(tmp_path):
    frame = rows([1.0, 2.0, 3.0])
    frame.to_csv(tmp_path / "first.csv", index=False)
    api.ingest(tmp_path / "first.csv", tmp_path / "d", text="text", label="label", hash_bits=8)
    more = rows([2.0, 4.0, 1.0])
    found = api.ingest(more, tmp_path / "d", append=True)
    assert found.classes.tolist() == ["1.0", "2.0", "3.0", "4.0"]
    every = pd.concat([frame, more]).label.astype(str)
    counts = found.class_counts().tolist()
    assert dict(zip(found.classes.tolist(), counts, strict=True)) == every.value_counts().to_dict()


@pytest.mark.parametrize(
    ("classes", "value", "label"),
    [
        (["1.0", "2.0"], 1, "1.0"),
        (["1.0", "2.0"], 7.0, "7.0"),
        (["TRUE", "FALSE"], False, "FALSE"),
        (["no", "true"], True, "true"),
        (["2024-01-31T00:00:00.000000", "x"], "2024-01-31", "2024-01-31T00:00:00.000000"),
        ([1, 2], "2.0", 2),
        ([1, 2], 2**60 + 1, 2**60 + 1),
        ([0, 1], True, 1),
        ([0.5, 1.0], "1", 1.0),
        ([True, False], "FALSE", False),
        ([True, False], 1.0, True),
        (["1.1", "2"], "1.10", "1.10"),
        (["007", "7"], 7, "7"),
    ],
)
def test_the_class_that_a_label_means(classes, value, label):
    found = KnownLabels(classes, "classes").label(value)
    assert (found, type(found)) == (label, type(label))


@pytest.mark.parametrize(
    ("classes", "value", "reason"),
    [
        (["a", "b"], 1, "the label 1 does not have the type of the classes, such as 'a'"),
        (["1", "2"], True, "the label True does not have the type"),
        (["true", "b"], 1, "the label 1 does not have the type"),
        (["1.1", "1.10"], 1.1, "the label 1.1 may be any of the classes '1.1', '1.10'"),
        ([1, 2, 3], True, "does not have the type"),
        ([1, 2], 1.5, "does not have the type"),
        ([1, 2], "007", "does not have the type"),
        ([1, 2], 2**63, "does not have the type"),
        ([True, False], 2, "does not have the type"),
    ],
)
def test_labels_that_no_class_is_like(classes, value, reason):
    with pytest.raises(DataError, match=reason):
        KnownLabels(classes, "classes").label(value)
