"""Write tables of predictions as Parquet, CSV or JSON lines."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import PurePath
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.csv as pc

from bigmc.errors import DataError
from bigmc.inference.written_columns import csv_column, decoded, json_text, loses_in_parquet, with_texts
from bigmc.ingestion.readers.plain_types import unwritable
from bigmc.lazy import LazyModule
from bigmc.printable import listed, printable_json
from bigmc.store.files.outputs import Output, OutputKind

pq = LazyModule("pyarrow.parquet")

ROWS_AT_ONCE = 4096
"""Rows turned into JSON at once."""


class TableWriter(ABC):
    """Writes tables of one schema to a file that is open."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Append a table."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()


class ParquetWriter(TableWriter):
    """Parquet; a row group for every few tables, since what is known of it stays in memory up to the end."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, tables_per_group: int = 1) -> None:
        super().__init__(file, schema)
        keeps_types = any(loses_in_parquet(field.type) for field in schema)
        # readers get the same labels with and without such columns: no dictionary
        self._schema = decoded(schema) if keeps_types else schema
        try:
            self._writer = pq.ParquetWriter(file, self._schema, store_schema=keeps_types)
        except pa.ArrowException:
            raise _unwritable(unwritable(schema), "Parquet") from None
        self._group: list[pa.Table] = []
        self._tables_per_group = tables_per_group

    def write(self, table: pa.Table) -> None:
        """Append a table."""
        self._group.append(table)
        if len(self._group) >= self._tables_per_group:
            self._write_group()

    def _write_group(self) -> None:
        if self._group:
            table = pa.concat_tables(self._group)
            self._writer.write_table(table if table.schema == self._schema else table.cast(self._schema))
            self._group = []

    def __exit__(self, *_: object) -> None:
        self._write_group()
        self._writer.close()
        self._file.flush()


class CsvWriter(TableWriter):
    """CSV with a header; sets of labels as JSON arrays."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        intervals = [field for field in schema if pa.types.is_interval(field.type)]
        if intervals:
            raise _unwritable(intervals, "CSV")
        self._write(schema.empty_table(), pc.WriteOptions(include_header=True))

    def write(self, table: pa.Table) -> None:
        """Append a table."""
        self._write(table, pc.WriteOptions(include_header=False))

    def _write(self, table: pa.Table, options: Any) -> None:
        plain = pa.table({name: csv_column(name, table.column(name)) for name in table.column_names})
        pc.write_csv(plain, self._file, options)


class JsonLinesWriter(TableWriter):
    """One JSON object per row and line, flushed at once, for a reader of a pipe.

    `json_columns` are columns of JSON texts: their values are written instead of the texts.
    """

    json_columns: frozenset[str] = frozenset()

    def write(self, table: pa.Table) -> None:
        """Append a table."""
        names = table.column_names
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            columns = [self._values(table, name, start) for name in names]
            lines = (_line(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))
            self._file.write("".join(lines).encode("utf-8", "backslashreplace"))
        self._file.flush()

    def _values(self, table: pa.Table, name: str, start: int) -> list[Any]:
        column = with_texts(name, table.column(name).slice(start, ROWS_AT_ONCE), "JSON")
        try:
            values = column.to_pylist()
        except OverflowError as error:  # years beyond 9999
            cure = "write Parquet, with --to NAME.parquet"
            raise DataError(f"the column {name!r} has a value that Python lacks ({error})", cure) from None
        return [json.loads(text) for text in values] if name in self.json_columns else values


_WRITERS: dict[str, type[TableWriter]] = {
    ".parquet": ParquetWriter,
    ".csv": CsvWriter,
    ".jsonl": JsonLinesWriter,
    ".ndjson": JsonLinesWriter,
}

#: Extensions of formats that predictions are not written in: no program would open Parquet under such a name.
_OTHER_FORMATS = (
    *(".arrow", ".feather", ".html", ".json", ".ods", ".svm", ".tsv", ".txt", ".xls", ".xlsx"),
    *(".gz", ".xz", ".zip"),
)


def refuse_other_formats(output: Output) -> Output:
    """Return the output; `DataError` if its extension is that of a format that is not written."""
    extension = PurePath(output.name).suffix.lower()
    if output.kind is not OutputKind.STREAM and extension in _OTHER_FORMATS:
        raise DataError(
            f"{output.name}: predictions are not written as {extension}",
            "give a name that ends with .parquet, .csv or .jsonl",
        )
    return output


def open_writer(output: Output, file: IO[bytes], schema: pa.Schema, tables_per_group: int = 1) -> TableWriter:
    """Return the writer for the extension of an output's name.

    Without a known extension a pipe or a device gets JSON lines, a file Parquet, in which so many tables are
    a row group.
    """
    default: type[TableWriter] = JsonLinesWriter if output.kind is OutputKind.STREAM else ParquetWriter
    kind = _WRITERS.get(PurePath(output.name).suffix.lower(), default)
    return ParquetWriter(file, schema, tables_per_group) if kind is ParquetWriter else kind(file, schema)


def _line(row: Mapping[str, Any]) -> str:
    """Return a row as a line of JSON, which may be shown on a terminal whatever its labels are."""
    return printable_json(json_text(row)) + "\n"


def _unwritable(fields: list[pa.Field], file: str) -> DataError:
    named = listed([f"{field.name!r} ({field.type})" for field in fields])
    return DataError(
        f"{file} does not have the type of the column {named}", "write JSON lines, with --to NAME.jsonl"
    )
