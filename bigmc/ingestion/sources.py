"""Sources of samples: found, cut into parts, and read part by part.

``sources = expand_sources(…)``, ``parts = scan(sources)``, then for every part, by any worker, in any
order and again after a kill: ``for batch in read(part, …)``. The same part always gives the same rows.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.files import absolute, is_address, partition_of, size_of, status_of
from bigmc.ingestion.found_files import KNOWN_FORMATS, dialect_of, format_of, list_files
from bigmc.ingestion.in_memory import in_memory
from bigmc.ingestion.readers import FILE_FORMATS, FORMATS
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, Source, check_columns
from bigmc.ingestion.readers.footers import check_footers
from bigmc.ingestion.readers.nested import with_fields
from bigmc.ingestion.readers.parquet import count_rows
from bigmc.ingestion.readers.plain_types import bytes_of
from bigmc.ingestion.readers.streams import DAMAGE, compression_of, open_text
from bigmc.ingestion.spool import STDIN, is_pipe, is_stream, spool_pipe, spool_rows
from bigmc.options.raw import FileOptions
from bigmc.store import disk

__all__ = [
    "Batch",
    "Part",
    "ReadHints",
    "ReadRequest",
    "Source",
    "bytes_per_row",
    "expand_sources",
    "read",
    "scan",
    "schema",
]

PART_BYTES = 64 << 20
NO_HINTS, EVERYTHING = ReadHints(), ReadRequest()
USUAL_FILES = FileOptions()


def expand_sources(
    source: Any, files: FileOptions = USUAL_FILES, labels: Any = None, spool: Path | None = None
) -> list[Source]:
    """Return the files or arrays meant by what the user passed, in a fixed order.

    Parameters
    ----------
    source : path, glob, directory, address, array, table, or a list of these
        Directories are walked; hidden files and those that begin with ``_`` are passed over. Addresses are
        such as ``s3://bucket/name``. Arrays: NumPy 2-D, SciPy sparse, dask; tables: pyarrow, pandas, and any
        data frame with ``__arrow_c_stream__`` (which is converted at once).
    files : FileOptions, optional
        How the files are written; by default the endings of their names tell.
    labels : array-like, optional
        Labels of the rows of an array; a list of them for a list of arrays.
    spool : Path, optional
        Folder for what can be read only once: standard input (``-``), named pipes, readers of record batches,
        pyarrow datasets and scanners, relations of DuckDB, lazy frames of polars and dask, data sets of
        Hugging Face, iterators of mappings or batches.

    Returns
    -------
    list of Source
        Of one format: files sorted within a glob or directory, else as listed.

    Raises
    ------
    DataError
        For a file that is missing, listed twice or of an unknown format, an empty pattern, a mixture
        of formats, and data that can be read only once.
    """
    items = list(source) if isinstance(source, list | tuple) else [source]
    if labels is not None:
        labels = list(labels) if isinstance(source, list | tuple) else [labels]
        if len(labels) != len(items):
            raise DataError(f"{len(items)} arrays but {len(labels)} arrays of labels", "pass one for each")
    found: list[Source] = []
    for i, item in enumerate(items):
        if spool is not None and isinstance(item, str | os.PathLike) and is_pipe(os.fspath(item)):
            found.append(_spooled_pipe(os.fspath(item), files, spool / str(i)))
        elif spool is not None and is_stream(item):
            name = f"{type(item).__name__}[{i}]"
            disk.make_folder(spool / str(i))
            spool_rows(item, name, spool / str(i) / "rows.parquet")
            found.append(Source(str(spool / str(i) / "rows.parquet"), "parquet", stream=name))
        elif isinstance(item, str | os.PathLike):
            found += [
                Source(path, format_of(path, files), dialect=dialect_of(path, files))
                for path in list_files(os.fspath(item))
            ]
        else:
            name = f"{type(item).__name__}[{i}]" if len(items) > 1 else type(item).__name__
            found.append(in_memory(item, name, None if labels is None else labels[i]))
    if not found:
        raise DataError("no sources given", "name a file, a pattern, a directory or an array")
    _check_alike(found)
    return found


def _spooled_pipe(path: str, files: FileOptions, folder: Path) -> Source:
    if files.format is None and path == STDIN:
        raise DataError(
            "standard input has no name that tells its format", f"give the format; {KNOWN_FORMATS}"
        )
    known = format_of(path, files)
    disk.make_folder(folder)
    file = folder / f"rows{os.path.splitext(path)[1] if compression_of(path) else ''}"
    spool_pipe(path, file)
    return Source(str(file), known, stream=path, dialect=dialect_of(path, files))


def _check_alike(found: list[Source]) -> None:
    seen: set[str] = set()
    for source in found:
        if source.format != found[0].format:
            raise DataError(
                f"{found[0].path} is {found[0].format} but {source.path} is {source.format}",
                "ingest sources of one format at a time",
            )
        if source.data is None:
            real = source.path if is_address(source.path) else os.path.realpath(source.path)
            if real in seen:
                raise DataError(f"{source.path}: the file is listed twice", "list every file once")
            seen.add(real)


def schema(
    sources: Sequence[Source], columns: Sequence[str] | None = None, hints: ReadHints = NO_HINTS
) -> pa.Schema:
    """Return the columns of the sources, and refuse at once if a requested one is missing.

    Parameters
    ----------
    sources : sequence of Source
        As `expand_sources` gives them.
    columns : sequence of str, optional
        Columns that every source must have; by default those of the first source.
    hints : ReadHints, optional

    Returns
    -------
    pyarrow.Schema
        Names and types; empty for svmlight and arrays.
    """
    if sources[0].format == "parquet":
        check_footers([source.path for source in sources], hints.record_limit)
    own = FORMATS[sources[0].format].schema(sources[0], hints)
    found = _with_derived(own, sources[0])
    wanted = list(own.names if columns is None else columns)
    check_columns(sources[0].path, wanted, found.names)
    if sources[0].format == "jsonl":
        return found  # a key may be absent from any file; the types are those of the first
    for source in sources[1:]:
        other = _with_derived(FORMATS[source.format].schema(source, hints), source)
        check_columns(source.path, wanted, other.names)
        for name in wanted:
            kinds = found.field(name).type, other.field(name).type
            if kinds[0] != kinds[1]:
                raise DataError(
                    f"{source.path}: column {name!r} is {kinds[1]}, in {sources[0].path} it is {kinds[0]}",
                    "write the files with the same types",
                )
    return found


def _with_derived(own: pa.Schema, source: Source) -> pa.Schema:
    """Return the columns of a source with the fields inside them, and those that its folders name."""
    found = with_fields(own)
    folders = [name for name in _partition(source.path, source.format) if name not in found.names]
    return pa.schema([*found, *((name, pa.string()) for name in folders)])


def _partition(path: str, format: str) -> Mapping[str, str | None]:
    return partition_of(path) if format in FILE_FORMATS else {}


def scan(sources: Sequence[Source], part_bytes: int = PART_BYTES, hints: ReadHints = NO_HINTS) -> list[Part]:
    """Cut sources into parts that workers read on their own.

    Text files are read once for it; of Parquet files only the footers. Memory: a few MiB.

    Parameters
    ----------
    sources : sequence of Source
        As `expand_sources` gives them.
    part_bytes : int
        About the size of a part; the largest record, row group or dask chunk is the smallest part.
    hints : ReadHints, optional

    Returns
    -------
    list of Part
        In the order of the sources; empty when there are no records.
    """
    if part_bytes < 1:
        raise DataError(f"parts of {part_bytes} bytes", "choose a positive size")
    return FORMATS[sources[0].format].split(sources, part_bytes, hints)


def read(
    part: Part,
    request: ReadRequest = EVERYTHING,
    *,
    sources: Sequence[Source] | None = None,
    base: str | None = None,
) -> Iterator[Batch]:
    """Read a part in batches.

    Memory, beyond the source and the batches the caller keeps: for text about 8 times the bytes of a batch
    (13 times when fields are a few characters; twice the longest record counts when that is more); for
    Parquet about 5 times and what decoding may hold; for arrays twice; a dask chunk is whole in memory.

    Parameters
    ----------
    part : Part
        From `scan`, perhaps by way of JSON.
    request : ReadRequest, optional
        By default every column, stopping at the first bad row.
    sources : sequence of Source, optional
        As passed to `scan`; needed for arrays and tables in memory only.
    base : str, optional
        Folder that relative paths start from, where this process works in another one than that which cut
        the parts. Batches name the file as the part does.

    Yields
    ------
    Batch
        Good rows in their order; rows and rejects of all batches together are ``part.n_rows``.

    Raises
    ------
    DataError
        At the first bad row unless quarantined; for a file that is damaged or was changed after the scan.
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
    here = part
    if part.format in FILE_FORMATS:
        if base is not None:
            here = replace(part, path=absolute(part.path, base))
            source = source and replace(source, path=absolute(source.path, base))
        _check_unchanged(here)
    for batch in _read(here, source, request, part.path):
        if here is not part:
            batch.path = part.path
            batch.rejects = [replace(reject, path=part.path) for reject in batch.rejects]
        yield batch


def _read(here: Part, source: Source | None, request: ReadRequest, name: str) -> Iterator[Batch]:
    """Yield batches with the columns that folders name, for which there is nothing to read."""
    columns, reader = request.columns, FORMATS[here.format]
    folders = {} if columns is None else _partition(name, here.format)
    if columns is None or not any(column in folders for column in columns):
        yield from reader.read(here, source, request)
        return
    in_file = _own_columns(here, source)
    constant = {column: folders[column] for column in columns if column in folders and column not in in_file}
    read_columns = [column for column in columns if column not in constant] or in_file[:1]
    for batch in reader.read(here, source, replace(request, columns=read_columns)):
        n = batch.table.num_rows
        arrays = [
            pa.array([constant[column]] * n, pa.string())
            if column in constant
            else batch.table.column(read_columns.index(column))
            for column in columns
        ]
        batch.table = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        yield batch


def _own_columns(part: Part, source: Source | None) -> list[str]:
    """Return the columns that the file of a part has itself."""
    known = source or Source(part.path, part.format, dialect=part.dialect)
    return list(with_fields(FORMATS[part.format].schema(known, NO_HINTS)).names)


def _check_unchanged(part: Part) -> None:
    if is_address(part.path):
        if status_of(part.path).version != part.version:
            raise DataError(
                f"{part.path}: the file has changed since it was scanned", "start the ingest anew"
            )
        return
    try:
        size = os.path.getsize(part.path)
    except OSError as error:
        raise DataError(f"{part.path}: the file is gone ({error})", "put it back, or start anew") from error
    if size != part.file_bytes:
        raise DataError(
            f"{part.path}: the file had {part.file_bytes} bytes when it was scanned and has {size} now",
            "start the ingest anew",
        )


def bytes_per_row(source: Source, sample: int = 1 << 20) -> float:
    """Return about how many bytes a row of the source takes, from its beginning."""
    if source.data is not None:
        rows = max(1, int(source.data.shape[0]))
        if source.format == "table":
            return bytes_of(source.data) / rows
        arrays = (source.data.data, source.data.indices) if source.format == "sparse" else (source.data,)
        return sum(int(array.nbytes) for array in arrays) / rows
    if source.format == "parquet":
        n_rows = count_rows(source.path)
        return size_of(source.path) / max(1, n_rows)
    try:
        with open_text(source.text) as stream:
            head = bytes(stream.read(sample))
    except DAMAGE:
        return 1.0  # the reader will say what is wrong with the file
    return float(len(head)) / max(1, _count_records(head, source))


def _count_records(head: bytes, source: Source) -> int:
    """Count the records at the beginning of a text file; a quoted CSV field may hold many lines."""
    n_lines = head.count(b"\n")
    if source.format not in ("csv", "tsv") or b'"' not in head:
        return n_lines
    try:
        text = io.StringIO(head.decode("utf-8", "replace"), newline="")
        delimiter = source.dialect.delimiter or ("\t" if source.format == "tsv" else ",")
        return sum(1 for _ in csv.reader(text, delimiter=delimiter))
    except csv.Error:  # a field longer than Python's reader takes
        return n_lines
