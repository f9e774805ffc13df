"""CSV and TSV: split by our own scan, parsed by pyarrow, with every column as text."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Part, ReadHints, all_but, check_columns, other_delimiter
from bigmc.ingestion.readers.chunks import WHOLE, Chunk, Layout, RecordTooLong, Span, chunks
from bigmc.ingestion.readers.rejects import NOT_UTF8
from bigmc.ingestion.readers.text import Beginning, Parsed, TextFormat
from bigmc.ingestion.readers.utf8 import is_utf8
from bigmc.ingestion.sources.dialect import Dialect
from bigmc.ingestion.sources.source import Source

_HEAD_BYTES = 1 << 16
_MOST_HEAD_BYTES = 16 << 20
_MANY_COLUMNS = 1000
"""Columns from which on they are parsed into memory of Arrow's own allocator, instead of the system's. Before
release 2.38 glibc's does not find blocks again that are aligned: each batch of 5,000 columns enlarged the
heap, up to 31 GB of addresses, and what had been returned of them was zeroed anew. With fewer columns the
allocator's reserve of 10 MB is more than it saves."""
_PLAIN = np.where(np.arange(256) < 0x80, np.arange(256), ord("?")).astype(np.uint8)
"""Translation table of bytes; non-ASCII ones become question marks."""


@dataclass(frozen=True)
class DelimitedFormat(TextFormat):
    """Files of delimited fields with a header line.

    The grammar is pyarrow's, which is RFC 4180 with leniency: a quote inside an unquoted field is an ordinary
    character, blank lines are skipped, and an empty field is an empty text, never null.
    """

    delimiter: str

    def layout_of(self, dialect: Dialect) -> Layout:
        """Return the record layout of a file."""
        return Layout(quote=ord('"'), delimiter=ord(self._delimiter(dialect)))

    def _delimiter(self, dialect: Dialect) -> str:
        return dialect.delimiter or self.delimiter

    def _header(self, source: Source) -> tuple[list[str], Span]:
        """Return the column names, and where the records are."""
        path = source.path
        if source.dialect.columns is not None:
            return list(source.dialect.columns), WHOLE
        layout = self.layout_of(source.dialect)
        try:
            for chunk in chunks(source, layout, WHOLE, _HEAD_BYTES, _MOST_HEAD_BYTES):
                if len(chunk.starts) == 0:
                    continue
                names = self._names(chunk, self._delimiter(source.dialect))
                # Keep the line break before the records; it is a blank line there.
                line = int(chunk.lines[0]) + _line_breaks(chunk)
                return names, Span(chunk.offset + int(chunk.ends[0]), None, line)
        except RecordTooLong:
            raise DataError(
                f"{path}:1: the header is too long", "look for a quote that is never closed"
            ) from None
        raise DataError(
            f"{path}: the file is empty", "start it with a line of column names, or give them with --columns"
        )

    def _names(self, chunk: Chunk, delimiter: str) -> list[str]:
        try:
            text = chunk.raw(0).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: the header {NOT_UTF8}",
                "name the encoding of the file, such as --encoding latin-1",
            ) from error
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        except csv.Error as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: the header cannot be read ({error})",
                "look for a quote that is never closed",
            ) from error
        names = [name if name.strip() else f"column {place}" for place, name in enumerate(names, 1)]
        check_columns(chunk.path, [name for name, times in Counter(names).items() if times > 1][:1], names)
        return names

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return the columns of the header, or those given, all text."""
        names, _ = self._header(source)
        return pa.schema([(name, pa.string()) for name in names])

    def begin(self, source: Source) -> Beginning:
        """Return the range of the records after the header, and its names."""
        names, span = self._header(source)
        return Beginning(span, {"names": names})

    def parse(self, part: Part, chunk: Chunk, columns: Sequence[str] | None) -> Parsed:
        """Parse a chunk, except records with a wrong number of fields."""
        names = part.options["names"]
        wanted = list(names if columns is None else columns)
        check_columns(part.path, wanted, names)
        every = np.arange(len(chunk.starts))
        grammar = _Grammar(names, wanted, self._delimiter(part.dialect), part.dialect.columns is None)
        text = chunk.data[: chunk.ends[-1]]
        try:
            decodable = is_utf8(text)
            if decodable:
                table, ragged = grammar.read(text)
            else:  # pyarrow cannot report ragged records that are not UTF-8: find the ragged ones first
                _, ragged = replace(grammar, wanted=wanted[:1]).read(_PLAIN[text])
                good = all_but(len(every), ragged)
                if not good.any():
                    return Parsed(every[:0], _nothing(wanted), reasons=ragged)
                table, _ = grammar.read(np.frombuffer(chunk.joined(good), np.uint8))
        except pa.ArrowException as error:
            raise _unparsable(chunk, str(error), "check the quotes and the delimiter") from error
        kept = np.delete(every, list(ragged))
        if table.num_rows != len(kept):
            counted = f"{table.num_rows} rows parsed, {len(kept)} records counted"
            raise _unparsable(chunk, counted, "please report this file; it is cut into records in two ways")
        return Parsed(kept, _one_batch(table), reasons=ragged, is_utf8=decodable)


@dataclass(frozen=True)
class _Grammar:
    """pyarrow's options for a chunk of records with columns of these names."""

    names: list[str]
    wanted: list[str]
    delimiter: str
    has_header: bool

    def read(self, text: NDArray[np.uint8]) -> tuple[Any, dict[int, str]]:
        """Return the requested columns of good records, and records with too few or too many fields."""
        ragged: dict[int, str] = {}
        says = "the header has" if self.has_header else "--columns names"
        other = other_delimiter(self.names)
        hint = "" if other is None else f" (its fields seem to need --delimiter {other})"

        def set_aside(row: Any) -> str:
            fields = "field" if row.actual_columns == 1 else "fields"
            ragged[row.number - 1] = f"{row.actual_columns} {fields}, {says} {row.expected_columns}{hint}"
            return "skip"

        data: Any = text
        if text[:3].tobytes() == codecs.BOM_UTF8:
            data = b"\n" + text.tobytes()  # pyarrow would drop it, but only at the start of a chunk
        table = pa_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            # One block holds the chunk, so pyarrow's row numbers match ours.
            read_options=pa_csv.ReadOptions(
                use_threads=False, column_names=self.names, block_size=len(data) + 1
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=set_aside
            ),
            convert_options=pa_csv.ConvertOptions(
                check_utf8=False,
                include_columns=self.wanted,
                column_types=dict.fromkeys(self.wanted, pa.string()),
                strings_can_be_null=False,
                null_values=[],  # a table of each, for each column, takes 4 KB
                true_values=[],
                false_values=[],
            ),
            memory_pool=_pool_for(len(self.wanted)),
        )
        return table, ragged


def _pool_for(n_columns: int) -> pa.MemoryPool:
    """Return where to keep this number of parsed columns."""
    own = n_columns > _MANY_COLUMNS and "mimalloc" in pa.supported_memory_backends()
    return pa.mimalloc_memory_pool() if own else pa.default_memory_pool()


def _unparsable(chunk: Chunk, reason: str, cure: str) -> DataError:
    return DataError(f"{chunk.path}:{chunk.lines[0]}: cannot be parsed from this line on ({reason})", cure)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks(memory_pool=_pool_for(table.num_columns)).to_batches()
    return batches[0] if batches else _nothing(table.schema.names)


def _nothing(columns: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=pa.schema([(name, pa.string()) for name in columns]))


def _line_breaks(chunk: Chunk) -> int:
    r"""Count the line breaks inside record 0: ``\r\n`` is one."""
    raw = chunk.raw(0)
    return raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")
