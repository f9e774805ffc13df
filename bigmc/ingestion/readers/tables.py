"""Tables in memory: Arrow tables and data frames."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, check_columns, number
from bigmc.ingestion.readers.nested import only, select, with_fields
from bigmc.ingestion.readers.parquet import table_batch
from bigmc.ingestion.readers.plain_types import bytes_of, plain_schema
from bigmc.ingestion.sources.source import Source


def source_in_memory(part: Part, source: Source | None) -> Source:
    """Return the source of a part in memory, which the part does not carry itself."""
    if source is None or source.data is None:
        raise DataError(
            f"{part.path}: the data is in memory and was not passed along", "pass the sources to read()"
        )
    return source


def row_ranges(source: Source, number: int, n_rows: int, n_bytes: int, stops: Iterable[int]) -> list[Part]:
    """Cut an array or table, source ``number`` of all, into parts that end before these rows."""
    return [
        Part(
            source.path,
            source.format,
            number,
            start,
            stop,
            first_line=start,
            n_rows=stop - start,
            n_bytes=n_bytes * (stop - start) // n_rows,
        )
        for start, stop in itertools.pairwise([0, *stops])
        if start < stop
    ]


def even_stops(n_rows: int, n_bytes: int, part_bytes: int) -> list[int]:
    """Return where parts of about ``part_bytes`` end."""
    step = max(1, n_rows * part_bytes // max(1, n_bytes))
    return [*range(step, n_rows, step), n_rows]


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
            n_rows, n_bytes = source.data.num_rows, bytes_of(source.data)
            parts += row_ranges(source, i, n_rows, n_bytes, even_stops(n_rows, n_bytes, part_bytes))
        return number(parts)

    def read(self, part: Part, source: Source | None, request: ReadRequest) -> Iterator[Batch]:
        """Read the rows of a part."""
        table = source_in_memory(part, source).data
        wanted = list(table.schema.names if request.columns is None else request.columns)
        check_columns(part.path, wanted, with_fields(table.schema).names)
        step = max(1, part.n_rows * request.batch_bytes // max(1, part.n_bytes))
        rows = table.select(only(table.schema, wanted).names).slice(part.start, part.n_rows)
        done = 0
        for batch in rows.to_batches(max_chunksize=step):
            yield table_batch(select(batch, wanted), part, done, request)
            done += batch.num_rows
