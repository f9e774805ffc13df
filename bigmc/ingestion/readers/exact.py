"""Find integers that float64 cannot represent exactly."""

from __future__ import annotations

import re

EXACT_INTEGERS = 1 << 53
"""The largest integer up to which all are exact as float64."""

_INTEGER = re.compile(r"\s*([+-]?)0*(\d{1,400})(?:\.0*)?\s*")


def is_exact(text: str) -> bool:
    """Return whether a number in a text is not an integer, or is exact as float64.

    A decimal fraction means the nearest float64; an integer must be exact.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        return True
    value = int(match[2])
    try:
        return value <= EXACT_INTEGERS or int(float(value)) == value
    except OverflowError:
        return False
