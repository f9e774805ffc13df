"""Choosing among the columns of a schema, with fields inside of them."""

import pyarrow as pa

from bigmc.ingestion.readers import nested
from bigmc.ingestion.readers.nested import only, select

DOC = pa.struct([("text", pa.string()), ("by", pa.struct([("name", pa.string()), ("age", pa.int64())]))])
SCHEMA = pa.schema([("a", pa.int64()), ("doc", DOC), ("doc.text", pa.string()), ("b", pa.float64())])


def test_the_columns_that_hold_the_requested_fields():
    assert only(SCHEMA, ["b", "a"]).names == ["a", "b"]
    assert only(SCHEMA, ["doc.text"]).names == ["doc.text"]  # a column of that name comes first
    inner = only(SCHEMA, ["doc.by.age", "nothing", "b"])
    assert inner == pa.schema([
        ("doc", pa.struct([("by", pa.struct([("age", pa.int64())]))])), ("b", pa.float64()),
    ])  # fmt: skip
    assert only(SCHEMA, ["doc", "doc.by.age"]).field("doc").type == DOC


def test_plain_columns_are_not_searched_for(monkeypatch):
    """Else thousands of columns are compared with each other."""
    monkeypatch.setattr(nested, "path_of", lambda *_: 1 / 0)
    assert only(SCHEMA, ["b", "a", "doc"]).names == ["a", "doc", "b"]
    row = {"a": 1, "doc": {"text": "x", "by": None}, "doc.text": "y", "b": 0.5}
    batch = pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    assert select(batch, ["b", "a"]).to_pylist() == [{"b": 0.5, "a": 1}]
