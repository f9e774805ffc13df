"""Which files a path, a pattern, a folder or an address means, and of which format they are."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from bigmc.errors import DataError
from bigmc.ingestion.files import is_address, list_address
from bigmc.ingestion.readers import ENDINGS, FILE_FORMATS
from bigmc.ingestion.readers.base import Dialect
from bigmc.ingestion.readers.streams import COMPRESSIONS, checked_encoding

KNOWN_FORMATS = "the formats are " + ", ".join(sorted(FILE_FORMATS))

_DELIMITED = ("csv", "tsv")
_SPELLED = {"\\t": "\t", "tab": "\t", "space": " "}
"""Delimiters that are hard to type."""


@dataclass(frozen=True)
class FileOptions:
    r"""How files are written, as far as a user says.

    Attributes
    ----------
    format : str or None
        Name of the format; None lets the ending of a name tell.
    delimiter : str or None
        One character between the fields of delimited text; also ``\t``, ``tab`` and ``space``.
    columns : tuple of str or None
        Names of the columns of delimited text without a header line.
    encoding : str or None
        Character encoding of text files; None for UTF-8.

    Raises
    ------
    DataError
        If an option is unknown, or none of the format.
    """

    format: str | None = None
    delimiter: str | None = None
    columns: tuple[str, ...] | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FILE_FORMATS:
            raise DataError(f"unknown format {self.format!r}", KNOWN_FORMATS)
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _checked_delimiter(self.delimiter))
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
            for name in self.columns:
                if not name or self.columns.count(name) > 1:
                    raise DataError(f"columns named {', '.join(self.columns)}", "give each a name of its own")
        if self.encoding is not None:
            object.__setattr__(self, "encoding", checked_encoding(self.encoding))

    def format_of(self, path: str) -> str:
        """Return the format of a file.

        Raises
        ------
        DataError
            If neither an option nor the ending of the name tells.
        """
        if self.format is not None:
            return self.format
        stem, ending = os.path.splitext(path.split("?")[0] if is_address(path) else path)
        compressed = ending.lower() in COMPRESSIONS
        if compressed:
            ending = os.path.splitext(stem)[1]
        found = ENDINGS.get(ending.lower())
        if found is None and (self.delimiter is not None or self.columns is not None):
            return "csv"
        if found is None:
            raise DataError(
                f"{path}: unknown format {ending or '(no ending)'}", f"give the format; {KNOWN_FORMATS}"
            )
        if compressed and found == "parquet":
            raise DataError(f"{path}: a compressed Parquet file", "decompress it; Parquet compresses inside")
        return found

    def dialect_of(self, path: str) -> Dialect:
        """Return how the text of a file is written.

        Raises
        ------
        DataError
            If an option is not of the format of the file.
        """
        format = self.format_of(path)
        if format not in _DELIMITED and (self.delimiter is not None or self.columns is not None):
            raise DataError(
                f"{path}: --delimiter and --columns are of delimited text, and this is {format}",
                "leave them out, or give --format csv",
            )
        if format == "parquet" and self.encoding is not None:
            raise DataError(f"{path}: the texts of Parquet files are UTF-8", "leave --encoding out")
        usual = Dialect()
        return Dialect(self.delimiter, self.columns, self.encoding or usual.encoding)


def has_known_ending(path: str) -> bool:
    """Return whether a name tells the format of its file."""
    try:
        FileOptions().format_of(path)
    except DataError:
        return False
    return True


def _checked_delimiter(given: str) -> str:
    delimiter = _SPELLED.get(given, given)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r':
        raise DataError(
            f"the delimiter {given!r} is not one character of ASCII that separates fields",
            "give one such as ';', '|' or tab",
        )
    return delimiter


def list_files(path: str) -> list[str]:
    """Return the files that a path, a pattern, a folder or an address means, sorted within a folder.

    Hidden files and those that begin with ``_`` are passed over, but for a file given by its own name.

    Raises
    ------
    DataError
        If there is none.
    """
    if is_address(path):
        return list_address(path)
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        return _walk(path)
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise DataError(f"{path}: not a regular file", "save the data to a file, which can be read twice")
        return [path]
    if glob.has_magic(path):
        found: list[str] = []
        for match in sorted(glob.glob(path, recursive=True)):
            if os.path.isdir(match):
                found += [] if "**" in path else _walk(match)
            elif not _hidden(match):
                found.append(match)
        if not found:
            raise DataError(f"{path}: no file matches the pattern", "check the pattern and its quotes")
        return found
    raise DataError(f"{path}: no such file or directory", "check the path")


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


def _walk(folder: str) -> list[str]:
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        found += [os.path.join(here, name) for name in files if not _hidden(name)]
    if not found:
        raise DataError(f"{folder}: no files in the directory", "check the path")
    return sorted(found)
