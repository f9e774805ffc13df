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
from bigmc.lazy import LazyModule
from bigmc.printable import finite, printable_json
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
        self._writer = pq.ParquetWriter(file, schema, store_schema=False)
        self._group: list[pa.Table] = []
        self._tables_per_group = tables_per_group

    def write(self, table: pa.Table) -> None:
        """Append a table."""
        self._group.append(table)
        if len(self._group) >= self._tables_per_group:
            self._write_group()

    def _write_group(self) -> None:
        if self._group:
            self._writer.write_table(pa.concat_tables(self._group))
            self._group = []

    def __exit__(self, *_: object) -> None:
        self._write_group()
        self._writer.close()
        self._file.flush()


class CsvWriter(TableWriter):
    """CSV with a header; sets of labels as JSON arrays."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._write(schema.empty_table(), pc.WriteOptions(include_header=True))

    def write(self, table: pa.Table) -> None:
        """Append a table."""
        self._write(table, pc.WriteOptions(include_header=False))

    def _write(self, table: pa.Table, options: Any) -> None:
        plain = pa.table({name: _csv_column(table.column(name)) for name in table.column_names})
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
            rows = (dict(zip(names, map(finite, row), strict=True)) for row in zip(*columns, strict=True))
            lines = (_line(row) for row in rows)
            self._file.write("".join(lines).encode("utf-8", "backslashreplace"))
        self._file.flush()

    def _values(self, table: pa.Table, name: str, start: int) -> list[Any]:
        values = table.column(name).slice(start, ROWS_AT_ONCE).to_pylist()
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
    return printable_json(json.dumps(row, ensure_ascii=False, default=str)) + "\n"


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that CSV can hold; labels look as in names of columns."""
    if pa.types.is_dictionary(column.type):
        kind = column.type.value_type
        if pa.types.is_floating(kind) or pa.types.is_boolean(kind):  # Arrow writes 2 for 2.0, true for True
            texts = [
                pa.array([str(v) for v in c.dictionary.to_pylist()], pa.string()).take(c.indices)
                for c in column.chunks
            ]
            return pa.chunked_array(texts, pa.string())
        return column.cast(column.type.value_type)
    if pa.types.is_nested(column.type):
        values = column.to_pylist()
        texts = [None if v is None else json.dumps(v, ensure_ascii=False, default=str) for v in values]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column
