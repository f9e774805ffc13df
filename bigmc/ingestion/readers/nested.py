"""Columns inside columns: ``doc.text`` is the field ``text`` of the column ``doc``, in JSON and Parquet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")


def with_fields(schema: pa.Schema) -> pa.Schema:
    """Return a schema extended by the nested fields of its columns, at any depth, with dotted names.

    A column whose own name has the same dots takes precedence.
    """
    known = dict.fromkeys(schema.names)
    inner_fields = [field for field in _inner("", list(schema)) if field.name not in known]
    return pa.schema([*schema, *inner_fields])


def _inner(prefix: str, fields: Sequence[pa.Field]) -> list[pa.Field]:
    inner_fields = []
    for field in fields:
        if pa.types.is_struct(field.type):
            below = f"{prefix}{field.name}."
            inner_fields += [pa.field(f"{below}{one.name}", one.type) for one in field.type]
            inner_fields += _inner(below, list(field.type))
    return inner_fields


def path_of(name: str, fields: Sequence[pa.Field]) -> tuple[str, ...] | None:
    """Return the path of names from a column to a field with a dotted name, or None."""
    for field in fields:
        if field.name == name:
            return (name,)
    for field in fields:
        if name.startswith(f"{field.name}.") and pa.types.is_struct(field.type):
            below = path_of(name[len(field.name) + 1 :], list(field.type))
            if below is not None:
                return (field.name, *below)
    return None


def only(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the columns that hold the requested fields, without the other fields."""
    fields, known = list(schema), frozenset(schema.names)
    paths = ((name,) if name in known else path_of(name, fields) for name in columns)
    return pa.schema(_pruned(fields, [path for path in paths if path is not None]))


def _pruned(fields: Sequence[pa.Field], paths: Sequence[tuple[str, ...]]) -> list[pa.Field]:
    kept, of_root = [], defaultdict[str, list[tuple[str, ...]]](list)
    for path in paths:
        of_root[path[0]].append(path[1:])
    for field in fields:
        below = of_root[field.name]
        if not below:
            continue
        if () in below:
            kept.append(field)
        else:
            kept.append(pa.field(field.name, pa.struct(_pruned(list(field.type), below))))
    return kept


def with_types(schema: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema with changed types of columns or nested fields; new names become columns."""
    fields = list(schema)
    for name, kind in types.items():
        path = path_of(name, fields)
        if path is None:
            fields.append(pa.field(name, kind))
        else:
            fields = _retyped(fields, path, kind)
    return pa.schema(fields)


def _retyped(fields: Sequence[pa.Field], path: tuple[str, ...], kind: pa.DataType) -> list[pa.Field]:
    changed = []
    for field in fields:
        if field.name != path[0]:
            changed.append(field)
        elif len(path) == 1:
            changed.append(pa.field(field.name, kind))
        else:
            changed.append(pa.field(field.name, pa.struct(_retyped(list(field.type), path[1:], kind))))
    return changed


def select(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the requested columns and fields, in this order; fields of missing values are missing."""
    if frozenset(batch.schema.names).issuperset(columns):
        return batch.select(list(columns))
    fields = list(batch.schema)
    arrays = []
    for name in columns:
        root, *below = path_of(name, fields) or (name,)
        array = batch.column(root)
        arrays.append(pc.struct_field(array, below) if below else array)
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
