"""List sources, split them into parts, and read them part by part.

``sources = expand_sources(…)``, ``parts = scan(sources)``, then for every part, by any worker, in any
order and again after a kill: ``for batch in read(part, …)``. The same part always gives the same rows.
"""

from __future__ import annotations

import csv
import glob
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.parts.read import EVERYTHING, named_by_folders, read, refuse_changed
from bigmc.ingestion.parts.spool import STDIN, is_pipe, is_stream, spool_pipe, spool_rows
from bigmc.ingestion.readers import DELIMITED, ENDINGS, FILE_FORMATS, FORMATS
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, check_columns
from bigmc.ingestion.readers.footers import check_footers
from bigmc.ingestion.readers.nested import with_fields
from bigmc.ingestion.readers.parquet import count_rows
from bigmc.ingestion.readers.plain_types import Drift, bytes_of, common_type
from bigmc.ingestion.sources.dialect import UTF8, Dialect
from bigmc.ingestion.sources.in_memory import in_memory
from bigmc.ingestion.sources.remote_file import list_address
from bigmc.ingestion.sources.source import (
    COMPRESSIONS,
    DAMAGE,
    Source,
    compression_of,
    open_text,
    status_of,
    unreadable,
)
from bigmc.options.raw import FileOptions
from bigmc.store.files import disk
from bigmc.store.files.layout import MANIFEST, SHARDS, WIP
from bigmc.store.files.object_store import Address, is_remote

__all__ = [
    "EVERYTHING",
    "Batch",
    "Part",
    "ReadHints",
    "ReadRequest",
    "Source",
    "bytes_per_row",
    "expand_sources",
    "is_dataset",
    "list_files",
    "read",
    "refuse_changed",
    "scan",
    "schema",
]

PART_BYTES = 64 << 20
NO_HINTS = ReadHints()
USUAL_FILES = FileOptions()
KNOWN_FORMATS = "the formats are " + ", ".join(sorted(FILE_FORMATS))


def is_dataset(source: Any) -> bool:
    """Return whether this is a dataset or the path of one, also of an unfinished one, not raw data."""
    if is_remote(source):
        return not _has_known_ending(source) and Address(source).read("manifest.json") is not None
    if isinstance(source, str | Path):
        return any((Path(source) / name).exists() for name in (MANIFEST, f"{WIP}/lock"))
    return hasattr(source, "shards")


def expand_sources(
    source: Any, files: FileOptions = USUAL_FILES, labels: Any = None, spool: Path | None = None
) -> list[Source]:
    """Return the files or arrays of the user's sources, all of one format, in a fixed order.

    A source is a path, glob, directory, address, array or table; files are sorted within a glob or directory,
    else as listed. Directories are walked; hidden files and those that begin with ``_`` are skipped.
    Addresses look like ``s3://bucket/name``. Arrays are NumPy 2-D, SciPy sparse, dask; tables pyarrow,
    pandas, and any data frame with ``__arrow_c_stream__`` (which is converted at once). `labels` are those of
    the rows of an array, a list of them for a list of arrays.

    In the folder `spool`, sources are kept that can be read only once: standard input (``-``), named pipes,
    record batch readers, pyarrow datasets and scanners, relations of DuckDB, lazy frames of polars and dask,
    data sets of Hugging Face, iterators of mappings or batches.

    `DataError` for a file that is missing, listed twice or of an unknown format, an empty pattern, a mixture
    of formats, and data that can be read only once.
    """
    items = list(source) if isinstance(source, list | tuple) else [source]
    if labels is not None:
        labels = list(labels) if isinstance(source, list | tuple) else [labels]
        if len(labels) != len(items):
            raise DataError(f"{len(items)} arrays but {len(labels)} arrays of labels", "pass one for each")
    sources: list[Source] = []
    for i, item in enumerate(items):
        if spool is not None and isinstance(item, str | os.PathLike) and is_pipe(os.fspath(item)):
            sources.append(_spooled_pipe(os.fspath(item), files, spool / str(i)))
        elif spool is not None and is_stream(item):
            name = f"{type(item).__name__}[{i}]"
            sources += spool_rows(item, name, spool / str(i))
        elif isinstance(item, str | os.PathLike):
            sources += [
                Source(path, format_of(path, files), dialect=dialect_of(path, files))
                for path in list_files(os.fspath(item))
            ]
        else:
            name = f"{type(item).__name__}[{i}]" if len(items) > 1 else type(item).__name__
            sources.append(in_memory(item, name, None if labels is None else labels[i]))
    if not sources:
        raise DataError("no sources given", "name a file, a pattern, a directory or an array")
    _check_alike(sources)
    return sources


def _spooled_pipe(path: str, files: FileOptions, folder: Path) -> Source:
    if files.format is None and path == STDIN:
        raise DataError("the format of standard input is unknown", f"name it with --format; {KNOWN_FORMATS}")
    known = format_of(path, files)
    disk.make_folder(folder)
    file = folder / f"rows{os.path.splitext(path)[1] if compression_of(path) else ''}"
    spool_pipe(path, file)
    return Source(str(file), known, stream=path, dialect=dialect_of(path, files))


def _check_alike(sources: list[Source]) -> None:
    seen: set[str] = set()
    for source in sources:
        if source.format != sources[0].format:
            raise DataError(
                f"{sources[0].path} is {sources[0].format} but {source.path} is {source.format}",
                "ingest sources of one format at a time",
            )
        if source.data is None:
            real = source.path if is_remote(source.path) else os.path.realpath(source.path)
            if real in seen:
                raise DataError(f"{source.path}: the file is listed twice", "list every file once")
            seen.add(real)


def format_of(path: str, options: FileOptions) -> str:
    """Return the format of a file; `DataError` if neither an option nor the extension determines it."""
    if options.format is not None:
        if options.format not in FILE_FORMATS:
            raise DataError(f"unknown format {options.format!r}", KNOWN_FORMATS)
        return options.format
    stem, ending = os.path.splitext(path.split("?")[0] if is_remote(path) else path)
    compressed = ending.lower() in COMPRESSIONS
    if compressed:
        ending = os.path.splitext(stem)[1]
    name = ENDINGS.get(ending.lower())
    if name is None and (options.delimiter is not None or options.columns is not None):
        return "csv"
    if name is None:
        raise DataError(
            f"{path}: unknown format {ending or '(no extension)'}", f"name it with --format; {KNOWN_FORMATS}"
        )
    if compressed and name == "parquet":
        raise DataError(
            f"{path}: a compressed Parquet file", "decompress it; Parquet compresses its data itself"
        )
    return name


def dialect_of(path: str, options: FileOptions) -> Dialect:
    """Return the dialect of a text file; `DataError` if an option does not fit the format of the file."""
    format = format_of(path, options)
    if format not in DELIMITED and (options.delimiter is not None or options.columns is not None):
        raise DataError(
            f"{path}: --delimiter and --columns are for delimited text, but this is {format}",
            "leave them out, or give --format csv",
        )
    if format == "parquet" and options.encoding is not None:
        raise DataError(f"{path}: texts in Parquet files are always UTF-8", "leave --encoding out")
    columns = None if options.columns is None else tuple(options.columns)
    return Dialect(options.delimiter, columns, options.encoding or UTF8)


def _has_known_ending(path: str) -> bool:
    """Return whether the format is known from the name."""
    try:
        format_of(path, FileOptions())
    except DataError:
        return False
    return True


def list_files(path: str) -> list[str]:
    """Return the files of a path, a pattern, a folder or an address, sorted within a folder.

    Hidden files and those that begin with ``_`` are skipped unless named explicitly, and so are datasets of
    bigmc in a folder. `DataError` if there is none.
    """
    if is_remote(path):
        return list_address(path)
    if path == STDIN:
        raise DataError("standard input can be read only once", "save the data to a file, and name that")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        return _walk(path)
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise DataError(f"{path}: not a regular file", "save the data to a file, which can be read twice")
        return [path]
    if glob.has_magic(path):
        paths: list[str] = []
        for match in sorted(glob.glob(path, recursive=True)):
            if os.path.isdir(match):
                paths += [] if "**" in path else _walk(match)
            elif not _hidden(match):
                paths.append(match)
        if not paths:
            raise DataError(f"{path}: no file matches the pattern", "check the pattern and its quotes")
        return paths
    raise DataError(f"{path}: no such file or directory", "check the path")


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


def _holds_dataset(folder: str) -> bool:
    """Return whether a folder among the files is a dataset, finished or not."""
    finished = all(os.path.exists(os.path.join(folder, name)) for name in (MANIFEST, "zarr.json", SHARDS))
    return finished or os.path.exists(os.path.join(folder, WIP, "lock"))


def _walk(folder: str) -> list[str]:
    paths: list[str] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not _hidden(name) and not _holds_dataset(os.path.join(parent, name))
        )
        paths += [os.path.join(parent, name) for name in files if not _hidden(name)]
    if not paths:
        raise DataError(f"{folder}: no files in the directory", "check the path")
    return sorted(paths)


def schema(
    sources: Sequence[Source], columns: Sequence[str] | None = None, hints: ReadHints = NO_HINTS
) -> pa.Schema:
    """Return names and types of the columns of sources, none for svmlight and arrays.

    Types are those that hold the values of all sources. `columns` are those that every source must have, by
    default those of the first. `DataError` if a source lacks one, or has it with another type than the hints
    allow.
    """
    if sources[0].format == "parquet":
        check_footers([source.path for source in sources], hints.record_limit)
    own = FORMATS[sources[0].format].schema(sources[0], hints)
    first = _with_derived(own, sources[0])
    wanted = list(own.names if columns is None else columns)
    check_columns(sources[0].path, wanted, first.names)
    if sources[0].format == "jsonl":
        return first  # any file may lack a key; the first file determines the types
    typed = {name: (sources[0], first.field(name).type) for name in wanted}
    drift = dict.fromkeys(hints.any_width, Drift.INTEGERS) | dict.fromkeys(hints.numbers, Drift.NUMBERS)
    for source in sources[1:]:
        other = _with_derived(FORMATS[source.format].schema(source, hints), source)
        check_columns(source.path, wanted, other.names)
        for name in wanted:
            (where, kind), own_kind = typed[name], other.field(name).type
            common = common_type(kind, own_kind, drift.get(name, Drift.NONE))
            if common is None:
                raise DataError(
                    f"column {name!r} is {own_kind} in {source.path}, but {kind} in {where.path}",
                    "write the files with the same types",
                )
            typed[name] = (where if common == kind else source), common
    kinds = {name: kind for name, (_, kind) in typed.items()}
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in first])


def _with_derived(own: pa.Schema, source: Source) -> pa.Schema:
    """Return the columns of a source, their nested fields, and columns from its folder names."""
    columns = with_fields(own)
    folders = [name for name in named_by_folders(source.path, source.format) if name not in columns.names]
    return pa.schema([*columns, *((name, pa.string()) for name in folders)])


def scan(sources: Sequence[Source], part_bytes: int = PART_BYTES, hints: ReadHints = NO_HINTS) -> list[Part]:
    """Split sources into parts that workers read independently, in their order; none if there are no records.

    This reads text files once, and only the footers of Parquet files. Memory: a few MiB. A part has about
    `part_bytes`, but at least one record, row group or dask chunk.
    """
    if part_bytes < 1:
        raise DataError(f"part_bytes is {part_bytes}", "choose a positive size")
    return FORMATS[sources[0].format].split(sources, part_bytes, hints)


def bytes_per_row(source: Source) -> float:
    """Estimate the bytes of a row of the source, from its first MiB; `DataError` if that cannot be read."""
    if source.data is not None:
        rows = max(1, int(source.data.shape[0]))
        if source.format == "table":
            return bytes_of(source.data) / rows
        arrays = (source.data.data, source.data.indices) if source.format == "sparse" else (source.data,)
        return sum(int(array.nbytes) for array in arrays) / rows
    if source.format == "parquet":
        n_rows = count_rows(source.path)
        return status_of(source.path).n_bytes / max(1, n_rows)
    try:
        with open_text(source) as stream:
            head = bytes(stream.read(1 << 20))
    except DAMAGE as error:  # another number would cut the source elsewhere
        raise unreadable(source.path, error) from error
    return float(len(head)) / max(1, _count_records(head, source))


def _count_records(head: bytes, source: Source) -> int:
    """Count the records at the beginning of a text file; a quoted CSV field may hold many lines."""
    n_lines = head.count(b"\n")
    if source.format not in DELIMITED or b'"' not in head:
        return n_lines
    try:
        text = io.StringIO(head.decode("utf-8", "replace"), newline="")
        delimiter = source.dialect.delimiter or ("\t" if source.format == "tsv" else ",")
        return sum(1 for _ in csv.reader(text, delimiter=delimiter))
    except csv.Error:  # a field too long for Python's reader
        return n_lines
