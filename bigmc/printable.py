"""What may be printed: texts from users, such as labels and file names, and numbers as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def printable(text: str) -> str:
    """Return the text with unsafe characters as Python escapes.

    Line breaks stay. Escaped are control characters, marks that change the direction of writing, other
    invisible characters, and lone surrogates, which no encoding can write.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def printable_json(text: str) -> str:
    """Return one line of JSON with the same characters as JSON escapes; its value does not change."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape_json(char) for char in text)


def finite(value: Any) -> Any:
    """Return a value with None for numbers that JSON does not have, in lists and mappings too."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names with commas, at most so many of them: a table may have thousands of columns."""
    further = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + further


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _escape_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
