"""Parquet files of one command whose columns differ in type: the rows count, not how files store them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigmc
from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import expand_sources, schema
from bigmc.ingestion.readers.base import ReadHints
from bigmc.ingestion.readers.plain_types import Drift, common_type

N = 120
RNG = np.random.default_rng(0)
NUMBERS = RNG.integers(0, 9, N).tolist()
ROWS = {
    "x": [float(value) for value in NUMBERS],
    "h": [float(value) for value in NUMBERS[::-1]],
    "w": [float(1 + i % 3) for i in range(N)],
    "label": ["many" if value > 4 else "few" for value in NUMBERS],
}
USES = {"dense": "x", "numeric": "h", "weight": "w", "label": "label", "hash_bits": 6}


def write(folder, kinds, rows=ROWS):
    """Write rows to as many files as there are types of numbers."""
    folder.mkdir()
    size = N // len(kinds)
    for k, kind in enumerate(kinds):
        part = {name: values[k * size : (k + 1) * size] for name, values in rows.items()}
        columns = {name: pa.array(part[name]).cast(kind) for name in ("x", "h", "w")}
        pq.write_table(pa.table({**part, **columns}), folder / f"{k}.parquet")
    return folder


def stored(folder):
    """Return the bytes of every file but those that name the sources."""
    named = folder / "manifest.json", folder / "zarr.json"
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in named)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.float64(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.int8(), pa.uint64(), pa.float32(), pa.float64()),
    ],
    ids=lambda kinds: "-".join(map(str, kinds)),
)
def test_numbers_of_other_types_make_the_dataset_and_predictions_of_doubles(kinds, tmp_path):
    many = write(tmp_path / "in", kinds)
    pq.write_table(pa.table(ROWS), tmp_path / "one.parquet")
    made = bigmc.ingest(many, to=tmp_path / "many.bigmc", **USES)
    bigmc.ingest(tmp_path / "one.parquet", to=tmp_path / "one.bigmc", **USES)
    assert stored(tmp_path / "many.bigmc") == stored(tmp_path / "one.bigmc")
    model = bigmc.SparseClassifier().fit(made)
    written, evaluated = [], []
    for source, name in ((many, "many"), (tmp_path / "one.parquet", "one")):
        bigmc.predict(model, source, tmp_path / f"{name}.csv", scores=True, keep=["label"])
        written.append((tmp_path / f"{name}.csv").read_bytes())
        evaluated.append(bigmc.evaluate(model, source)["accuracy"])
    assert written[0] == written[1]
    assert evaluated[0] == evaluated[1]


def test_missing_numbers_are_filled_as_in_files_of_doubles(tmp_path):
    """As pandas writes them: floats in the file with a missing value, integers in the other."""
    rows = {**ROWS, "x": [None, *ROWS["x"][1:]]}
    for name, kinds in (("drift", (pa.float64(), pa.int64())), ("same", (pa.float64(), pa.float64()))):
        write(tmp_path / f"{name}.in", kinds, rows)
        bigmc.ingest(tmp_path / f"{name}.in", to=tmp_path / f"{name}.bigmc", missing="fill", **USES)
    assert stored(tmp_path / "drift.bigmc") == stored(tmp_path / "same.bigmc")


def test_an_integer_that_is_no_float_is_a_bad_row_of_its_file(tmp_path):
    many = write(tmp_path / "in", (pa.float64(), pa.int64()))
    table = pq.read_table(many / "1.parquet")
    x = [*table["x"].to_pylist()[:-1], 2**53 + 1]
    pq.write_table(table.set_column(0, "x", pa.array(x)), many / "1.parquet")
    reason = "column 'x' is 9007199254740993, which is not exact"
    with pytest.raises(DataError, match=rf"1\.parquet: row {N // 2 - 1}: {reason}"):
        bigmc.ingest(many, to=tmp_path / "d", **USES)


@pytest.mark.slow
def test_fit_finds_numbers_of_both_types(tmp_path):
    many = write(tmp_path / "in", (pa.float64(), pa.int64()))
    result = bigmc.fit(many, to=tmp_path / "m.bigmc", label="label", time_limit="5s")
    assert result["columns"] == {"dense": ["x", "h", "w"]}
    assert result["test"]["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((pa.int8(), pa.int16()), pa.int16()),
        ((pa.uint8(), pa.int8()), pa.int16()),
        ((pa.uint32(), pa.int64()), pa.int64()),
        ((pa.uint8(), pa.uint64()), pa.uint64()),
        ((pa.int64(), pa.uint64()), None),
        ((pa.int8(), pa.float64()), None),
        ((pa.bool_(), pa.int8()), None),
    ],
    ids=str,
)
def test_the_integer_type_holds_all_values_of_both(kinds, expected):
    for one, other in (kinds, kinds[::-1]):
        assert common_type(one, other, Drift.INTEGERS) == expected
        assert common_type(one, other) is None
    if expected is not None:
        for kind in kinds:
            ends = np.iinfo(kind.to_pandas_dtype())
            assert pa.array([ends.min, ends.max], kind).cast(expected).to_pylist() == [ends.min, ends.max]


@pytest.mark.parametrize("kinds", [(pa.bool_(), pa.float64()), (pa.string(), pa.float64())], ids=str)
def test_other_types_beside_numbers_are_refused(kinds, tmp_path):
    for k, kind in enumerate(kinds):
        pq.write_table(pa.table({"x": pa.array([1.0, 0.0]).cast(kind)}), tmp_path / f"{k}.parquet")
    with pytest.raises(DataError, match=r"column 'x' is double in .*1\.parquet, but .* in .*0\.parquet"):
        schema(expand_sources(tmp_path), ["x"], ReadHints(numbers=["x"], any_width=["x"]))


def test_labels_groups_and_categories_may_be_integers_of_any_width(tmp_path):
    """The dataset is that of one file, and a kept column is as wide as in the widest file."""
    rows = {"c": [value % 3 for value in NUMBERS], "g": list(range(N)), "y": [v // 5 for v in NUMBERS]}
    half = N // 2
    (tmp_path / "in").mkdir()
    for name, kind, some in (("a", pa.int8(), slice(0, half)), ("b", pa.int64(), slice(half, N))):
        part = {key: pa.array(values[some], kind) for key, values in rows.items()}
        pq.write_table(pa.table(part), tmp_path / "in" / f"{name}.parquet")
    pq.write_table(pa.table(rows), tmp_path / "one.parquet")
    uses = {"one_hot": "c", "group": "g", "label": "y", "split": "train=0.5,test=0.5"}
    for source, name in ((tmp_path / "in", "many"), (tmp_path / "one.parquet", "one")):
        made = bigmc.ingest(source, to=tmp_path / f"{name}.bigmc", **uses)
        bigmc.ingest(source, to=tmp_path / f"{name}.hashed", categorical="c", label="y", hash_bits=4)
    for ending in ("bigmc", "hashed"):
        assert stored(tmp_path / f"many.{ending}") == stored(tmp_path / f"one.{ending}")
    model = bigmc.SparseClassifier().fit(made)
    bigmc.predict(model, tmp_path / "in", tmp_path / "p.parquet", keep=["g", "y"])
    kept = pq.read_table(tmp_path / "p.parquet")
    assert kept.schema.field("g").type == pa.int64()
    assert kept.select(["g", "y"]).to_pydict() == {"g": rows["g"], "y": rows["y"]}
    with pytest.raises(DataError, match="column 'g' is int64"):  # shards would differ in their types
        bigmc.ingest(tmp_path / "in", to=tmp_path / "k", one_hot="c", label="y", keep="g")


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        (
            {"text": "words"},
            "'words' has type list<.*: string>, which is not text; make it a column of texts",
        ),
        (
            {"text": "doc"},
            "'doc' has type struct<.*>, which is not text; name a field of it, such as doc.body",
        ),
        ({"text": "price"}, "which is not text; name it with --numeric, --dense or --categorical"),
        ({"dense": "hour"}, "which is not a number; name it with --categorical"),
        (
            {"text": "body", "group": "words"},
            "the groups in 'words' have type list<.*: string>; give a column",
        ),
        ({"text": "body", "group": "doc"}, "the groups in 'doc' have type struct<"),
    ],
)
@pytest.mark.parametrize("command", [bigmc.ingest, bigmc.fit])
def test_columns_of_unfit_types_are_refused_with_options_that_fit(tmp_path, command, options, cure):
    rows = {
        "words": [["a", "b"]] * 20,
        "doc": [{"body": "a b"}] * 20,
        "body": ["a b"] * 20,
        "price": pa.array([1] * 20, pa.decimal128(5, 2)),
        "hour": pa.array([3600] * 20, pa.time32("s")),
        "label": ["x", "y"] * 10,
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=cure):
        command(tmp_path / "rows.parquet", to=tmp_path / "made", label="label", **options)
