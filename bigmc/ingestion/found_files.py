"""Which files a path, a pattern, a folder or an address means, and of which format they are."""

from __future__ import annotations

import glob
import os

from bigmc.errors import DataError
from bigmc.ingestion.files import is_address, list_address
from bigmc.ingestion.readers import ENDINGS, FILE_FORMATS
from bigmc.ingestion.readers.base import Dialect
from bigmc.ingestion.readers.streams import COMPRESSIONS, UTF8
from bigmc.options.raw import FileOptions
from bigmc.store.layout import MANIFEST, SHARDS, WIP

KNOWN_FORMATS = "the formats are " + ", ".join(sorted(FILE_FORMATS))

_DELIMITED = ("csv", "tsv")


def format_of(path: str, options: FileOptions) -> str:
    """Return the format of a file.

    Raises
    ------
    DataError
        If neither an option nor the ending of the name tells.
    """
    if options.format is not None:
        if options.format not in FILE_FORMATS:
            raise DataError(f"unknown format {options.format!r}", KNOWN_FORMATS)
        return options.format
    stem, ending = os.path.splitext(path.split("?")[0] if is_address(path) else path)
    compressed = ending.lower() in COMPRESSIONS
    if compressed:
        ending = os.path.splitext(stem)[1]
    found = ENDINGS.get(ending.lower())
    if found is None and (options.delimiter is not None or options.columns is not None):
        return "csv"
    if found is None:
        raise DataError(
            f"{path}: unknown format {ending or '(no ending)'}", f"give the format; {KNOWN_FORMATS}"
        )
    if compressed and found == "parquet":
        raise DataError(f"{path}: a compressed Parquet file", "decompress it; Parquet compresses inside")
    return found


def dialect_of(path: str, options: FileOptions) -> Dialect:
    """Return how the text of a file is written.

    Raises
    ------
    DataError
        If an option is not of the format of the file.
    """
    format = format_of(path, options)
    if format not in _DELIMITED and (options.delimiter is not None or options.columns is not None):
        raise DataError(
            f"{path}: --delimiter and --columns are of delimited text, and this is {format}",
            "leave them out, or give --format csv",
        )
    if format == "parquet" and options.encoding is not None:
        raise DataError(f"{path}: the texts of Parquet files are UTF-8", "leave --encoding out")
    columns = None if options.columns is None else tuple(options.columns)
    return Dialect(options.delimiter, columns, options.encoding or UTF8)


def has_known_ending(path: str) -> bool:
    """Return whether a name tells the format of its file."""
    try:
        format_of(path, FileOptions())
    except DataError:
        return False
    return True


def list_files(path: str) -> list[str]:
    """Return the files that a path, a pattern, a folder or an address means, sorted within a folder.

    Hidden files and those that begin with ``_`` are passed over, but for a file given by its own name; in a
    folder also datasets of bigmc.

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


def _is_dataset(folder: str) -> bool:
    """Return whether a folder is a dataset that was made among the files, finished or not."""
    finished = all(os.path.exists(os.path.join(folder, name)) for name in (MANIFEST, "zarr.json", SHARDS))
    return finished or os.path.exists(os.path.join(folder, WIP, "lock"))


def _walk(folder: str) -> list[str]:
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not _hidden(name) and not _is_dataset(os.path.join(here, name))
        )
        found += [os.path.join(here, name) for name in files if not _hidden(name)]
    if not found:
        raise DataError(f"{folder}: no files in the directory", "check the path")
    return sorted(found)
