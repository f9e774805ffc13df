"""Columns of dates and times as numbers: the day, and the month, weekday and hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.date_formats import ISO, times_in_format
from bigmc.ingestion.columns.number_columns import Floats, null_mask
from bigmc.ingestion.columns.value_formats import without_missing
from bigmc.ingestion.hashing.categories import is_text, plain_text

_DAY = 86_400_000_000
"""Microseconds."""
_FIRST_DAY = np.datetime64("2000-01-01", "D").astype("datetime64[us]").astype(np.int64)

DATE_PARTS: Mapping[str, Callable[[NDArray[np.int64]], NDArray[Any]]] = MappingProxyType(
    {
        "day": lambda times: np.floor((times - _FIRST_DAY) / _DAY),
        "month": lambda times: times.view("datetime64[us]").astype("datetime64[M]").astype(int) % 12 + 1,
        "weekday": lambda times: (times // _DAY + 3) % 7,
        "hour": lambda times: times % _DAY / (_DAY / 24),
    }
)
"""Numbers from a date in microseconds since 1970: days since 1 January 2000, the month from 1, the
day of the week with Monday as 0, and hours since midnight. Times with a zone are converted to UTC."""


def part_names(columns: Sequence[str]) -> Iterator[str]:
    """Yield the names of the features of date columns."""
    return (f"{column} ({part})" for column in columns for part in DATE_PARTS)


def is_date(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds dates, or texts that may be."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_text(kind))


def as_dates(column: pa.Array, format: str = ISO, missing: Sequence[str] = ()) -> Floats:
    """Return a column of dates or times, or of texts, as the numbers of `DATE_PARTS`.

    `format`, how texts are written, is a key of `bigmc.ingestion.columns.date_formats.EXAMPLES`. Texts in
    `missing`, in small letters, stand for a missing date.
    """
    if is_text(column.type):
        texts = without_missing(plain_text(column), missing)
        absent = null_mask(texts)
        times, unreadable = _iso_times(texts) if format == ISO else times_in_format(texts, format)
        unreadable &= ~absent
    else:
        plain = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
        absent, unreadable = null_mask(column), np.zeros(len(column), bool)
        times = plain.fill_null(0).to_numpy(zero_copy_only=False)
    values = np.column_stack([part(times) for part in DATE_PARTS.values()]).astype(np.float64)
    values[absent | unreadable] = np.nan
    return Floats(values, absent, unreadable)


def _iso_times(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return microseconds since 1970, 0 for texts that are not dates, and which those are."""
    read = [_read(text) for text in texts.to_pylist()]
    times = np.array([0 if time is None else time for time in read], np.int64)
    return times, np.array([time is None for time in read], bool)


def _read(text: str | None) -> int | None:
    """Return microseconds since 1970; None for a text that is not a date."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
