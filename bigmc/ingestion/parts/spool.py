"""Write sources that can be read only once, pipes and streams of rows, to a file first.

An ingest reads its sources twice, and again after a kill. So streams are written to a file beside
the dataset, in bounded memory, which is removed when the ingest has ended. A hash of the bytes identifies
the source.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigmc.budget import MemoryLimitError
from bigmc.errors import BigmcError, DataError
from bigmc.ingestion.readers.plain_types import Drift, common_type, plain_columns, plain_schema, unwritable
from bigmc.ingestion.sources.in_memory import table_of_frame
from bigmc.ingestion.sources.mixed_values import loses_times, only_unicode
from bigmc.ingestion.sources.source import Source
from bigmc.lazy import LazyModule
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL

pq = LazyModule("pyarrow.parquet")

STDIN = "-"
"""Name of standard input as a source."""

ROWS_AT_ONCE = 1024
"""Rows of an iterable of mappings to convert to a table at a time."""

GROUP_BYTES = 8 << 20
"""Approximate bytes of a row group of the written file."""

_COPY_BYTES = 1 << 20

_DUCKDB_READERS = ("to_arrow_reader", "fetch_record_batch", "fetch_arrow_reader")
"""DuckDB's methods from a relation to record batches, the newest name first."""


def spool_beside(dataset: Path) -> Path:
    """Return the folder beside a dataset for sources that can be read only once.

    `DataError` if the dataset's path ends in no name, so that nothing can be beside it.
    """
    if not dataset.name:
        raise DataError(f"{dataset} is no name for a dataset", "give the path of a new folder with --to")
    return dataset.with_name(f".{dataset.name}.input{PARTIAL}")


@contextmanager
def naming_streams(sources: Iterable[Source]) -> Iterator[None]:
    """Let errors name streams as the user does: the files that they were written to are removed."""
    try:
        yield
    except (BigmcError, MemoryLimitError) as error:
        for source in sources:
            if source.stream is not None:
                name = "standard input" if source.stream == STDIN else source.stream
                error.message = error.message.replace(source.path, name)
                error.args = tuple(str(part).replace(source.path, name) for part in error.args)
        raise


def is_pipe(path: str) -> bool:
    """Return whether a path is standard input or a named pipe."""
    return path == STDIN or (os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode))


def is_stream(item: Any) -> bool:
    """Return whether a source in memory can be read only once, or batch by batch."""
    if isinstance(item, pa.Table | pa.RecordBatch | Mapping | str | bytes):
        return False
    return isinstance(item, pa.RecordBatchReader | Iterator) or _library_of(item) is not None


def read_once(source: Any) -> bool:
    """Return whether a source, or one in a list of them, is a pipe or a stream, whose rows come only once."""
    items = source if isinstance(source, list | tuple) else [source]
    return any(is_stream(item) or (isinstance(item, str) and is_pipe(item)) for item in items)


def _library_of(item: Any) -> str | None:
    """Return the library whose batch interface an object has, or None."""
    if hasattr(item, "with_format") and hasattr(item, "iter"):
        return "Hugging Face datasets"
    if hasattr(item, "npartitions") and hasattr(item, "partitions") and hasattr(item, "columns"):
        return "dask"
    if hasattr(item, "collect_batches") and hasattr(item, "collect_schema"):
        return "polars"
    if any(hasattr(item, name) for name in _DUCKDB_READERS):
        return "duckdb"
    return "pyarrow" if hasattr(item, "scanner") or hasattr(item, "to_reader") else None


def spool_pipe(path: str, target: Path) -> None:
    """Write the contents of a pipe to a file."""
    with disk.output(target) as file:
        if path == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, file, _COPY_BYTES)
        else:
            with open(path, "rb") as pipe:
                shutil.copyfileobj(pipe, file, _COPY_BYTES)


def spool_rows(item: Any, name: str, folder: Path) -> list[Source]:
    """Write the rows of a stream to Parquet files; where a column gets another type, the next file begins.

    So types may differ in a stream as in files: integers before floats, no value before texts. `item` is a
    record batch reader, a source of one (a pyarrow dataset or scanner, a relation of DuckDB), a lazy frame of
    polars, a data frame of dask, a data set of Hugging Face, or an iterator of record batches, tables or
    mappings. `DataError`, with its name, if the stream is empty, or its rows are not mappings, or have
    other columns than the first.
    """
    disk.make_folder(folder)
    tables = (_writable(table, name) for table in _batches(item, name))
    written: list[Source] = []
    names: list[str] = []
    done = 0
    for schema, alike in itertools.groupby(tables, _schema_of):
        names = names or schema.names
        if schema.names != names:
            raise DataError(
                f"{name}: rows have different columns, some {', '.join(names)}, later ones "
                f"{', '.join(schema.names)}",
                "give rows of the same columns",
            )
        file = folder / f"rows{len(written) or ''}.parquet"
        stream = f"{name} after {done:,} rows" if done else name
        written.append(Source(str(file), "parquet", stream=stream))
        done += _write_tables(alike, schema, file)
    if not written:
        raise DataError(f"{name}: no rows", "give a stream of at least one row")
    return written


def _write_tables(tables: Iterable[pa.Table], schema: pa.Schema, target: Path) -> int:
    """Write tables to a Parquet file and return the number of rows."""
    held: list[pa.Table] = []
    n_rows = 0
    with disk.output(target) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            n_rows += table.num_rows
            held.append(table)
            if sum(piece.nbytes for piece in held) >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(held))
                held = []
        if held:
            writer.write_table(pa.concat_tables(held))
    return n_rows


def _schema_of(table: pa.Table) -> pa.Schema:
    return table.schema.remove_metadata()


def _writable(table: pa.Table, name: str) -> pa.Table:
    """Convert a table for Parquet: columns of types that it lacks, such as views and runs, become plain.

    Older releases of Arrow cannot write string views, and none can write dictionaries of them. `DataError`
    for a type that has no plain one.
    """
    kinds = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in table.schema.types)
    if any(pa.types.is_string_view(kind) for kind in kinds) or unwritable(table.schema):
        plain = [plain_columns(batch) for batch in table.to_batches()]
        table = pa.Table.from_batches(plain, plain_schema(table.schema))
    for field in unwritable(table.schema):
        raise DataError(
            f"{name}: the column {field.name!r} has type {field.type}, which cannot be stored",
            "leave it out of the rows",
        )
    return table


def _rows_of(item: Any) -> Iterator[Any]:
    """Return record batches, tables or mappings, made as they are consumed."""
    match _library_of(item):
        case "Hugging Face datasets":
            return iter(item.with_format("arrow").iter(batch_size=ROWS_AT_ONCE))
        case "dask":
            parts = (item.partitions[i] for i in range(item.npartitions))
            frames = (part.compute(scheduler="synchronous") for part in parts)
            return (pa.Table.from_pandas(frame, preserve_index=False) for frame in frames)
        case "polars":
            return (table_of_frame(frame, type(item).__name__) for frame in item.collect_batches())
        case "duckdb":
            return iter(next(getattr(item, name) for name in _DUCKDB_READERS if hasattr(item, name))())
        case "pyarrow":
            return iter((item.scanner() if hasattr(item, "scanner") else item).to_reader())
        case _:
            return iter(item)


def _batches(item: Any, name: str) -> Iterator[pa.Table]:
    rows = _rows_of(item)
    schema: pa.Schema | None = None
    for head in rows:
        if isinstance(head, pa.RecordBatch):
            yield pa.Table.from_batches([head])
        elif isinstance(head, pa.Table):
            yield head
        elif isinstance(head, Mapping):
            some = [head, *itertools.islice(rows, ROWS_AT_ONCE - 1)]
            table = _table(some, schema, name)
            schema = table.schema
            yield table
        else:
            raise DataError(
                f"{name}: a row has the type {type(head).__name__}", "give mappings or record batches"
            )


def _table(items: Iterable[Any], schema: pa.Schema | None, name: str) -> pa.Table:
    try:
        rows = [dict(item) for item in items]
        with only_unicode(name):
            if schema is not None:
                schema = _widened(schema, rows, name)
            else:  # Arrow takes the keys of the first row for those of all
                rows[0] = dict.fromkeys(key for row in rows for key in row) | rows[0]
            table = pa.Table.from_pylist(rows, schema=schema)
        for field in table.schema:
            if loses_times(field.type, (row.get(field.name) for row in rows)):
                raise TypeError(f"{field.name!r} has dates and times")
        return table
    except DataError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{name}: values of a column have several types ({error})", "give every column one type"
        ) from error


def _widened(schema: pa.Schema, rows: Sequence[Mapping[str, Any]], name: str) -> pa.Schema:
    """Return the types of earlier rows, or wider ones if later rows need them.

    Integers become floats, also in lists, and a column without a value gets the type of the first. An error
    is raised for other values that Arrow would change without a word: it cuts fractions off for a column of
    integers, and takes a text for the list of its characters.
    """
    for place, field in enumerate(schema):
        values = [row.get(field.name) for row in rows]
        kind = pa.infer_type(values)
        if _keeps(field.type, kind) or (pa.types.is_integer(field.type) and _are_whole(values, kind)):
            continue
        wider = common_type(field.type, kind, Drift.NUMBERS)
        if wider is None:
            raise DataError(
                f"{name}: values of a column have several types "
                f"({field.name!r} has {field.type} in the first rows, {kind} in later ones)",
                "give every column one type",
            )
        schema = schema.set(place, field.with_type(wider))
    return schema


def _keeps(kind: pa.DataType, given: pa.DataType) -> bool:
    """Return whether Arrow keeps values of a given type in a column of another kind, or refuses them."""
    types = pa.types
    if types.is_null(given):
        return True
    if types.is_list(kind):
        return types.is_list(given) and _keeps(kind.value_type, given.value_type)
    if types.is_struct(kind) and types.is_struct(given):
        given_types = {field.name: field.type for field in given}
        return all(_keeps(field.type, given_types.get(field.name, pa.null())) for field in kind)
    if types.is_date(kind) or types.is_timestamp(kind):
        return bool(types.is_date(given) or (types.is_timestamp(kind) and types.is_timestamp(given)))
    cut = types.is_integer(kind) and (types.is_floating(given) or types.is_decimal(given))
    return not (types.is_null(kind) or cut)


def _are_whole(values: Sequence[Any], kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) and all(value is None or value == value // 1 for value in values)
