"""CSV and TSV: cut by our scan, parsed by pyarrow, every column as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Part, ReadHints, Source, check_columns, is_utf8
from bigmc.ingestion.readers.chunks import Chunk, Layout, RecordTooLong, Span, chunks
from bigmc.ingestion.readers.streams import BYTE_ORDER_MARK, skip_mark
from bigmc.ingestion.readers.text import Parsed, TextFormat

_HEAD_BYTES = 1 << 16
_MOST_HEAD_BYTES = 16 << 20
_PLAIN = np.where(np.arange(256) < 0x80, np.arange(256), ord("?")).astype(np.uint8)
"""Every byte, those that are not ASCII as a question mark."""


@dataclass(frozen=True)
class DelimitedFormat(TextFormat):
    """Files of delimited fields with a header line.

    The grammar is pyarrow's, which is RFC 4180 with leniency: a quote inside an unquoted field is an
    ordinary character, blank lines are no records, and an empty field is an empty text, never null.

    Attributes
    ----------
    name : str
        Name of the format.
    delimiter : str
        One character.
    """

    name: str
    delimiter: str
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout(quote=ord('"'), delimiter=ord(self.delimiter)))

    def _header(self, path: str) -> tuple[list[str], Span]:
        """Return the column names, and where the records are."""
        whole = Span(skip_mark(path), None, 1)
        try:
            for chunk in chunks(path, self.layout, whole, _HEAD_BYTES, _MOST_HEAD_BYTES):
                if len(chunk.starts) == 0:
                    continue
                names = self._names(chunk)
                # The line break stays in front of the records, where it is a blank line.
                line = int(chunk.lines[0]) + _line_breaks(chunk)
                return names, Span(chunk.offset + int(chunk.ends[0]), None, line)
        except RecordTooLong:
            raise DataError(
                f"{path}:1: the header is too long", "look for a quote that is never closed"
            ) from None
        raise DataError(f"{path}: the file is empty", "begin it with a line of column names")

    def _names(self, chunk: Chunk) -> list[str]:
        try:
            text = chunk.raw(0).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: the header is not valid UTF-8", "convert the file to UTF-8"
            ) from error
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter))
        except csv.Error as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: the header cannot be read ({error})",
                "look for a quote that is never closed",
            ) from error
        check_columns(chunk.path, [name for name in names if names.count(name) > 1][:1], names)
        return names

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return the columns of the header, all text."""
        names, _ = self._header(source.path)
        return pa.schema([(name, pa.string()) for name in names])

    def begin(self, path: str) -> Span:
        """Return where the records behind the header are."""
        return self._header(path)[1]

    def parse(self, part: Part, chunk: Chunk, columns: Sequence[str] | None) -> Parsed:
        """Parse a chunk; records with another number of fields than the header are not."""
        names, _ = self._header(part.path)
        wanted = list(names if columns is None else columns)
        check_columns(part.path, wanted, names)
        every = np.arange(len(chunk.starts))
        text = chunk.data[: chunk.ends[-1]]
        try:
            if is_utf8(text):
                table, ragged = self._read(text, names, wanted)
            else:  # pyarrow cannot pass on a ragged record that is not UTF-8: first find out which are ragged
                _, ragged = self._read(_PLAIN[text], names, wanted[:1])
                good = np.ones(len(every), dtype=np.bool_)
                good[list(ragged)] = False
                if not good.any():
                    return Parsed(every[:0], _nothing(wanted), reasons=ragged)
                table, _ = self._read(np.frombuffer(chunk.joined(good), np.uint8), names, wanted)
        except pa.ArrowException as error:
            raise _unparsable(chunk, str(error), "check the quotes and the delimiter") from error
        kept = np.delete(every, list(ragged))
        if table.num_rows != len(kept):
            counted = f"{table.num_rows} rows parsed, {len(kept)} records counted"
            raise _unparsable(chunk, counted, "please report this file; it is cut into records in two ways")
        return Parsed(kept, _one_batch(table), reasons=ragged)

    def _read(
        self, text: NDArray[np.uint8], names: list[str], wanted: list[str]
    ) -> tuple[Any, dict[int, str]]:
        """Return the requested columns, without the records of too few or too many fields, and these."""
        ragged: dict[int, str] = {}

        def set_aside(row: Any) -> str:
            fields = "field" if row.actual_columns == 1 else "fields"
            ragged[row.number - 1] = f"{row.actual_columns} {fields}, the header has {row.expected_columns}"
            return "skip"

        data: Any = text
        if text[:3].tobytes() == BYTE_ORDER_MARK:
            data = b"\n" + text.tobytes()  # pyarrow would drop it, but only at the start of a chunk
        table = pa_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            # One block holds the chunk, so that pyarrow's row numbers are ours.
            read_options=pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
            parse_options=pa_csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=set_aside
            ),
            convert_options=pa_csv.ConvertOptions(
                check_utf8=False,
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=False,
            ),
        )
        return table, ragged


def _unparsable(chunk: Chunk, reason: str, cure: str) -> DataError:
    return DataError(f"{chunk.path}:{chunk.lines[0]}: cannot be parsed from this line on ({reason})", cure)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else _nothing(table.schema.names)


def _nothing(columns: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=pa.schema([(name, pa.string()) for name in columns]))


def _line_breaks(chunk: Chunk) -> int:
    r"""Count the line breaks inside record 0: ``\r\n`` is one."""
    raw = chunk.raw(0)
    return raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")
