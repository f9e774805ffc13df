"""Files as streams of bytes: decompressed by the ending of their name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from typing import Any, BinaryIO, cast

import pyarrow as pa

from bigmc.errors import DataError

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException)
"""What reading a damaged or unreadable file raises."""


def compression_of(path: str) -> str | None:
    """Return the compression that the ending of a file name tells."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def open_stream(path: str) -> BinaryIO:
    """Open a file; its bytes come decompressed."""
    match compression_of(path):
        case None:
            return open(path, "rb", buffering=0)
        case "gzip":
            return cast(BinaryIO, gzip.open(path, "rb"))
        case "bz2":
            return cast(BinaryIO, bz2.open(path, "rb"))
        case "xz":
            return cast(BinaryIO, lzma.open(path, "rb"))
        case codec:
            return cast(BinaryIO, pa.input_stream(path, compression=codec))


def skip(stream: BinaryIO, path: str, start: int) -> None:
    """Go to byte ``start`` of a decompressed file that was just opened."""
    if compression_of(path) is None:
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


def skip_mark(path: str) -> int:
    """Return the length of the byte order mark of a file, and refuse what is not UTF-8 at first sight."""
    try:
        with open_stream(path) as stream:
            head = bytes(stream.read(4))
    except DAMAGE as error:
        raise unreadable(path, error) from error
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}: the file is UTF-16", f"convert it: iconv -f UTF-16 -t UTF-8 {path}")
    return 3 if head[:3] == BYTE_ORDER_MARK else 0


def unreadable(path: str, error: BaseException) -> DataError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, PermissionError):
        return DataError(f"{path}: not allowed to read the file", "give the process read access")
    return DataError(f"{path}: the file cannot be read ({error})", "check that it is complete; fetch it anew")
