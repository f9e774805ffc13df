"""The format of a text file: delimiter, column names, encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

UTF8 = "utf-8"


@dataclass(frozen=True)
class Dialect:
    """How a text file is written, where its name does not tell.

    `delimiter` stands between the fields of delimited text; None for that of the format. `columns` are the
    names where there is no header line, else None. `encoding` is as Python names it.
    """

    delimiter: str | None = None
    columns: tuple[str, ...] | None = None
    encoding: str = UTF8

    def to_dict(self) -> dict[str, Any]:
        """Return what is not as usual, as JSON data; nothing for a usual file."""
        return {name: value for name, value in asdict(self).items() if value != getattr(USUAL, name)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Dialect:
        """Return the dialect that `to_dict` described, perhaps by way of JSON."""
        columns = values.get("columns")
        return cls(**{**values, "columns": None if columns is None else tuple(columns)})


USUAL = Dialect()
