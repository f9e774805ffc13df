"""JSON lines: one object per line, parsed by pyarrow with fixed types."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import (
    Batch,
    Part,
    ScanOptions,
    Source,
    check_columns,
    keep_rows,
    number,
    undecodable_rows,
)
from bigmc.ingestion.readers.text import Chunk, Layout, broken, chunks, cut, part_chunks, skip_mark
from bigmc.ingestion.rejects import OnBadRow, settle

_LAYOUT = Layout()
_HEAD_BYTES = 1 << 20
_JSON_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    dict: "an object",
    list: "a list",
}


def _text_for_nothing(kind: Any) -> Any:
    """Return a type with text where only nulls were seen."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_text_for_nothing(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _text_for_nothing(field.type)) for field in kind])
    return kind


def _seen_type(values: list[Any]) -> Any:
    """Return the type of JSON values; where they disagree the first one decides."""
    for some in (values, [value for value in values if value is not None][:1]):
        try:
            return _text_for_nothing(pa.infer_type(some))
        except (pa.ArrowException, OverflowError):
            continue
    return pa.int64()  # a number beyond 64 bits, refused where it is read


def _encoded(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def _decoded(text: str) -> Any:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class JsonLinesReader:
    """Reads files with one JSON object per line.

    The types of the columns are those given, else those seen in the first MiB of the first file, and
    are the same for every part: a value of another type makes its row bad. A missing key is null.
    """

    def schema(self, source: Source, options: ScanOptions) -> Any:
        """Return the columns of the first MiB of a file, with the types given or seen."""
        values: dict[str, list[Any]] = {}
        n_seen = 0
        for chunk in chunks(source.path, _LAYOUT, skip_mark(source.path), None, 1, _HEAD_BYTES):
            if len(chunk.starts) and chunk.data[chunk.starts[0]] == ord("["):
                raise DataError(
                    f"{source.path}:{chunk.lines[0]}: a JSON array, not one JSON object per line",
                    f"convert it: jq -c '.[]' {source.path}",
                )
            for i in range(len(chunk.starts)):
                try:
                    row = json.loads(chunk.raw(i))
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict):
                    n_seen += 1
                    for name, value in row.items():
                        values.setdefault(name, []).append(value)
            if n_seen:
                break
        types = {name: _seen_type(seen) for name, seen in values.items()} | dict(options.types)
        return pa.schema(list(types.items()))

    def scan(self, sources: Sequence[Source], part_bytes: int, options: ScanOptions) -> list[Part]:
        """Cut each file at lines; the first file fixes the types."""
        found = {"schema": _encoded(self.schema(sources[0], options))}
        parts: list[Part] = []
        for i, source in enumerate(sources):
            parts += cut(source.path, "jsonl", i, _LAYOUT, skip_mark(source.path), 1, part_bytes)
        return number([replace(part, options=found) for part in parts])

    def read(
        self,
        part: Part,
        source: Source | None,
        columns: Sequence[str] | None,
        batch_bytes: int,
        on_bad_row: OnBadRow,
    ) -> Iterator[Batch]:
        """Read a part; a line that is not one object with the columns' types is a bad row."""
        schema = _decoded(part.options["schema"])
        wanted = list(schema.names if columns is None else columns)
        check_columns(part.path, wanted, schema.names)
        schema = pa.schema([schema.field(name) for name in wanted])
        for first_row, chunk in part_chunks(part, _LAYOUT, batch_bytes):
            if len(chunk.starts):
                yield _batch(chunk, first_row, schema, on_bad_row)


def _batch(chunk: Chunk, first_row: int, schema: Any, on_bad_row: OnBadRow) -> Batch:
    n = len(chunk.starts)
    reasons: dict[int, str] = {}
    # A line that begins with { and ends with } cannot be half of an object that parses, so that the
    # parser's rows are our lines.
    good = (chunk.data[chunk.starts] == ord("{")) & (chunk.data[chunk.ends - 1] == ord("}"))
    for at in np.flatnonzero(~good).tolist():
        reasons[at] = _reason(chunk.raw(at), schema, "not a JSON object on one line")
    try:
        table = _parse(chunk, good, schema)
    except pa.ArrowException:
        kept = np.flatnonzero(good)

        def attempt(lo: int, hi: int) -> Exception | None:
            some = np.zeros(n, dtype=np.bool_)
            some[kept[lo:hi]] = True
            try:
                _parse(chunk, some, schema)
            except pa.ArrowException as error:
                return Exception(str(error))
            return None

        for i, error in broken(attempt, len(kept)):
            at = int(kept[i])
            reasons[at] = _reason(chunk.raw(at), schema, str(error).removesuffix(" in row 0"))
            good[at] = False
        try:
            table = _parse(chunk, good, schema)
        except pa.ArrowException as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: cannot be parsed from this line on ({error})",
                "give the types of the columns",
            ) from error
    kept = np.flatnonzero(good)
    decodable = np.ones(len(kept), dtype=np.bool_)
    for i, reason in undecodable_rows(table).items():
        decodable[i] = False
        reasons[int(kept[i])] = reason
    kept = kept[decodable]
    return Batch(
        table=keep_rows(table, decodable),
        matrix=None,
        labels=None,
        row=first_row + kept,
        line=chunk.lines[kept],
        path=chunk.path,
        n_bytes=len(chunk.data),
        rejects=settle((chunk.reject(i, first_row, text) for i, text in reasons.items()), on_bad_row),
    )


def _parse(chunk: Chunk, keep: NDArray[np.bool_], schema: Any) -> Any:
    """Parse the marked lines into one record batch of exactly the schema."""
    if not keep.any():
        return pa.RecordBatch.from_pylist([], schema=schema)
    if keep.all():
        text: Any = chunk.data[: chunk.ends[-1]]
    else:
        text = chunk.joined(keep)
    table = pa_json.read_json(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != int(keep.sum()):
        raise pa.ArrowInvalid("more than one JSON object on the line")
    return table.select(schema.names).combine_chunks().to_batches()[0]


def _reason(raw: bytes, schema: Any, otherwise: str) -> str:
    """Say what is wrong with a line that the parser refused."""
    try:
        row = json.loads(raw)
    except UnicodeDecodeError:
        return "the line is not valid UTF-8"
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return "more than one JSON value on the line"
        return f"broken JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:
        return f"broken JSON: {error}"
    if not isinstance(row, dict):
        return f"{_JSON_NAMES.get(type(row), 'null')}, not a JSON object"
    for field in schema:
        value = row.get(field.name)
        expected = _expected(field.type)
        if value is None or expected is None or type(value) in expected[0]:
            continue
        return f"column {field.name!r} is {_JSON_NAMES[type(value)]}, expected {expected[1]}"
    return otherwise


def _expected(kind: Any) -> tuple[tuple[type, ...], str] | None:
    """Return the Python types of JSON values that fit an Arrow type, and its name for people."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (str,), "a string"
    if pa.types.is_boolean(kind):
        return (bool,), "a boolean"
    if pa.types.is_integer(kind):
        return (int,), "a whole number"
    if pa.types.is_floating(kind):
        return (int, float), "a number"
    if pa.types.is_list(kind):
        return (list,), "a list"
    if pa.types.is_struct(kind):
        return (dict,), "an object"
    return None
