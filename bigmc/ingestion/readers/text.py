"""Text files as a stream of chunks of whole records; scanning and reading walk the same stream."""

from __future__ import annotations

import bz2
import gzip
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Part, check_count
from bigmc.ingestion.rejects import Reject, shown
from bigmc.kernels import records as kernels

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
MAX_RECORD_BYTES = 256 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SCAN_BYTES = 4 << 20
_DAMAGE = (OSError, EOFError, zlib.error, pa.ArrowException)


@dataclass(frozen=True)
class Layout:
    """How a text format is cut into records.

    Attributes
    ----------
    quote, delimiter : int
        Byte values; ``quote = NO_QUOTE`` when every line is a record.
    comment : int
        Byte that begins a line without a record; -1 when there is none.
    """

    quote: int = kernels.NO_QUOTE
    delimiter: int = 0
    comment: int = -1


@dataclass
class Chunk:
    """Whole records in memory; valid until the next chunk is asked for.

    Attributes
    ----------
    data : uint8 array
        The bytes.
    offset : int
        Offset of ``data[0]`` in the (decompressed) file.
    starts, ends : int64 arrays of shape (n,)
        Where each record begins and ends in ``data``.
    lines : int64 array of shape (n,)
        Line where each record begins, from 1.
    """

    path: str
    data: NDArray[np.uint8]
    offset: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lines: NDArray[np.int64]

    def raw(self, i: int) -> bytes:
        """Return the bytes of record ``i``."""
        return self.data[self.starts[i] : self.ends[i]].tobytes()

    def reject(self, i: int, first_row: int, reason: str) -> Reject:
        """Return record ``i`` as a bad row, ``first_row`` being the row id of record 0."""
        raw = shown(self.data[self.starts[i] : min(self.ends[i], self.starts[i] + 4000)].tobytes())
        return Reject(self.path, int(self.lines[i]), first_row + i, reason, raw)

    def joined(self, keep: NDArray[np.bool_]) -> bytes:
        """Return the marked records, each with a line break after it."""
        return b"".join(self.raw(i) + b"\n" for i in np.flatnonzero(keep).tolist())


def compression_of(path: str) -> str | None:
    """Return the compression that the ending of a file name tells."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def _open(path: str) -> BinaryIO:
    match compression_of(path):
        case None:
            return open(path, "rb", buffering=0)
        case "gzip":
            return cast(BinaryIO, gzip.open(path, "rb"))
        case "bz2":
            return cast(BinaryIO, bz2.open(path, "rb"))
        case codec:
            return cast(BinaryIO, pa.input_stream(path, compression=codec))


def _skip(stream: BinaryIO, path: str, start: int) -> None:
    if compression_of(path) is None:
        stream.seek(start)
        return
    while start > 0:
        got = len(stream.read(min(start, 1 << 20)))
        if got == 0:
            return
        start -= got


def _fill(stream: BinaryIO, room: memoryview) -> int:
    """Read until the room is full or the file ends."""
    done = 0
    while done < len(room):
        got = cast(Any, stream).readinto(room[done:])
        if not got:
            break
        done += got
    return done


def skip_mark(path: str) -> int:
    """Return the length of the byte order mark of a file, and refuse what is not UTF-8 at first sight."""
    try:
        with _open(path) as stream:
            head = bytes(stream.read(4))
    except _DAMAGE as error:
        raise _unreadable(path, error) from error
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}: the file is UTF-16", f"convert it: iconv -f UTF-16 -t UTF-8 {path}")
    return 3 if head[:3] == BYTE_ORDER_MARK else 0


def _unreadable(path: str, error: BaseException) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(f"{path}: not allowed to read the file", "give the process read access")
    return DataError(f"{path}: the file cannot be read ({error})", "check that it is complete; fetch it anew")


class _Records:
    """Growable arrays for the records of one chunk."""

    def __init__(self) -> None:
        self.arrays = [np.empty(1 << 12, dtype=np.int64) for _ in range(3)]

    def find(self, buffer: NDArray[np.uint8], size: int, layout: Layout, state: NDArray[np.int64]) -> int:
        words = buffer.view(np.uint64)
        n = 0
        while True:
            starts, ends, lines = (array[n:] for array in self.arrays)
            n += kernels.split_records(
                words, buffer, size, layout.quote, layout.delimiter, state, starts, ends, lines
            )
            if state[kernels.WORD] * 8 >= size:
                return n
            self.arrays = [np.concatenate([array, np.empty_like(array)]) for array in self.arrays]


def chunks(
    path: str, layout: Layout, start: int, stop: int | None, first_line: int, chunk_bytes: int
) -> Iterator[Chunk]:
    """Yield the records of a byte range that begins at a record, in chunks of about ``chunk_bytes``.

    Memory: one buffer of ``max(chunk_bytes, 2 x longest record)`` and 24 bytes per record in it.

    Parameters
    ----------
    path : str
        File; decompressed by its ending.
    layout : Layout
        How records are cut.
    start, stop : int
        Bytes of the decompressed file; ``stop = None`` for its end.
    first_line : int
        Line at ``start``, from 1.
    chunk_bytes : int
        Size of a chunk; grows when a record is longer.

    Raises
    ------
    DataError
        For a damaged file, a quote that is never closed, and a record above 256 MiB.
    """
    try:
        stream = _open(path)
        with stream:
            _skip(stream, path, start)
            yield from _chunks(stream, path, layout, start, stop, first_line, chunk_bytes)
    except _DAMAGE as error:
        raise _unreadable(path, error) from error


def _chunks(
    stream: BinaryIO,
    path: str,
    layout: Layout,
    offset: int,
    stop: int | None,
    first_line: int,
    chunk_bytes: int,
) -> Iterator[Chunk]:
    buffer = np.zeros(max(chunk_bytes, 64) // 8 * 8, dtype=np.uint8)
    found = _Records()
    held = 0  # bytes of an unfinished record at the beginning of the buffer
    line = first_line
    after_return = 0
    while True:
        room = len(buffer) - held
        if stop is not None:
            room = min(room, stop - offset - held)
        size = held + _fill(stream, memoryview(buffer.data)[held : held + room])
        at_end = size - held < room or (stop is not None and offset + size >= stop)
        state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)
        state[kernels.CLOSED] = -2
        state[kernels.RETURN] = after_return
        n = found.find(buffer, size, layout, state)
        used = int(state[kernels.START])
        open_line = line + int(state[kernels.RECORD_LINE])
        if at_end and used < size:
            if state[kernels.QUOTED]:
                raise DataError(
                    f"{path}:{open_line}: a quoted field that begins in this record is never closed",
                    "mend the quotes of the record",
                )
            n = _append(found, n, used, size, int(state[kernels.RECORD_LINE]))
            used = size
        if used == 0 and not at_end:
            if len(buffer) >= MAX_RECORD_BYTES:
                raise DataError(
                    f"{path}:{open_line}: the record is longer than {MAX_RECORD_BYTES >> 20} MiB",
                    "look for a quote that is never closed" if layout.quote >= 0 else "shorten the line",
                )
            grown = np.zeros(2 * len(buffer), dtype=np.uint8)
            grown[:size] = buffer[:size]
            buffer = grown
            held = size
            continue
        starts, ends, lines = (array[:n] for array in found.arrays)
        lines += line
        if layout.quote == kernels.NO_QUOTE:
            keep = np.empty(n, dtype=np.bool_)
            kernels.trim_lines(buffer, starts, ends, layout.comment, keep)
            starts, ends, lines = starts[keep], ends[keep], lines[keep]
        if used:
            yield Chunk(path, buffer[:used], offset, starts, ends, lines)
        if at_end:
            return
        after_return = int(buffer[used - 1] == 13)
        line = open_line
        held = size - used
        buffer[:held] = buffer[used:size].copy()
        offset += used


def _append(found: _Records, n: int, start: int, end: int, line: int) -> int:
    """Add the last record of a file, which has no line break."""
    if n == len(found.arrays[0]):
        found.arrays = [np.concatenate([array, np.empty_like(array)]) for array in found.arrays]
    for array, value in zip(found.arrays, (start, end, line), strict=True):
        array[n] = value
    return n + 1


def cut(
    path: str,
    format_name: str,
    source: int,
    layout: Layout,
    start: int,
    first_line: int,
    part_bytes: int,
    look: Callable[[Chunk], None] = lambda chunk: None,
) -> list[Part]:
    """Walk a text file once and cut it into parts at records.

    Parameters
    ----------
    path, format_name, source, layout
        The file, and how its records are cut.
    start, first_line : int
        Where the records begin.
    part_bytes : int
        A part ends at the first record at least so many bytes after its beginning; a compressed file
        cannot be entered in the middle and is one part.
    look : callable, optional
        Sees every chunk on the way.
    """
    whole = compression_of(path) is not None
    begins: list[tuple[int, int, int]] = []  # offset, line and record number of the first record
    n_records = 0
    end = start
    for chunk in chunks(path, layout, start, None, first_line, SCAN_BYTES):
        look(chunk)
        end = chunk.offset + len(chunk.data)
        i = 0
        while i < len(chunk.starts):
            if not begins:
                i = 0
            elif whole:
                break
            else:
                i = int(np.searchsorted(chunk.starts, begins[-1][0] + part_bytes - chunk.offset))
            if i < len(chunk.starts):
                begins.append((chunk.offset + int(chunk.starts[i]), int(chunk.lines[i]), n_records + i))
        n_records += len(chunk.starts)
    bounds = [*begins, (end, 0, n_records)]
    file_bytes = os.path.getsize(path)
    return [
        Part(
            index=0,
            path=path,
            format=format_name,
            source=source,
            start=here[0],
            stop=after[0],
            first_row=here[2],
            first_line=here[1],
            n_rows=after[2] - here[2],
            n_bytes=after[0] - here[0],
            file_bytes=file_bytes,
        )
        for here, after in itertools.pairwise(bounds)
    ]


def part_chunks(part: Part, layout: Layout, batch_bytes: int) -> Iterator[tuple[int, Chunk]]:
    """Yield the chunks of a part, each with the row id of its first record, and check their count."""
    row = part.first_row
    for chunk in chunks(part.path, layout, part.start, part.stop, part.first_line, batch_bytes):
        yield row, chunk
        row += len(chunk.starts)
    check_count(part, row - part.first_row)


def broken(parse: Callable[[int, int], Exception | None], n: int) -> list[tuple[int, Exception]]:
    """Return the records that a parser refuses, found by halving.

    Parameters
    ----------
    parse : callable
        ``parse(lo, hi)`` returns the error of records ``lo:hi``, or None.
    n : int
        Number of records.
    """
    found: list[tuple[int, Exception]] = []
    open_ranges = [(0, n)] if n else []
    while open_ranges:
        lo, hi = open_ranges.pop()
        error = parse(lo, hi)
        if error is None:
            continue
        if hi - lo == 1:
            found.append((lo, error))
        else:
            middle = (lo + hi) // 2
            open_ranges += [(middle, hi), (lo, middle)]
    return found
