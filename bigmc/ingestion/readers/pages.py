"""Memory for the pages of Parquet columns, which are decompressed whole; footers do not have their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from bigmc.ingestion.sources.source import open_file

USUAL_BYTES = 1 << 20
"""Maximum bytes of a page of short values with most writers."""

_USUAL_VALUES = 1024
"""Maximum number of long values of a page with most writers: they check its size after this many."""

_HEADER_BYTES = 32
"""Bytes of a page's header that hold its type and its size."""

_INTEGER = b"\x15"
"""The byte before each of the first fields of a header in Thrift's compact protocol: integers of 4 bytes."""


def open_bytes(entry: Any, columns: Sequence[int], page_bytes: int) -> int:
    """Return the bytes of the largest pages of the columns of a row group, all of them open at once.

    `page_bytes` are those of a page of short values, from `page_bytes_of`.
    """
    total = 0
    for i in columns:
        column = entry.column(i)
        size = column.total_uncompressed_size
        total += min(size, max(page_bytes, _USUAL_VALUES * size // max(1, column.num_values)))
    return total


def page_bytes_of(path: str, entries: Iterable[Any], columns: Sequence[int]) -> int:
    """Return the bytes of a page of short values, and of its dictionary, in row groups of a file.

    A writer cuts all columns by the same rule, so the first page of the largest chunk of a column tells it.
    DuckDB's pages have up to 100 MB, and a page of fastparquet up to 500 MB.
    """
    chunks = (entry.column(i) for entry in entries for i in columns)
    largest = max(chunks, key=lambda chunk: chunk.total_uncompressed_size, default=None)
    if largest is None or largest.total_uncompressed_size <= USUAL_BYTES:
        return USUAL_BYTES
    starts = {largest.dictionary_page_offset, largest.data_page_offset} - {None}
    with open_file(path, 0) as file:
        # of a forged footer they may be negative
        first = sum(_page_bytes(file, start) for start in starts if start > 0)
    return first if first > 2 * USUAL_BYTES else USUAL_BYTES  # a usual dictionary is in a reader's minimum


def _page_bytes(file: BinaryIO, start: int) -> int:
    """Return the decompressed bytes of a page that starts there; 0 if there is none."""
    file.seek(start)
    header = file.read(_HEADER_BYTES)
    kind_ends = _end_of_integer(header, 1)
    size_ends = _end_of_integer(header, kind_ends + 1)
    if header[:1] != _INTEGER or header[kind_ends : kind_ends + 1] != _INTEGER:
        return 0  # the error is raised when the page is read
    digits = header[kind_ends + 1 : size_ends]
    return sum((digits[place] & 0x7F) << 7 * place for place in range(len(digits))) >> 1  # zigzag


def _end_of_integer(header: bytes, start: int) -> int:
    """Return where an integer of 7 bits a byte ends: after the first byte without the highest bit."""
    return next((i + 1 for i in range(start, len(header)) if header[i] < 0x80), len(header))
