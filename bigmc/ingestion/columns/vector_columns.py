"""Columns of lists of numbers, such as embeddings: each place of the list is a feature."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.number_columns import Floats, null_mask, without_decimals
from bigmc.ingestion.hashing.categories import is_text, plain_text
from bigmc.ingestion.readers.exact import EXACT_INTEGERS, is_exact
from bigmc.ingestion.readers.rejects import ABSENT
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

MOST_PLACES = 1 << 16
"""Numbers of a list, at most: each is a feature with a name."""
_LIST_TEXT = r"^\s*\[[^\[\]]*\]\s*$"
_SHOWN = 40
"""Letters of an invalid value that a reason quotes."""
_BETWEEN = r"\s*,\s*|\s+"


@dataclass(frozen=True)
class Vector:
    """A column of lists of `width` numbers; 0 until the data has been looked at."""

    column: str
    width: int = 0

    @property
    def names(self) -> Iterator[str]:
        """Names of the features."""
        return (f"{self.column}.{place}" for place in range(self.width))

    def read(self, column: pa.Array) -> Floats:
        """Return the numbers of each row; a list of another length, or with a text in it, is unreadable.

        A row is absent where the list, or a number of it, is missing.
        """
        lists = lists_of_numbers(column)
        of_width = lists.lengths == self.width
        values = np.full((len(column), self.width), np.nan)
        if of_width.all():
            values[:] = lists.values.reshape(values.shape)
        else:
            kept = np.repeat(of_width, np.maximum(lists.lengths, 0))
            values[of_width] = lists.values[kept].reshape(-1, self.width)
        absent = null_mask(column)
        return Floats(values, absent | (of_width & np.isnan(values).any(axis=1)), ~of_width & ~absent)

    def faults(self, column: pa.Array, may_miss: bool) -> Iterator[tuple[int, str]]:
        """Yield the positions of invalid lists, and what is wrong; numbers may be missing, or not."""
        values, absent, unreadable = self.read(column)
        for position in np.flatnonzero(absent & (not may_miss)).tolist():
            yield position, ABSENT if not column[position].is_valid else "has a missing number"
        for position in np.flatnonzero(unreadable).tolist():
            length = int(lists_of_numbers(column.slice(position, 1)).lengths[0])
            shown = str(column[position].as_py())[:_SHOWN]
            other = f"has {length:,} numbers, where {self.width:,} are expected"
            yield position, f"is not a list of exact numbers: {shown!r}" if length < 0 else other
        for position in np.flatnonzero(np.isinf(values).any(axis=1)).tolist():
            yield position, "has an infinite number"


class Lists(NamedTuple):
    """Lists of numbers: how many numbers each has, -1 if it is none, and the numbers one after another."""

    lengths: NDArray[np.int64]
    values: NDArray[np.float64]


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds lists of numbers, or texts such as ``[0.5, 1]``."""
    return is_text(kind) or is_list_of_numbers(kind)


def is_list_of_numbers(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds lists of numbers."""
    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    inner = kind.value_type
    return bool(types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner))


def lists_of_numbers(column: pa.Array) -> Lists:
    """Return the lists of a column; missing ones have the length 0, and missing numbers are NaN."""
    if is_text(column.type):
        return _parsed(plain_text(column))
    lengths = np.asarray(pc.list_value_length(column).fill_null(0), np.int64)
    flat = without_decimals(column.flatten())  # without what lies under missing lists
    try:
        values = flat.cast(pa.float64())
    except pa.ArrowInvalid:  # an integer that is not exact as a number
        return _of_pieces([_exact(numbers) for numbers in column.to_pylist()])
    return Lists(lengths, values.fill_null(np.nan).to_numpy(zero_copy_only=False))


def _parsed(texts: pa.Array) -> Lists:
    """Return the lists in texts such as ``[0.5, 1]`` or ``[0.5 1]``."""
    texts = texts.fill_null("[]")
    inner = pc.utf8_trim(texts, " \t\r\n[]")
    if pc.all(pc.match_substring_regex(texts, _LIST_TEXT)).as_py() is not False:
        pieces = pc.split_pattern_regex(inner, _BETWEEN)
        empty = np.asarray(pc.equal(inner, ""), bool)
        lengths = np.where(empty, 0, np.asarray(pc.list_value_length(pieces), np.int64))
        numbers = pieces.filter(pa.array(~empty)).flatten()
        try:
            return Lists(lengths, numbers.cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            pass  # one of them is no number
    return _of_pieces([_read(text) for text in texts.to_pylist()])


def _read(text: str) -> list[float] | None:
    """Return the list in a text, or None."""
    if not re.search(_LIST_TEXT, text):
        return None
    inner = text.strip(" \t\r\n[]")
    try:
        return [float(piece) for piece in re.split(_BETWEEN, inner)] if inner else []
    except ValueError:
        return None


def _exact(numbers: Sequence[int | None] | None) -> list[float] | None:
    """Return integers as numbers; None if one of them is not exact."""
    known = [number for number in numbers or () if number is not None]
    if any(abs(number) >= EXACT_INTEGERS and not is_exact(str(number)) for number in known):
        return None
    return [np.nan if number is None else float(number) for number in numbers or ()]


def _of_pieces(pieces: Sequence[Sequence[float] | None]) -> Lists:
    lengths = np.array([-1 if piece is None else len(piece) for piece in pieces], np.int64)
    return Lists(lengths, np.array([number for piece in pieces for number in piece or ()], np.float64))
