"""Sources of samples: found, cut into parts, and read part by part.

``sources = expand_sources(…)``, ``parts = scan(sources)``, then for every part, by any worker, in any
order and again after a kill: ``for batch in read(part, …)``. The same part always gives the same rows.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from bigmc.errors import DataError
from bigmc.ingestion.readers import ENDINGS, FILE_FORMATS, FORMATS
from bigmc.ingestion.readers.base import Batch, Part, ReadHints, ReadRequest, Source, check_columns
from bigmc.ingestion.readers.footers import check_footers
from bigmc.ingestion.readers.parquet import count_rows
from bigmc.ingestion.readers.streams import COMPRESSIONS, DAMAGE, compression_of, open_stream
from bigmc.ingestion.spool import STDIN, is_pipe, is_stream, spool_pipe, spool_rows
from bigmc.store import disk
from bigmc.store.label_sets import column_of_indicator

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
_KNOWN = "the formats are " + ", ".join(sorted(FILE_FORMATS))
NO_HINTS, EVERYTHING = ReadHints(), ReadRequest()


def expand_sources(
    source: Any, format: str | None = None, labels: Any = None, spool: Path | None = None
) -> list[Source]:
    """Return the files or arrays meant by what the user passed, in a fixed order.

    Parameters
    ----------
    source : path, glob, directory, array, table, or a list of these
        Directories are walked; hidden files and those that begin with ``_`` are passed over. Arrays:
        NumPy 2-D, SciPy sparse, dask; tables: pyarrow, pandas, and any data frame with
        ``__arrow_c_stream__`` (which is converted at once).
    format : str, optional
        Format of the files; by default their ending tells.
    labels : array-like, optional
        Labels of the rows of an array; a list of them for a list of arrays.
    spool : Path, optional
        Folder for what can be read only once: standard input (``-``), named pipes, readers of record batches,
        pyarrow datasets and scanners, relations of DuckDB, iterators of mappings or batches.

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
    if format is not None and format not in FILE_FORMATS:
        raise DataError(f"unknown format {format!r}", _KNOWN)
    items = list(source) if isinstance(source, list | tuple) else [source]
    if labels is not None:
        labels = list(labels) if isinstance(source, list | tuple) else [labels]
        if len(labels) != len(items):
            raise DataError(f"{len(items)} arrays but {len(labels)} arrays of labels", "pass one for each")
    found: list[Source] = []
    for i, item in enumerate(items):
        if spool is not None and isinstance(item, str | os.PathLike) and is_pipe(os.fspath(item)):
            found.append(_spooled_pipe(os.fspath(item), format, spool / str(i)))
        elif spool is not None and is_stream(item):
            name = f"{type(item).__name__}[{i}]"
            disk.make_folder(spool / str(i))
            spool_rows(item, name, spool / str(i) / "rows.parquet")
            found.append(Source(str(spool / str(i) / "rows.parquet"), "parquet", stream=name))
        elif isinstance(item, str | os.PathLike):
            found += [Source(path, format or _format_of(path)) for path in _files(os.fspath(item))]
        else:
            name = f"{type(item).__name__}[{i}]" if len(items) > 1 else type(item).__name__
            found.append(_in_memory(item, name, None if labels is None else labels[i]))
    if not found:
        raise DataError("no sources given", "name a file, a pattern, a directory or an array")
    _check_alike(found)
    return found


def _spooled_pipe(path: str, format: str | None, folder: Path) -> Source:
    if format is None and path == STDIN:
        raise DataError("standard input has no name that tells its format", f"give the format; {_KNOWN}")
    known = format or _format_of(path)
    disk.make_folder(folder)
    file = folder / f"rows{os.path.splitext(path)[1] if compression_of(path) else ''}"
    spool_pipe(path, file)
    return Source(str(file), known, stream=path)


def _check_alike(found: list[Source]) -> None:
    seen: set[str] = set()
    for source in found:
        if source.format != found[0].format:
            raise DataError(
                f"{found[0].path} is {found[0].format} but {source.path} is {source.format}",
                "ingest sources of one format at a time",
            )
        if source.data is None:
            real = os.path.realpath(source.path)
            if real in seen:
                raise DataError(f"{source.path}: the file is listed twice", "list every file once")
            seen.add(real)


def _files(path: str) -> list[str]:
    if "://" in path:
        raise DataError(f"{path}: not a local file", "copy the data to a disk first")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        return _walk(path)
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise DataError(f"{path}: not a regular file", "save the data to a file, which can be read twice")
        return [path]
    if glob.has_magic(path):
        found: list[str] = []
        for match in sorted(glob.glob(path, recursive=True)):
            if os.path.isdir(match):
                found += [] if "**" in path else _walk(match)
            elif not _hidden(match):
                found.append(match)
        if not found:
            raise DataError(f"{path}: no file matches the pattern", "check the pattern and its quotes")
        return found
    raise DataError(f"{path}: no such file or directory", "check the path")


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


def _walk(folder: str) -> list[str]:
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        for name in folders:
            if "=" in name:
                raise DataError(
                    f"{os.path.join(here, name)}: a partitioned directory, whose columns are in its name",
                    "write the column into the files, or list the files by a pattern",
                )
        found += [os.path.join(here, name) for name in files if not _hidden(name)]
    if not found:
        raise DataError(f"{folder}: no files in the directory", "check the path")
    return sorted(found)


def _format_of(path: str) -> str:
    stem, ending = os.path.splitext(path)
    compressed = ending.lower() in COMPRESSIONS
    if compressed:
        ending = os.path.splitext(stem)[1]
    found = ENDINGS.get(ending.lower())
    if found is None:
        raise DataError(f"{path}: unknown format {ending or '(no ending)'}", f"give the format; {_KNOWN}")
    if compressed and found == "parquet":
        raise DataError(f"{path}: a compressed Parquet file", "decompress it; Parquet compresses inside")
    return found


def _in_memory(item: Any, name: str, labels: Any) -> Source:
    if isinstance(item, pa.RecordBatchReader):
        raise DataError(f"{name}: can be read only once", "call read_all(), or write it to Parquet first")
    pandas = sys.modules.get("pandas")
    if isinstance(item, pa.RecordBatch):
        item = pa.Table.from_batches([item])
    elif pandas is not None and isinstance(item, pandas.DataFrame):
        item = _table_of_pandas(item, name)
    elif not isinstance(item, pa.Table) and hasattr(item, "__arrow_c_stream__"):
        item = pa.table(item)
    if isinstance(item, pa.Table):
        if labels is not None:
            raise DataError(f"{name}: labels passed beside a table", "name the column of the labels")
        return Source(name, "table", item)
    if sp.issparse(item):
        # Rows of the other sparse layouts cannot be sliced; a CSR matrix is not copied.
        item, kind = sp.csr_array(item), "sparse"
    elif isinstance(item, np.ma.MaskedArray):
        raise DataError(f"{name}: a masked array", "fill or drop the masked values")
    elif isinstance(item, np.ndarray):
        item, kind = np.asarray(item), "array"
    elif hasattr(item, "dask") and hasattr(item, "chunks") and hasattr(item, "blocks"):
        kind = "dask"
    else:
        raise DataError(
            f"{name}: not a source of samples",
            "pass a path, a NumPy, SciPy sparse or dask array, or an Arrow table or data frame",
        )
    return Source(name, kind, item, _checked(item, name, labels))


def _table_of_pandas(frame: Any, name: str) -> pa.Table:
    """Return a pandas frame as a table; a column of several types is refused by its name."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for column in frame.columns:
            try:
                pa.Array.from_pandas(frame[column])
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                kinds = sorted({type(value).__name__ for value in frame[column]})
                raise DataError(
                    f"{name}: the column {column!r} has values of the types {', '.join(kinds)} ({error})",
                    "give a column values of one type",
                ) from error
        raise


def _checked(array: Any, name: str, labels: Any) -> Any:
    """Return the labels, once the array and they are known to fit."""
    if array.ndim != 2:
        raise DataError(f"{name}: {array.ndim} dimensions", "pass samples as rows and features as columns")
    if np.isnan(array.shape[0]):
        raise DataError(f"{name}: the sizes of its chunks are unknown", "call compute_chunk_sizes() first")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DataError(f"{name}: values of type {array.dtype}", "pass numbers of up to 64 bits")
    if labels is None:
        return None
    sets = _label_sets(labels)
    if sets is not None:
        if len(sets) != array.shape[0]:
            raise DataError(
                f"{name}: {array.shape[0]} rows but {len(sets)} sets of labels", "pass one per row"
            )
        return sets
    given = labels if hasattr(labels, "compute") else np.asarray(labels)
    if given.ndim != 1 or given.shape[0] != array.shape[0]:
        raise DataError(
            f"{name}: {array.shape[0]} rows but labels of shape {given.shape}", "pass one label per row"
        )
    if given is labels and not isinstance(labels, np.ndarray):
        return labels  # a dask array
    try:
        return pa.array(given)
    except pa.ArrowException as error:
        raise DataError(f"{name}: labels of several types ({error})", "pass labels of one type") from error


def _label_sets(labels: Any) -> Any:
    """Return labels that are sets as lists: from an indicator array or matrix, or a list of Python sets."""
    if sp.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        return column_of_indicator(labels)
    if isinstance(labels, list | tuple) and labels and all(isinstance(s, set | frozenset) for s in labels):
        try:
            return pa.array([sorted(s) for s in labels])
        except (TypeError, pa.ArrowException) as error:
            raise DataError(f"labels of several types ({error})", "pass labels of one type") from error
    return None


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
        check_footers([source.path for source in sources])
    found = FORMATS[sources[0].format].schema(sources[0], hints)
    wanted = list(found.names if columns is None else columns)
    check_columns(sources[0].path, wanted, found.names)
    if sources[0].format == "jsonl":
        return found  # a key may be absent from any file; the types are those of the first
    for source in sources[1:]:
        other = FORMATS[source.format].schema(source, hints)
        check_columns(source.path, wanted, other.names)
        for name in wanted:
            kinds = found.field(name).type, other.field(name).type
            if kinds[0] != kinds[1]:
                raise DataError(
                    f"{source.path}: column {name!r} is {kinds[1]}, in {sources[0].path} it is {kinds[0]}",
                    "write the files with the same types",
                )
    return found


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
    source = sources[part.source] if sources is not None else None
    here = part
    if part.format in FILE_FORMATS:
        if base is not None:
            here = replace(part, path=os.path.join(base, part.path))
            source = source and replace(source, path=os.path.join(base, source.path))
        _check_unchanged(here)
    for batch in FORMATS[part.format].read(here, source, request):
        if here is not part:
            batch.path = part.path
            batch.rejects = [replace(reject, path=part.path) for reject in batch.rejects]
        yield batch


def _check_unchanged(part: Part) -> None:
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
        arrays = (source.data.data, source.data.indices) if source.format == "sparse" else (source.data,)
        return sum(int(array.nbytes) for array in arrays) / rows
    if source.format == "parquet":
        n_rows = count_rows(source.path)
        return Path(source.path).stat().st_size / max(1, n_rows)
    try:
        with open_stream(source.path) as stream:
            head = bytes(stream.read(sample))
    except DAMAGE:
        return 1.0  # the reader will say what is wrong with the file
    return float(len(head)) / max(1, _count_records(head, source.format))


def _count_records(head: bytes, format: str) -> int:
    """Count the records at the beginning of a text file; a quoted CSV field may hold many lines."""
    n_lines = head.count(b"\n")
    if format not in ("csv", "tsv") or b'"' not in head:
        return n_lines
    try:
        text = io.StringIO(head.decode("utf-8", "replace"), newline="")
        return sum(1 for _ in csv.reader(text, delimiter="\t" if format == "tsv" else ","))
    except csv.Error:  # a field longer than Python's reader takes
        return n_lines
