"""Read a part of a source: by any worker, in any order, repeatably."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.readers import FILE_FORMATS, FORMATS
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest
from bigmc.ingestion.readers.nested import with_fields
from bigmc.ingestion.sources.source import CHANGED_CURE, Source, status_of
from bigmc.store.files.object_store import is_remote

EVERYTHING = ReadRequest()


def named_by_folders(path: str, format: str) -> Mapping[str, str | None]:
    """Return the columns in the folder names of a file, as in ``day=2026-11-22/part-0.parquet``.

    Values are percent-decoded texts; Hive's name for a missing value becomes None.
    """
    values: dict[str, str | None] = {}
    for folder in path.split("?")[0].split("/")[:-1] if format in FILE_FORMATS else ():
        name, sign, value = folder.partition("=")
        if sign and name:
            text = urllib.parse.unquote(value)
            values[urllib.parse.unquote(name)] = None if text == "__HIVE_DEFAULT_PARTITION__" else text
    return values


def read(
    part: Part,
    request: ReadRequest = EVERYTHING,
    *,
    sources: Sequence[Source] | None = None,
    base: str | None = None,
) -> Iterator[Batch]:
    """Read a part in batches, by default every column, stopping at the first bad row.

    Rows are in their order; rows and rejects of all batches together are ``part.n_rows``. `sources`, as
    passed to `scan`, are needed for arrays and tables in memory only. `base` is the folder of relative paths,
    if this process runs in another folder than `scan`; batches use the path in the part.

    Memory, besides the source and batches kept by the caller: for text about 8 times the bytes of a batch (13
    times if fields have a few characters; at least based on twice the longest record); for Parquet about 5
    times plus decoding; for arrays twice; a dask chunk is in memory as a whole. `DataError` at the first bad
    row unless quarantined; if a file is damaged or has changed after the scan.
    """
    columns = request.columns
    if request.on_bad_row not in ("fail", "quarantine"):
        raise DataError(f"on_bad_row is {request.on_bad_row!r}", "choose fail or quarantine")
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise DataError(f"{part.path}: the requested columns are {list(columns)}", "name each column once")
    if part.files:
        for file in part.files:
            yield from read(file, request, sources=sources, base=base)
        return
    source = sources[part.source] if sources is not None else None
    local = part
    if part.format in FILE_FORMATS and base is not None and base != os.getcwd():
        local = replace(part, path=_absolute(part.path, base))
        source = source and replace(source, path=_absolute(source.path, base))
    for batch in _while_unchanged(local, _read(local, source, request, part.path)):
        if local is not part:
            batch.path = part.path
            batch.rejects = [replace(reject, path=part.path) for reject in batch.rejects]
        yield batch


def _while_unchanged(part: Part, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches of a part; `DataError` if its file is another one before or after they are read.

    What a changed file looks like, such as a damaged one, is no error of its own.
    """
    if part.format not in FILE_FORMATS:
        yield from batches
        return
    _check_unchanged(part)
    try:
        yield from batches
    except Exception:
        _check_unchanged(part)
        raise
    _check_unchanged(part)


def _read(part: Part, source: Source | None, request: ReadRequest, name: str) -> Iterator[Batch]:
    """Yield batches with the columns from folder names, without reading anything."""
    columns, reader = request.columns, FORMATS[part.format]
    folders = {} if columns is None else named_by_folders(name, part.format)
    if columns is None or not any(column in folders for column in columns):
        yield from reader.read(part, source, request)
        return
    in_file = _own_columns(part, source)
    constant = {column: folders[column] for column in columns if column in folders and column not in in_file}
    read_columns = [column for column in columns if column not in constant] or in_file[:1]
    place = {column: number for number, column in enumerate(read_columns)}
    for batch in reader.read(part, source, replace(request, columns=read_columns)):
        n = batch.table.num_rows
        arrays = [
            pa.array([constant[column]] * n, pa.string())
            if column in constant
            else batch.table.column(place[column])
            for column in columns
        ]
        batch.table = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        yield batch


def _own_columns(part: Part, source: Source | None) -> list[str]:
    """Return the columns in the file of a part itself."""
    known = source or Source(part.path, part.format, dialect=part.dialect)
    return list(with_fields(FORMATS[part.format].schema(known, ReadHints())).names)


def _check_unchanged(part: Part) -> None:
    try:
        status = status_of(part.path)
    except OSError as error:
        raise DataError(f"{part.path}: the file is gone ({error})", "restore it, or start again") from error
    if status.n_bytes != part.file_bytes:
        raise DataError(
            f"{part.path}: the file had {part.file_bytes} bytes when it was scanned and has "
            f"{status.n_bytes} now",
            CHANGED_CURE,
        )
    if part.version and status.version != part.version:
        raise DataError(f"{part.path}: the file has changed since it was scanned", CHANGED_CURE)


def refuse_changed(parts: Iterable[Part], identities: Sequence[Mapping[str, Any]]) -> None:
    """Raise `DataError` if a file was another one when it was scanned than when it was identified.

    `identities` are those of the sources: see :meth:`bigmc.ingestion.sources.source.Source.identity`.
    """
    for file in (file for part in parts for file in part.files or (part,)):
        identity = identities[file.source]
        if "changed" in identity and str(identity["changed"]) != file.version:
            raise DataError(f"{file.path}: the file has changed since the command began", CHANGED_CURE)


def _absolute(path: str, base: str) -> str:
    """Return a path relative to a base folder; addresses are unchanged."""
    return path if is_remote(path) else os.path.join(base, path)
