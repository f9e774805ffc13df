"""Find integers that float64 cannot represent exactly."""

from __future__ import annotations

import re

EXACT_INTEGERS = 1 << 53
"""Every integer up to this one is exact as float64, the next one is not."""

_INTEGER = re.compile(r"\s*([+-]?)0*(\d{1,400})(?:\.0*)?\s*")


def is_exact(text: str) -> bool:
    """Return whether a number written as a text is no integer, or one that float64 holds exactly.

    A decimal fraction stands for the float64 nearest to it, as everywhere; an integer stands for itself.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        return True
    value = int(match[2])
    return value <= EXACT_INTEGERS or (value < 1 << 1024 and _same(value))


def _same(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False
