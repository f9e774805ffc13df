"""Parquet: parts are ranges of row groups, or of their rows, streamed in bounded batches."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import (
    Batch,
    Part,
    ReadHints,
    ReadRequest,
    batch_of_rows,
    check_columns,
    check_count,
    number,
)
from bigmc.ingestion.readers.footers import bytes_in_memory
from bigmc.ingestion.readers.nested import only, select, with_fields
from bigmc.ingestion.readers.pages import open_bytes, page_bytes_of
from bigmc.ingestion.readers.plain_types import has_inner_dictionary, plain_columns, plain_schema
from bigmc.ingestion.readers.row_ranges import Rows, cut, rows_between
from bigmc.ingestion.readers.utf8 import is_string, undecodable_rows
from bigmc.ingestion.sources.source import Source, open_file
from bigmc.lazy import LazyModule
from bigmc.store.files import disk
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.object_store import is_remote

pc = LazyModule("pyarrow.compute")
pq = LazyModule("pyarrow.parquet")

_PAGE_BUFFER = 1 << 20
_LOOK_ROWS = 64
_MAX_BATCH_ROWS = 1 << 16
_FEW_ROWS = 8
_PLAIN = frozenset(["PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"])
"""Encodings of texts that Arrow can return as dictionaries; the last two are those of levels."""

DECODED = 3
"""Bytes held per byte of a column chunk that is read as a whole: encoded, decoded, and written to a file."""


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Convert any error of pyarrow on a damaged file to one line."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of a scratch file
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path}: not a readable Parquet file ({reason})", "check the file, or download it again"
        ) from error


def _open(path: str) -> Any:
    """Open a file."""
    with _refusing(path):
        return _reader(path)


def _open_part(part: Part, encoded: Sequence[str]) -> Any:
    """Open the file of a part; some of its text columns are returned as dictionaries where Arrow can."""
    with _refusing(part.path):
        file = _reader(part.path)
        texts = {name for name in encoded if _is_text_column(file.schema_arrow, name)}
        leaves = _leaves(file.metadata, sorted(texts))
        for entry in map(file.metadata.row_group, _groups(file, part)):
            chunks = map(entry.column, leaves)
            texts -= {chunk.path_in_schema for chunk in chunks if not _PLAIN.issuperset(chunk.encodings)}
        return _reader(part.path, metadata=file.metadata, read_dictionary=list(texts)) if texts else file


def _groups(file: Any, part: Part) -> range:
    """Return the row groups of a part."""
    return range(part.start, min(part.stop, file.metadata.num_row_groups))


def _reader(path: str, **options: Any) -> Any:
    # Columns are read in turn, so bytes after a piece are not read with it.
    place = pa.PythonFile(open_file(path, 0), "r") if is_remote(path) else arrow_file(path)
    # Buffered and not pre-fetched: otherwise a row group is read whole.
    return pq.ParquetFile(place, buffer_size=_PAGE_BUFFER, pre_buffer=False, **options)


def _is_text_column(schema: pa.Schema, name: str) -> bool:
    at = schema.get_field_index(name)
    return at >= 0 and schema.types[at] in (pa.string(), pa.large_string())


def count_rows(path: str) -> int:
    """Return the number of rows of a file, from its footer."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def table_batch(batch: pa.RecordBatch, part: Part, done: int, request: ReadRequest) -> Batch:
    """Return rows of a part's table, from row ``done`` on; text that is not UTF-8 makes a row bad."""
    with _refusing(part.path) if part.format == "parquet" else nullcontext():
        batch = plain_columns(batch, request.encoded)
        reasons = undecodable_rows(batch)
    _refuse_long_text(batch, part, done, request)
    return batch_of_rows(part, done, reasons, request.on_bad_row, table=batch)


def _refuse_long_text(batch: pa.RecordBatch, part: Part, done: int, request: ReadRequest) -> None:
    """Raise an error for a text longer than memory allows; footers do not have lengths of texts."""
    limit = request.record_limit
    if limit is None or batch.nbytes <= limit.n_bytes:
        return
    row, longest = _longest_text(batch)
    if longest <= limit.n_bytes:
        return
    row += part.first_line + done
    if part.format == "parquet":  # a later one may be longer and need a larger limit
        row, longest = longest_text(part.path, batch.schema.names)
    raise limit.refusal(part.path, row, longest)


def _longest_text(batch: pa.RecordBatch) -> tuple[int, int]:
    """Return the row and the bytes of the longest text of a batch."""
    longest_texts = [(0, 0)]
    for column in batch.columns:
        kind = column.type
        texts = column.dictionary if pa.types.is_dictionary(kind) else column
        if is_string(texts.type):
            lengths = pc.binary_length(texts)
            lengths = lengths.take(column.indices) if pa.types.is_dictionary(kind) else lengths
            longest = pc.max(lengths).as_py() or 0
            longest_texts.append((pc.index(lengths, longest).as_py(), longest) if longest else (0, 0))
    return max(longest_texts, key=lambda text: text[1])


def longest_text(path: str, names: Sequence[str]) -> tuple[int, int]:
    """Return the row and the bytes of the longest text of some columns of a file, with one page in memory."""
    longest_text = (0, 0)
    with _open(path) as file, _refusing(path):
        for name in names:
            done = 0
            for batch in _stream(file, range(file.metadata.num_row_groups), [name], _FEW_ROWS):
                row, longest = _longest_text(plain_columns(select(batch, [name])))
                longest_text = max(longest_text, (done + row, longest), key=lambda text: text[1])
                done += batch.num_rows
    return longest_text


class ParquetFormat:
    """Parquet files; rows are counted from 0 in each file."""

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return the columns of the file, dictionaries decoded."""
        with _open(source.path) as file, _refusing(source.path):
            return plain_schema(file.schema_arrow)

    def split(self, sources: Sequence[Source], part_bytes: int, hints: ReadHints) -> list[Part]:
        """Collect row groups up to ``part_bytes``, encoded but not compressed; cut larger ones on request."""
        parts: list[Part] = []
        for i, source in enumerate(sources):
            with _refusing(source.path):
                status = source.status()  # before its footer is read
            with _open(source.path) as file, _refusing(source.path):
                columns = _leaves(file.metadata, hints.columns)
                cuts = self._split(file.metadata, columns, source, i, part_bytes)
            parts += [replace(part, file_bytes=status.n_bytes, version=status.version) for part in cuts]
        if hints.most_rows is not None:
            parts = [piece for part in parts for piece in cut(part, part_bytes, hints.most_rows)]
        return number(parts)

    def _split(
        self, metadata: Any, columns: Sequence[int], source: Source, index: int, part_bytes: int
    ) -> list[Part]:
        parts: list[Part] = []
        footer = bytes_in_memory(metadata)
        every = range(metadata.num_row_groups)
        page_bytes = page_bytes_of(source.path, map(metadata.row_group, every), columns)
        start = row = part_row = n_bytes = 0
        for group in every:
            entry = metadata.row_group(group)
            row += entry.num_rows
            n_bytes += entry.total_byte_size
            last = group == metadata.num_row_groups - 1
            if (n_bytes >= part_bytes or last) and row > part_row:
                groups = range(start, group + 1)
                entries = (metadata.row_group(g) for g in groups)
                # reading takes all open pages, or one whole column
                resident = max(
                    min(open_bytes(e, columns, page_bytes), _largest_column(e, columns)) for e in entries
                )
                parts.append(
                    Part(
                        path=source.path,
                        format="parquet",
                        source=index,
                        start=start,
                        stop=group + 1,
                        first_line=part_row,
                        n_rows=row - part_row,
                        n_bytes=n_bytes,
                        longest=resident,
                        footer_bytes=footer,
                    )
                )
                start, part_row, n_bytes = group + 1, row, 0
        return parts

    def read(self, part: Part, source: Source | None, request: ReadRequest) -> Iterator[Batch]:
        """Stream the rows of a part."""
        done = 0
        if part.skipped is None:
            rows = read_row_groups(part, request)
        else:
            rows = rows_between(part, request, lambda: read_row_groups(part, request))
        for table, step in rows:
            n, first = table.num_rows, part.first_row + done
            batch = table_batch(table, part, done, request)
            yield batch if n <= step else replace(batch, pieces=tuple(range(first, first + n, step)))
            done += n
        check_count(part, done)


def read_row_groups(part: Part, request: ReadRequest) -> Rows:
    """Yield the rows of the row groups of a part as batches, each with the rows of a piece of it."""
    with _open_part(part, request.encoded) as file:
        names = file.schema_arrow.names
        wanted = list(names if request.columns is None else request.columns)
        check_columns(part.path, wanted, with_fields(file.schema_arrow).names)
        yield from _batches(file, part, wanted, request)


def _leaves(metadata: Any, columns: Sequence[str] | None) -> list[int]:
    """Return the numbers of the leaf columns of the requested columns."""
    if not metadata.num_row_groups:
        return []
    # `metadata.schema` would point back to the metadata, which then only the collection of cycles frees
    entry = metadata.row_group(0)
    paths = [entry.column(i).path_in_schema for i in range(metadata.num_columns)]
    if columns is None:
        return list(range(len(paths)))
    wanted = set(columns)
    return [i for i, path in enumerate(paths) if path in wanted or path.split(".")[0] in wanted]


def _largest_column(entry: Any, columns: Sequence[int]) -> int:
    return max((entry.column(i).total_uncompressed_size for i in columns), default=0)


def _batches(
    file: Any, part: Part, wanted: list[str], request: ReadRequest
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield batches of the requested columns: streamed, or through files of some columns each.

    With each come the rows of a piece of it.
    """
    leaves = _leaves(file.metadata, wanted)
    groups = _groups(file, part)
    entries = [file.metadata.row_group(group) for group in groups]
    page_bytes = page_bytes_of(part.path, entries, leaves)
    pages = max((open_bytes(entry, leaves, page_bytes) for entry in entries), default=0)
    columns = max((_largest_column(entry, leaves) for entry in entries), default=0)
    if 2 * pages > max(request.reader_bytes, DECODED * columns):
        for group in groups:
            for batch in _by_columns(file, part.path, group, wanted, request):
                yield batch, batch.num_rows
        return
    with _refusing(part.path):
        n_rows = _batch_rows(file, part, wanted, request.batch_bytes)
        most = n_rows * request.most_pieces
        batches = _stream(file, groups, wanted, most)
    while True:
        with _refusing(part.path):
            batch = next(batches, None)
        if batch is None:
            return
        yield select(batch, wanted), n_rows


def _stream(file: Any, groups: range, wanted: list[str], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most so many rows of some columns.

    Each row group has its own dictionaries. Arrow cannot join those in lists and objects, so no batch
    of such columns has rows of two row groups.
    """
    kinds = only(file.schema_arrow, wanted).types
    apart = any(has_inner_dictionary(kind) for kind in kinds)
    for together in [[group] for group in groups] if apart else [list(groups)]:
        yield from file.iter_batches(n_rows, row_groups=together, columns=wanted, use_threads=False)


def _by_columns(
    file: Any, path: str, group: int, wanted: list[str], request: ReadRequest
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a row group whose columns together would need too much memory.

    A few columns at a time are decoded and written to a file, which is then memory-mapped: pages of a
    mapped file do not count for the process.
    """
    entry = file.metadata.row_group(group)
    with tempfile.TemporaryDirectory(prefix="columns.", suffix=".partial", dir=request.scratch) as folder:
        pieces: list[pa.RecordBatch] = []
        for columns in _column_slices(entry, file.metadata, wanted, request.reader_bytes // DECODED):
            name = os.path.join(folder, f"{len(pieces):05d}.arrow")
            with _refusing(path):
                table = file.read_row_group(group, columns=columns, use_threads=False).combine_chunks()
                table = pa.Table.from_batches([select(batch, columns) for batch in table.to_batches()])
                with (
                    disk.naming(name),
                    pa.OSFile(os.fsencode(name), "wb") as target,
                    pa.ipc.new_file(target, table.schema) as writer,
                ):
                    writer.write_table(table.combine_chunks(), max_chunksize=max(1, table.num_rows))
                del table
            pieces.append(pa.ipc.open_file(pa.memory_map(os.fsencode(name))).read_all().combine_chunks())
        names = [name for piece in pieces for name in piece.column_names]
        per_row = sum(piece.nbytes for piece in pieces) / max(1, entry.num_rows)
        step = max(1, min(_MAX_BATCH_ROWS, int(request.batch_bytes / max(per_row, 1))))
        held = [piece.column(i).chunk(0) for piece in pieces for i in range(piece.num_columns)]
        del pieces
        for lo in range(0, entry.num_rows, step):
            arrays = [column.slice(lo, step) for column in held]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _column_slices(entry: Any, metadata: Any, wanted: list[str], most_bytes: int) -> Iterator[list[str]]:
    """Split the requested columns into lists of at most ``most_bytes`` of column chunks, or one column."""
    sizes = dict.fromkeys(wanted, 0)
    for i in _leaves(metadata, wanted):
        path = entry.column(i).path_in_schema
        name = path if path in sizes else path.split(".")[0]
        column = entry.column(i)
        sizes[name] += max(column.total_uncompressed_size, 8 * column.num_values)
    some: list[str] = []
    held = 0
    for name in wanted:
        if some and held + sizes[name] > most_bytes:
            yield some
            some, held = [], 0
        some.append(name)
        held += sizes[name]
    yield some


def _batch_rows(file: Any, part: Part, wanted: list[str], batch_bytes: int) -> int:
    """Return the number of rows that take about ``batch_bytes``.

    The size of a row is the larger of its encoded size in the footer and the decoded size of the first rows:
    a dictionary may hide long texts, and the first rows may be short.
    """
    encoded = n_rows = 0
    leaves = _leaves(file.metadata, wanted)
    for group in _groups(file, part):
        entry = file.metadata.row_group(group)
        n_rows += entry.num_rows
        encoded += sum(entry.column(i).total_uncompressed_size for i in leaves)
    per_row = encoded / max(1, n_rows)
    look = max(1, min(_LOOK_ROWS, int(batch_bytes / max(per_row, 1))))
    decoded = 8.0
    for batch in _stream(file, range(part.start, part.start + 1), wanted, look):
        decoded += plain_columns(batch).nbytes / max(1, batch.num_rows)
        break
    return max(1, min(_MAX_BATCH_ROWS, int(batch_bytes / max(per_row, decoded))))
