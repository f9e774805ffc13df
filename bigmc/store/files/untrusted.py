"""Check the contents of files before they are used: they may be hostile.

All functions raise ``ValueError`` with a short reason; their callers add the file and the cure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Deepest nesting of JSON; ours is 5 deep.
MOST_DEPTH = 64

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[\w-]+")


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text, refusing deep nesting."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError(f"it is nested more than {MOST_DEPTH} deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def check_path(path: object) -> None:
    """Raise an error if a path in a manifest is not the normalised path of a file inside the folder."""
    if not isinstance(path, str) or not path or not path.isprintable():
        raise ValueError(f"{path!r} is not the path of a file")
    if "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"the path {path!r} does not stay inside the folder")


def check_name(name: object, what: str) -> None:
    """Raise an error if a folder name has characters other than letters, digits, ``-`` and ``_``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a {what}")


def check_digest(digest: object) -> None:
    """Raise an error if a text is not a SHA-256 in hexadecimal digits."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"{str(digest)[:70]!r} is not a SHA-256")


def check_whole(number: object, most: int, what: str) -> None:
    """Raise an error if a value is not an integer from 0 to `most`."""
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{what} is {ascii(number)[:40]}, not a whole number from 0 to {most}")


def check_types(fields: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]]) -> None:
    """Raise an error if fields have other types; booleans are not numbers."""
    for name, expected in types.items():
        value = fields.get(name)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in wanted):
            raise ValueError(f"{name} is {ascii(value)[:40]}")
