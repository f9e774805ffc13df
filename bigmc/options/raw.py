"""Options of every command that reads raw files."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from bigmc.errors import DataError
from bigmc.options.declare import option

OnBadRow = Literal["fail", "quarantine"]
"""How to handle an invalid row: stop with an error, or set it aside."""


_SPELLED = {"\\t": "\t", "tab": "\t", "space": " "}
"""Delimiters that are hard to type."""


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a text such as ``id,text,label``."""
    return tuple(text.split(","))


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Format of raw files, as given by the user; `bigmc.ingest` describes the options.

    `DataError` if the delimiter is not one character, two columns have the same name, or the encoding is
    unknown.
    """

    format: str | None = option(None, "csv, tsv, jsonl, parquet or svmlight; by default from the file name.")
    delimiter: str | None = option(None, "Field separator of delimited text: one character, or tab.")
    columns: Sequence[str] | None = option(
        None, "Names of all columns, if files have no header line.", metavar="A,B,C", parse=names_of
    )
    encoding: str | None = option(
        None, "Encoding of text files, such as latin-1, cp1252 or utf-16.", shown="utf-8"
    )

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _checked_delimiter(self.delimiter))
        if self.columns is not None:
            names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            object.__setattr__(self, "columns", names)
            if not all(names) or len(set(names)) < len(names):
                raise DataError(
                    f"the names of --columns are empty or repeated: {', '.join(names)}",
                    "give each column its own name",
                )
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _checked_encoding(self.encoding))


def _checked_delimiter(text: str) -> str:
    delimiter = _SPELLED.get(text, text)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r':
        raise DataError(
            f"the delimiter {text!r} is not a single ASCII character that can separate fields",
            "give one such as ';', '|' or tab",
        )
    return delimiter


def _checked_encoding(name: str) -> str:
    """Return the usual name of a character encoding."""
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # refuses codecs of bytes, such as base64
    except (LookupError, ValueError) as error:
        raise DataError(
            f"unknown encoding {name!r} ({error})", "name one such as utf-8, latin-1, cp1252 or utf-16"
        ) from None
    return "utf-8" if codec.name == "utf-8-sig" else codec.name


@dataclass(frozen=True, kw_only=True)
class RawOptions(FileOptions):
    """How raw files are read: `on_bad_row` stops at an invalid row, or sets it aside with the reason."""

    on_bad_row: OnBadRow = option(
        "fail", "Invalid rows: fail stops at the first, quarantine sets them aside."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_bad_row not in get_args(OnBadRow):
            choices = " or ".join(get_args(OnBadRow))
            raise DataError(f"on_bad_row is {self.on_bad_row!r}", f"choose {choices}")
