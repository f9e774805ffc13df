"""Declare fields of dataclasses as options of a command: default, help and names in one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}

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
