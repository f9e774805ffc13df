"""Columns that a model or a dataset has and JSON lines lack: their values are missing."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bigmc.ingestion.readers.nested import path_of

Keys = tuple[str, ...]
"""A key of a row and, of objects in it, those of the fields down to a value."""


def absent_columns(seen: pa.Schema, known: Sequence[str]) -> list[Keys]:
    """Return the keys of those known columns that no row has, and whose values are therefore missing.

    There are none if a key looks like a misspelling of one of these, or the rows have no key of any known
    column: then the columns are errors.
    """
    fields = list(seen)
    if not any(name == field.name or name.startswith(f"{field.name}.") for name in known for field in fields):
        return []
    lacking = [name for name in known if path_of(name, fields) is None]
    used = frozenset(known) - frozenset(lacking)
    absent = [keys for name in lacking if (keys := _keys(name, fields, used)) is not None]
    return absent if len(absent) == len(lacking) else []


def _keys(name: str, fields: Sequence[pa.Field], used: frozenset[str], above: Keys = ()) -> Keys | None:
    """Return the keys of a column among fields that lack it, or None if one of these may be meant."""
    for field in fields:
        if name.startswith(f"{field.name}."):
            below = list(field.type) if pa.types.is_struct(field.type) else []
            return _keys(name[len(field.name) + 1 :], below, used, (*above, field.name))
    prefix = "".join(f"{key}." for key in above)
    others = [field.name for field in fields if not _holds(f"{prefix}{field.name}", used)]
    keys = name.split(".")
    lower = [other.lower() for other in others]
    if any(difflib.get_close_matches(text.lower(), lower, n=1) for text in (name, keys[0])):
        return None
    return (*above, *keys)


def _holds(field: str, used: frozenset[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for name in used)


def add_example(keys: Keys, values: dict[str, list[Any]]) -> None:
    """Add a missing value with these keys to the values of rows by key, which gives its column a type."""
    value: Any = None
    for key in reversed(keys[1:]):
        value = {key: value}
    values.setdefault(keys[0], []).append(value)
