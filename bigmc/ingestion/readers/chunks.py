"""Read text files in chunks of whole records, for splitting and for reading."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.record_limit import MAX_RECORD_BYTES, LongRecords
from bigmc.ingestion.readers.rejects import Reject, shown
from bigmc.ingestion.sources.source import DAMAGE, TextFile, fill, unreadable
from bigmc.ingestion.sources.text_from import text_from
from bigmc.kernels import records as kernels
from bigmc.kernels.byte_masks import BLOCK


@dataclass(frozen=True)
class Layout:
    """How to split a text format into records, by values of bytes.

    ``quote = NO_QUOTE`` when every line is a record. `comment` starts a comment line; -1 if there is none.
    """

    quote: int = kernels.NO_QUOTE
    delimiter: int = 0
    comment: int = -1


@dataclass
class Chunk:
    """Whole records in memory; valid until the next chunk is read.

    Record ``i`` is ``data[starts[i] : ends[i]]``, and begins in the line ``lines[i]``, from 1. `offset` is
    that of ``data[0]`` in the (decompressed) file.
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
        """Return record ``i`` as a bad row; ``first_row`` is the row id of record 0."""
        raw = shown(self.data[self.starts[i] : min(self.ends[i], self.starts[i] + 4000)].tobytes())
        return Reject(self.path, int(self.lines[i]), first_row + i, reason, raw)

    def up_to(self, most_bytes: int) -> Chunk:
        """Return the chunk without longer records."""
        keep = self.ends - self.starts <= most_bytes
        return replace(self, starts=self.starts[keep], ends=self.ends[keep], lines=self.lines[keep])

    def packed(self) -> Chunk:
        """Return the chunk without gaps from removed records, only line breaks between records."""
        return self.replaced([self.raw(i) for i in range(len(self.starts))])

    def replaced(self, records: Sequence[bytes]) -> Chunk:
        """Return the chunk with other bytes for each record, and only line breaks between them."""
        lengths = np.array([len(record) for record in records], np.int64)
        ends = np.cumsum(lengths + 1) - 1
        data = np.frombuffer(b"".join(record + b"\n" for record in records), np.uint8)
        return replace(self, data=data, starts=ends - lengths, ends=ends)

    def joined(self, keep: NDArray[np.bool_]) -> bytes:
        """Return the marked records, each with a line break after it."""
        return b"".join(self.raw(i) + b"\n" for i in np.flatnonzero(keep).tolist())


class Span(NamedTuple):
    """A range of a (decompressed) file that starts at a record, in the line `first_line`, from 1.

    ``stop = None`` for the end of the file.
    """

    start: int
    stop: int | None
    first_line: int


WHOLE = Span(0, None, 1)
"""All of a file, without a byte order mark."""


class RecordTooLong(Exception):
    """A record does not fit into the maximum buffer."""


class _RecordFinder:
    """Finds records in a buffer; its arrays grow as needed."""

    def __init__(self, layout: Layout) -> None:
        self.arrays = [np.empty(1 << 12, dtype=np.int64) for _ in range(3)]
        self._layout = layout

    def find(self, buffer: NDArray[np.uint8], size: int, state: NDArray[np.int64]) -> int:
        """Find the complete records in the first ``size`` bytes; return their number."""
        given = kernels.Buffer(buffer, size)
        quote, delimiter = self._layout.quote, self._layout.delimiter
        n = 0
        while True:
            out = kernels.Records(*(array[n:] for array in self.arrays))
            n_more: int = kernels.split_records(given, quote, delimiter, state, out)
            n += n_more
            if state[kernels.NEXT] >= size:
                return n
            self._grow()

    def append(self, n: int, start: int, end: int, line: int) -> int:
        """Add a record after ``n`` found ones; return the new number."""
        if n == len(self.arrays[0]):
            self._grow()
        for array, value in zip(self.arrays, (start, end, line), strict=True):
            array[n] = value
        return n + 1

    def _grow(self) -> None:
        self.arrays = [np.concatenate([array, np.empty_like(array)]) for array in self.arrays]


def _fresh_state() -> NDArray[np.int64]:
    state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)
    state[kernels.CLOSED] = -2
    return state


def chunks(
    file: TextFile,
    layout: Layout,
    span: Span,
    chunk_bytes: int,
    most_bytes: int = MAX_RECORD_BYTES,
    beyond: LongRecords = LongRecords.REFUSE,
) -> Iterator[Chunk]:
    """Yield the records of a span, in chunks of about ``chunk_bytes``, more when a record is longer.

    Memory: one buffer of ``max(chunk_bytes, 2 x longest record)`` and 24 bytes per record in it. `DataError`
    for a damaged file and a quote that is never closed; `RecordTooLong` for a record of more than
    `most_bytes`, unless `beyond` says to skip it.
    """
    try:
        with text_from(file, span.start) as stream:
            for chunk in _chunks(stream, file.path, layout, span, (chunk_bytes, most_bytes), beyond):
                yield chunk if beyond is LongRecords.REFUSE else chunk.up_to(most_bytes)
    except DAMAGE as error:
        raise unreadable(file.path, error) from error


def _chunks(
    stream: BinaryIO, path: str, layout: Layout, span: Span, sizes: tuple[int, int], beyond: LongRecords
) -> Iterator[Chunk]:
    offset, stop, line = span
    chunk_bytes, most_bytes = sizes
    buffer = _buffer(max(chunk_bytes, 2 * BLOCK) // 8 * 8)
    finder = _RecordFinder(layout)
    held = 0  # bytes of an unfinished record at the beginning of the buffer
    after_return = 0
    skipping = False  # the beginning of a too long record was dropped
    while True:
        space = len(buffer) - BLOCK - held
        if stop is not None:
            space = min(space, stop - offset - held)
        size = held + fill(stream, memoryview(buffer.data)[held : held + space])
        at_end = size - held < space or (stop is not None and offset + size >= stop)
        if offset == 0 and held == 0:
            offset = _pass_mark(buffer, size, path)
            size -= offset
        if not skipping:
            state = _fresh_state()
            state[kernels.RETURN] = after_return
        n = finder.find(buffer, size, state)
        used = int(state[kernels.START])
        open_line = line + int(state[kernels.RECORD_LINE])
        if at_end and used < size:
            if state[kernels.QUOTED]:
                raise DataError(
                    f"{path}:{open_line}: a quoted field that begins in this record is never closed",
                    "fix the quotes of the record",
                )
            n = finder.append(n, used, size, int(state[kernels.RECORD_LINE]))
            used = size
        if used <= 0 and not at_end:
            if len(buffer) - BLOCK > most_bytes and beyond is LongRecords.SKIP:
                skipping, held = True, _forget(buffer, size, state)
                offset += size - held
            else:
                buffer = _grown(buffer, size, most_bytes)
                held = size
            continue
        starts, ends, lines = (array[int(skipping) : n] for array in finder.arrays)
        skipping = False
        lines += line
        if layout.quote == kernels.NO_QUOTE:
            keep = np.empty(len(starts), dtype=np.bool_)
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


_COMPRESSED = {
    "gzip": (b"\x1f\x8b\x08", ".gz"),
    "xz": (b"\xfd7zXZ\x00", ".xz"),
    "zstd": (b"\x28\xb5\x2f\xfd", ".zst"),
}
"""First bytes of compressed files, and the ending of their names."""


def _pass_mark(buffer: NDArray[np.uint8], size: int, path: str) -> int:
    """Skip the byte order mark of a text, if any; return its bytes.

    `DataError` if the mark is that of UTF-16, or of a compressed file without the ending of one.
    """
    head = buffer[:3].tobytes()
    if size >= 2 and head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise DataError(f"{path}: the file is UTF-16", "give --encoding utf-16")
    for name, (magic, ending) in _COMPRESSED.items():
        if buffer[: min(size, len(magic))].tobytes() == magic:
            raise DataError(f"{path}: the file is compressed with {name}", f"let its name end with {ending}")
    if size < 3 or head != codecs.BOM_UTF8:
        return 0
    buffer[: size - 3] = buffer[3:size].copy()
    return 3


def _forget(buffer: NDArray[np.uint8], size: int, state: NDArray[np.int64]) -> int:
    """Move an incomplete record to the front of the buffer; return its bytes."""
    # Keep some scanned bytes: whether a quote opens a field depends on the byte before it.
    shift = size - BLOCK
    buffer[:BLOCK] = buffer[shift:size].copy()
    state[kernels.NEXT] = BLOCK
    state[kernels.START] -= shift
    state[kernels.CLOSED] -= shift
    return BLOCK


def _buffer(n_bytes: int) -> NDArray[np.uint8]:
    """Return a buffer for a number of bytes, plus a `BLOCK` after them that the scan may read."""
    return np.zeros(n_bytes + BLOCK, dtype=np.uint8)


def _grown(buffer: NDArray[np.uint8], size: int, most_bytes: int) -> NDArray[np.uint8]:
    """Return a longer buffer with the same contents."""
    n_bytes = len(buffer) - BLOCK
    if n_bytes > most_bytes:
        raise RecordTooLong
    grown = _buffer(min(2 * n_bytes, most_bytes // 8 * 8 + 16))
    grown[:size] = buffer[:size]
    return grown


def longest_record(file: TextFile, layout: Layout, span: Span) -> tuple[int, int]:
    """Return line and bytes of the longest record of a file, without holding it in memory."""
    buffer = _buffer(1 << 20)
    finder, state = _RecordFinder(layout), _fresh_state()
    longest = (span.first_line, 0)
    held = 0
    begins = span.start == 0
    with text_from(file, span.start) as stream:
        while True:
            size = held + fill(stream, memoryview(buffer.data)[held:-BLOCK])
            at_end = size < len(buffer) - BLOCK
            if begins:
                size -= _pass_mark(buffer, size, file.path)
                begins = False
            n = finder.find(buffer, size, state)
            starts, ends, lines = (array[:n] for array in finder.arrays)
            if n:
                at = int(np.argmax(ends - starts))
                longest = max(
                    longest,
                    (span.first_line + int(lines[at]), int(ends[at] - starts[at])),
                    key=lambda x: x[1],
                )
            if at_end:
                open_record = (
                    span.first_line + int(state[kernels.RECORD_LINE]),
                    size - int(state[kernels.START]),
                )
                return max(longest, open_record, key=lambda record: record[1])
            held = _forget(buffer, size, state)
