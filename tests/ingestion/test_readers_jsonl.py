"""JSON lines against Python's json module."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bigmc
from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import Part, ReadHints, ReadRequest, expand_sources, read, scan, schema
from bigmc.ingestion.readers import jsonl


def everything(source, part_bytes=1 << 20, batch_bytes=1 << 16, on_bad_row="fail", columns=None, types=None):
    parts = scan(expand_sources(source), part_bytes, ReadHints(types=types or {}))
    batches = []
    for part in parts:
        part = Part.from_dict(json.loads(json.dumps(part.to_dict())))
        here = list(read(part, ReadRequest(columns, batch_bytes, on_bad_row)))
        assert sum(b.n_rows + len(b.rejects) for b in here) == part.n_rows
        batches += here
    return batches


def rows_of(batches):
    return [row for batch in batches for row in batch.table.to_pylist()]


def rejects_of(batches):
    return [reject for batch in batches for reject in batch.rejects]


record = st.fixed_dictionaries(
    {"text": st.text(max_size=10)},
    optional={
        "label": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.lists(st.text(max_size=3), max_size=3),
        "other": st.booleans(),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(record, min_size=1, max_size=10),
    ascii_only=st.booleans(),
    line_end=st.sampled_from(["\n", "\r\n", "\n \n"]),
    end_break=st.booleans(),
    mark=st.booleans(),
    part_bytes=st.sampled_from([1, 50, 1 << 20]),
    batch_bytes=st.sampled_from([1, 100, 1 << 16]),
)
def test_any_parts_give_the_rows_of_pythons_json(
    tmp_path, records, ascii_only, line_end, end_break, mark, part_bytes, batch_bytes
):
    path = tmp_path / "t.jsonl"
    text = line_end.join(json.dumps(r, ensure_ascii=ascii_only) for r in records)
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + (text + line_end * end_break).encode())
    types = {"label": pa.int64(), "x": pa.float64(), "tags": pa.list_(pa.string()), "text": pa.string()}
    batches = everything(path, part_bytes, batch_bytes, columns=list(types), types=types)
    assert rows_of(batches) == [{name: r.get(name) for name in types} for r in records]
    assert [int(i) for b in batches for i in b.row] == list(range(len(records)))
    step = line_end.count("\n")
    assert [int(i) for b in batches for i in b.line] == [1 + step * i for i in range(len(records))]


BAD = [
    (b'{"text": "a", "y": 1', "broken JSON"),
    (b'{"text": "a" "y": 1}', "broken JSON: Expecting ',' delimiter at column 14"),
    (b"[1, 2]", "a list, not a JSON object"),
    (b"5", "a number, not a JSON object"),
    (b"null", "null, not a JSON object"),
    (b'{"text": {"a": 5}, "y": 1}', "column 'text' is an object, expected a string"),
    (b'{"text": ["a"], "y": 1}', "column 'text' is a list, expected a string"),
    (b'{"text": "a", "y": "1"}', "column 'y' is a string, expected a whole number"),
    (b'{"text": "a", "y": true}', "column 'y' is a boolean, expected a whole number"),
    (b'{"text": "a", "y": 1.5}', "column 'y' is a number, expected a whole number"),
    (b'{"text": "a", "y": 99999999999999999999}', "couldn't parse"),
    (b'{"text": "a", "text": "b"}', "specified twice"),
    (b'{"text": "a"} {"text": "b"}', "more than one JSON"),
    (b'{"text": "a"}{"text": "b"}', "more than one JSON"),
    (b'{"text": "a\xff"}', "not valid UTF-8"),
    (b'{"text": "\\ud800"}', "surrogate"),
    (b'{"text":', "broken JSON"),
    (b'\x0c{"text": "a"}', "broken JSON"),
    (b'{"text": "a"}\0', "more than one JSON"),
]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_bad_lines_stop_the_run_or_are_set_aside(tmp_path, line, reason):
    path = tmp_path / "t.jsonl"
    good = [b'{"text": "g%d", "y": %d}' % (i, i) for i in range(20)]
    path.write_bytes(b"\n".join([*good[:10], b"", line, *good[10:]]))
    types = {"y": pa.int64()}
    with pytest.raises(DataError, match=r"t\.jsonl:12: ") as caught:
        everything(path, types=types)
    assert reason in str(caught.value)
    for part_bytes in (1, 100, 1 << 20):
        batches = everything(path, part_bytes, on_bad_row="quarantine", types=types)
        assert [row["text"] for row in rows_of(batches)] == [f"g{i}" for i in range(20)]
        (reject,) = rejects_of(batches)
        assert (reject.line, reject.row) == (12, 10)
        assert reject.raw == line.decode(errors="replace")
        assert reason in reject.reason


def test_an_object_over_two_lines_and_two_on_one_do_not_cancel(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"t": "a"}\n{"t":\n"b"}\n{"t": "c"} {"t": "d"}\n{"t": "e"}\n')
    batches = everything(path, on_bad_row="quarantine")
    assert rows_of(batches) == [{"t": "a"}, {"t": "e"}]
    assert [r.line for r in rejects_of(batches)] == [2, 3, 4]


def test_many_bad_lines(tmp_path):
    rng = np.random.default_rng(1)
    bad = rng.random(2000) < 0.1
    path = tmp_path / "t.jsonl"
    path.write_text(
        "".join('{"t": %s}\n' % (f"[{i}]" if b else f'"{i}"') for i, b in enumerate(bad)).replace(
            '{"t": [0]}', '{"t": "0"}'
        )
    )
    bad[0] = False
    batches = everything(path, 700, 1 << 16, "quarantine", types={"t": pa.string()})
    assert [int(row["t"]) for row in rows_of(batches)] == np.flatnonzero(~bad).tolist()
    assert [r.row for r in rejects_of(batches)] == np.flatnonzero(bad).tolist()


def test_types_are_those_given_or_first_seen_in_every_part(tmp_path):
    path = tmp_path / "t.jsonl"
    lines = ['{"d": "2020-01-01", "i": 1, "x": 1, "n": null, "s": {"a": null}, "b": true}']
    path.write_text("\n".join(lines * 3 + ['{"d": "x", "x": 2.5}']))
    sources = expand_sources(path)
    found = schema(sources, ["d"], ReadHints(types={"x": pa.float64()}))
    assert found.field("d").type == pa.string()  # not a date
    assert found.field("i").type == pa.int64()
    assert found.field("b").type == pa.bool_()
    assert found.field("n").type == pa.string()
    batches = everything(path, 1, types={"x": pa.float64()})
    own = pa.schema([field for field in found if field.name != "s.a"])  # a field inside the column s
    assert {str(b.table.schema) for b in batches} == {str(own)}
    assert found.field("s.a").type == pa.string()
    assert [row["x"] for row in rows_of(batches)] == [1.0, 1.0, 1.0, 2.5]
    with pytest.raises(DataError, match="no column 'dd'; did you mean 'd'"):
        schema(sources, ["dd"])


def test_values_of_several_types_are_texts_like_those_of_python(tmp_path):
    path = tmp_path / "t.jsonl"
    values = [1, "a", 2.5, None, True, "", 10**25, -1e300, float("nan")]
    rows = [{"v": v, "doc": {"id": v, "n": [1, {}]}, "i": i} for i, v in enumerate(values)]
    path.write_text("\n".join(map(json.dumps, [*rows, {"v": [1], "i": 0}])))
    expected = [None if v is None or v != v else str(v) for v in values]
    for part_bytes in (1, 1 << 20):
        batches = everything(path, part_bytes, on_bad_row="quarantine", columns=["v", "doc.id", "i"])
        found = rows_of(batches)
        assert [row["v"] for row in found] == [row["doc.id"] for row in found] == expected
        assert [row["i"] for row in found] == list(range(len(values)))
        assert [r.reason for r in rejects_of(batches)] == ["column 'v' is a list, expected a string"]


def test_an_array_is_not_lines(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('\n[{"a": 1},\n{"a": 2}]')
    with pytest.raises(DataError, match=r"t\.json:2: a JSON array.*jq"):
        scan(expand_sources(path))


def test_compressed_empty_and_long(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"t": "%s"}\n\n{"t": "z"}' % (b"x" * (2 << 20))))
    batches = everything(path, 1, 1 << 12)
    assert [(len(r["t"])) for r in rows_of(batches)] == [2 << 20, 1]
    empty = tmp_path / "e.jsonl"
    empty.write_text("\n \n")
    assert everything(empty) == []


def test_half_a_surrogate_pair_in_a_key_or_value_spoils_its_line_only(tmp_path):
    path = tmp_path / "t.jsonl"
    lines = [r'{"\ud800": 1, "t": "a"}', '{"t": "b"}', r'{"t": "\udc00"}', r'{"u\ud83d\ude00": 2, "t": "c"}']
    path.write_text("\n".join(lines) + "\n")
    assert schema(expand_sources(path)).names == ["t", "u😀"]
    batches = everything(path, columns=["t"], on_bad_row="quarantine")
    kept = [row["t"] for batch in batches for row in batch.table.to_pylist()]
    rejected = [reject.line for batch in batches for reject in batch.rejects]
    assert len(kept) + len(rejected) == 4
    assert kept[-1] == "c"
    assert "b" in kept
    assert 3 in rejected


def test_an_integer_that_its_column_of_floats_does_not_hold_makes_its_row_bad(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"x": 0.5}\n{"x": 9007199254740993}\n{"x": 9007199254740992}\n{"x": 1e300}\n{"x": null}\n'
    )
    (batch,) = everything(path, on_bad_row="quarantine")
    assert batch.table.column("x").to_pylist() == [0.5, 2.0**53, 1e300, None]
    (reject,) = batch.rejects
    assert (reject.line, reject.reason) == (
        2,
        "column 'x' is 9007199254740993, which is not exact as a 64-bit float",
    )


def test_columns_of_numbers_may_begin_with_whole_ones(tmp_path, monkeypatch):
    """A dataset, and predictions, are those of a Parquet file, where the types are known."""
    monkeypatch.setattr(jsonl, "_HEAD_BYTES", 500)
    rows = [
        {"x": i % 2, "in": {"x": i % 3}, "h": 1, "w": 1, "label": "ab"[i % 2]}
        if i < 90
        else {"x": 0.5, "in": {"x": -0.25}, "h": 2.5, "w": 1.5, "label": "a"}
        for i in range(100)
    ]
    (tmp_path / "d.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    columns = {"dense": ["x", "in.x"], "numeric": "h", "weight": "w", "label": "label"}
    found = []
    for name in ("d.jsonl", "d.parquet"):
        dataset = bigmc.ingest(tmp_path / name, to=tmp_path / f"{name}.bigmc", **columns)
        model = bigmc.SparseClassifier().fit(dataset)
        bigmc.predict(model, tmp_path / name, tmp_path / f"{name}.csv", scores=True)
        np.testing.assert_array_equal(
            model.decision_function(tmp_path / name), model.decision_function(tmp_path / "d.parquet")
        )
        tables = [shard.table().to_pydict() for shard in dataset.shards]
        found.append((dataset.nnz, tables, (tmp_path / f"{name}.csv").read_bytes()))
    assert found[0] == found[1]
    with pytest.raises(DataError, match=r"jsonl:91: column 'x' is a number, expected a whole number"):
        bigmc.ingest(tmp_path / "d.jsonl", to=tmp_path / "kept", keep=["x"], **columns)
