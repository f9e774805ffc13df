"""Read columns of tables as numbers with missing values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.number_formats import NumberFormat
from bigmc.ingestion.columns.value_formats import PLAIN, ValueFormats, without_missing
from bigmc.ingestion.hashing.categories import is_text, plain_text
from bigmc.ingestion.readers.exact import EXACT_INTEGERS
from bigmc.ingestion.readers.utf8 import is_string
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

FEW_ROWS, VALUES_AT_ONCE = 1000, 1 << 14
"""Rows of a batch up to which columns are read together, and values to read at once: 100 rows of 20,000
numbers took 9.7 CPU seconds in place of 20."""


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers, or texts that may be."""
    types = pa.types
    fits = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, is_text)
    return any(fit(kind) for fit in fits)


class Floats(NamedTuple):
    """A column as numbers; a column of dates as several.

    `values` has the shape (n_rows,), for dates (n_rows, n_numbers), with NaN if there is no number or date.
    `absent` marks rows without a value, `unreadable` those whose value is not a number or date.
    """

    values: NDArray[np.float64]
    absent: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]

    @property
    def odd(self) -> NDArray[np.bool_]:
        """Rows whose value is not a number or date, or is infinite."""
        infinite = np.isinf(self.values)
        return self.unreadable | (infinite if infinite.ndim == 1 else infinite.any(axis=1))

    def without_odd(self) -> Floats:
        """Return the column with missing values for odd ones."""
        odd = self.odd
        if not odd.any():
            return self
        values = self.values.copy()
        values[odd] = np.nan
        return Floats(values, self.absent | odd, np.zeros(len(odd), bool))


class Numbers:
    """Columns of a batch as numbers, each parsed once, at first use."""

    def __init__(self, table: pa.RecordBatch, value_formats: ValueFormats = PLAIN) -> None:
        self._table, self._formats = table, value_formats
        self._columns: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        """Return the column of this name."""
        if name not in self._columns:
            column, formats = self._table.column(name), self._formats
            if formats and is_text(column.type):
                floats = floats_in_format(column, formats.of_numbers(name), formats.missing)
            else:
                floats = as_float(column)
            if floats.unreadable.any() and name not in formats.odd:
                floats = _with_booleans(floats, column)
            self._columns[name] = floats.without_odd() if name in formats.odd else floats
        return self._columns[name]

    def read_together(self, names: Sequence[str]) -> frozenset[str]:
        """Read columns of texts, some in each call of Arrow, and return those of small finite numbers alone.

        The others are left for `__getitem__`. A call takes as long as hundreds of values.
        """
        n_rows, missing = self._table.num_rows, self._formats.missing
        if not 0 < n_rows <= FEW_ROWS or _hold_number(tuple(missing)):
            return frozenset()
        plain = [name for name in names if self._is_plain_text(name)]
        at_once, nothing = max(1, VALUES_AT_ONCE // n_rows), np.zeros(n_rows, bool)
        good = set()
        for lo in range(0, len(plain), at_once):
            some = plain[lo : lo + at_once]
            try:
                values = _own_numbers(pa.concat_arrays([self._table.column(name) for name in some]))
            except pa.ArrowInvalid:
                continue  # blank, or not a number
            for name, column in zip(some, values.reshape(len(some), n_rows), strict=True):
                if np.abs(column).max() < EXACT_INTEGERS:  # False for NaN
                    self._columns[name] = Floats(column, nothing, nothing)
                    good.add(name)
        return frozenset(good)

    def _is_plain_text(self, name: str) -> bool:
        column = self._table.column(name)
        is_whole = pa.types.is_string(column.type) and not column.null_count
        return is_whole and self._formats.of_numbers(name).is_plain


def as_float(column: pa.Array) -> Floats:
    """Return a column of numbers, or of texts that may be numbers."""
    kind = column.type
    nothing = np.zeros(len(column), bool)
    if not column.null_count and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return Floats(column.to_numpy(zero_copy_only=False).astype(np.float64), nothing, nothing)
    if not is_text(kind):
        values = (
            without_decimals(column)
            .cast(pa.float64(), safe=False)
            .fill_null(np.nan)
            .to_numpy(zero_copy_only=False)
        )
        absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        return Floats(np.asarray(values, dtype=np.float64), absent, nothing)
    texts = plain_text(column)
    if not texts.null_count:
        try:
            return Floats(_own_numbers(texts), nothing, nothing)
        except pa.ArrowInvalid:
            pass  # blank, or not a number
    trimmed = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    absent = null_mask(texts)
    try:
        return Floats(np.asarray(texts.cast(pa.float64()).fill_null(np.nan)), absent, nothing)
    except pa.ArrowInvalid:
        read = [_read_float(text) for text in texts.to_pylist()]
        values = np.array([np.nan if v is None else v for v in read])
        unreadable = np.array([v is None for v in read]) & ~absent
        return _with_other_signs(Floats(values, absent, unreadable), texts)


def without_decimals(numbers: pa.Array) -> pa.Array:
    """Return decimal numbers as texts, and other numbers as they are.

    Arrow's cast of texts makes the nearest float, its cast of decimal numbers often a neighbour of it.
    """
    return numbers.cast(pa.string()) if pa.types.is_decimal(numbers.type) else numbers


def _with_other_signs(floats: Floats, texts: pa.Array) -> Floats:
    """Return numbers with those that Python does not read: ``(5)``, and the minus of typesetters.

    `number_format` takes both as negative numbers, also in columns that are otherwise plain.
    """
    if not floats.unreadable.any():
        return floats
    values = floats.values.copy()
    others = NumberFormat().read(texts.filter(pa.array(floats.unreadable)))
    values[floats.unreadable] = np.asarray(others.fill_null(np.nan))
    return floats._replace(values=values, unreadable=floats.unreadable & np.isnan(values))


def floats_in_format(column: pa.Array, format: NumberFormat, missing: Sequence[str]) -> Floats:
    """Return a column of texts as numbers in a format; `missing` texts, in lower case, count as none."""
    plain = plain_text(column)
    if format.is_plain and not plain.null_count and not _hold_number(tuple(missing)):
        try:  # as nearly all columns are: one call in place of six, of which each costs more than few rows do
            values = _own_numbers(plain)
        except pa.ArrowInvalid:
            pass
        else:
            if not np.isnan(values).any():  # which may stand for a missing value
                nothing = np.zeros(len(values), bool)
                return Floats(values, nothing, nothing)
    texts = without_missing(plain, missing)
    if format.is_plain:
        return as_float(texts)
    absent, values = null_mask(texts), format.read(texts)
    return Floats(np.asarray(values.fill_null(np.nan)), absent, null_mask(values) & ~absent)


def _own_numbers(texts: pa.Array) -> NDArray[np.float64]:
    """Return numbers as an array of its own: Arrow's objects behind another take 2 KB for each column."""
    numbers: NDArray[np.float64] = texts.cast(pa.float64()).to_numpy()
    return numbers.copy()


def _with_booleans(floats: Floats, column: pa.Array) -> Floats:
    """Return numbers with 1 and 0 for texts ``true`` and ``false``, which CSV has for booleans."""
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(plain_text(column)))
    values, unreadable = floats.values.copy(), floats.unreadable.copy()
    for text, value in (("true", 1.0), ("false", 0.0)):
        found = unreadable & np.asarray(pc.equal(texts, text).fill_null(False))
        values[found], unreadable[found] = value, False
    return Floats(values, floats.absent, unreadable)


@lru_cache(maxsize=16)
def _hold_number(texts: tuple[str, ...]) -> bool:
    """Return whether one of some texts is a number, such as -999 for a missing one."""
    return any((value := _read_float(text)) is not None and value == value for text in texts)


def _read_float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def null_mask(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values are missing, NaN included."""
    if column.null_count == 0 and is_string(column.type):
        return np.zeros(len(column), dtype=bool)
    return np.asarray(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False), dtype=bool)
