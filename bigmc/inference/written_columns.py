"""Columns copied from a source, in types that files of predictions have."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.printable import finite


def loses_in_parquet(kind: pa.DataType) -> bool:
    """Return whether Parquet alone would not say what a value is: the unit of a duration, or a time zone."""
    if pa.types.is_timestamp(kind):
        return kind.tz not in (None, "UTC")
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return pa.types.is_duration(kind) or any(map(loses_in_parquet, inner))


def decoded(schema: pa.Schema) -> pa.Schema:
    """Return a schema with values in place of dictionaries."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    return pa.schema(list(zip(schema.names, types, strict=True)))


def csv_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that CSV has: lists and objects as JSON; labels as in names of columns.

    `DataError` if it has bytes that are not UTF-8.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_floating(kind.value_type) or pa.types.is_boolean(kind.value_type):
            texts = [_texts(chunk.dictionary, str).take(chunk.indices) for chunk in column.chunks]
            return pa.chunked_array(texts, pa.string())  # Arrow writes 2 for 2.0, true for True
        return column.cast(kind.value_type)
    column = column if pa.types.is_time(kind) else with_texts(name, column, "CSV")
    if pa.types.is_nested(kind):
        return pa.chunked_array([_texts(column, json_text)])
    # the number alone does not tell its unit
    return pa.chunked_array([_texts(column, str)]) if pa.types.is_duration(kind) else column


def json_text(value: object) -> str:
    """Return a value as JSON, or what JSON lacks as text."""
    return json.dumps(finite(value), ensure_ascii=False, default=str)


def _texts(values: pa.Array | pa.ChunkedArray, as_text: Callable[[object], str]) -> pa.Array:
    return pa.array([None if v is None else as_text(v) for v in values.to_pylist()], pa.string())


def with_texts(name: str, column: pa.ChunkedArray, file: str) -> pa.ChunkedArray:
    """Return a column with texts in place of bytes, which neither CSV nor JSON has, in lists and objects too.

    Times of day in nanoseconds become texts as well, since those of Python have microseconds. `DataError` if
    bytes are not UTF-8.
    """
    kind = _with_texts(column.type)
    if kind == column.type:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        raise DataError(
            f"the column {name!r} has bytes that are not text in UTF-8, which {file} cannot have",
            "write Parquet, with --to NAME.parquet, or leave the column out of --keep",
        ) from None


@cache  # asked for every table
def _with_texts(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_binary(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or kind == pa.time64("ns"):
        return pa.string()
    if types.is_map(kind):
        return pa.map_(_with_texts(kind.key_type), _with_texts(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _with_texts(field.type)) for field in kind])
    if types.is_large_list(kind):
        return pa.large_list(_with_texts(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_with_texts(kind.value_type), kind.list_size)
    return pa.list_(_with_texts(kind.value_type)) if types.is_list(kind) else kind
