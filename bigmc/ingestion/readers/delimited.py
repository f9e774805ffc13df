"""CSV and TSV: cut by our scan, parsed by pyarrow, every column as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import (
    Batch,
    Part,
    ScanOptions,
    Source,
    check_columns,
    keep_rows,
    number,
    undecodable_rows,
)
from bigmc.ingestion.readers.text import (
    BYTE_ORDER_MARK,
    Chunk,
    Layout,
    chunks,
    cut,
    part_chunks,
    skip_mark,
)
from bigmc.ingestion.rejects import OnBadRow, Reject, settle

_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class DelimitedReader:
    """Reads files of delimited fields with a header line.

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

    @property
    def _layout(self) -> Layout:
        return Layout(quote=ord('"'), delimiter=ord(self.delimiter))

    def _header(self, path: str) -> tuple[list[str], int, int]:
        """Return the column names, and the offset and line where the records begin."""
        mark = skip_mark(path)
        for chunk in chunks(path, self._layout, mark, None, 1, _HEAD_BYTES):
            if len(chunk.starts) == 0:
                continue
            try:
                text = chunk.raw(0).decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{chunk.lines[0]}: the header is not valid UTF-8", "convert the file to UTF-8"
                ) from error
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter))
            check_columns(path, [name for name in names if names.count(name) > 1][:1], names)
            # The line break stays in front of the records, where it is a blank line.
            return names, chunk.offset + int(chunk.ends[0]), int(chunk.lines[0]) + _line_breaks(chunk)
        raise DataError(f"{path}: the file is empty", "begin it with a line of column names")

    def schema(self, source: Source, options: ScanOptions) -> Any:
        """Return the columns of the header, all text."""
        names, _, _ = self._header(source.path)
        return pa.schema([(name, pa.string()) for name in names])

    def scan(self, sources: Sequence[Source], part_bytes: int, options: ScanOptions) -> list[Part]:
        """Cut each file at the first record after every ``part_bytes``."""
        parts: list[Part] = []
        for i, source in enumerate(sources):
            _, start, line = self._header(source.path)
            parts += cut(source.path, self.name, i, self._layout, start, line, part_bytes)
        return number(parts)

    def read(
        self,
        part: Part,
        source: Source | None,
        columns: Sequence[str] | None,
        batch_bytes: int,
        on_bad_row: OnBadRow,
    ) -> Iterator[Batch]:
        """Read a part; rows with another number of fields than the header, or not in UTF-8, are bad."""
        names, _, _ = self._header(part.path)
        wanted = list(names if columns is None else columns)
        check_columns(part.path, wanted, names)
        for first_row, chunk in part_chunks(part, self._layout, batch_bytes):
            if len(chunk.starts):
                yield self._batch(chunk, first_row, names, wanted, on_bad_row)

    def _batch(
        self, chunk: Chunk, first_row: int, names: list[str], wanted: list[str], on_bad_row: OnBadRow
    ) -> Batch:
        n = len(chunk.starts)
        rejects: list[Reject] = []
        good = np.ones(n, dtype=np.bool_)

        def ragged(row: Any) -> str:
            i = row.number - 1
            good[i] = False
            fields = "field" if row.actual_columns == 1 else "fields"
            reason = f"{row.actual_columns} {fields}, the header has {row.expected_columns}"
            rejects.append(chunk.reject(i, first_row, reason))
            return "skip"

        text: Any = chunk.data[: chunk.ends[-1]]
        if text[:3].tobytes() == BYTE_ORDER_MARK:
            text = b"\n" + text.tobytes()  # pyarrow would drop it, but only at the start of a chunk
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(pa.py_buffer(text)),
                # One block holds the chunk, so that pyarrow's row numbers are ours.
                read_options=pa_csv.ReadOptions(
                    use_threads=False, column_names=names, block_size=len(text) + 1
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=ragged
                ),
                convert_options=pa_csv.ConvertOptions(
                    check_utf8=False,
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowException as error:
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: cannot be parsed from this line on ({error})",
                "check the quotes and the delimiter",
            ) from error
        kept = np.flatnonzero(good)
        if table.num_rows != len(kept):
            raise DataError(
                f"{chunk.path}:{chunk.lines[0]}: {table.num_rows} rows parsed, {len(kept)} records counted "
                "from this line on",
                "please report this file; it is cut into records in two ways",
            )
        batch = _one_batch(table)
        if batch.num_rows:
            decodable = np.ones(len(kept), dtype=np.bool_)
            for i, reason in undecodable_rows(batch).items():
                decodable[i] = False
                rejects.append(chunk.reject(int(kept[i]), first_row, reason))
            batch = keep_rows(batch, decodable)
            kept = kept[decodable]
        return Batch(
            table=batch,
            matrix=None,
            labels=None,
            row=first_row + kept,
            line=chunk.lines[kept],
            path=chunk.path,
            n_bytes=len(chunk.data),
            rejects=settle(rejects, on_bad_row),
        )


def _one_batch(table: Any) -> Any:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _line_breaks(chunk: Chunk) -> int:
    r"""Count the line breaks inside record 0: ``\r\n`` is one."""
    raw = chunk.raw(0)
    return raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")
