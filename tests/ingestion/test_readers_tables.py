"""Parquet files and tables in memory against pyarrow's whole-table reads."""

from __future__ import annotations

import gc
import json
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from read_back import stored

import bigmc
from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import Part, ReadHints, ReadRequest, expand_sources, read, scan, schema
from bigmc.ingestion.readers import parquet
from bigmc.ingestion.readers.pages import USUAL_BYTES, page_bytes_of

NARROW = getattr(pa, "decimal32", pa.decimal128)  # not in the oldest release


def everything(source, part_bytes=1 << 20, batch_bytes=1 << 16, on_bad_row="fail", columns=None):
    sources = expand_sources(source)
    batches = []
    parts = scan(sources, part_bytes)
    for part in parts:
        part = Part.from_dict(json.loads(json.dumps(part.to_dict())))
        here = list(read(part, ReadRequest(columns, batch_bytes, on_bad_row), sources=sources))
        assert sum(b.n_rows + len(b.rejects) for b in here) == part.n_rows
        assert sum(b.n_bytes for b in here) == part.n_bytes
        batches += here
    return parts, batches


def joined(batches):
    return pa.Table.from_batches([batch.table for batch in batches])


def made(n, first=0):
    ids = np.arange(first, first + n)
    return pa.table(
        {
            "id": ids,
            "text": pa.array([None if i % 7 == 0 else f"text {i}" for i in ids]),
            "kind": pa.array([f"k{i % 3}" for i in ids]).dictionary_encode(),
            "a.b": ids * 0.5,
            "tags": pa.array([[str(i)] * (i % 3) for i in ids]),
        }
    )


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_categories_and_labels_may_have_any_encoding(encoding, page, tmp_path):
    kinds, labels = [f"k{i % 5}" for i in range(300)], [f"l{i % 3}" for i in range(300)]
    table = pa.table({"kind": kinds, "label": labels})
    named = {"categorical": "kind", "label": "label"}
    bigmc.ingest(table, to=tmp_path / "table", **named)
    (tmp_path / "in").mkdir()
    pq.write_table(table.slice(0, 100), tmp_path / "in" / "0.parquet")  # of dictionaries, before and after
    pq.write_table(table.slice(200), tmp_path / "in" / "2.parquet")
    pq.write_table(
        table.slice(100, 100), tmp_path / "in" / "1.parquet", use_dictionary=False,
        column_encoding=dict.fromkeys(["kind", "label"], encoding), data_page_version=page, row_group_size=40,
    )  # fmt: skip
    bigmc.ingest(tmp_path / "in", to=tmp_path / "files", **named)
    assert stored(tmp_path / "files") == stored(tmp_path / "table")


@pytest.mark.parametrize("part_bytes", [1, 3000, 1 << 20])
@pytest.mark.parametrize("batch_bytes", [1, 2000, 1 << 20])
def test_any_parts_give_the_table(tmp_path, part_bytes, batch_bytes):
    for name, n, first in (("a", 250, 0), ("b", 0, 250), ("c", 301, 250)):
        pq.write_table(made(n, first), tmp_path / f"{name}.parquet", row_group_size=100)
    (tmp_path / "_metadata").write_text("")
    expected = made(551)
    for source in (tmp_path, str(tmp_path / "*.parquet")):
        parts, batches = everything(source, part_bytes, batch_bytes, columns=["kind", "id", "a.b", "tags"])
        assert len(parts) == {1: 7, 3000: len(parts), 1 << 20: 2}[part_bytes]
        table = joined(batches)
        assert table.schema.field("kind").type == pa.string()
        assert table.to_pydict() == expected.select(["kind", "id", "a.b", "tags"]).to_pydict()
        assert np.concatenate([b.row for b in batches]).tolist() == list(range(551))
        assert np.concatenate([b.line for b in batches]).tolist() == [*range(250), *range(301)]
    _, batches = everything(expected, part_bytes, batch_bytes)
    assert joined(batches).to_pydict() == expected.to_pydict()
    assert np.concatenate([b.row for b in batches]).tolist() == list(range(551))


def test_large_row_group_is_streamed(tmp_path):
    text = "word " * 200
    table = pa.table({"text": [f"{i} {text}" for i in range(5_000)], "same": [text * 5] * 5_000})
    pq.write_table(table, tmp_path / "t.parquet")
    for columns in (["text"], ["same"]):  # the second is a dictionary of one entry in the file
        parts, batches = everything(tmp_path / "t.parquet", 1, 1 << 16, columns=columns)
        assert len(parts) == 1
        assert max(batch.table.nbytes for batch in batches) < 2 << 16
        assert joined(batches)[columns[0]].equals(table[columns[0]])


@pytest.mark.parametrize("reader_bytes", [1 << 10, 64 << 20])  # a few columns at a time, or streamed
@pytest.mark.parametrize("order", ["as they are", "every second one", "backwards"])
def test_row_groups_are_cut_where_results_grow_with_rows(tmp_path, monkeypatch, order, reader_bytes):
    expected = pa.concat_tables([made(900), made(60, 900), made(40, 960)])
    for name, first, group in (("a", 0, 700), ("b", 900, 20)):
        n = 900 if name == "a" else 100
        pq.write_table(expected.slice(first, n), tmp_path / f"{name}.parquet", row_group_size=group)
    sources = expand_sources(tmp_path)
    parts = scan(sources, 1 << 20, ReadHints(most_rows=90))
    assert [part.n_rows for part in parts] == [90] * 10 + [100]
    assert sum(part.n_bytes for part in parts) == sum(part.n_bytes for part in scan(sources))
    ways = {"as they are": parts, "every second one": parts[::2] + parts[1::2], "backwards": parts[::-1]}
    opened = []
    read_groups = parquet.read_row_groups
    monkeypatch.setattr(parquet, "read_row_groups", lambda *of: opened.append(of) or read_groups(*of))
    found = {}
    for part in ways[order]:
        part = Part.from_dict(json.loads(json.dumps(part.to_dict())))
        found[part.index] = list(read(part, ReadRequest(None, 1 << 10, reader_bytes=reader_bytes)))
        assert sum(batch.n_bytes for batch in found[part.index]) == part.n_bytes
    batches = [batch for index in sorted(found) for batch in found[index]]
    assert joined(batches).to_pydict() == expected.to_pydict()
    assert np.concatenate([batch.row for batch in batches]).tolist() == list(range(1000))
    assert np.concatenate([batch.line for batch in batches]).tolist() == [*range(900), *range(100)]
    # the whole part of the small row groups does not close those of the other file
    assert len(opened) == {"as they are": 2, "every second one": 3, "backwards": 11}[order]


def test_columns_and_types_must_agree(tmp_path):
    pq.write_table(made(3), tmp_path / "a.parquet")
    pq.write_table(made(3).drop_columns(["id"]), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: no column 'id'"):
        schema(expand_sources(tmp_path), ["id"])
    with pytest.raises(DataError, match=r"no column 'txt'; did you mean 'text'"):
        everything(tmp_path, columns=["txt"])
    table = made(3)
    pq.write_table(table.set_column(0, "id", pa.array(["1", "2", "3"])), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'id' is string in .*b\.parquet, but int64 in .*a\.parquet"):
        schema(expand_sources(tmp_path), ["id"])
    assert schema(expand_sources(tmp_path), ["text"]).field("kind").type == pa.string()
    with pytest.raises(DataError, match="no column 'x'"):
        everything(made(3), columns=["x"])


def test_texts_of_both_widths_are_read_together(tmp_path):
    """Writers choose the offsets of texts, and say nothing about the data by it."""
    table = made(3, first=1)
    place = table.schema.get_field_index("text")
    for name, kind in (("a", pa.string()), ("b", pa.large_string()), ("c", pa.string())):
        texts = table["text"].cast(kind)
        pq.write_table(table.set_column(place, "text", texts), tmp_path / f"{name}.parquet")
    assert schema(expand_sources(tmp_path), ["text"]).field("text").type == pa.string()
    dataset = bigmc.ingest(tmp_path, to=tmp_path / "d", text="text", label="kind", keep=["text"])
    rows = [pq.read_table(path) for path in dataset.path.glob("shards/*/rows.parquet")]
    kept = [text for rows_of_shard in rows for text in rows_of_shard["text"].to_pylist()]
    assert sorted(kept) == sorted(["text 1", "text 2", "text 3"] * 3)


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_column_without_values_in_some_files_is_missing_there(first, tmp_path):
    """Pandas stores a column of None with the type null; a dataset is that of nulls with the right type."""
    full = pa.table({"text": ["x y"] * 6, "n": [0.5] * 6, "day": ["m", "n"] * 3, "label": ["p", "q"] * 3})
    found = []
    for kind in (None, full.schema):
        empty = pa.table({**dict.fromkeys(["text", "n", "day"], pa.nulls(6)), "label": full["label"]})
        folder = tmp_path / ("null" if kind is None else "typed")
        folder.mkdir()
        pq.write_table(empty if kind is None else empty.cast(kind), folder / f"{first}.parquet")
        pq.write_table(full, folder / f"{'b' if first == 'a' else 'a'}.parquet")
        assert schema(expand_sources(folder), full.schema.names) == full.schema
        columns = {"text": "text", "dense": "n", "one_hot": "day", "label": "label", "keep": ["n", "day"]}
        dataset = bigmc.ingest(folder, to=folder / "d", missing="fill", **columns)
        bigmc.predict(
            bigmc.SparseClassifier().fit(dataset),
            sorted(folder.glob("*.parquet")),
            folder / "p.csv",
            keep=["n", "day"],
        )
        tables = [shard.table().to_pydict() for shard in dataset.shards]
        found.append((dataset.nnz, tables, (folder / "p.csv").read_bytes()))
    assert found[0] == found[1]


def damaged_text():
    return pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 3, 4], "i4").tobytes()), pa.py_buffer(b"a\xffbc")]
    )


def test_text_that_is_not_utf8_is_a_bad_row(tmp_path):
    table = pa.table({"id": [1, 2, 3], "t": damaged_text()})
    pq.write_table(table, tmp_path / "t.parquet")
    for source, name in ((tmp_path / "t.parquet", r"t\.parquet"), (table, "Table")):
        with pytest.raises(DataError, match=name + ": row 1: column 't' is not valid UTF-8"):
            everything(source)
        _, batches = everything(source, on_bad_row="quarantine")
        assert [row["id"] for b in batches for row in b.table.to_pylist()] == [1, 3]
        assert [(r.line, r.row, r.unit) for b in batches for r in b.rejects] == [(1, 1, "row")]
        assert joined(everything(source, columns=["id"])[1])["id"].to_pylist() == [1, 2, 3]


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file"):
        everything(path)
    pq.write_table(made(1000), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[40:200] = bytes(160)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file"):
        everything(path)


def test_tables_of_other_kinds():
    table = made(10)
    assert joined(everything(table.to_batches()[0])[1]).num_rows == 10
    assert joined(everything([table, table])[1]).num_rows == 20
    with pytest.raises(DataError, match="read only once"):
        expand_sources(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
    with pytest.raises(DataError, match="2 columns have the name 'a'"):
        schema(expand_sources(pa.table([[1], [2]], names=["a", "a"])))
    part = scan(expand_sources(table))[0]
    with pytest.raises(DataError, match="pass the sources"):
        list(read(part))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": ["a", None], "y": [1, 2]}, index=[5, 6])
    assert joined(everything(frame)[1]).to_pydict() == {"t": ["a", None], "y": [1, 2]}


@pytest.mark.parametrize("kind", [NARROW(9, 3), pa.decimal128(30, 3), pa.decimal256(60, 3)], ids=str)
def test_decimal_numbers_become_the_nearest_floats(kind, tmp_path):
    texts = [f"{k * 7919 % 999983}.{k % 1000:03}" for k in range(2000)]
    labels = ["ab"[k % 2] for k in range(2000)]
    floats = pa.table({"x": [*map(float, texts)], "v": [[float(text), 0.5] for text in texts], "y": labels})
    decimals = floats.set_column(0, "x", pa.array([*map(Decimal, texts)], kind))
    lists = [[Decimal(text), Decimal("0.5")] for text in texts]
    decimals = decimals.set_column(1, "v", pa.array(lists, pa.list_(kind)))
    for name, table in (("floats", floats), ("decimals", decimals)):
        bigmc.ingest(table, to=tmp_path / name, dense="x", vector="v", label="y")
    assert stored(tmp_path / "decimals") == stored(tmp_path / "floats")


def as_views(column):
    """Return lists as views, all of one buffer in reverse order."""
    lists = column.to_pylist()
    lengths = [len(numbers or ()) for numbers in lists]
    ends = np.cumsum(lengths[::-1])[::-1]
    flat = [number for numbers in lists[::-1] for number in numbers or ()]
    offsets = pa.array(ends - lengths, pa.int32())
    mask = pa.array([numbers is None for numbers in lists])
    return pa.ListViewArray.from_arrays(offsets, pa.array(lengths, pa.int32()), pa.array(flat), mask=mask)


def test_runs_views_of_lists_and_narrow_decimals_are_read_as_plain_columns(tmp_path):
    numbers, texts = [i // 40 for i in range(400)], [f"word{i // 30} and" for i in range(400)]
    lists = pa.array([None if i % 9 == 4 else [i * 0.5, float(i % 7)] for i in range(400)])
    plain = pa.table({"x": numbers, "text": texts, "v": lists, "label": [n % 3 for n in numbers]})
    other = {"x": pc.run_end_encode(plain["x"].combine_chunks()), "v": as_views(lists)}
    other["text"] = pc.run_end_encode(plain["text"].combine_chunks())
    other["label"] = pa.array([Decimal(n % 3) for n in numbers], NARROW(5, 0))
    encoded = pa.table({name: other[name] for name in plain.column_names})
    assert encoded["v"].to_pylist() == lists.to_pylist()
    named = {"dense": "x", "text": "text", "vector": "v", "label": "label", "missing": "fill", "keep": ["x"]}
    bigmc.ingest(plain, to=tmp_path / "plain", **named)
    bigmc.ingest(encoded, to=tmp_path / "encoded", **named)
    assert stored(tmp_path / "encoded") == stored(tmp_path / "plain")
    model = bigmc.load_model(bigmc.train("sparse", tmp_path / "plain", tmp_path / "m", alpha=1e-3)["model"])
    np.testing.assert_array_equal(model.predict(encoded), model.predict(plain))


@pytest.mark.parametrize("view", [pa.string_view(), pa.dictionary(pa.int32(), pa.string_view())], ids=str)
def test_string_views_are_read_as_texts(view):
    texts = pa.array(["a", None, "a long text that is not inside the view"])
    table = pa.table(
        {"t": texts.dictionary_encode().cast(view) if pa.types.is_dictionary(view) else texts.cast(view)}
    )
    _, batches = everything(table)
    assert batches[0].table.column("t").to_pylist() == texts.to_pylist()
    assert schema(expand_sources(table)).field("t").type == pa.large_string()


def test_a_pandas_column_of_several_types_is_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"fine": [1, 2, 3], "mixed": [1, "two", b"three"]})
    with pytest.raises(DataError, match="'mixed' has values of the types bytes, int, str"):
        expand_sources(frame)


def test_pandas_columns_of_texts_and_numbers_are_texts():
    pandas = pytest.importorskip("pandas")
    values = ["a", 7, 2.5, True, None, float("nan"), pandas.NA]
    _, batches = everything(pandas.DataFrame({"mixed": pandas.Series(values, dtype=object)}))
    assert batches[0].table.column("mixed").to_pylist() == ["a", "7", "2.5", "True", None, None, None]


def test_frames_with_a_name_twice_are_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([["a", "b", "x"]], columns=["text", "text", "label"])
    with pytest.raises(
        DataError, match="several columns have the name 'text'; give every column its own name"
    ):
        expand_sources(frame)


def test_a_parquet_file_of_many_columns_is_read_a_few_columns_at_a_time(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        {f"x{j}": rng.normal(size=700) for j in range(60)}
        | {"t": [f"text {i}" * (i % 7) for i in range(700)]}
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=300)
    sources = expand_sources(tmp_path / "t.parquet")
    columns = ["x7", "t", *(f"x{j}" for j in range(59, 20, -1))]
    (part,) = scan(sources, 1 << 30, ReadHints(columns=columns))
    whole = ReadRequest(columns, 20_000, reader_bytes=1 << 30)
    pieces = ReadRequest(columns, 20_000, reader_bytes=1 << 14, scratch=str(tmp_path))
    expected = pa.Table.from_batches([batch.table for batch in read(part, whole)])
    found = [batch.table for batch in read(part, pieces)]
    assert pa.Table.from_batches(found).equals(expected)
    assert expected.equals(table.select(columns))
    assert max(batch.num_rows for batch in found) < 300
    assert not list(tmp_path.glob("*.partial"))


def test_long_texts_beside_short_values_are_streamed(tmp_path, monkeypatch):
    """To read a few columns at a time would decode all texts of the row group at once."""
    rng = np.random.default_rng(0)
    texts = [rng.bytes(4500).hex() for _ in range(3000)]
    table = pa.table({"text": texts, "y": range(3000)})
    pq.write_table(table, tmp_path / "t.parquet", compression="none")
    sources = expand_sources(tmp_path / "t.parquet")
    (part,) = scan(sources, 1 << 30)

    def whole(*_, **__):
        raise AssertionError("the whole column is decoded")

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", whole)
    found = [
        batch.table for batch in read(part, ReadRequest(table.column_names, 1 << 18, reader_bytes=1 << 22))
    ]
    assert pa.Table.from_batches(found).equals(table)
    assert max(batch.nbytes for batch in found) < table.nbytes / 10


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_large_pages_are_counted(tmp_path, encoded):
    """As of DuckDB and fastparquet, whose pages have up to 100 and 500 MB: taken for pages of 1 MiB."""
    texts = [f"{i:0500d}" for i in range(8000)]
    table = pa.table(dict.fromkeys("abc", texts) | {"y": range(8000)})
    large = {"data_page_size": 1 << 30, "dictionary_pagesize_limit": 1 << 30}
    pq.write_table(table, tmp_path / "large.parquet", use_dictionary=encoded, **large)
    pq.write_table(table, tmp_path / "usual.parquet", use_dictionary=encoded)

    def resident(name, columns):
        (part,) = scan(expand_sources(tmp_path / name), hints=ReadHints(columns=columns))
        return part.longest

    assert 4_032_000 < resident("large.parquet", ["a"]) < 4_100_000  # 500 bytes each and their lengths
    assert 4_032_000 < resident("large.parquet", ["a", "b", "c", "y"]) < 4_100_000  # column by column
    assert resident("usual.parquet", ["a", "y"]) < (2 << 20) + 40_000


def test_large_pages_are_read_column_by_column(tmp_path, monkeypatch):
    """If open at once they would take more."""
    texts = [f"{i:0500d}" for i in range(8000)]
    table = pa.table(dict.fromkeys("abcd", texts))
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, data_page_size=1 << 30)
    (part,) = scan(expand_sources(tmp_path / "t.parquet"))
    request = ReadRequest(table.column_names, 1 << 18, reader_bytes=parquet.DECODED * part.longest)
    read_row_group, read_at_once = pq.ParquetFile.read_row_group, []

    def counted(file, group, columns, **options):
        read_at_once.append(len(columns))
        return read_row_group(file, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    assert pa.Table.from_batches([batch.table for batch in read(part, request)]).equals(table)
    assert read_at_once == [1] * 4


@pytest.mark.parametrize("header", [b"\x16", b"\x15\x06\x16", b"\xff" * 32, bytes(32)])
def test_a_damaged_page_is_an_error_when_it_is_read(tmp_path, header):
    path, texts = tmp_path / "t.parquet", [f"{i:0500d}" for i in range(8000)]
    pq.write_table(pa.table({"a": texts}), path, use_dictionary=False)
    with path.open("r+b") as file:
        file.seek(pq.read_metadata(path).row_group(0).column(0).data_page_offset)
        file.write(header)
    (part,) = scan(expand_sources(path))
    with pytest.raises(DataError, match="not a readable Parquet file"):
        list(read(part, ReadRequest(["a"], 1 << 20)))


def test_a_page_before_the_file_is_not_looked_for(tmp_path):
    """A forged footer may say so; the error is raised when the page is read."""
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" * 20)
    chunk = SimpleNamespace(
        total_uncompressed_size=1 << 30, dictionary_page_offset=None, data_page_offset=-(1 << 40)
    )
    forged = SimpleNamespace(column=lambda i: chunk)
    assert page_bytes_of(str(path), [forged], [0]) == USUAL_BYTES


def test_nothing_of_a_closed_file_waits_for_the_collection_of_cycles(tmp_path):
    """Of thousands of files the footers would stay in memory: collections are rare in commands."""
    for i in range(3):
        pq.write_table(made(30), tmp_path / f"{i}.parquet")

    def footers():
        return sum(type(own).__name__ in ("FileMetaData", "ParquetFile") for own in gc.get_objects())

    gc.collect()
    before = footers()
    gc.disable()
    try:
        for part in scan(expand_sources(tmp_path), hints=ReadHints(columns=["id"])):
            assert sum(batch.n_rows for batch in read(part, ReadRequest(["id"], 1 << 10))) == 30
        assert footers() == before
    finally:
        gc.enable()


def test_another_file_of_the_same_name_is_not_read_on_from(tmp_path):
    path, found = tmp_path / "a.parquet", []
    for first in (1000, 5000):
        path.unlink(missing_ok=True)
        pq.write_table(pa.table({"n": range(first, first + 1000)}), path, compression="none")
        parts = scan(expand_sources(path), hints=ReadHints(most_rows=100))
        batches = read(parts[len(found)], ReadRequest(["n"], 1 << 20))
        found.append([batch.table["n"][0].as_py() for batch in batches])
    assert found == [[1000], [5000 + parts[0].n_rows]]
