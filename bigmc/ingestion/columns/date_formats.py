"""Formats of dates in tables: the order of day, month and year, and the time of day after them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.number_formats import Doubt
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

_TIME = (
    r"(?:[T ,]\s*(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}(?:\.[0-9]+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?)?$"
)
_DAY, _MONTH, _YEAR = "(?P<day>[0-9]{1,2})", "(?P<month>[0-9]{1,2})", "(?P<year>[0-9]{4}|[0-9]{2})"
_NAME, _LONG_YEAR = r"(?P<month>\pL{3,9})\.?", "(?P<year>[0-9]{4})"
_PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "year, month, day": f"^{_LONG_YEAR}[-/.]{_MONTH}[-/.]{_DAY}{_TIME}",
        "month, day, year": f"^{_MONTH}(?P<mark>[-/]){_DAY}[-/]{_YEAR}{_TIME}",
        "day, month, year": f"^{_DAY}(?P<mark>[-/.]){_MONTH}[-/.]{_YEAR}{_TIME}",
        "day, name, year": f"^{_DAY}\\.?[- ]{_NAME}[-, ]\\s*{_YEAR}{_TIME}",
        "name, day, year": f"^{_NAME}[- ]{_DAY},?[- ]\\s*{_LONG_YEAR}{_TIME}",
    }
)
"""Pattern of a date by the order of its parts. After full stops a year needs four digits: 10.04.12 may be a
version number."""
ISO = "ISO 8601"
"""The format that needs no pattern: 2026-11-25 or 2026-11-25T08:30:00Z."""
EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        ISO: "2026-11-25",
        "year, month, day": "2026/11/25",
        "month, day, year": "11/25/2026",
        "day, month, year": "25/11/2026",
        "day, name, year": "25 Nov 2026",
        "name, day, year": "Nov 25, 2026",
    }
)
"""A date in each format; `date_format` detects the same format in it."""
_MONTHS = pa.array(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
_PIVOT = 69
"""Two-digit years from this one on are in the 20th century, as in POSIX."""
_DAY_OF_US, _EPOCH_YEAR = 86_400_000_000, 1970


def date_format(texts: pa.Array) -> str | Doubt | None:
    """Return the format, a key of `EXAMPLES`, in which all these texts are dates; None where some are none.

    The texts are trimmed, none of them missing, and not all of ISO 8601. Where it may be one format or
    another, a doubt is returned.
    """
    fitting = [format for format in _PATTERNS if len(texts) and not times_in_format(texts, format)[1].any()]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    reason = f"{texts[0].as_py()!r} may begin with the month or with the day, and no other date tells"
    return Doubt(reason, "31/12/2026 or 12/31/2026")


def times_in_format(texts: pa.Array, format: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return microseconds since 1970, 0 for texts that are not dates in this format, and which those are.

    The texts are trimmed; null ones are no dates. The format is a key of `EXAMPLES`, but for `ISO`.
    """
    found = pc.extract_regex(texts, _PATTERNS[format])
    fits = _marks(found.is_valid()).copy()
    if not fits.any():
        return np.zeros(len(fits), np.int64), ~fits
    year, day, hour, minute = (_whole(found, name) for name in ("year", "day", "hour", "minute"))
    month = _month_of_name(found) if "name" in format else _whole(found, "month")
    second = np.round(_numbers(found, "second") * 1e6).astype(np.int64)
    two = _marks(pc.equal(pc.utf8_length(_field(found, "year")), 2))
    if format == "day, month, year":
        fits &= ~(two & _marks(pc.equal(_field(found, "mark"), ".")))
    year = year + np.where(two, np.where(year >= _PIVOT, 1900, 2000), 0)
    half = pc.utf8_lower(_field(found, "half"))
    afternoon = _marks(pc.equal(half, "p"))
    halved = _marks(half.is_valid())
    fits &= np.where(halved, (hour >= 1) & (hour <= 12), hour < 24) & (minute < 60) & (second < 60_000_000)
    hour = np.where(halved, hour % 12 + 12 * afternoon, hour)
    fits &= (year >= 1) & (month >= 1) & (month <= 12)
    months = ((year - _EPOCH_YEAR) * 12 + month - 1).astype("datetime64[M]")
    first, after = (each.astype("datetime64[D]").astype(np.int64) for each in (months, months + 1))
    fits &= (day >= 1) & (day <= after - first)
    days = first + day - 1
    times = days * _DAY_OF_US + (hour * 3600 + minute * 60) * 1_000_000 + second
    return np.where(fits, times, 0), ~fits


def _month_of_name(found: pa.Array) -> NDArray[np.int64]:
    """Return the number of each month by the first three letters of its English name; 0 for others."""
    name = pc.utf8_slice_codeunits(pc.utf8_lower(_field(found, "month")), 0, 3)
    place = pc.add(pc.index_in(name, _MONTHS), 1)
    return np.asarray(place.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _field(found: pa.Array, name: str) -> pa.Array:
    """Return a part of each date; null if it is missing."""
    texts = pc.struct_field(found, name)
    return pc.if_else(pc.and_(found.is_valid(), pc.not_equal(texts, "")), texts, None)


def _marks(found: pa.Array) -> NDArray[np.bool_]:
    """Return booleans as an array, False where they are null."""
    return np.asarray(found.fill_null(False), bool)


def _numbers(found: pa.Array, name: str) -> NDArray[Any]:
    return np.asarray(_field(found, name).cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))


def _whole(found: pa.Array, name: str) -> NDArray[np.int64]:
    return _numbers(found, name).astype(np.int64)
