"""Formats of numbers in tables: thousands separators, decimal commas, currencies and units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.lazy import LazyModule
from bigmc.printable import listed

pc = LazyModule("pyarrow.compute")

_CURRENCIES = "USD|EUR|GBP|CHF|JPY|CAD|AUD|NZD|INR|CNY|RUB|PLN|CZK|SEK|NOK|DKK|BRL|ZAR|Rs\\.?|kr\\.?"
_PREFIX = rf"(?:[A-Z]{{0,3}}\p{{Sc}}|{_CURRENCIES})"
_SIGN_UNIT, _LETTERS = r"%|‰|°|\p{Sc}|\"", r"[\pL°µ][\pL°µ/²³.%]"
_UNIT = rf"(?:{_SIGN_UNIT})|(?:{_LETTERS}{{0,15}}(?:/?\pL{{1,8}}[23]?)?)"
_SHORT_UNIT, _SHORT_LENGTH = rf"(?:{_SIGN_UNIT})|(?:{_LETTERS}*(?:\pL[23])?)", 16
"""The same for units of at most so many characters, as nearly all are; compiled in a tenth of the time."""
_SIGN = "[-+−]"
_DIGITS = r"[0-9](?:[0-9.,' ]*[0-9])?[.,]?(?:[eE][-+]?[0-9]{1,3})?|[.,][0-9]+"
_BEFORE_UNIT = (
    rf"^(?P<outer>\(|{_SIGN})?\s*(?P<prefix>{_PREFIX})?\s*(?P<inner>{_SIGN})?\s*(?P<digits>{_DIGITS})\s*"
)
_ANY, _ANY_SHORT = (rf"{_BEFORE_UNIT}(?P<unit>{unit})?\s*\)?$" for unit in (_UNIT, _SHORT_UNIT))
"""A text that contains one number; `NumberFormat` defines what its separators mean."""

_ANY_DIGITS, _SHORT = "[0-9]+", "[0-9]{1,3}"
_FACTORS: Mapping[str, float] = MappingProxyType(
    {"k": 1e3, "K": 1e3, "M": 1e6, "mn": 1e6, "B": 1e9, "bn": 1e9, "T": 1e12}
    | {"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
)
"""Factors of units, for columns with several of them."""
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", " "), (",", " "), (".", "'"), (",", "'"))
"""Decimal and thousands separators, in the order in which they are tried."""


class Doubt(NamedTuple):
    """Why texts that look like numbers or dates are not read as such, and an example that would tell."""

    reason: str
    example: str = ""


@dataclass(frozen=True)
class NumberFormat:
    """Separators, currency and units of a column of numbers.

    `thousands` is the mark between groups of three digits, if there is one, and `prefix` what stands before
    every number, such as a currency. `units` are what may stand behind a number, each with its factor.
    """

    decimal: str = "."
    thousands: str = ""
    prefix: str = ""
    units: tuple[tuple[str, float], ...] = (("", 1.0),)

    @property
    def is_plain(self) -> bool:
        """Whether it is the usual format of programs."""
        return self == NumberFormat()

    @property
    def examples(self) -> tuple[str, ...]:
        """Numbers in this format, one for each unit; `number_format` detects the same format in them."""
        whole = self.thousands.join(("1", "234", "567")) if self.thousands else "1234"
        between = " " if any(len(unit) > 1 for unit, _ in self.units) else ""
        number = f"{self.prefix}{whole}{self.decimal}5"
        return tuple(f"{number}{between if unit else ''}{unit}" for unit, _ in self.units)

    def read(self, texts: pa.Array) -> pa.Array:
        """Return trimmed texts as float64 numbers; null for texts that are not in this format."""
        parts = _parts(texts)
        factors = np.array([factor for _, factor in self.units])
        place = pc.index_in(parts["unit"], pa.array([unit for unit, _ in self.units], pa.string()))
        fits = pc.and_(pc.equal(parts["prefix"], self.prefix), pc.is_valid(place))
        fits = pc.and_(fits, pc.match_substring_regex(parts["digits"], self._pattern(_ANY_DIGITS)))
        digits = pc.if_else(fits, parts["digits"], None)
        if self.thousands:
            digits = pc.replace_substring(digits, self.thousands, "")
        if self.decimal != ".":
            digits = pc.replace_substring(digits, self.decimal, ".")
        values = digits.cast(pa.float64())
        values = pc.multiply(values, pa.array(factors).take(place))
        negative = pc.or_(_is_minus(parts["outer"]), _is_minus(parts["inner"]))
        return pc.if_else(negative, pc.negate(values), values)

    def fits(self, digits: pa.Array) -> bool:
        """Return whether digits and separators are unambiguously in this format."""
        return bool(pc.all(pc.match_substring_regex(digits, self._pattern(_SHORT))).as_py())

    def _pattern(self, unmarked: str) -> str:
        """Return the pattern of digits, given that of digits without a thousands separator."""
        decimal, mark = re.escape(self.decimal), re.escape(self.thousands)
        whole = _ANY_DIGITS
        if self.thousands:
            whole = f"(?:[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+|{unmarked})"
        return f"^(?:{whole}(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][-+]?[0-9]+)?$"

    def to_dict(self) -> Mapping[str, Any]:
        """Return the format as JSON data."""
        return {
            "decimal": self.decimal,
            "thousands": self.thousands,
            "prefix": self.prefix,
            "units": [list(unit) for unit in self.units],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NumberFormat:
        """Return the format that :meth:`to_dict` wrote."""
        units = tuple((str(unit), float(factor)) for unit, factor in data["units"])
        return cls(data["decimal"], data["thousands"], data["prefix"], units)


def number_format(texts: pa.Array) -> NumberFormat | Doubt | None:
    """Return the format in which all these texts are numbers; None where some hold none.

    The texts are trimmed, none of them missing. A doubt is returned where all hold a number, which may mean
    several.
    """
    if not len(texts) or not pc.all(pc.match_substring_regex(texts, "[0-9]")).as_py():
        return None  # as of words: to look for their parts takes a hundred times as long
    parts = _parts(texts)
    if parts["digits"].null_count:
        return None
    prefixes, units = (pc.unique(parts[name]).to_pylist() for name in ("prefix", "unit"))
    if len(prefixes) > 1:
        return Doubt(f"there are several currencies, {_listed(prefixes)}")
    factors = _factors_of(units)
    if factors is None:
        return Doubt(f"there are several units, {_listed(units)}")
    for decimal, thousands in _MARKS:
        format = NumberFormat(decimal, thousands, prefixes[0], factors)
        if format.fits(parts["digits"]):
            return _doubted(format, parts["digits"], texts) or format
    return None


def main_kind(texts: pa.Array) -> NDArray[np.bool_]:
    """Return which texts hold a number with the currency and the unit that are the most frequent."""
    parts = _parts(texts)
    kinds = pc.binary_join_element_wise(parts["prefix"], parts["unit"], "\0")
    frequent = max(
        kinds.value_counts().to_pylist(), key=lambda kind: (kind["values"] is not None, kind["counts"])
    )
    same = pc.equal(kinds, frequent["values"]).fill_null(False)
    return np.asarray(same.to_numpy(zero_copy_only=False), bool)


def _doubted(format: NumberFormat, digits: pa.Array, texts: pa.Array) -> Doubt | None:
    """Return a doubt if every comma precedes three digits, but other numbers have four digits or more.

    Of a mark between thousands alone it does not matter which it is: a thousandth of all numbers tells a
    learner the same.
    """
    if (format.decimal, format.thousands) != (",", ""):
        return None
    with_comma = digits.filter(pc.match_substring(digits, ","))
    if not pc.all(pc.match_substring_regex(with_comma, "^[1-9][0-9]{0,2},[0-9]{3}$")).as_py():
        return None
    shown = texts[pc.index(pc.match_substring(digits, ","), True).as_py()].as_py()
    reason = f"the comma of {shown!r} may stand between thousands or before decimals"
    return Doubt(reason, "1,234,567.5 or 1234,5")


def _factors_of(units: Sequence[str]) -> tuple[tuple[str, float], ...] | None:
    """Return units with their factors, None if they cannot be compared."""
    ordered = sorted(units)
    if len(ordered) == 1 or (len(ordered) == 2 and ordered[1] == f"{ordered[0]}s" and ordered[0]):
        return tuple((unit, 1.0) for unit in ordered)
    if all(unit in _FACTORS for unit in ordered if unit):
        return tuple((unit, _FACTORS.get(unit, 1.0)) for unit in ordered)
    return None


def _parts(texts: pa.Array) -> dict[str, pa.Array]:
    """Return the parts of texts that contain one number; null for other texts."""
    spaces = pc.replace_substring_regex(texts, "[\u00a0\u202f\u2009]", " ")
    found = pc.extract_regex(spaces, _ANY_SHORT)  # Arrow compiles a pattern in every call
    if (pc.max(pc.utf8_length(pc.struct_field(found, "unit"))).as_py() or 0) > _SHORT_LENGTH:
        found = pc.extract_regex(spaces, _ANY)
    opens = pc.equal(pc.struct_field(found, "outer"), "(")
    valid = pc.and_(found.is_valid(), pc.equal(opens, pc.ends_with(spaces, ")")))
    names = ("outer", "prefix", "inner", "digits", "unit")
    return {name: pc.if_else(valid, pc.struct_field(found, name), None) for name in names}


def _is_minus(sign: pa.Array) -> pa.Array:
    return pc.fill_null(pc.is_in(sign, pa.array(["-", "−", "("])), False)


def _listed(texts: Sequence[str]) -> str:
    return listed([text or "none" for text in sorted(texts)], 3)
