"""Columns copied to predictions come out as they went in, or are refused with a cure."""

import datetime
import io
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc.errors import DataError
from bigmc.inference.writers import CsvWriter, JsonLinesWriter, ParquetWriter

MINUTE = datetime.timedelta(minutes=1)


def written(kind, column):
    labels = pa.DictionaryArray.from_arrays(pa.array([0] * len(column), pa.int8()), ["a"])
    table = pa.table({"id": column, "predicted_label": labels})
    file = io.BytesIO()
    with kind(file, table.schema) as writer:
        writer.write(table)
    return file.getvalue()


def strict_lines(column):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    lines = written(JsonLinesWriter, column).decode().splitlines()
    return [json.loads(line, parse_constant=refuse)["id"] for line in lines]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([MINUTE, -MINUTE, None], pa.duration("us")),
        pa.array([10**9, None], pa.timestamp("s", "Europe/Berlin")),
        pa.array([[1], None], pa.list_(pa.duration("ns"))),
        pa.array([{"at": 5}, None], pa.struct([("at", pa.timestamp("ms", "+05:30"))])),
    ],
    ids=lambda column: str(column.type),
)
def test_parquet_says_the_units_and_zones_of_times(column):
    read = pq.read_table(pa.BufferReader(written(ParquetWriter, column)))
    assert str(read["id"].to_pylist()) == str(column.to_pylist())  # equal times may have other zones
    stored = pq.read_schema(pa.BufferReader(written(ParquetWriter, pa.array([1]))))
    assert read.schema.field("predicted_label") == stored.field("predicted_label")
    # without a time the file is that of before, whose readers need nothing of Arrow
    assert stored.metadata is None


def test_csv_says_the_unit_of_a_duration():
    column = pa.array([MINUTE, -MINUTE, None], pa.duration("ms"))
    read = pd.read_csv(io.BytesIO(written(CsvWriter, column)))["id"]
    assert pd.to_timedelta(read).tolist() == [MINUTE, -MINUTE, pd.NaT]


def test_json_has_nanoseconds_of_a_day():
    column = pa.array([1, 86_399_999_999_999, None], pa.time64("ns"))
    assert strict_lines(column) == ["00:00:00.000000001", "23:59:59.999999999", None]


def test_numbers_that_json_lacks_are_null_at_any_depth():
    nan, infinity = float("nan"), float("inf")
    assert strict_lines(pa.array([[1.5, nan], [infinity]])) == [[1.5, None], [None]]
    assert strict_lines(pa.array([{"a": {"b": [nan]}}])) == [{"a": {"b": [None]}}]
    (text,) = pd.read_csv(io.BytesIO(written(CsvWriter, pa.array([[1.5, nan]]))))["id"]
    assert text == "[1.5, null]"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2)], ids=str)
def test_bytes_that_are_text_are_written_as_text(kind):
    column = pa.array(["é".encode(), b"ab", None], kind)
    assert strict_lines(column) == ["é", "ab", None]
    read = pd.read_csv(io.BytesIO(written(CsvWriter, column)), keep_default_na=False)
    assert read["id"].tolist() == ["é", "ab", ""]
    nested = pa.array([[b"ab"], None], pa.list_(kind))
    assert strict_lines(nested) == [["ab"], None]


@pytest.mark.parametrize("kind", [CsvWriter, JsonLinesWriter])
@pytest.mark.parametrize("value", [b"\x00\xff", [b"\xff"], {"a": b"\xff"}], ids=["bytes", "list", "object"])
def test_other_bytes_are_refused_and_parquet_has_them(kind, value):
    column = pa.array([value])
    with pytest.raises(DataError, match=r"'id' has bytes that are not text.*Parquet"):
        written(kind, column)
    read = pq.read_table(pa.BufferReader(written(ParquetWriter, column)))
    assert read["id"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (ParquetWriter, pa.array([{}], pa.struct([]))),
        (ParquetWriter, pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
        (CsvWriter, pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
    ],
)
def test_a_type_that_a_file_lacks_is_refused_before_anything_is_written(kind, column):
    with pytest.raises(DataError, match=r"does not have the type of the column 'id'.*JSON lines"):
        kind(io.BytesIO(), pa.schema([("id", column.type)]))
    assert len(strict_lines(column)) == 1


def test_a_year_that_python_lacks_is_refused_in_json():
    column = pa.array([10**12], pa.timestamp("s"))
    with pytest.raises(DataError, match="'id' has a value that Python lacks"):
        strict_lines(column)
