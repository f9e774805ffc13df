"""What can be read only once becomes the same dataset as a Parquet file of the same rows."""

import hashlib
import io
import os
import sys
import threading
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError

ROWS = [{"text": f"a{i % 13} b{i % 7} é{i}", "label": f"k{i % 3}", "x": i / 4} for i in range(3000)]
TABLE = pa.Table.from_pylist(ROWS)


def ingest(source, to, **options):
    return api.ingest(
        source, to, text="text", label="label", numeric="x", hash_bits=10, engine=ThreadEngine(2), **options
    )


def shards_of(folder):
    """Digests of everything but what tells where the rows came from."""
    files = [*sorted((folder / "shards").rglob("*")), *sorted((folder / "statistics").rglob("*"))]
    files += [folder / "classes.parquet", folder / "names.parquet"]
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file()
    }


def test_rejects_name_the_stream(tmp_path, monkeypatch):
    """They named the file that it was written to, which is removed."""
    rows = b'{"text": "red", "label": "k"}\n{"text": "of", "label": null}\n{"text": "blue", "label": "l"}\n'
    pipe = tmp_path / "rows.jsonl"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[rows])
    writer.start()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))
    batches = (pa.RecordBatch.from_pylist([row]) for row in [*ROWS[:3], {**ROWS[3], "label": ""}])
    sources = {"-": "-", str(pipe): str(pipe), "generator[0]": batches}
    for number, (name, source) in enumerate(sources.items()):
        to, options = tmp_path / f"{number}.bigmc", {"text": "text", "label": "label", "hash_bits": 6}
        form = {"format": "jsonl"} if name == "-" else {}
        api.ingest(source, to, on_bad_row="quarantine", **options, **form)
        assert pq.read_table(to / "rejects.parquet")["path"].to_pylist() == [name]
    writer.join()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    pq.write_table(TABLE, folder / "rows.parquet")
    ingest(folder / "rows.parquet", folder / "d.bigmc")
    return shards_of(folder / "d.bigmc")


def duckdb_relation(table):
    return pytest.importorskip("duckdb").from_arrow(table)


def polars_frame(table):
    return pytest.importorskip("polars").from_arrow(table).lazy()


def dask_frame(table):
    return pytest.importorskip("dask.dataframe").from_pandas(table.to_pandas(), npartitions=3)


def hugging_face(table):
    return pytest.importorskip("datasets").Dataset(table)


STREAMS = {
    "reader": lambda table, folder: table.to_reader(max_chunksize=700),
    "batches": lambda table, folder: iter(table.to_batches(max_chunksize=500)),
    "tables": lambda table, folder: iter([table[:1000], table[1000:]]),
    "mappings": lambda table, folder: (row for row in table.to_pylist()),
    "dataset": lambda table, folder: pads.dataset(table),
    "scanner": lambda table, folder: pads.dataset(table).scanner(batch_size=100),
    "DuckDB": lambda table, folder: duckdb_relation(table),
    "polars": lambda table, folder: polars_frame(table),
    "dask": lambda table, folder: dask_frame(table),
    "Hugging Face": lambda table, folder: hugging_face(table),
    "Hugging Face, iterable": lambda table, folder: hugging_face(table).to_iterable_dataset(2),
}


@pytest.mark.exhaustive(keep=5)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_rows(name, tmp_path, expected):
    ingest(STREAMS[name](TABLE, tmp_path), tmp_path / "d.bigmc")
    assert shards_of(tmp_path / "d.bigmc") == expected
    assert os.listdir(tmp_path) == ["d.bigmc"]
    again = ingest(STREAMS[name](TABLE, tmp_path), tmp_path / "d.bigmc")  # the same rows: nothing to do
    assert again.n_samples == len(ROWS)
    with pytest.raises(DataError, match="made with other parameters"):
        ingest(iter(TABLE[:50].to_batches()), tmp_path / "d.bigmc")


def as_lines():
    return "".join(f"{row['text']},{row['label']},{row['x']}\n" for row in ROWS).encode()


def test_standard_input_and_a_named_pipe(tmp_path, monkeypatch):
    content = b"text,label,x\n" + as_lines()
    (tmp_path / "t.csv").write_bytes(content)
    ingest(tmp_path / "t.csv", tmp_path / "file.bigmc")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    ingest("-", tmp_path / "stdin.bigmc", format="csv")
    os.mkfifo(tmp_path / "pipe.csv")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.csv").write_bytes(content))
    writer.start()
    ingest(tmp_path / "pipe.csv", tmp_path / "pipe.bigmc")
    writer.join()
    assert shards_of(tmp_path / "stdin.bigmc") == shards_of(tmp_path / "file.bigmc")
    assert shards_of(tmp_path / "pipe.bigmc") == shards_of(tmp_path / "file.bigmc")
    assert not list(tmp_path.glob(".*.partial"))


def test_errors_name_the_stream_not_the_file_it_was_written_to(tmp_path, monkeypatch):
    bad = b"text,label,x\na,b,1\nc,,2\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bad)))
    with pytest.raises(DataError, match=r"^standard input:3: the label is missing; fix the row") as caught:
        ingest("-", tmp_path / "d.bigmc", format="csv")
    assert caught.value.message == "standard input:3: the label is missing"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bad.replace(b"text", b"txt"))))
    with pytest.raises(DataError, match=r"^standard input: no column 'text'"):
        ingest("-", tmp_path / "d.bigmc", format="csv")
    rows = iter([{"text": "a", "label": "b", "x": 1}, {"text": "c", "label": None, "x": 2}])
    with pytest.raises(DataError, match=r"^list_iterator\[0\]: row 1: the label is missing"):
        ingest(rows, tmp_path / "e.bigmc")


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (iter([]), "no rows"),
        (iter([1, 2]), "a row has the type int"),
        (
            iter([{"text": "a", "label": 1}, {"text": 3, "label": "b"}]),
            "values of a column have several types",
        ),
        (iter([TABLE[:2], TABLE[:2].drop_columns("x")]), "later ones text"),
        ("-", "name it with --format"),
    ],
    ids=["empty", "numbers", "types", "columns", "no format"],
)
def test_streams_that_cannot_be_used(stream, message, tmp_path):
    with pytest.raises(DataError, match=message):
        ingest(stream, tmp_path / "d.bigmc")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("early", "late", "kinds"),
    [
        (1, Decimal("0.5"), "int64 in the first rows, decimal"),
        (["ab"], "ab", "list<.*string> in the first rows, string"),
        ({"a": 1}, {"a": 0.5}, "struct<a: int64> in the first rows, struct<a: double>"),
        (date(2026, 1, 1), datetime(2026, 1, 1, 12), r"date32\[day\] in the first rows, timestamp"),
    ],
)
def test_values_that_arrow_would_change_silently_are_refused(early, late, kinds, tmp_path):
    """Rows are converted some thousand at a time, with the types of the first ones: 0.5 became 0."""
    rows = (
        {"text": "a b", "label": f"k{i % 2}", "x": 1, "z": early if i < 1024 else late} for i in range(1100)
    )
    with pytest.raises(DataError, match=rf"several types \('z' has {kinds}"):
        ingest(rows, tmp_path / "d")


@pytest.mark.parametrize("source", ["dicts", "tables"])
def test_types_may_widen_in_a_stream_as_in_files(source, tmp_path):
    """Some thousand rows have integers, the others floats; a column and its texts begin later."""
    rows = [
        {
            "text": None if i < 1500 else f"aa b{i % 7}",
            "x": i % 9 if i < 1100 else i / 8,
            "v": [i % 3, 1] if i < 1100 else [0.5 * (i % 4), 0.25],
            "label": f"k{i % 2}",
        }
        for i in range(3000)
    ]
    options = {"text": "text", "label": "label", "dense": "x", "vector": "v", "missing": "fill"}
    if source == "dicts":
        api.ingest(iter(rows), tmp_path / "stream", **options)
    else:
        tables = (pa.Table.from_pylist(rows[lo : lo + 100]) for lo in range(0, 3000, 100))
        api.ingest(tables, tmp_path / "stream", **options)
    api.ingest(
        pa.table({name: [row[name] for row in rows] for name in rows[0]}), tmp_path / "table", **options
    )
    assert shards_of(tmp_path / "stream") == shards_of(tmp_path / "table")


def test_a_bad_row_after_a_wider_type_is_named_by_its_place(tmp_path):
    rows = (
        {"text": "aa", "label": "ab"[i % 2], "x": None if i == 2060 else i + (0.5 if i > 1500 else 0)}
        for i in range(3000)
    )
    with pytest.raises(DataError, match=r"generator\[0\] after 1,024 rows: row 1036: column 'x' is missing"):
        ingest(rows, tmp_path / "d")


def test_columns_of_types_that_files_lack_become_plain_or_are_refused(tmp_path):
    runs = TABLE.append_column("runs", pc.run_end_encode(TABLE["text"].combine_chunks()))
    ingest(iter([runs]), tmp_path / "runs")
    ingest(TABLE, tmp_path / "plain")
    assert shards_of(tmp_path / "runs") == shards_of(tmp_path / "plain")
    n = TABLE.num_rows
    months = TABLE.append_column("months", pa.array([(1, 2, 3)] * n, pa.month_day_nano_interval()))
    with pytest.raises(DataError, match="'months' has type month_day_nano_interval, which cannot be stored"):
        ingest(iter([months]), tmp_path / "months")
    with pytest.raises(DataError, match=r"cannot be stored; leave it out of --keep"):
        ingest(months, tmp_path / "kept", keep=["months"])


def test_later_values_that_fit_the_types_of_the_first_ones_are_taken(tmp_path):
    values = [
        (1, 2.0),
        (0.5, 1),
        ([1], []),
        ({"a": 1}, {"b": "x"}),
        ("a", None),
    ]
    rows = (
        {
            "text": "aa bb",
            "label": f"k{i % 2}",
            "x": 1,
            **{f"z{k}": pair[i >= 1024] for k, pair in enumerate(values)},
        }
        for i in range(1100)
    )
    assert ingest(rows, tmp_path / "d").n_samples == 1100


def test_a_key_that_the_first_row_lacks_is_a_column(tmp_path):
    """As in JSON lines, a missing key is a missing value."""
    rows = [
        {"text": "aa bb", "label": f"k{i % 2}", **({} if i % 3 == 0 else {"z": i % 5})} for i in range(1100)
    ]
    table = pa.table({name: [row.get(name) for row in rows] for name in ("text", "label", "z")})
    options = {"text": "text", "label": "label", "dense": "z", "missing": "fill"}
    api.ingest(iter(rows), tmp_path / "rows", **options)
    api.ingest(table, tmp_path / "table", **options)
    assert shards_of(tmp_path / "rows") == shards_of(tmp_path / "table")


def test_a_row_that_is_no_mapping_among_others_is_refused(tmp_path):
    rows = ({"text": "a", "label": "b", "x": 1} if i < 5 else [1, 2] for i in range(9))
    with pytest.raises(DataError, match="several types"):
        ingest(rows, tmp_path / "d")
