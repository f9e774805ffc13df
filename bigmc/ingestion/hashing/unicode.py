"""Prepare Arrow strings for case folding: Python's Unicode data, pieces, and the final sigma."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.hashing import final_sigma as sigma
from bigmc.kernels.hashing import folding
from bigmc.kernels.hashing import words as wording
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

# Capital I with dot has a lower case of two code points; capital sigma has two lower cases.
SPECIAL_CODE_POINTS = (0x130, 0x3A3)

PIECE_BYTES = 4 << 20  # bytes of text checked at a time
LOWERED_BYTES = 1 << 20  # bytes of text lower-cased by Python at a time
PLANE = 1 << 16  # code points folded at a time
PLANES = 17


@functools.cache
def lower_table(n_planes: int = PLANES) -> NDArray[np.uint32]:
    r"""Tabulate the lower case of every code point, as the running Python knows it.

    An element has the folded code point in the low 21 bits, and flags: whether it is a word character
    (``\w``, `bigmc.kernels.hashing.words.IS_WORD`) or white space (``\s``,
    `bigmc.kernels.hashing.folding.IS_SPACE`). Capital I with dot becomes ``i``; the kernels handle its dot.
    Only the first planes are tabulated, since all take 50 ms and the first takes 3; code points of others are
    unchanged, without flags.
    """
    table = np.arange(0x110000, dtype=np.uint32)
    for start in range(0, n_planes * PLANE, PLANE):  # all at once would take 30 MB for a moment
        plane = table[start : start + PLANE]
        _lower_plane(plane)
        _flag_plane(plane)
    table.setflags(write=False)
    return table


@functools.cache
def case_kept_table(n_planes: int = PLANES) -> NDArray[np.uint32]:
    """Tabulate every code point with the flags of `lower_table`, keeping its case."""
    table = np.arange(0x110000, dtype=np.uint32)
    for start in range(0, n_planes * PLANE, PLANE):
        _flag_plane(table[start : start + PLANE])
    table.setflags(write=False)
    return table


def forget_tables() -> None:
    """Give back the memory of the tables, 5 to 10 MB; they are made anew when they are needed."""
    for tabulate in (lower_table, case_kept_table, case_table):
        tabulate.cache_clear()


def planes_of(text: NDArray[np.uint8]) -> int:
    """Return how many planes of code points a text in UTF-8 may need: 1, or all.

    Only code points beyond the first plane take four bytes, of which the first is 0xF0 or more.
    """
    return PLANES if len(text) and text.max() >= 0xF0 else 1


def _lower_plane(table: NDArray[np.uint32]) -> None:
    points = table.copy()
    special = np.isin(points, SPECIAL_CODE_POINTS) | (points >= 0xD800) & (points < 0xE000)
    table[~special] = _lowered(points[~special])
    table[points == 0x130], table[points == 0x3A3] = 0x69, 0x3C3


def _flag_plane(table: NDArray[np.uint32]) -> None:
    """Add the flags of words and white space to the code points in a plane of the table."""
    flags = np.zeros(len(table), np.uint32)
    folded = table.tobytes().decode("utf-32-le", "surrogatepass")
    for pattern, flag in ((r"\w+", wording.IS_WORD), (r"\s+", folding.IS_SPACE)):
        for run in re.finditer(pattern, folded):
            flags[run.start() : run.end()] |= flag
    table |= flags


@functools.cache
def case_table() -> NDArray[np.uint8]:
    """Tabulate the code points that affect the lower case of a capital sigma, by the running Python.

    Their flags are `bigmc.kernels.hashing.final_sigma.IS_CASED` and ``IS_IGNORABLE``. Separate from
    `lower_table`, since it takes twice as long and few texts have the letter.
    """
    table = np.zeros(0x110000, np.uint8)
    for start in range(0, len(table), PLANE):
        points = np.arange(start, start + PLANE, dtype=np.uint32)
        ordinary = ~np.isin(points, SPECIAL_CODE_POINTS) & ((points < 0xD800) | (points >= 0xE000))
        table[points[ordinary]] = _case_flags(points[ordinary])
    table[list(SPECIAL_CODE_POINTS)] = sigma.IS_CASED
    table.setflags(write=False)
    return table


def _case_flags(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the flags of code points, found with `str.lower`."""
    # A sigma is final after A unless a cased letter follows, skipping ignorable characters.
    trial = np.empty((len(points), 4), np.uint32)
    trial[:] = 0x41, 0x3A3, 0x20, 0x20
    trial[:, 2] = points
    sees_case = _lowered(trial).reshape(-1, 4)[:, 1] == 0x3C3
    trial[:, 3] = 0x41
    sees_through = (_lowered(trial).reshape(-1, 4)[:, 1] == 0x3C3) & ~sees_case
    flags = np.zeros(len(points), np.uint8)
    flags[sees_case] = sigma.IS_CASED
    flags[sees_through] = sigma.IS_IGNORABLE
    return flags


def _lowered(points: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return `str.lower` of the text of these code points, none of which becomes two."""
    lowered = points.astype("<u4").tobytes().decode("utf-32-le").lower().encode("utf-32-le")
    return np.frombuffer(lowered, "<u4")


def string_pieces(
    texts: pa.Array | pa.ChunkedArray, piece_bytes: int | None = None
) -> Iterator[tuple[int, pa.Array, NDArray[np.int64], NDArray[np.uint8]]]:
    """Walk through the strings of an Arrow array by pieces of some megabytes.

    Yields the row of a piece's first string, the strings, where each begins and ends in their UTF-8 bytes,
    and these bytes, which are not copied. A piece has at most `piece_bytes` of text, by default
    `PIECE_BYTES`, unless one string is longer. The type is ``string`` or ``large_string``, or what casts to
    it without loss (views, dictionaries). `DataError` if the array holds no strings, or a null.
    """
    if texts.null_count:
        row = pc.index(texts.is_null(), True).as_py()
        raise DataError(f"row {row}: the text is missing (null)", "fill or quarantine missing texts")
    piece_bytes = piece_bytes or PIECE_BYTES
    first = 0
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        if chunk.type not in (pa.string(), pa.large_string()):
            try:
                chunk = chunk.cast(pa.large_string())
            except pa.ArrowException as error:
                raise DataError(f"texts have the type {chunk.type}", "give a column of strings") from error
        if len(chunk) == 0:
            continue
        wide = chunk.type == pa.large_string()
        _, starts, data = chunk.buffers()
        ends: NDArray[Any] = np.frombuffer(starts, np.int64 if wide else np.int32)
        offsets: NDArray[np.int64] = ends[chunk.offset : chunk.offset + len(chunk) + 1].astype(
            np.int64, copy=False
        )
        text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        start = 0
        while start < len(chunk):
            stop = int(np.searchsorted(offsets, offsets[start] + piece_bytes, side="right")) - 1
            stop = min(max(stop, start + 1), len(chunk))
            yield first + start, chunk[start:stop], offsets[start : stop + 1], text
            start = stop
        first += len(chunk)


def lower_sigmas(
    offsets: NDArray[np.int64], text: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets and bytes with every capital sigma lower-cased; unchanged if there is none."""
    first, last = offsets[0], offsets[-1]
    if not sigma.has_sigma(text[first:last]):
        return offsets, text
    offsets, text = offsets - first, text[first:last].copy()
    sigma.lower_sigmas(offsets, text, case_table())
    return offsets, text


def lowered(document: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a document without capital sigmas in lower case, as from `str.lower`, in UTF-8.

    Done piece by piece, because a Python string may take four bytes per character.
    """
    result = bytearray()
    start = 0
    while start < len(document):
        stop = min(start + LOWERED_BYTES, len(document))
        for _ in range(3):  # maximum bytes of a character after its first
            if stop < len(document) and document[stop] & 0xC0 == 0x80:
                stop -= 1
        result += document[start:stop].tobytes().decode().lower().encode()
        start = stop
    array = np.frombuffer(result, np.uint8)
    array.flags.writeable = False  # kernels are compiled for Arrow's buffers, which are read-only
    return array


def first_broken(offsets: NDArray[np.int64], text: NDArray[np.uint8], row: int) -> int:
    """Return the first document from ``row`` on that is not UTF-8."""
    while True:
        try:
            text[offsets[row] : offsets[row + 1]].tobytes().decode()
        except UnicodeDecodeError:
            return row
        row += 1
