"""Read Parquet footers in a forked process first, since a damaged footer may crash the process."""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import warnings
from collections.abc import Sequence
from typing import Any

from bigmc.errors import DataError
from bigmc.ingestion.readers.record_limit import RecordLimit
from bigmc.ingestion.sources.source import open_file
from bigmc.lazy import LazyModule
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.object_store import is_remote

pq = LazyModule("pyarrow.parquet")

_MAGIC = b"PAR1"
_TAIL_BYTES = 1 << 16
"""Bytes of the end of a file that hold most footers."""

_SECONDS = 60
"""Seconds after which the check is given up, and files count as intact."""

COLUMN_COST, CHUNK_COST = 2_100, 1_000
"""Bytes in memory per column, and per column of a row group, besides the footer's own; measured with
files of 50 to 50,000 columns and 1 to 400 row groups, rounded up."""


def bytes_in_memory(metadata: Any) -> int:
    """Estimate the bytes of the footer of an open file, rather too high than too low."""
    chunks = metadata.num_columns * metadata.num_row_groups
    return int(metadata.serialized_size + COLUMN_COST * metadata.num_columns + CHUNK_COST * chunks)


def check_footers(paths: Sequence[str], limit: RecordLimit | None = None) -> None:
    """Read every footer in a forked process, which starts a line for each file and ends it with a size.

    `DataError` if a signal killed the process; other unreadable footers raise errors later;
    `MemoryLimitError` if a footer does not fit into memory.
    """
    files = [(path, _tail(path)) if is_remote(path) else (path, None) for path in paths]
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # warning about forks with threads: the fork uses none
        process = os.fork()
    if process == 0:
        _read_all(files, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as progress:
        sizes = progress.read().split(b"\n")[1:]
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGALRM:
        path = paths[max(0, len(sizes) - 1)]
        raise DataError(
            f"{path}: not a readable Parquet file (its footer crashes pyarrow)",
            "check the file, or download it again",
        )
    if limit is not None and any(sizes):
        largest = max(range(len(sizes)), key=lambda i: int(sizes[i] or 0))
        n_bytes = int(sizes[largest])
        limit.check_held(paths[largest], n_bytes, n_bytes)


def _read_all(files: Sequence[tuple[str, bytes | None]], writer: int) -> None:
    """Read the footers in the forked process, then end it silently."""
    try:
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for path, tail in files:
            os.write(writer, b"\n")
            size = _read(path, tail)
            os.write(writer, str(size).encode())
    finally:
        os._exit(0)


def _tail(address: str) -> bytes:
    """Return the footer bytes of a file at an address, which a forked process cannot request."""
    with open_file(address, _TAIL_BYTES) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if len(tail) < length <= size:
            file.seek(size - length)
            tail = file.read(length)
    return tail


def _read(path: str, tail: bytes | None) -> int:
    """Return the bytes in memory of a footer; 0 if it cannot be read."""
    try:
        metadata = pq.read_metadata(arrow_file(path) if tail is None else io.BytesIO(_MAGIC + tail))
        for group in range(metadata.num_row_groups):
            entry = metadata.row_group(group)
            for i in range(entry.num_columns):
                entry.column(i).total_uncompressed_size  # noqa: B018 - reading it is the trial
        return bytes_in_memory(metadata)
    except Exception:
        return 0  # the error is raised when the file is read
