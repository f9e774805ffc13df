"""Tables in memory: Arrow tables and data frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, check_columns, number
from bigmc.ingestion.readers.nested import only, select, with_fields
from bigmc.ingestion.readers.parquet import table_batch
from bigmc.ingestion.readers.plain_types import bytes_of, plain_schema
from bigmc.ingestion.sources.source import Source


def in_memory(part: Part, source: Source | None) -> Source:
    """Return the source of a part in memory, which the part does not carry itself."""
    if source is None or source.data is None:
        raise DataError(
            f"{part.path}: the data is in memory and was not passed along", "pass the sources to read()"
        )
    return source


def row_ranges(
    name: str, format_name: str, source: int, n_rows: int, n_bytes: int, part_bytes: int
) -> list[Part]:
    """Cut the rows of an array or table into parts of about ``part_bytes``."""
    step = max(1, n_rows * part_bytes // max(1, n_bytes))
    return [
        Part(
            index=0,
            path=name,
            format=format_name,
            source=source,
            start=start,
            stop=min(start + step, n_rows),
            first_row=0,
            first_line=start,
            n_rows=min(step, n_rows - start),
            n_bytes=n_bytes * min(step, n_rows - start) // n_rows,
        )
        for start in range(0, n_rows, step)
    ]


class TableFormat:
    """Arrow tables in memory, read by slices."""

    def schema(self, source: Source, hints: ReadHints) -> Any:
        """Return the columns of the table, dictionaries decoded."""
        names = source.data.schema.names
        check_columns(source.path, [name for name in names if names.count(name) > 1][:1], names)
        return plain_schema(source.data.schema)

    def split(self, sources: Sequence[Source], part_bytes: int, hints: ReadHints) -> list[Part]:
        """Cut the rows of each table."""
        parts: list[Part] = []
        for i, source in enumerate(sources):
            table = source.data
            parts += row_ranges(source.path, "table", i, table.num_rows, bytes_of(table), part_bytes)
        return number(parts)

    def read(self, part: Part, source: Source | None, request: ReadRequest) -> Iterator[Batch]:
        """Read the rows of a part."""
        table = in_memory(part, source).data
        wanted = list(table.schema.names if request.columns is None else request.columns)
        check_columns(part.path, wanted, with_fields(table.schema).names)
        step = max(1, part.n_rows * request.batch_bytes // max(1, part.n_bytes))
        rows = table.select(only(table.schema, wanted).names).slice(part.start, part.n_rows)
        done = 0
        for batch in rows.to_batches(max_chunksize=step):
            n = batch.num_rows
            share = part.n_bytes * (done + n) // part.n_rows - part.n_bytes * done // part.n_rows
            yield table_batch(select(batch, wanted), part, done, share, request)
            done += n
