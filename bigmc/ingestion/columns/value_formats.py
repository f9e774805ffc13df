"""Formats of numbers and dates in columns, where these differ from what programs write.

`bigmc fit` detects them in a sample, or the user gives an example. The dataset and its models store them, so
that prediction reads values the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.columns.date_formats import EXAMPLES, ISO, date_format
from bigmc.ingestion.columns.doubtful_labels import LIKE_MISSING
from bigmc.ingestion.columns.number_formats import Doubt, NumberFormat, number_format
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

MISSING_TEXTS = tuple(
    sorted(
        LIKE_MISSING
        | {"<na>", "(null)", "n.a.", "n.a", "n.d.", "nd", "not available", "not applicable", "missing"}
        | {"undefined", "\\n", ".", "--", "---", "–", "—", "*", "#value!", "#div/0!", "#null!", "#num!"}
        | {"#name?", "#ref!", "tbd"}
    )
)
"""Texts that usually stand for a missing number or date, in lower case."""
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}([ T]|$)"

ValueFormat = NumberFormat | str
"""Format of numbers, or of dates as a key of `EXAMPLES`."""


@dataclass(frozen=True)
class ValueFormats:
    """Formats of the values of columns.

    Texts in `missing`, in small letters, stand for a missing number or date in any column. In columns of
    `odd`, whatever is no number or date counts as missing.
    """

    formats: tuple[tuple[str, ValueFormat], ...] = ()
    missing: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()

    @classmethod
    def like(
        cls, examples: Sequence[str], missing: Sequence[str] = (), odd: Sequence[str] = ()
    ) -> ValueFormats:
        """Return the formats of columns that have one or more examples like ``price=$1,234.50``.

        `DataError` if one of them is neither a number nor a date, or may be read in several ways.
        """
        by_column: dict[str, list[str]] = {}
        for item in examples:
            column, equals, example = item.rpartition("=")
            if not (column and equals):
                raise DataError(f"{item!r} names no column", "write it like price=$1,234.50")
            by_column.setdefault(column, []).append(example.strip())
        formats = ((column, _format_like(column, some)) for column, some in by_column.items())
        texts = tuple(sorted({text.strip().lower() for text in missing}))
        return cls(tuple(sorted(formats, key=lambda pair: pair[0])), texts, tuple(sorted(set(odd))))

    @property
    def examples(self) -> tuple[str, ...]:
        """Examples from which :meth:`like` makes the same formats."""
        return tuple(f"{column}={text}" for column, format in self.formats for text in examples_of(format))

    @cached_property
    def _by_column(self) -> Mapping[str, ValueFormat]:
        return dict(self.formats)  # of thousands of columns, each is asked for in every batch

    def of_numbers(self, column: str) -> NumberFormat:
        """Return the format of a column of numbers."""
        format = self._by_column.get(column)
        return format if isinstance(format, NumberFormat) else NumberFormat()

    def of_dates(self, column: str) -> str:
        """Return the format of a column of dates."""
        format = self._by_column.get(column)
        return format if isinstance(format, str) else ISO

    def date_example(self, column: str) -> str:
        """Return an example of the dates of a column."""
        format = self.of_dates(column)
        return f"{EXAMPLES[ISO]} or {EXAMPLES[ISO]}T08:30:00" if format == ISO else EXAMPLES[format]

    def __bool__(self) -> bool:
        return bool(self.formats or self.missing or self.odd)

    def to_dict(self) -> Mapping[str, Any]:
        """Return the formats as JSON data."""
        formats = {
            column: {"date": format} if isinstance(format, str) else {"number": format.to_dict()}
            for column, format in self.formats
        }
        data = {"formats": formats, "missing": list(self.missing)}
        return data | ({"odd": list(self.odd)} if self.odd else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ValueFormats:
        """Return what :meth:`to_dict` wrote.

        `DataError` if dates are in a format that this version does not know.
        """
        formats = tuple((column, _format_from(column, format)) for column, format in data["formats"].items())
        return cls(formats, tuple(data["missing"]), tuple(data.get("odd", ())))


PLAIN = ValueFormats()
"""The usual formats of programs; only blanks are missing."""


def examples_of(format: ValueFormat) -> tuple[str, ...]:
    """Return examples of a format."""
    return (EXAMPLES[format],) if isinstance(format, str) else format.examples


def without_missing(texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return trimmed texts; null for blank ones and those that stand for a missing value."""
    trimmed = pc.utf8_trim_whitespace(texts)
    absent = pc.is_in(pc.utf8_lower(trimmed), pa.array(["", *missing], trimmed.type))
    return pc.if_else(absent, None, trimmed)


def holds_digit(texts: pa.Array) -> NDArray[np.bool_]:
    """Return which texts hold a digit, as every number and every date does."""
    found = pc.match_substring_regex(texts, "[0-9]").to_numpy(zero_copy_only=False)
    return np.asarray(found, bool)


def format_of_texts(texts: pa.Array) -> ValueFormat | Doubt | None:
    """Return the format of trimmed texts, none missing; None if some are neither numbers nor dates."""
    if not holds_digit(texts).all():  # this is a fast pattern, those of numbers and dates are not
        return None
    if len(texts) and pc.all(pc.match_substring_regex(texts, _ISO_DATE)).as_py():
        return ISO
    format = number_format(texts)
    if isinstance(format, NumberFormat):
        return format
    return date_format(texts) or format


def _format_from(column: str, data: Mapping[str, Any]) -> ValueFormat:
    if "number" in data:
        return NumberFormat.from_dict(data["number"])
    if data["date"] not in EXAMPLES:
        raise DataError(
            f"the dates of column {column!r} are written as {data['date']!r}", "use a later version of bigmc"
        )
    return str(data["date"])


def _format_like(column: str, examples: Sequence[str]) -> ValueFormat:
    format = format_of_texts(pa.array(examples, pa.string()))
    if format is None or isinstance(format, Doubt):
        reason = "it is neither a number nor a date" if format is None else format.reason
        raise DataError(
            f"{examples[0]!r} does not tell how column {column!r} is written: {reason}",
            "give a larger number or another date, such as 1,234,567.5 or 12/31/2026",
        )
    return format
