"""One source of samples: a file, an array or a table; how it is identified, and how its bytes are read.

Text becomes a stream of UTF-8, decompressed according to the extension and decoded from its encoding.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import pyarrow as pa
import scipy

from bigmc.errors import DataError
from bigmc.ingestion.sources.dialect import USUAL, UTF8, Dialect
from bigmc.ingestion.sources.remote_file import BLOCK_BYTES, RemoteFile
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.layout import sha256
from bigmc.store.files.object_store import is_remote

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException)
"""What reading a damaged or unreadable file raises."""

CHANGED_CURE = "start again, with a copy if something still writes to the file"
"""What helps where a file changes while it is read."""

_PIECE_BYTES = 1 << 16
"""Bytes decompressed, or decoded from another encoding, at once."""


@dataclass(frozen=True)
class Source:
    """One file, or one array or table in memory.

    `path` is the path or address of the file, or a name for the array. `data` is the array or table, None for
    a file, and `labels` those of the rows of an array. `stream` is what came as a stream and was written to
    the file; None for other files.
    """

    path: str
    format: str
    data: Any = None
    labels: Any = None
    stream: str | None = None
    dialect: Dialect = USUAL

    @property
    def in_memory(self) -> bool:
        """Whether it is an array or a table of this process, which no other one sees."""
        return self.data is not None

    @property
    def name(self) -> str:
        """What the user calls it: not the file that a stream was written to."""
        return self.path if self.stream is None else self.stream

    def identity(self) -> Mapping[str, Any]:
        """Return what tells the source from others, so that a rerun knows whether it continues the same work.

        That is path, size and time of change of a file, else a digest; as JSON data. `DataError` if the file
        is gone.
        """
        named = {"path": self.path, "format": self.format}
        if self.in_memory:
            return named | {"shape": [int(n) for n in self.data.shape], "sha256": self._digest()}
        if self.stream is not None:
            file = Path(self.path)
            content = {"path": self.name, "bytes": file.stat().st_size, "sha256": sha256(file)}
        else:
            status = self._status()
            path = self.path if is_remote(self.path) else str(Path(self.path).resolve())
            content = {"path": path, "bytes": status.n_bytes, "changed": status.changed}
        return named | content | self.dialect.to_dict()

    def status(self) -> FileStatus:
        """Return size and version of the file, for the parts of it.

        What came as a stream has no version: a resumed run writes it to a new file. `DataError` if there is
        no file, or it cannot be reached.
        """
        status = self._status()
        return status if self.stream is None else FileStatus(status.n_bytes, "")

    def _status(self) -> FileStatus:
        try:
            return status_of(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _digest(self) -> str:
        """Return the digest of an array or table in memory and its labels."""
        digest, data = hashlib.sha256(), self.data
        if self.format == "dask":
            digest.update(str(data.name).encode())  # dask names an array by a token of how it is made
        elif self.format == "table":
            for batch in data.to_batches():
                digest.update(batch.serialize())
        else:
            arrays = (data.indptr, data.indices, data.data) if scipy.sparse.issparse(data) else (data,)
            for array in arrays:
                digest.update(np.ascontiguousarray(array).data)
        if self.labels is not None:
            sets = isinstance(self.labels, pa.ListArray)
            labels = self.labels.to_pylist() if sets else np.asarray(self.labels).tolist()
            digest.update(repr(labels).encode())
        return digest.hexdigest()


def no_rows(source: Source) -> DataError:
    """Return the error for sources without a row, which names the first of them."""
    return DataError(f"{source.path}: no rows", "give files with at least one row below the header")


@dataclass(frozen=True)
class FileStatus:
    """What tells whether a file is the same as before.

    `changed` is the time of the last change in nanoseconds; for an address its version, such as an ETag.
    """

    n_bytes: int
    changed: int | str

    @property
    def version(self) -> str:
        """What tells the contents from later ones of the same size; empty if an address has no version."""
        return str(self.changed)


def status_of(path: str) -> FileStatus:
    """Return size and version of a file.

    `OSError` if a local file cannot be looked at; `DataError` if there is nothing at an address, or it cannot
    be reached.
    """
    if not is_remote(path):
        status = os.stat(path)
        return FileStatus(status.st_size, status.st_mtime_ns)
    return FileStatus(*RemoteFile(path).size_and_version())


def open_file(path: str, block_bytes: int = BLOCK_BYTES) -> BinaryIO:
    """Open a file for reading, unbuffered; at an address see `RemoteFile.open` for the bytes of a request."""
    if not is_remote(path):
        return open(path, "rb", buffering=0)
    return RemoteFile(path).open(block_bytes)


class TextFile(Protocol):
    """A text file, whose bytes are read as UTF-8: a source, or a part of one."""

    @property
    def path(self) -> str:
        """Path or address."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How it is written."""
        ...


def is_seekable(file: TextFile) -> bool:
    """Return whether reading can begin in the middle of a file."""
    return file.dialect.encoding == UTF8 and compression_of(file.path) is None


def compression_of(path: str) -> str | None:
    """Return the compression that the ending of a file name tells."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def open_text(file: TextFile) -> BinaryIO:
    """Open a file; its bytes come decompressed and in UTF-8."""
    stream = _open_decompressed(file.path)
    if file.dialect.encoding == UTF8:
        return stream
    return cast(BinaryIO, io.BufferedReader(_Decoded(stream, file), _PIECE_BYTES))


def _open_decompressed(path: str) -> BinaryIO:
    compression = compression_of(path)
    if compression == "zstd" and not is_remote(path):
        return cast(BinaryIO, pa.CompressedInputStream(arrow_file(path), compression))
    stream = open_file(path)
    match compression:
        case "gzip":
            return cast(BinaryIO, _Chained(gzip.GzipFile(fileobj=stream, mode="rb"), stream))
        case "bz2":
            return cast(BinaryIO, _Chained(_Members(bz2.BZ2Decompressor, stream), stream))
        case "xz":
            return cast(BinaryIO, _Chained(_Members(lzma.LZMADecompressor, stream), stream))
        case "zstd":
            return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression))
        case _:
            return stream


class _Chained(io.RawIOBase):
    """A decompressed stream that closes the file it reads, too."""

    def __init__(self, decompressed: Any, stream: BinaryIO) -> None:
        self._decompressed, self._stream = decompressed, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self._decompressed.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            self._decompressed.close()
            self._stream.close()
        super().close()


class _Members(io.RawIOBase):
    """The contents of the compressed streams that a file consists of, with zeros between them or not.

    Anything else after a stream is damage, of which the decompressor raises an error: Python's own readers
    ignore the rest of the file, and with it all further streams.
    """

    def __init__(self, decompressor: Callable[[], Any], stream: BinaryIO) -> None:
        self._new, self._stream = decompressor, stream
        self._current: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._current is not None and not self._current.eof:
                piece = self._stream.read(_PIECE_BYTES) if self._current.needs_input else b""
                if self._current.needs_input and not piece:
                    raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            else:
                piece = self._start()
                if not piece:
                    return 0
                self._current = self._new()
            contents = self._current.decompress(piece, len(buffer))
            if contents:
                buffer[: len(contents)] = contents
                return len(contents)

    def _start(self) -> bytes:
        """Return the first bytes of the next stream, none at the end of the file."""
        if self._current is None:
            return self._stream.read(_PIECE_BYTES)
        left = bytes(self._current.unused_data).lstrip(b"\0")
        while not left:
            piece = self._stream.read(_PIECE_BYTES)
            if not piece:
                return b""
            left = piece.lstrip(b"\0")
        return left


class _Decoded(io.RawIOBase):
    """A stream in another encoding, read as UTF-8."""

    def __init__(self, stream: BinaryIO, file: TextFile) -> None:
        self._stream, self._file = stream, file
        self._decoder = codecs.getincrementaldecoder(file.dialect.encoding)()
        self._ready = memoryview(b"")
        self._at_end = False
        self._n_lines = 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._at_end:
            self._ready = memoryview(self._next())
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _next(self) -> bytes:
        piece = self._stream.read(_PIECE_BYTES)
        self._at_end = not piece
        try:
            text = self._decoder.decode(piece, final=self._at_end).encode()
        except UnicodeError as error:
            encoding = self._file.dialect.encoding
            raise DataError(
                f"{self._file.path}: not valid {encoding} from about line {self._n_lines} on ({error})",
                "give its encoding with --encoding; latin-1 accepts any bytes",
            ) from None
        self._n_lines += text.count(b"\n")
        return text

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def fill(stream: BinaryIO, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends; return the bytes read."""
    done = 0
    while done < len(buffer):
        got = cast(Any, stream).readinto(buffer[done:])
        if not got:
            break
        done += got
    return done


def unreadable(path: str, error: BaseException) -> DataError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, PermissionError):
        return DataError(f"{path}: no permission to read the file", "give the process read access")
    return DataError(
        f"{path}: the file cannot be read ({error})", "check that it is complete, or download it again"
    )
