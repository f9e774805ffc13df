"""Parquet: parts are ranges of row groups, streamed in bounded batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import (
    Batch,
    Part,
    ScanOptions,
    Source,
    check_columns,
    check_count,
    keep_rows,
    number,
    plain_columns,
    plain_type,
    undecodable_rows,
)
from bigmc.ingestion.rejects import OnBadRow, Reject, settle

_PAGE_BUFFER = 1 << 20
_LOOK_ROWS = 64
_MAX_BATCH_ROWS = 1 << 16


def _open(path: str) -> Any:
    try:
        # Buffered and not pre-fetched: otherwise a row group is read whole.
        return pq.ParquetFile(path, buffer_size=_PAGE_BUFFER, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: BaseException) -> DataError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"{path}: not a readable Parquet file ({reason})", "check it, or fetch it anew")


def table_batch(
    batch: Any,
    path: str,
    first_row: int,
    first_line: int,
    n_bytes: int,
    on_bad_row: OnBadRow,
) -> Batch:
    """Return a batch of consecutive rows of a table; text that is not UTF-8 makes a row bad."""
    batch = plain_columns(batch)
    reasons = undecodable_rows(batch)
    good = np.ones(batch.num_rows, dtype=np.bool_)
    good[list(reasons)] = False
    kept = np.flatnonzero(good)
    rejects = [
        Reject(path, first_line + i, first_row + i, reason, None, "row") for i, reason in reasons.items()
    ]
    return Batch(
        table=keep_rows(batch, good),
        matrix=None,
        labels=None,
        row=first_row + kept,
        line=first_line + kept,
        path=path,
        n_bytes=n_bytes,
        rejects=settle(rejects, on_bad_row),
    )


class ParquetReader:
    """Reads Parquet files; rows are counted from 0 in each file."""

    def schema(self, source: Source, options: ScanOptions) -> Any:
        """Return the columns of the file, dictionaries decoded."""
        with _open(source.path) as file:
            return pa.schema([(field.name, plain_type(field.type)) for field in file.schema_arrow])

    def scan(self, sources: Sequence[Source], part_bytes: int, options: ScanOptions) -> list[Part]:
        """Gather row groups until they hold ``part_bytes``, as encoded but not compressed."""
        parts: list[Part] = []
        for i, source in enumerate(sources):
            with _open(source.path) as file:
                parts += self._scan(file.metadata, source.path, i, part_bytes)
        return number(parts)

    def _scan(self, metadata: Any, path: str, source: int, part_bytes: int) -> list[Part]:
        parts: list[Part] = []
        start = row = part_row = n_bytes = 0
        for group in range(metadata.num_row_groups):
            entry = metadata.row_group(group)
            row += entry.num_rows
            n_bytes += entry.total_byte_size
            last = group == metadata.num_row_groups - 1
            if (n_bytes >= part_bytes or last) and row > part_row:
                parts.append(
                    Part(
                        index=0,
                        path=path,
                        format="parquet",
                        source=source,
                        start=start,
                        stop=group + 1,
                        first_row=0,
                        first_line=part_row,
                        n_rows=row - part_row,
                        n_bytes=n_bytes,
                        file_bytes=os.path.getsize(path),
                    )
                )
                start, part_row, n_bytes = group + 1, row, 0
        return parts

    def read(
        self,
        part: Part,
        source: Source | None,
        columns: Sequence[str] | None,
        batch_bytes: int,
        on_bad_row: OnBadRow,
    ) -> Iterator[Batch]:
        """Stream the row groups of a part."""
        done = 0
        with _open(part.path) as file:
            names = file.schema_arrow.names
            wanted = list(names if columns is None else columns)
            check_columns(part.path, wanted, names)
            batches = file.iter_batches(
                batch_size=_batch_rows(file, part, wanted, batch_bytes),
                row_groups=list(range(part.start, part.stop)),
                columns=wanted,
                use_threads=False,
            )
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowException) as error:
                    raise _unreadable(part.path, error) from error
                if batch is None:
                    break
                n = batch.num_rows
                share = part.n_bytes * (done + n) // part.n_rows - part.n_bytes * done // part.n_rows
                yield table_batch(
                    batch.select(wanted),
                    part.path,
                    part.first_row + done,
                    part.first_line + done,
                    share,
                    on_bad_row,
                )
                done += n
        check_count(part, done)


def _batch_rows(file: Any, part: Part, wanted: list[str], batch_bytes: int) -> int:
    """Return the number of rows that take about ``batch_bytes``.

    A row takes what it takes encoded, by the footer, or decoded, by a look at the first rows: a
    dictionary may hide long texts, and the first rows may be short ones.
    """
    encoded = n_rows = 0
    for group in range(part.start, min(part.stop, file.metadata.num_row_groups)):
        entry = file.metadata.row_group(group)
        n_rows += entry.num_rows
        for i in range(entry.num_columns):
            column = entry.column(i)
            if column.path_in_schema.split(".")[0] in wanted or column.path_in_schema in wanted:
                encoded += column.total_uncompressed_size
    decoded = 8.0
    try:
        first = file.iter_batches(
            batch_size=_LOOK_ROWS, row_groups=[part.start], columns=wanted, use_threads=False
        )
        for batch in first:
            decoded += plain_columns(batch).nbytes / max(1, batch.num_rows)
            break
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(part.path, error) from error
    per_row = max(encoded / max(1, n_rows), decoded)
    return max(1, min(_MAX_BATCH_ROWS, int(batch_bytes / per_row)))
