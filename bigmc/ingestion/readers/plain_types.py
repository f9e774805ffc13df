"""Convert columns to plain types: decode dictionaries, runs and extension types, copy views."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import cache
from uuid import UUID

import numpy as np
import pyarrow as pa

from bigmc.ingestion.readers.utf8 import is_string, undecodable
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")
pq = LazyModule("pyarrow.parquet")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column after decoding dictionaries and runs, and copying views of texts and lists.

    UUIDs become texts; columns of other extension types what they are stored as. Those in lists and objects,
    which Arrow cannot cast, stay. Decimal numbers of 32 and 64 bits, for which Arrow lacks functions, become
    those of 128.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if _is_uuid(kind) else plain_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        inner = [pa.field(field.name, _plain_inner(field.type)) for field in kind]
        plain = all(one.type == field.type for one, field in zip(inner, kind, strict=True))
        return kind if plain else pa.struct(inner)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_inner(kind.value_type))
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _plain_inner(kind.value_type)
        if inner == kind.value_type:
            return kind
        return pa.list_(inner) if types.is_list(kind) else pa.large_list(inner)
    return kind


def _plain_inner(kind: pa.DataType) -> pa.DataType:
    return kind if isinstance(kind, pa.BaseExtensionType) else plain_type(kind)


def has_inner_dictionary(kind: pa.DataType) -> bool:
    """Return whether a list or an object has a dictionary in it, at any depth."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return any(pa.types.is_dictionary(one) or has_inner_dictionary(one) for one in inner)


def bytes_of(table: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes of a table.

    Older releases of Arrow do not know the used part of a string view's buffers, which count as a whole.
    """
    try:
        return int(table.nbytes)
    except pa.ArrowTypeError:
        return int(table.get_total_buffer_size())


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns have their `plain_type`."""
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def unwritable(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns of a schema whose types Parquet does not have."""
    return [field for field in schema if not _in_parquet(field.type)]


@cache  # asked of every table of a stream
def _in_parquet(kind: pa.DataType) -> bool:
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([("", kind)])).close()
    except pa.ArrowException:
        return False
    return True


def plain_columns(batch: pa.RecordBatch, encoded: Sequence[str] = ()) -> pa.RecordBatch:
    """Return a record batch whose columns have their `plain_type`, or stay dictionaries of UTF-8 texts."""
    names = batch.schema.names
    arrays = [
        column if name in encoded and _is_dictionary_of_texts(column) else plain_array(column)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _is_dictionary_of_texts(column: pa.Array) -> bool:
    """Return whether a column is a dictionary whose values are texts, all of them UTF-8."""
    if not pa.types.is_dictionary(column.type):
        return False
    values = column.dictionary
    return is_string(values.type) and not values.null_count and not undecodable(values)


def _is_uuid(kind: pa.BaseExtensionType) -> bool:
    return bool(kind.extension_name == "arrow.uuid")


def plain_array(column: pa.Array) -> pa.Array:
    """Return a column with its `plain_type`."""
    kind = plain_type(column.type)
    if kind == column.type:
        return column
    if isinstance(column, pa.ExtensionArray):
        if not _is_uuid(column.type):
            return plain_array(column.storage)
        values = column.storage.to_pylist()
        return pa.array([None if value is None else str(UUID(bytes=value)) for value in values], kind)
    if pa.types.is_dictionary(column.type):
        values = plain_array(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if pa.types.is_run_end_encoded(column.type):
        return plain_array(pc.run_end_decode(column))
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        return _plain_lists(column).cast(kind)
    return column.cast(kind)


def _plain_lists(views: pa.Array) -> pa.Array:
    """Return lists instead of views of lists; Arrow's cast of a slice with missing lists is wrong."""
    lengths = np.asarray(pc.list_value_length(views).fill_null(0), np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    return pa.LargeListArray.from_arrays(offsets, views.flatten(), mask=views.is_null())


class Drift(Enum):
    """By what the type of a column may differ between files: nothing, the bits of integers, any numbers."""

    NONE = auto()
    INTEGERS = auto()
    NUMBERS = auto()


def common_type(kind: pa.DataType, other: pa.DataType, drift: Drift = Drift.NONE) -> pa.DataType | None:
    """Return the type of a column that has two types in different files, or None if they do not go together.

    A file without values in it has the type null, and how wide the offsets of texts are is the choice of the
    writer. Numbers, also in lists, may be integers in one file and floats in another, as pandas writes them
    where a value is missing: each file is read as floats. Integers of any width have a type that holds them
    all, but for those of 64 bits without a sign beside those with one.
    """
    if kind == other or pa.types.is_null(other) or (is_string(kind) and is_string(other)):
        return kind
    if pa.types.is_null(kind):
        return other
    types = kind, other
    if drift is Drift.NUMBERS and all(map(_is_number, types)):
        return pa.float64()
    if drift is Drift.NUMBERS and all(_is_list(t) and _is_number(t.value_type) for t in types):
        return pa.list_(pa.float64())
    if drift is Drift.INTEGERS and all(pa.types.is_integer(t) for t in types):
        (wide,) = pa.unify_schemas([pa.schema([("", t)]) for t in types], promote_options="permissive").types
        return wide if pa.types.is_unsigned_integer(wide) or pa.uint64() not in types else None
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
