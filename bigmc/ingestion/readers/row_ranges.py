"""Parts of some rows of Parquet row groups, each read on from where the one before it ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import pyarrow as pa

from bigmc.ingestion.readers.base import Part, ReadRequest
from bigmc.ingestion.sources.kept_open import kept_open
from bigmc.ingestion.sources.source import status_of

Rows = Generator[tuple[pa.RecordBatch, int], None, None]
"""Batches of rows, each with the rows of a piece of it."""


class _OpenGroups:
    """Row groups that are being read; the first `position` rows are behind."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._left: tuple[pa.RecordBatch, int] | None = None
        self.position = 0

    def take(self, first: int, stop: int) -> Rows:
        """Yield some of the rows that are not behind."""
        while self.position < stop and not self.at_end():
            batch, step = self._left  # type: ignore[misc]
            lo, hi = (min(row - self.position, batch.num_rows) for row in (max(first, self.position), stop))
            self._left = (batch.slice(hi), step) if hi < batch.num_rows else None
            self.position += hi
            if lo < hi:
                yield batch.slice(lo, hi - lo), step

    def at_end(self) -> bool:
        """Return whether there are no more rows; the file is then closed."""
        self._left = self._left or next(self._rows, None)
        return self._left is None

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def rows_between(part: Part, request: ReadRequest, open_rows: Callable[[], Rows]) -> Rows:
    """Yield the rows of a part of some rows of its row groups, all rows of which `open_rows` yields.

    They stay open on this thread for the next part of them, since Parquet is decoded from the beginning of a
    row group. Parts may follow each other in any order.
    """
    identity = (part.path, part.version or status_of(part.path), part.start, part.stop, request)
    first = part.skipped or 0
    with kept_open(identity, first, lambda: _OpenGroups(open_rows())) as groups:
        yield from groups.take(first, first + part.n_rows)


_LARGEST_CUT = 1 << 20


def cut(part: Part, part_bytes: int, most_rows: int) -> Iterator[Part]:
    """Yield a part in even ranges of its rows, each of less than twice the given rows and bytes.

    Bytes below 1 MiB do not matter, since reading is in batches.
    """
    n_bytes = max(part_bytes, _LARGEST_CUT)
    n = min(max(part.n_bytes // n_bytes, part.n_rows // most_rows), part.n_rows)
    if n <= 1:
        yield part
        return
    for piece in range(n):
        start, stop = part.n_rows * piece // n, part.n_rows * (piece + 1) // n
        n_bytes = part.bytes_between(start, stop)
        first = part.first_line + start
        yield replace(part, first_line=first, n_rows=stop - start, n_bytes=n_bytes, skipped=start)
