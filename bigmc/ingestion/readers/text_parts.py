"""Split text files into parts at record boundaries, and read the chunks of a part."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Part, check_count
from bigmc.ingestion.readers.chunks import Chunk, Layout, RecordTooLong, Span, chunks, longest_record
from bigmc.ingestion.readers.record_limit import MAX_RECORD_BYTES, LongRecords, RecordLimit
from bigmc.ingestion.sources.source import Source

#: Bytes of a chunk while a file is cut.
_SCAN_BYTES = 4 << 20


def cut(
    source: Source,
    number: int,
    layout: Layout,
    span: Span,
    part_bytes: int,
    limit: RecordLimit | None,
    look: Callable[[Chunk], None],
) -> list[Part]:
    """Walk a text file once and cut it into parts at records.

    A part of source ``number`` ends at the first record at least ``part_bytes`` after its beginning. Records
    that the limit skips are no rows of the parts. `look` sees every chunk on the way. `RecordTooLong` for a
    record longer than the limit.
    """
    most_bytes, beyond = (
        (MAX_RECORD_BYTES, LongRecords.REFUSE) if limit is None else (limit.n_bytes, limit.beyond)
    )
    status = source.status()  # before it is read: reading a part notices what changes from now on
    begins: list[tuple[int, int, int]] = []  # offset, line and record number of the first record
    longest: list[int] = []
    n_records = 0
    end = span.start
    for chunk in chunks(source, layout, span, _SCAN_BYTES, most_bytes, beyond):
        look(chunk)
        end = chunk.offset + len(chunk.data)
        i = 0
        while i < len(chunk.starts):
            if begins:
                i = int(np.searchsorted(chunk.starts, begins[-1][0] + part_bytes - chunk.offset))
            if i < len(chunk.starts):
                begins.append((chunk.offset + int(chunk.starts[i]), int(chunk.lines[i]), n_records + i))
                longest.append(0)
        if len(chunk.starts):  # of parts that share the chunk, each is said to have its longest record
            n_bytes = int((chunk.ends - chunk.starts).max())
            if n_bytes > most_bytes:
                raise RecordTooLong
            first = max(0, sum(1 for begin in begins if begin[0] < chunk.offset) - 1)
            longest[first:] = [max(value, n_bytes) for value in longest[first:]]
        n_records += len(chunk.starts)
    bounds = [*begins, (end, 0, n_records)]
    return [
        Part(
            path=source.path,
            format=source.format,
            source=number,
            start=begin[0],
            stop=after[0],
            first_row=begin[2],
            first_line=begin[1],
            n_rows=after[2] - begin[2],
            n_bytes=after[0] - begin[0],
            file_bytes=status.n_bytes,
            longest=size,
            dialect=source.dialect,
            version=status.version,
        )
        for (begin, after), size in zip(itertools.pairwise(bounds), longest, strict=True)
    ]


def refuse_long_record(
    sources: Sequence[Source], spans: Sequence[Span], layout: Layout, limit: RecordLimit | None
) -> Exception:
    """Return the error for the longest record of all sources, one of which is too long."""
    longest_records = [
        (*longest_record(s, layout, span), s.path) for s, span in zip(sources, spans, strict=True)
    ]
    line, n_bytes, path = max(longest_records, key=lambda record: record[1])
    if limit is None or n_bytes > MAX_RECORD_BYTES:
        return DataError(
            f"{path}:{line}: the record is longer than {MAX_RECORD_BYTES >> 20} MiB",
            "look for a quote that is never closed" if layout.quote >= 0 else "shorten the line",
        )
    return limit.refusal(path, line, n_bytes)


def part_chunks(
    part: Part, layout: Layout, batch_bytes: int, limit: RecordLimit | None
) -> Iterator[tuple[int, Chunk]]:
    """Yield the chunks of a part, each with the row id of its first record, and check their count."""
    row = part.first_row
    size, span = max(batch_bytes, part.longest + 8), Span(part.start, part.stop, part.first_line)
    if limit is None or limit.beyond is LongRecords.REFUSE:  # refused when the part was cut
        chunks_of_part = chunks(part, layout, span, size)
    else:
        skipped = chunks(part, layout, span, size, limit.n_bytes, limit.beyond)
        chunks_of_part = (chunk.packed() for chunk in skipped)
    for chunk in chunks_of_part:
        yield row, chunk
        row += len(chunk.starts)
    check_count(part, row - part.first_row)
