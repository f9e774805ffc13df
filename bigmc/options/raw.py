"""Options of every command that reads raw files."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from bigmc.errors import DataError
from bigmc.options.declare import option

OnBadRow = Literal["fail", "quarantine"]
"""What happens to a row that cannot be used: an error, or it is set aside."""


_SPELLED = {"\\t": "\t", "tab": "\t", "space": " "}
"""Delimiters that are hard to type."""


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a text such as ``id,text,label``."""
    return tuple(text.split(","))


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    r"""How raw files are written, as far as a user says.

    Attributes
    ----------
    format : str, optional
        Format of the files; by default their names tell.
    delimiter : str, optional
        One character between the fields of delimited text; also ``\t``, ``tab`` and ``space``.
    columns : tuple of str, optional
        Names of all columns of delimited text without a header line; one may be given as it is.
    encoding : str, optional
        Character encoding of text files, as Python names it; by default UTF-8.

    Raises
    ------
    DataError
        If the delimiter is not one character, two columns have the same name, or the encoding is unknown.
    """

    format: str | None = option(None, "csv, tsv, jsonl, parquet or svmlight; by default from the name.")
    delimiter: str | None = option(None, "Character between the fields of delimited text, or tab.")
    columns: Sequence[str] | None = option(
        None,
        "Names of all columns, where files have no header line.",
        metavar="A,B,C",
        parse=names_of,
    )
    encoding: str | None = option(None, "Of text files, such as latin-1, cp1252 or utf-16.", shown="utf-8")

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _checked_delimiter(self.delimiter))
        if self.columns is not None:
            names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            object.__setattr__(self, "columns", names)
            if not all(names) or len(set(names)) < len(names):
                raise DataError(f"columns named {', '.join(names)}", "give each a name of its own")
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _checked_encoding(self.encoding))


def _checked_delimiter(text: str) -> str:
    delimiter = _SPELLED.get(text, text)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r':
        raise DataError(
            f"the delimiter {text!r} is not one character of ASCII that separates fields",
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
    """How raw files are read.

    Attributes
    ----------
    on_bad_row : {"fail", "quarantine"}
        Stop at a row that cannot be used, or set it aside with the reason.

    Raises
    ------
    DataError
        If `on_bad_row` is something else.
    """

    on_bad_row: OnBadRow = option("fail", "fail: stop at it. quarantine: set it aside.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_bad_row not in get_args(OnBadRow):
            choices = " or ".join(get_args(OnBadRow))
            raise DataError(f"on_bad_row is {self.on_bad_row!r}", f"choose {choices}")
