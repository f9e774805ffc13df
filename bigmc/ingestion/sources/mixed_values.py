"""Columns whose values have several types: texts, numbers, booleans and dates all become texts."""

from __future__ import annotations

import datetime
import decimal
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from bigmc.errors import DataError

_SCALARS = (str, bool, int, float, decimal.Decimal, datetime.date, np.generic, UUID)
_OF_PANDAS = ("Interval", "Period")
"""Types of pandas whose values have a text, which CSV has too."""


def as_texts(values: Iterable[Any]) -> pa.Array:
    """Return values as texts, formatted like Python's ``str``, as categories are; None and NaN are missing.

    `TypeError` if a value is a list, an object or the like.
    """
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if type(value).__name__ == "NAType":  # of pandas, which does not compare
        return None
    if not (isinstance(value, _SCALARS) or type(value).__name__ in _OF_PANDAS):
        raise TypeError(f"a value of type {type(value).__name__} has no text")
    return str(value) if value == value else None  # not equal to itself: NaN or NaT


def loses_times(kind: pa.DataType, values: Iterable[Any]) -> bool:
    """Return whether a column of dates was made of values with a time of day.

    Arrow takes the type of the first value, and cuts the times off where it is a date.
    """
    times = (value for value in values if isinstance(value, datetime.datetime))
    return bool(pa.types.is_date(kind)) and any(time == time for time in times)  # NaT is not equal to itself


@contextmanager
def only_unicode(name: str) -> Iterator[None]:
    """Turn the error of Arrow for a text with half a surrogate pair into one that shows the text.

    Python makes such texts of bytes that are not UTF-8, as with ``errors="surrogateescape"``.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name}: the text {reprlib.repr(error.object)} has half a surrogate pair, so it is not Unicode",
            "replace it, as text.encode('utf-8', 'replace').decode() does",
        ) from None


def with_texts(value: Any, kind: pa.DataType) -> Any:
    """Return a JSON value in which numbers and booleans are texts, and NaN missing, where a type has texts.

    The value itself, not a copy, if there are none.
    """
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return _as_text(value) if isinstance(value, bool | int | float) else value
    if types.is_struct(kind) and isinstance(value, Mapping):
        known = [field for field in kind if field.name in value]
        inner = {field.name: with_texts(value[field.name], field.type) for field in known}
        changed = {name: new for name, new in inner.items() if new is not value[name]}
        return {**value, **changed} if changed else value
    if types.is_list(kind) and isinstance(value, list):
        items = [with_texts(item, kind.value_type) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
