"""Base of the readers of text formats: convert records to batches and set invalid ones aside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, all_but, number
from bigmc.ingestion.readers.chunks import WHOLE, Chunk, Layout, RecordTooLong, Span
from bigmc.ingestion.readers.rejects import settle
from bigmc.ingestion.readers.text_parts import cut, part_chunks, refuse_long_record
from bigmc.ingestion.readers.utf8 import undecodable_rows
from bigmc.ingestion.sources.dialect import Dialect
from bigmc.ingestion.sources.source import Source, is_seekable
from bigmc.store.shards.csr import Rows

#: Bytes of a part that no file has.
_ALL = 1 << 62


@dataclass
class Parsed:
    """The records of a chunk that could be parsed.

    `kept` are their numbers in the chunk, and `reasons` says why each of the others was not parsed. `table`
    has the requested columns of these records; a format without columns has `matrix` and `labels`. Texts in
    the table are checked later unless they are known to be UTF-8.
    """

    kept: NDArray[np.int64]
    table: Any = None
    matrix: Rows | None = None
    labels: NDArray[Any] | None = None
    reasons: dict[int, str] = field(default_factory=dict)
    is_utf8: bool = False

    def without(self, wrong: Mapping[int, str]) -> Parsed:
        """Return the records without some more, given by their positions in ``kept``, with the reasons."""
        if not wrong:
            return self
        good = all_but(len(self.kept), wrong)
        return Parsed(
            self.kept[good],
            None if self.table is None else self.table.filter(pa.array(good)),
            None if self.matrix is None else self.matrix.where(good),
            None if self.labels is None else self.labels[good],
            self.reasons | {int(self.kept[i]): reason for i, reason in wrong.items()},
        )


class Survey:
    """What is learned about the sources while they are cut into parts, and passed on with every part.

    By default only what is known before.
    """

    def __init__(self, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._options = options

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the parts, once every chunk was looked at."""
        return self._options

    def look(self, chunk: Chunk) -> None:
        """See a chunk."""


class Beginning(NamedTuple):
    """Where the records of a file are, and what the reader of its parts needs to know from its beginning."""

    span: Span
    options: Mapping[str, Any]


class TextFormat(ABC):
    """A format of records in a text file; what differs between them is where records end and how they parse.

    `layout` says how a usual file is cut into records.
    """

    layout = Layout()

    def layout_of(self, dialect: Dialect) -> Layout:
        """Return the record layout of a file."""
        return self.layout

    @abstractmethod
    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return the columns of a file; none for a matrix."""

    def begin(self, source: Source) -> Beginning:
        """Return where the records of a file are: all of it is records, but for a byte order mark."""
        return Beginning(WHOLE, {})

    @abstractmethod
    def parse(self, part: Part, chunk: Chunk, columns: Sequence[str] | None) -> Parsed:
        """Parse the records of a chunk."""

    def survey(self, sources: Sequence[Source], hints: ReadHints) -> Survey:
        """Return what looks at the sources while they are cut."""
        return Survey()

    def split(self, sources: Sequence[Source], part_bytes: int, hints: ReadHints) -> list[Part]:
        """Cut each file at the first record after every ``part_bytes``; compressed ones on request.

        `MemoryLimitError` if a record is longer than memory allows; it names the limit that would do for all;
        `DataError` if a record is longer than any may be, or a file cannot be read.
        """
        limit = hints.record_limit
        begun = [self.begin(source) for source in sources]
        layout = self.layout_of(sources[0].dialect)
        survey = self.survey(sources, hints)
        parts: list[Part] = []
        try:
            for i, (source, begin) in enumerate(zip(sources, begun, strict=True)):
                # others on request: every thread reads what is before its parts
                n_bytes = part_bytes if is_seekable(source) or hints.most_rows is not None else _ALL
                cuts = cut(source, i, layout, begin.span, n_bytes, limit, survey.look)
                parts += [replace(part, options=begin.options) for part in cuts]
        except RecordTooLong:
            raise refuse_long_record(sources, [begin.span for begin in begun], layout, limit) from None
        return number([replace(part, options={**part.options, **survey.options}) for part in parts])

    def read(self, part: Part, source: Source | None, request: ReadRequest) -> Iterator[Batch]:
        """Read a part; a record that cannot be parsed, or is not UTF-8, is a bad row."""
        layout, limit = self.layout_of(part.dialect), request.record_limit
        for first_row, chunk in part_chunks(part, layout, request.batch_bytes, limit):
            if len(chunk.starts):
                parsed = self.parse(part, chunk, request.columns)
                if parsed.table is not None and not parsed.is_utf8:
                    parsed = parsed.without(undecodable_rows(parsed.table))
                yield _batch(chunk, first_row, parsed, request)


def _batch(chunk: Chunk, first_row: int, parsed: Parsed, request: ReadRequest) -> Batch:
    rejects = (chunk.reject(i, first_row, text) for i, text in parsed.reasons.items())
    return Batch(
        table=parsed.table,
        matrix=parsed.matrix,
        labels=None if parsed.labels is None else pa.array(parsed.labels),
        row=first_row + parsed.kept,
        line=chunk.lines[parsed.kept],
        path=chunk.path,
        n_bytes=len(chunk.data),
        rejects=settle(rejects, request.on_bad_row),
    )
