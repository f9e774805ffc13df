"""Files to be read, on a disk or at an address: listed, identified, and read in ranges of bytes.

Addresses such as ``s3://bucket/name``, ``gs://…``, ``az://…``, ``https://…`` or ``hf://…`` are what fsspec
and its file systems read. Nothing is copied: a reader asks for ranges of bytes, and keeps one at a time.
"""

from __future__ import annotations

import io
import os
import posixpath
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from bigmc.errors import DataError

BLOCK_BYTES = 4 << 20
"""Bytes asked for at once when a file at an address is read from its beginning to its end."""

_LISTED_BY_LINKS = ("http", "https")
"""Protocols without folders."""

_VERSIONS = ("ETag", "etag", "generation", "Content-MD5", "content_md5", "Digest", "oid", "blob_id")
_TIMES = ("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "last_commit", "created")
"""Keys under which file systems tell the version of a file, and when it was changed."""


@dataclass(frozen=True)
class FileStatus:
    """What tells whether a file is the same as before.

    Attributes
    ----------
    n_bytes : int
    changed : int or str
        Time of the last change in nanoseconds; for an address its version, such as an ETag.
    """

    n_bytes: int
    changed: int | str

    @property
    def version(self) -> str:
        """Version of a file at an address; empty for a local one, of which the size is compared."""
        return self.changed if isinstance(self.changed, str) else ""


def is_address(path: str) -> bool:
    """Return whether a path is an address rather than a file of this machine."""
    return "://" in path


def status_of(path: str) -> FileStatus:
    """Return size and version of a file.

    Raises
    ------
    OSError
        If a local file cannot be looked at.
    DataError
        If there is nothing at an address, or it cannot be reached.
    """
    if not is_address(path):
        found = os.stat(path)
        return FileStatus(found.st_size, found.st_mtime_ns)
    info = RemoteFile(path).info()
    version = next((str(info[key]) for key in (*_VERSIONS, *_TIMES) if info.get(key)), "")
    return FileStatus(int(info["size"] or 0), version)


def size_of(path: str) -> int:
    """Return the bytes of a file; raises as `status_of`."""
    return os.path.getsize(path) if not is_address(path) else status_of(path).n_bytes


def absolute(path: str, base: str) -> str:
    """Return a path that may be relative to another folder; an address as it is."""
    return path if is_address(path) else os.path.join(base, path)


def open_file(path: str, block_bytes: int = BLOCK_BYTES) -> BinaryIO:
    """Open a file for reading, unbuffered; at an address at least ``block_bytes`` are asked for at once."""
    if not is_address(path):
        return open(path, "rb", buffering=0)
    return cast(BinaryIO, _RangeReader(RemoteFile(path), status_of(path).n_bytes, block_bytes))


def list_address(address: str) -> list[str]:
    """Return the files at an address: itself, or those in a folder or that match a pattern, sorted.

    Files and folders whose names begin with a dot or ``_`` are passed over.

    Raises
    ------
    DataError
        If there are none.
    """
    place = RemoteFile(address)
    if address.partition("://")[0] in _LISTED_BY_LINKS:
        place.info()
        return [address]
    found = place.files()
    if not found:
        raise DataError(f"{address}: no file there", "check the address")
    return found


def partition_of(path: str) -> dict[str, str | None]:
    """Return the columns that folders of a path name, as in ``day=2026-11-22/part-0.parquet``.

    Values are texts with their percent signs decoded; Hive's name for a missing value is None.
    """
    found: dict[str, str | None] = {}
    for folder in path.split("?")[0].split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and name:
            text = urllib.parse.unquote(value)
            found[urllib.parse.unquote(name)] = None if text == "__HIVE_DEFAULT_PARTITION__" else text
    return found


class RemoteFile:
    """A place that fsspec reads; what goes wrong becomes an error that names the address."""

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            from fsspec.core import url_to_fs

            self._fs, self._path = url_to_fs(address)
        except (ImportError, ValueError) as error:
            protocol = address.partition("://")[0]
            extra = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az"}.get(protocol, "remote")
            raise DataError(f"{address}: {error}", f"pip install 'bigmc[{extra}]'") from None

    def info(self) -> dict[str, Any]:
        """Return what is known about the file, asked for anew."""
        with _telling(self.address):
            self._fs.invalidate_cache()
            return dict(self._fs.info(self._path))

    def read(self, start: int, stop: int) -> bytes:
        """Return a range of bytes."""
        with _telling(self.address):
            found: bytes = self._fs.cat_file(self._path, start=start, end=stop)
        if len(found) != stop - start:
            raise DataError(
                f"{self.address}: {len(found)} bytes came where {stop - start} were asked for",
                "the file has changed meanwhile, or its server does not serve ranges of bytes",
            )
        return found

    def files(self) -> list[str]:
        """Return the addresses of the files that are meant."""
        with _telling(self.address):
            self._fs.invalidate_cache()
            if any(sign in self._path for sign in "*?["):
                root = posixpath.dirname(self._path.partition("*")[0])
                matches = self._fs.glob(self._path, detail=True).items()
                found = [path for path, info in matches if info.get("type") != "directory"]
            else:
                root = self._path.rstrip("/")
                found = self._fs.find(root)
                if found == [root]:
                    return [self.address]
            below = (path for path in found if not _hidden(path[len(root) :]))
            return sorted(self._named_alike(path) for path in below)

    def _named_alike(self, path: str) -> str:
        """Return the address of a file with the protocol that was given: one system answers to several."""
        given = self.address.partition("://")[0]
        address: str = self._fs.unstrip_protocol(path)
        return f"{given}://{address.partition('://')[2]}"


@contextmanager
def _telling(address: str) -> Iterator[None]:
    """Turn what file systems raise into one line that names the address."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{address}: no such file", "check the address") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataError(
            f"{address}: {reason}", "check the address, the network and the credentials"
        ) from error


def _hidden(path: str) -> bool:
    return any(name.startswith((".", "_")) for name in path.split("/"))


class _RangeReader(io.RawIOBase):
    """A file at an address, read in ranges; one block is kept."""

    def __init__(self, remote: RemoteFile, size: int, block_bytes: int) -> None:
        self._remote, self._size, self._block_bytes = remote, size, block_bytes
        self._at = 0
        self._block, self._first = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._size - self._at))
        if not wanted:
            return 0
        if not self._first <= self._at < self._first + len(self._block):
            stop = min(self._size, self._at + max(self._block_bytes, wanted))
            self._block, self._first = b"", self._at  # the one before is let go of first
            self._block = self._remote.read(self._at, stop)
        inside = self._at - self._first
        n = min(wanted, len(self._block) - inside)
        buffer[:n] = self._block[inside : inside + n]
        self._at += n
        return n
