"""CSV and TSV against Python's csv module, pandas' and pyarrow's whole-file reads."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import Batch, Part, ReadRequest, expand_sources, read, scan, schema
from bigmc.ingestion.readers import delimited
from bigmc.ingestion.readers.rejects import rejects_table
from bigmc.ingestion.sources import source as source_module
from bigmc.kernels import records as kernels
from bigmc.kernels.byte_masks import BLOCK
from bigmc.options.raw import FileOptions

QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def everything(source, part_bytes=1 << 20, batch_bytes=1 << 16, on_bad_row="fail", columns=None):
    """Read all parts, by way of JSON and last part first, and return the batches in row order."""
    sources = expand_sources(source)
    parts = scan(sources, part_bytes)
    assert [part.index for part in parts] == list(range(len(parts)))
    found: list[list[Batch]] = []
    for part in reversed(parts):
        part = Part.from_dict(json.loads(json.dumps(part.to_dict())))
        batches = list(read(part, ReadRequest(columns, batch_bytes, on_bad_row)))
        assert sum(b.n_rows + len(b.rejects) for b in batches) == part.n_rows
        assert sum(b.n_bytes for b in batches) <= part.n_bytes
        found.append(batches)
    return parts, [batch for batches in reversed(found) for batch in batches]


def rows_of(batches):
    return [tuple(row.values()) for batch in batches for row in batch.table.to_pylist()]


def oracle(data: bytes, delimiter=","):
    """Return header, records and the line each begins at, by Python's csv module."""
    text = data.decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    records, before = [], 0
    for record in reader:
        if record:
            records.append((before + 1, tuple(record)))
        before = reader.line_num
    return records[0][1], [r for _, r in records[1:]], [line for line, _ in records[1:]]


field = st.text(st.sampled_from(list('ab,;"\n\r é😀\t0')), max_size=8)


def written(rows, line_end, end_break, blank, mark):
    out = io.StringIO()
    # Python's writer leaves a lone carriage return unquoted.
    returns = any("\r" in value for row in rows for value in row)
    quoting = csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    writer = csv.writer(out, lineterminator=line_end, quoting=quoting)
    writer.writerow(["k", "text", 'na"me\n2'])
    for i, row in enumerate(rows):
        if blank and i % 3 == 1:
            out.write(line_end)
        writer.writerow(row)
    text = out.getvalue()
    if not end_break:
        text = text[: -len(line_end)]
    return (b"\xef\xbb\xbf" if mark else b"") + text.encode()


@QUIET
@given(
    rows=st.lists(st.tuples(field, field, field), max_size=12),
    line_end=st.sampled_from(["\n", "\r\n"]),
    end_break=st.booleans(),
    blank=st.booleans(),
    mark=st.booleans(),
    part_bytes=st.sampled_from([1, 7, 40, 1 << 20]),
    batch_bytes=st.sampled_from([1, 64, 200, 1 << 16]),
)
def test_any_parts_give_the_rows_and_lines_of_pythons_csv(
    tmp_path, rows, line_end, end_break, blank, mark, part_bytes, batch_bytes
):
    data = written(rows, line_end, end_break, blank, mark)
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    header, records, lines = oracle(data)
    parts, batches = everything(path, part_bytes, batch_bytes)
    assert schema(expand_sources(path)).names == list(header)
    assert rows_of(batches) == records
    assert np.array_equal(np.concatenate([np.zeros(0), *(b.row for b in batches)]), np.arange(len(records)))
    assert [line for b in batches for line in b.line] == lines
    assert sum(part.n_rows for part in parts) == len(records)
    if part_bytes == 1:
        assert len(parts) == len(records)


@QUIET
@given(
    data=st.text(st.sampled_from(list('ab,"\n\r ')), max_size=60),
    part_bytes=st.sampled_from([1, 9, 1 << 20]),
    batch_bytes=st.sampled_from([1, 80]),
)
def test_any_text_is_cut_as_pyarrow_cuts_it(tmp_path, data, part_bytes, batch_bytes):
    """Ill-formed quoting too: records, good and ragged, are those of one pyarrow read of it all."""
    path = tmp_path / "t.csv"
    raw = b"x,y\n" + data.encode()
    path.write_bytes(raw)
    ragged = []
    table = pa_csv.read_csv(
        pa.BufferReader(raw),
        read_options=pa_csv.ReadOptions(use_threads=False),
        parse_options=pa_csv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=lambda row: (ragged.append(row), "skip")[1]
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types={"x": pa.string(), "y": pa.string()}, strings_can_be_null=False
        ),
    )
    try:
        _, batches = everything(path, part_bytes, batch_bytes, "quarantine")
    except DataError as error:
        if "never closed" not in str(error):
            raise
        return
    assert rows_of(batches) == list(zip(*table.to_pydict().values(), strict=True))
    assert [r.row for b in batches for r in b.rejects] == [row.number - 2 for row in ragged]


def test_bad_rows_stop_the_run_or_are_set_aside(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1,"x\ny"\n2\n3,\xff\n4,5,6\n7,8\n')
    with pytest.raises(DataError, match=r"t\.csv:4: 1 field, the header has 2; .*quarantine"):
        everything(path)
    for part_bytes in (1, 1 << 20):
        _, batches = everything(path, part_bytes, on_bad_row="quarantine")
        assert rows_of(batches) == [("1", "x\ny"), ("7", "8")]
        assert [row for b in batches for row in b.row] == [0, 4]
        rejects = [r for b in batches for r in b.rejects]
        assert [(r.line, r.row, r.raw) for r in rejects] == [(4, 1, "2"), (5, 2, "3,�"), (6, 3, "4,5,6")]
        assert "UTF-8" in rejects[1].reason
        table = rejects_table(rejects)
        assert table.column_names == ["row_id", "path", "line", "reason", "raw"]
        assert table["row_id"].to_pylist() == [1, 2, 3]
    path.write_bytes(b"a,b\n1,2\n3,\xfe\xff\n")
    with pytest.raises(DataError, match=r"t\.csv:3: column 'b' is not valid UTF-8"):
        everything(path)
    assert rows_of(everything(path, columns=["a"])[1]) == [("1",), ("3",)]


def test_bad_rows_in_the_middle_of_many(tmp_path):
    rng = np.random.default_rng(0)
    kind = rng.choice(3, size=3000, p=[0.9, 0.05, 0.05])
    lines = [[b'%d,"a\nb"', b"%d", b"%d,\xff"][k] % i for i, k in enumerate(kind)]
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"\n".join(lines))
    for part_bytes, batch_bytes in ((500, 100), (1 << 20, 1 << 20)):
        _, batches = everything(path, part_bytes, batch_bytes, "quarantine")
        assert [int(r) for b in batches for r in b.row] == np.flatnonzero(kind == 0).tolist()
        assert [int(row[0]) for row in rows_of(batches)] == np.flatnonzero(kind == 0).tolist()
        assert [r.row for b in batches for r in b.rejects] == np.flatnonzero(kind > 0).tolist()


def test_many_columns_are_parsed_like_few(tmp_path, monkeypatch):
    names = [f"c{j}" for j in range(7)]
    lines = [[f"{i}.{j}" if j % 3 else f'x, "{i}"\n' for j in range(7)] for i in range(50)]
    text = io.StringIO()
    csv.writer(text).writerows([names, *lines[:20], ["too", "short"], *lines[20:]])
    path = tmp_path / "t.csv"
    path.write_text(text.getvalue())
    monkeypatch.setattr(delimited, "_MANY_COLUMNS", 3)
    for chosen in (names, names[::-2]):
        _, batches = everything(path, on_bad_row="quarantine", columns=chosen)
        assert rows_of(batches) == [tuple(line[names.index(c)] for c in chosen) for line in lines]
        rejected = [(r.row, r.reason) for b in batches for r in b.rejects]
        assert rejected == [(20, "2 fields, the header has 7")]


def test_columns_come_as_asked_and_as_text(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("id\ttext\tlabel\n01\t\t1\n2\tNA\tnull\n")
    _, batches = everything(path, columns=["label", "id"])
    assert rows_of(batches) == [("1", "01"), ("null", "2")]
    assert rows_of(everything(path)[1]) == [("01", "", "1"), ("2", "NA", "null")]
    with pytest.raises(DataError, match=r"no column 'txet'; did you mean 'text'\? the columns are: id, text"):
        everything(path, columns=["txet"])
    with pytest.raises(DataError, match="no column 'txet'"):
        schema(expand_sources(path), ["txet"])
    for columns in ([], ["id", "id"]):
        with pytest.raises(DataError, match="name each column once"):
            everything(path, columns=columns)
    path.write_text("a\tb\ta\n1\t2\t3\n")
    with pytest.raises(DataError, match="2 columns have the name 'a'"):
        everything(path)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_columns_of_a_file_take_one_look_at_it(name, mark, tmp_path, monkeypatch):
    """A file at an address sends some MB whenever it is opened."""
    text = b"a,b\n1,2\n" if name == "rows.csv" else b'{"a": "1", "b": "2"}\n'
    (tmp_path / name).write_bytes(mark + text)
    opened, open_file = [], source_module.open_file
    monkeypatch.setattr(source_module, "open_file", lambda path: opened.append(path) or open_file(path))
    assert schema(expand_sources(tmp_path / name)).names == ["a", "b"]
    assert len(opened) == 1


def test_empty_files_and_headers_without_rows(tmp_path):
    path = tmp_path / "t.csv"
    for content in (b"", b"\n\r\n", b"\xef\xbb\xbf"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="the file is empty"):
            everything(path)
    for content in (b"a,b", b"a,b\r\n", b"a,b\n\n\n"):
        path.write_bytes(content)
        assert everything(path) == ([], [])
    path.write_bytes("a,b\n1,2\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16; give --encoding utf-16"):
        everything(path)


def test_columns_without_a_name_are_named_by_their_place(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,,b,,\n1,x,2,y,z\n3,,4,,\n")
    source = expand_sources(str(path))
    request = ReadRequest(columns=("b", "a"))
    rows = [row for part in scan(source) for batch in read(part, request) for row in batch.table.to_pylist()]
    assert rows == [{"b": "2", "a": "1"}, {"b": "4", "a": "3"}]
    rows = [row for part in scan(source) for batch in read(part) for row in batch.table.to_pylist()]
    assert rows[0] == {"a": "1", "column 2": "x", "b": "2", "column 4": "y", "column 5": "z"}
    assert list(rows[1].values()) == ["3", "", "4", "", ""]


@pytest.mark.parametrize(("compress", "ending"), [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_compressed_files_that_are_not_called_so(compress, ending, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(compress(b"a,b\n1,2\n"))
    with pytest.raises(DataError, match=rf"compressed with .*let its name end with \{ending}"):
        everything(path)


def test_unclosed_quote_names_the_record(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1,2\n3,"x\ny,z\n5,6\n')
    with pytest.raises(DataError, match=r"t\.csv:3: a quoted field .* never closed"):
        scan(expand_sources(path))


def test_a_record_longer_than_the_chunk(tmp_path):
    path = tmp_path / "t.csv"
    document = ('long "text", ' * 160_000)[: 2 << 20] + "\nend"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["k", "t"], ["1", "short"], ["2", document], ["3", "last"]])
    for part_bytes in (1, 1 << 20):
        _, batches = everything(path, part_bytes, 1 << 12)
        assert rows_of(batches) == [("1", "short"), ("2", document), ("3", "last")]
    path.write_text("".join(f"{i}," for i in range(5000)) + "z\n" + "1," * 5000 + "1\n")
    _, batches = everything(path, batch_bytes=1 << 10)
    assert batches[0].table.num_columns == 5001


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_damage_between_compressed_streams_is_not_the_end_of_the_file(ending, tmp_path):
    """Several streams in one file are read; what is no stream is refused, not left out with all after it."""
    compress = {"gz": gzip, "bz2": bz2, "xz": lzma}[ending].compress
    lines = [f"a{k},{k}\n".encode() for k in range(40_000)]
    first, second = compress(b"text,n\n" + b"".join(lines[:9])), compress(b"".join(lines[9:]))
    path = tmp_path / f"t.csv.{ending}"
    for between in (b"", bytes(8), bytes(1 << 17)):  # zeros fill up the blocks of tapes
        path.write_bytes(first + between + second)
        _, batches = everything(path)
        assert rows_of(batches) == [(f"a{k}", str(k)) for k in range(40_000)]
    for rest in (b"\1" + second[1:], second[:-4], b"more"):
        path.write_bytes(first + rest)
        with pytest.raises(DataError, match=rf"t\.csv\.{ending}: the file cannot be read"):
            everything(path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_compressed_files_are_one_part(tmp_path, ending):
    data = b"a,b\n" + b"".join(b'%d,"x\n%d"\n' % (i, i) for i in range(3000)) + b"7\n"
    path = tmp_path / f"t.csv.{ending}"
    if ending == "zst":
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(data)
    else:
        path.write_bytes({"gz": gzip, "bz2": bz2}[ending].compress(data))
    parts, batches = everything(path, 100, 1 << 12, "quarantine")
    assert len(parts) == 1
    assert len(batches) > 3
    assert rows_of(batches) == [(str(i), f"x\n{i}") for i in range(3000)]
    assert [(r.line, r.row) for b in batches for r in b.rejects] == [(6002, 3000)]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot be read"):
        everything(path)


def test_several_files_number_their_rows_in_order(tmp_path):
    folder = tmp_path / "d"
    (folder / "sub").mkdir(parents=True)
    for name, first in (("b.csv", 10), ("a.csv", 0), ("sub/c.csv", 20)):
        (folder / name).write_text("v,w\n" + "".join(f"{first + i},{i}\n" for i in range(10)))
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.csv").write_text("x")
    listed = [folder / "a.csv", folder / "b.csv", folder / "sub"]
    for source in (folder, str(folder / "**" / "*.csv"), listed):
        _, batches = everything(source, 16)
        assert [int(row[0]) for row in rows_of(batches)] == list(range(30))
        assert [int(r) for b in batches for r in b.row] == list(range(30))
        assert [int(line) for b in batches for line in b.line] == 3 * list(range(2, 12))
    reverse = [folder / "b.csv", folder / "a.csv"]
    assert [int(row[0]) for row in rows_of(everything(reverse)[1])] == [*range(10, 20), *range(10)]
    (folder / "b.csv").write_text("w,v\n5,6\n")  # another order of the columns, found by name
    assert rows_of(everything(reverse, columns=["v"])[1])[0] == ("6",)
    (folder / "b.csv").write_text("w,u\n5,6\n")
    with pytest.raises(DataError, match=r"b\.csv: no column 'v'"):
        schema(expand_sources(folder), ["v"])


def test_sources_that_cannot_be_used(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.jsonl").write_text("{}\n")
    (tmp_path / "c.txt").write_text("x\n")
    (tmp_path / "e").mkdir()
    os.mkfifo(tmp_path / "fifo.csv")
    for source, message in [
        (tmp_path / "none.csv", "none.csv: no such file"),
        (str(tmp_path / "*.tsv"), "no file matches"),
        (tmp_path / "c.txt", r"unknown format \.txt; .*csv"),
        (tmp_path / "e", "no files"),
        (tmp_path / "fifo.csv", "not a regular file"),
        ([tmp_path / "a.csv", tmp_path / "b.jsonl"], "one format at a time"),
        ([tmp_path / "a.csv", tmp_path / "a.csv"], "listed twice"),
        ([], "no sources"),
        ("nothing://bucket/a.csv", "pip install"),
        (3, "not a source"),
    ]:
        with pytest.raises(DataError, match=message):
            expand_sources(source)
    with pytest.raises(DataError, match="unknown format 'xls'; the formats are"):
        expand_sources(tmp_path / "c.txt", FileOptions(format="xls"))
    assert expand_sources(tmp_path / "c.txt", FileOptions(format="csv"))[0].format == "csv"


def test_a_file_changed_after_the_scan_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    parts = scan(expand_sources(path))
    path.write_text("a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(DataError, match="when it was scanned"):
        list(read(parts[0]))
    path.unlink()
    with pytest.raises(DataError, match="is gone"):
        list(read(parts[0]))


def test_same_size_but_other_records(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    parts = scan(expand_sources(path))
    moment = path.stat().st_mtime_ns
    path.write_text("a,b\n1,234567\n"[:12])
    os.utime(path, ns=(moment, moment))  # as on a file system that counts seconds
    with pytest.raises(DataError, match=r"has 1 records, the scan counted 2"):
        list(read(parts[0]))


def split_by_hand(data: bytes, quote: bool):
    """Cut records byte by byte, the plain way: starts, ends, line breaks before."""
    found, start, line, open_line, at, quoted = [], 0, 0, 0, 0, False
    fresh = True  # at the start of a field
    while at < len(data):
        byte = data[at : at + 1]
        step = 2 if quote and data[at : at + 2] == b"\r\n" else 1
        if quoted:
            if data[at : at + 2] == b'""':
                step = 2
            elif byte == b'"':
                quoted = False
        elif quote and byte == b'"' and fresh:
            quoted = True
        is_break = byte == b"\n" or (quote and byte == b"\r")
        line += is_break
        if is_break and not quoted:
            if at > start:
                found.append((start, at, open_line))
            start, open_line = at + step, line
        fresh = not quoted and (byte == b"," or is_break)
        at += step
    return found, start


@settings(max_examples=300, deadline=None)
@given(
    data=st.lists(
        st.sampled_from(
            [b"\n", b"\r", b'"', b",", b"a", b"\x0b", b"\x0c", b"#", b"!", b"\x8a", b"\xa2", b"\0"]
        ),
        max_size=300,
    ),
    quote=st.booleans(),
    room=st.sampled_from([64, 65, 500]),
)
def test_the_fast_scan_is_the_plain_one(data, quote, room):
    data = b"".join(data)
    buffer = np.full(len(data) + BLOCK, ord("\n"), dtype=np.uint8)
    buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)
    state[kernels.CLOSED] = -2
    found = []
    while state[kernels.NEXT] < len(data):
        out = np.empty((3, room), dtype=np.int64)
        n = kernels.split_records(
            kernels.Buffer(buffer, len(data)),
            34 if quote else kernels.NO_QUOTE,
            44,
            state,
            kernels.Records(*out),
        )
        found += [tuple(row) for row in out[:, :n].T.tolist()]
    expected, start = split_by_hand(data, quote)
    assert found == expected
    assert state[kernels.START] == start


def test_byte_order_mark_inside_is_data(tmp_path):
    """Two files glued together: whether a chunk begins there must not matter."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n\xef\xbb\xbf3,4\n")
    for part_bytes in (1, 1 << 20):
        assert rows_of(everything(path, part_bytes)[1]) == [("1", "2"), ("\ufeff3", "4")]


def test_memory_stays_with_the_batch(tmp_path):
    psutil = pytest.importorskip("psutil")
    path = Path(tmp_path / "t.csv")
    line = b"1," + b"word " * 200 + b"\n"
    with path.open("wb") as file:
        file.write(b"k,t\n")
        for _ in range(100):
            file.write(line * 1000)
    (part,) = scan(expand_sources(path), 1 << 30)
    process = psutil.Process()
    before, peak = process.memory_info().rss, 0
    for _batch in read(part, ReadRequest(batch_bytes=1 << 20)):
        peak = max(peak, process.memory_info().rss)
    assert peak - before < 30 << 20


@pytest.mark.parametrize("bad", [b"caf\xe9,x,extra", b"caf\xe9", b'"\xff\n",b,c'])
def test_a_row_that_is_neither_utf8_nor_complete_is_one_bad_row(tmp_path, bad):
    path = tmp_path / "t.csv"
    path.write_bytes(b"k,text\n" + b"a,b\n" * 3 + bad + b"\n" + "é,d\n".encode() + b"caf\xe9,e\n" + b"f,g\n")
    _, (batch,) = everything(path, on_bad_row="quarantine")
    assert batch.table.to_pylist() == [
        {"k": k, "text": t} for k, t in [*[("a", "b")] * 3, ("é", "d"), ("f", "g")]
    ]
    assert [reject.row for reject in batch.rejects] == [3, 5]
    assert [reject.line for reject in batch.rejects] == [5, 7 + bad.count(b"\n")]
    assert "the header has 2" in batch.rejects[0].reason
    assert "not valid UTF-8" in batch.rejects[1].reason
    with pytest.raises(DataError, match=r"t\.csv:5: . fields?, the header has 2"):
        everything(path)


def test_only_rows_that_are_neither_utf8_nor_complete(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"k,text\n" + b"caf\xe9,x,extra\n" * 3)
    _, (batch,) = everything(path, on_bad_row="quarantine")
    assert (batch.n_rows, len(batch.rejects)) == (0, 3)
