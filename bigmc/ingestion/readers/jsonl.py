"""JSON lines: one object per line, parsed by pyarrow with fixed types."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.absent import absent_columns, add_example
from bigmc.ingestion.readers.base import Part, ReadHints, all_but, broken, check_columns
from bigmc.ingestion.readers.chunks import WHOLE, Chunk, RecordTooLong, chunks
from bigmc.ingestion.readers.exact import EXACT_INTEGERS, is_exact
from bigmc.ingestion.readers.nested import only, path_of, select, with_fields, with_types
from bigmc.ingestion.readers.rejects import NOT_UTF8
from bigmc.ingestion.readers.text import Parsed, Survey, TextFormat
from bigmc.ingestion.readers.utf8 import is_string
from bigmc.ingestion.sources.mixed_values import with_texts
from bigmc.ingestion.sources.source import Source

_HEAD_BYTES = 1 << 20
_MOST_HEAD_BYTES = 16 << 20
_JSON_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    dict: "an object",
    list: "a list",
}


_REFUSED = (pa.ArrowException, UnicodeDecodeError)
"""Errors of pyarrow for lines that it cannot parse; the message may quote invalid UTF-8."""


def _seen_type(values: Sequence[Any]) -> Any:
    """Return the type of JSON values: text for numbers and texts, or for nothing.

    The first one decides between objects, lists and others.
    """
    present = [value for value in values if value is not None]
    nested = (dict, list)
    first = type(present[0]) if present else str
    present = [v for v in present if (type(v) is first if first in nested else type(v) not in nested)]
    kinds = {type(value) for value in present}
    if kinds == {dict}:
        names = dict.fromkeys(name for value in present for name in value if _is_unicode(name))
        return pa.struct([(name, _seen_type([value.get(name) for value in present])) for name in names])
    if kinds == {list}:
        items = [item for value in present for item in value if item is not None]
        mixed = len({isinstance(item, nested) for item in items}) > 1
        return pa.list_(pa.string() if mixed else _seen_type(items))
    if kinds == {bool}:
        return pa.bool_()
    if kinds and kinds <= {int, float}:
        return pa.float64() if float in kinds else _integers(present)
    return pa.string()


def _seen_types(values: Mapping[str, Sequence[Any]]) -> pa.Schema:
    return pa.schema([(name, _seen_type(seen)) for name, seen in values.items()])


def _integers(values: Sequence[int]) -> Any:
    """Return the type of integers; those beyond 64 bits are texts."""
    try:
        return pa.infer_type(values)
    except (pa.ArrowException, OverflowError):
        return pa.string()


class JsonLinesFormat(TextFormat):
    """Files with one JSON object per line.

    The types of the columns are given, or detected in the first MiB of the first file, and
    are the same for every part; columns of numbers are floats. Numbers and booleans in columns of texts
    are read as texts; another value of another type makes its row bad. A missing key is null.
    """

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return the columns of the first MiB of a file, and known ones, with given or detected types."""
        values: dict[str, list[Any]] = {}
        for row in self._first_objects(source):
            for name, value in row.items():
                if _is_unicode(name):
                    values.setdefault(name, []).append(value)
        absent = absent_columns(_seen_types(values), hints.known) if hints.known else []
        for keys in absent:
            add_example(keys, values)
        typed = with_types(_seen_types(values), hints.types)
        fields, names = with_fields(typed), {".".join(keys) for keys in absent}
        whole = [
            name
            for name in hints.numbers
            if name not in hints.types
            and name in fields.names
            and (name in names or pa.types.is_integer(fields.field(name).type))
        ]
        return with_types(typed, dict.fromkeys(whole, pa.float64()))

    def _first_objects(self, source: Source) -> list[Mapping[str, Any]]:
        """Return the objects of the first chunk that has any."""
        path = source.path
        try:
            for chunk in chunks(source, self.layout, WHOLE, _HEAD_BYTES, _MOST_HEAD_BYTES):
                if len(chunk.starts) and chunk.data[chunk.starts[0]] == ord("["):
                    raise DataError(
                        f"{path}:{chunk.lines[0]}: a JSON array, not one JSON object per line",
                        f"convert it: jq -c '.[]' {path}",
                    )
                rows = [_loaded(chunk.raw(i)) for i in range(len(chunk.starts))]
                if any(row is not None for row in rows):
                    return [row for row in rows if row is not None]
        except RecordTooLong:  # given types are enough, or the columns are missing
            pass
        return []

    def survey(self, sources: Sequence[Source], hints: ReadHints) -> Survey:
        """Return the types, determined by the first file."""
        schema = self.schema(sources[0], hints).serialize().to_pybytes()
        return Survey({"schema": base64.b64encode(schema).decode("ascii")})

    def parse(self, part: Part, chunk: Chunk, columns: Sequence[str] | None) -> Parsed:
        """Parse a chunk, except lines that are not one object with the columns' types."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(part.options["schema"])))
        wanted = list(schema.names if columns is None else columns)
        check_columns(part.path, wanted, with_fields(schema).names)
        parsed = _parsed(chunk, only(schema, wanted))
        parsed.table = select(parsed.table, wanted)
        return parsed.without(_inexact(chunk, parsed, schema))


def _loaded(raw: bytes) -> Mapping[str, Any] | None:
    """Return the object in a line, or None."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _is_unicode(name: str) -> bool:
    """Return whether a key is a valid column name; lone surrogates are not."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _parsed(chunk: Chunk, schema: pa.Schema) -> Parsed:
    n = len(chunk.starts)
    reasons: dict[int, str] = {}
    # A line that begins with { and ends with } cannot be half of a valid object, so the
    # parser's rows match our lines.
    good = (chunk.data[chunk.starts] == ord("{")) & (chunk.data[chunk.ends - 1] == ord("}"))
    for at in np.flatnonzero(~good).tolist():
        reasons[at] = _reason(chunk.raw(at), schema, "not a JSON object on one line")
    try:
        table = _parse(chunk, good, schema)
    except _REFUSED:
        own, chunk = chunk, _with_texts(chunk, schema)
        kept = np.flatnonzero(good)

        def attempt(lo: int, hi: int) -> Exception | None:
            try:
                _parse(chunk, ~all_but(n, kept[lo:hi]), schema)
            except _REFUSED as error:
                return Exception(str(error))
            return None

        for i, error in broken(attempt, len(kept)):
            at = int(kept[i])
            reasons[at] = _reason(own.raw(at), schema, str(error).removesuffix(" in row 0"))
            good[at] = False
        try:
            table = _parse(chunk, good, schema)
        except _REFUSED as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: cannot be parsed from this line on ({error})",
                "give the types of the columns",
            ) from error
    return Parsed(np.flatnonzero(good), table, reasons=reasons)


def _with_texts(chunk: Chunk, schema: Any) -> Chunk:
    """Return the same records with texts for numbers and booleans in columns of texts."""
    kind = pa.struct(list(schema))
    records = [chunk.raw(i) for i in range(len(chunk.starts))]
    for i, record in enumerate(records):
        row = _loaded(record)
        written = None if row is None else with_texts(row, kind)
        if written is not row:
            records[i] = json.dumps(written).encode()
    return chunk.replaced(records)


def _inexact(chunk: Chunk, parsed: Parsed, schema: pa.Schema) -> dict[int, str]:
    """Return the parsed records with an integer that was read as another float, by position."""
    wrong: dict[int, str] = {}
    for name, column in zip(parsed.table.schema.names, parsed.table.columns, strict=True):
        if not pa.types.is_float64(column.type):
            continue
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        for i in np.flatnonzero(np.abs(values) >= EXACT_INTEGERS).tolist():
            value: Any = _loaded(chunk.raw(int(parsed.kept[i])))
            for key in path_of(name, list(schema)) or ():
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int) and not is_exact(str(value)):
                wrong.setdefault(i, f"column {name!r} is {value}, which is not exact as a 64-bit float")
    return wrong


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
    """Describe the error in a line that the parser rejected."""
    try:
        row = json.loads(raw)
    except UnicodeDecodeError:
        return f"the line {NOT_UTF8}"
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
    if is_string(kind):
        return (str, bool, int, float), "a string"
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
