"""Columns as the ingest takes them: dictionaries decoded, views laid out one after another."""

from __future__ import annotations

import pyarrow as pa


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type a column has once dictionaries are decoded and views are laid out one after another."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        inner = [pa.field(field.name, plain_type(field.type)) for field in kind]
        plain = all(one.type == field.type for one, field in zip(inner, kind, strict=True))
        return kind if plain else pa.struct(inner)
    if types.is_list(kind) or types.is_large_list(kind):
        inner = plain_type(kind.value_type)
        if inner == kind.value_type:
            return kind
        return pa.list_(inner) if types.is_list(kind) else pa.large_list(inner)
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns have their `plain_type`."""
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a record batch whose columns have their `plain_type`."""
    arrays = [_plain_array(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain_array(column: pa.Array) -> pa.Array:
    kind = plain_type(column.type)
    if kind == column.type:
        return column
    if pa.types.is_dictionary(column.type):
        values = _plain_array(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    return column.cast(kind)
