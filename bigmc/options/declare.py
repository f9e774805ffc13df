"""Declare fields of dataclasses as options of a command: default, help and names in one place."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from bigmc.errors import DataError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}

_SAID: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    bool: (bool, "bool"),
    int: (Integral, "whole number"),
    float: (Real, "number"),
}
"""Types that values of simple options must have, and how a message says it."""

_IN_PYTHON = {"memory": "memory_limit", "time": "time_limit", "threads": "engine", "processes": "engine"}
"""Parameters in Python that stand for options of commands."""

KEY = "option"
"""Key of a field's metadata under which its `Option` is."""


@dataclass(frozen=True)
class Option:
    """How a field is given on the command line.

    `flags` are names such as ``--seed``; by default the field's with hyphens. `shown` is a default to
    show in the help instead of the field's own. `parse` converts the given text to the value; it raises
    `ValueError` with the reason.
    """

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    shown: str | None = None
    parse: Callable[[str], Any] | None = None
    minimum: int | None = None
    is_argument: bool = False


def option(default: Any, help: str, *flags: str, **more: Any) -> Any:
    """Return a field that is an option with a default; `more` is as in `Option`."""
    return field(default=default, metadata={KEY: Option(help, flags, **more)})


def required(help: str, *flags: str, **more: Any) -> Any:
    """Return a field that is a required option."""
    return field(metadata={KEY: Option(help, flags, **more)})


def argument(help: str, metavar: str | None = None) -> Any:
    """Return a field that is a positional argument."""
    return field(metadata={KEY: Option(help, metavar=metavar, is_argument=True)})


def values_of(kind: type[Any], given: Any) -> Mapping[str, Any]:
    """Return the values of an object for the fields of a class of options."""
    return {item.name: getattr(given, item.name) for item in fields(kind)}


def number_or_auto(text: str) -> float | str:
    """Return a number, or the text ``auto``."""
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor auto") from None


def seconds_of(text: str) -> float:
    """Return the seconds of a text such as ``90``, ``90s``, ``5m`` or ``1h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time; write it like 90s, 5m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def time_limit_of(value: float | str | None) -> float:
    """Return seconds, given as a number or a text such as ``5m``; without a limit infinity.

    `DataError` if this is no time.
    """
    if value is None:
        return math.inf
    try:
        seconds = seconds_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds >= 0:
        raise DataError(f"time_limit is {reprlib.repr(value)}", "give seconds, or a text like 90s, 5m or 1h")
    return seconds


def check_names(kind: type[Any], given: Iterable[str], of: str, also: Iterable[str] = ()) -> None:
    """Raise `DataError` if a given option is no field of a class, naming what may have been meant.

    `also` are other names that may have been meant, parameters that are not fields; `of` says what the
    options are for, for the error.
    """
    known = sorted(item.name for item in fields(kind))
    for name in given:
        if name not in known:
            raise DataError(f"{of} has no option {name!r}", _cure_of_unknown(name, known, also))


def _cure_of_unknown(name: str, known: Sequence[str], also: Iterable[str]) -> str:
    if name in _IN_PYTHON:
        return f"in Python it is {_IN_PYTHON[name]}"
    from difflib import get_close_matches

    close = get_close_matches(name, [*known, *also], n=1)
    return f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}"


def check_types(kind: type[Any], given: Mapping[str, Any]) -> None:
    """Raise `DataError` if a given value has another type than its field, or is below its minimum."""
    hints = get_type_hints(kind)
    for item in fields(kind):
        if item.name not in given:
            continue
        value, hint = given[item.name], hints[item.name]
        choices = set(get_args(hint)) if isinstance(hint, UnionType) else {hint}
        is_left_out = value is None and NoneType in choices
        choices.discard(NoneType)
        if is_left_out or len(choices) > 1 or not choices <= _SAID.keys():
            continue
        wanted, said = _SAID[choices.pop()]
        is_bool = type(value).__name__ in ("bool", "bool_")  # NumPy's
        if is_bool != (wanted is bool) or not (is_bool or isinstance(value, wanted)):
            of_column = KEY in item.metadata and item.metadata[KEY].metavar == "COLUMN"
            shown = " ".join(reprlib.repr(value).split())
            raise DataError(
                f"{item.name} is {shown}", f"give {'the name of a column' if of_column else f'a {said}'}"
            )
        least = item.metadata[KEY].minimum if KEY in item.metadata else None
        if least is not None and value < least:
            raise DataError(f"{item.name} is {value}", f"give a whole number of at least {least}")


def check_count(name: str, value: object) -> None:
    """Raise `DataError` if a parameter is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise DataError(f"{name} is {reprlib.repr(value)}", "give a whole number of at least 1")
