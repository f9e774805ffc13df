"""Text files as streams of UTF-8: decompressed by the ending of their name, decoded from their encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.dialect import UTF8, Dialect
from bigmc.ingestion.files import is_address, open_file

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException)
"""What reading a damaged or unreadable file raises."""

_PIECE_BYTES = 1 << 16
"""Bytes decoded at once from another encoding."""


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
    if compression == "zstd" and not is_address(path):
        return cast(BinaryIO, pa.input_stream(path, compression=compression))
    stream = open_file(path)
    match compression:
        case "gzip":
            return cast(BinaryIO, _Chained(gzip.GzipFile(fileobj=stream, mode="rb"), stream))
        case "bz2":
            return cast(BinaryIO, _Chained(bz2.BZ2File(stream, "rb"), stream))
        case "xz":
            return cast(BinaryIO, _Chained(lzma.LZMAFile(stream, "rb"), stream))
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
                f"{self._file.path}: not {encoding} from about line {self._n_lines} on ({error})",
                "name the encoding it has with --encoding; latin-1 takes any bytes",
            ) from None
        self._n_lines += text.count(b"\n")
        return text

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def skip(stream: BinaryIO, file: TextFile, start: int) -> None:
    """Go to byte ``start`` of the text of a file that was just opened."""
    if is_seekable(file):
        stream.seek(start)
        return
    while start > 0:
        got = len(stream.read(min(start, 1 << 20)))
        if got == 0:
            return
        start -= got


def fill(stream: BinaryIO, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends; return the bytes read."""
    done = 0
    while done < len(buffer):
        got = cast(Any, stream).readinto(buffer[done:])
        if not got:
            break
        done += got
    return done


def skip_mark(file: TextFile) -> int:
    """Return the length of the byte order mark of a file, and refuse what is not UTF-8 at first sight."""
    try:
        with open_text(file) as stream:
            head = bytes(stream.read(4))
    except DAMAGE as error:
        raise unreadable(file.path, error) from error
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{file.path}: the file is UTF-16", "say so: --encoding utf-16")
    return 3 if head[:3] == BYTE_ORDER_MARK else 0


def unreadable(path: str, error: BaseException) -> DataError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, PermissionError):
        return DataError(f"{path}: not allowed to read the file", "give the process read access")
    return DataError(f"{path}: the file cannot be read ({error})", "check that it is complete; fetch it anew")
