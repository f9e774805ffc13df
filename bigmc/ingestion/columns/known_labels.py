"""Find the class that a label means, whatever type the source gave it.

One rule for models and datasets: a label means the class of its own type and value; beside texts, the class
that is written like it. Numbers go by their value (``1``, ``1.0``), booleans are ``true`` and ``false`` in
any case, or 1 and 0 where there are no other classes, dates and times those of ISO 8601. Two texts that are
no dates are compared as they are: versions ``1.1`` and ``1.10`` are two classes.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from functools import cached_property

from bigmc.errors import DataError

_NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Numbers in texts; a code such as 007 is none."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")
_TRUTH = {"true": True, "false": False}
_LARGEST = 2**63

Meaning = int | float | bool | datetime.datetime
"""What a label says, unless it is a text of no other meaning."""


class KnownLabels:
    """The classes of a model or a dataset, all of one type, and the code of each.

    `of` says whose they are, for errors.
    """

    def __init__(self, classes: Iterable[object], of: str) -> None:
        self.codes = {label: code for code, label in enumerate(classes)}
        self._of = of
        self._example = next(iter(self.codes))
        self._kind = type(self._example)

    def label(self, value: object) -> object:
        """Return the class that a value means, or the value as a new label of the type of the classes.

        `DataError` if it cannot be one of them, or is written like several.
        """
        if type(value) is self._kind and value in self.codes:
            return value
        label = self._text(value) if self._kind is str else self._converted(value)
        if label is None:
            raise DataError(
                f"the label {value!r} does not have the type of the {self._of}, such as {self._example!r}",
                f"write the labels as the {self._of}",
            )
        return label

    def _converted(self, value: object) -> object:
        """Return a value as a number or boolean; None if it is none."""
        meaning = _meaning(value)
        if not isinstance(meaning, int | float):
            return None
        if self._kind is bool:
            return bool(meaning) if meaning in (0, 1) else None
        if isinstance(meaning, bool) and not self.codes.keys() <= {0, 1}:
            return None
        if self._kind is float:
            return float(meaning)
        return int(meaning) if meaning == int(meaning) and -_LARGEST <= meaning < _LARGEST else None

    def _text(self, value: object) -> object:
        """Return the text class written like a value, or its text; None if no class is written like that."""
        meaning = _meaning(value)
        if isinstance(value, str) and not isinstance(meaning, datetime.datetime):
            return value
        key = key_of(value)
        found = [] if key is None else self._meanings.get(key, [])
        if len(found) > 1:
            listed = ", ".join(map(repr, found[:5]))
            raise DataError(
                f"the label {value!r} may be any of the {self._of} {listed}",
                "give the labels as texts, written like these",
            )
        if found:
            return found[0]
        alike = isinstance(value, str) or any(is_bool == isinstance(value, bool) for is_bool in self._kinds)
        return str(value) if alike else None

    @cached_property
    def _meanings(self) -> dict[tuple[bool, Meaning], list[str]]:
        return texts_by_meaning(self.codes)

    @cached_property
    def _kinds(self) -> set[bool]:
        """Whether some texts are booleans, and whether some are numbers."""
        numbers = (key for key in self._meanings if isinstance(key[1], int | float))
        return {is_bool for is_bool, _ in numbers}


def texts_by_meaning(texts: Iterable[object]) -> dict[tuple[bool, Meaning], list[str]]:
    """Return texts by whether they are booleans and what they mean; True is not 1."""
    found: dict[tuple[bool, Meaning], list[str]] = {}
    for text in texts:
        key = key_of(text)
        if key is not None:
            found.setdefault(key, []).append(str(text))
    return found


def key_of(value: object) -> tuple[bool, Meaning] | None:
    """Return whether a value is a boolean and what it means; None for texts of no other meaning."""
    meaning = _meaning(value)
    return None if meaning is None else (type(meaning) is bool, meaning)


def _meaning(value: object) -> Meaning | None:
    """Return the number, boolean or time that a label is or is written like; None for other texts."""
    if isinstance(value, bool | int | float):
        return value
    text = str(value)
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if _NUMBER.fullmatch(text):
        try:
            return int(text)  # exact, however large
        except ValueError:
            number = float(text)
            return number if abs(number) < float("inf") else None
    if _DATE.fullmatch(text):
        try:
            return datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
    return None
