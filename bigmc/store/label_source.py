"""The column of the source data that has the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from bigmc.store.files.untrusted import check_types


class LabelSource(NamedTuple):
    """The label column of raw data; the separator is that of several labels of a row, if they are texts."""

    column: str
    separator: str | None = None

    @classmethod
    def from_dict(cls, stored: object) -> Self | None:
        """Return the label column of a file, or None if it has none; `ValueError` if it is not valid."""
        if stored is None:
            return None
        if not isinstance(stored, Mapping):
            raise ValueError(f"the label column is {ascii(stored)[:40]}")
        check_types(stored, {"column": str, "separator": (str, type(None))})
        return cls(stored["column"], stored["separator"])

    def to_dict(self) -> Mapping[str, str | None]:
        """Return the label column as JSON data."""
        return self._asdict()
