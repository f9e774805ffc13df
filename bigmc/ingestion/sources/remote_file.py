"""Files at addresses such as ``s3://bucket/name``, ``gs://…``, ``az://…``, ``https://…`` or ``hf://…``.

fsspec and its file systems read them. Nothing is copied to disk: a reader requests byte ranges and
keeps one at a time.
"""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from bigmc.errors import DataError

BLOCK_BYTES = 4 << 20
"""Bytes requested at once when a file is read from its beginning to its end."""

_LISTED_BY_LINKS = ("http", "https")
"""Protocols without folders."""

_VERSIONS = ("ETag", "etag", "generation", "Content-MD5", "content_md5", "Digest", "oid", "blob_id")
_TIMES = ("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "last_commit", "created")
"""Keys under which file systems tell the version of a file, and when it was changed."""


def list_address(address: str) -> list[str]:
    """Return the files at an address, sorted: itself, those in a folder, or those that match a pattern.

    A folder that matches a pattern stands for the files in it. Files and folders whose names begin with a dot
    or ``_`` are passed over. `DataError` if there are none.
    """
    place = RemoteFile(address)
    if address.partition("://")[0] in _LISTED_BY_LINKS:
        place.info()
        return [address]
    addresses = place.files()
    if not addresses:
        raise DataError(f"{address}: no such file", "check the address")
    return addresses


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
        """Return what the file system knows about the file now."""
        with _telling(self.address):
            self._fs.invalidate_cache()
            return dict(self._fs.info(self._path))

    def size_and_version(self) -> tuple[int, str]:
        """Return the bytes of the file, and what tells that its contents have changed, such as an ETag."""
        info = self.info()
        version = next((str(info[key]) for key in (*_VERSIONS, *_TIMES) if info.get(key)), "")
        return int(info["size"] or 0), version

    def open(self, block_bytes: int) -> BinaryIO:
        """Open the file for reading; at least ``block_bytes`` are requested at once."""
        return cast(BinaryIO, _RangeReader(self, self.size_and_version()[0], block_bytes))

    def read(self, start: int, stop: int) -> bytes:
        """Return a range of bytes."""
        with _telling(self.address):
            content: bytes = self._fs.cat_file(self._path, start=start, end=stop)
        if len(content) != stop - start:
            raise DataError(
                f"{self.address}: {len(content)} bytes received, {stop - start} requested",
                "check that the file has not changed and that its server supports byte ranges",
            )
        return content

    def files(self) -> list[str]:
        """Return the addresses of the files that are meant."""
        with _telling(self.address):
            self._fs.invalidate_cache()
            if any(sign in self._path for sign in "*?["):
                root = posixpath.dirname(self._path.partition("*")[0])
                matches = self._fs.glob(self._path, detail=True).items()
                found = {path for path, info in matches if info.get("type") != "directory"}
                folders = (path for path, info in matches if info.get("type") == "directory")
                paths = found.union(*(self._fs.find(folder) for folder in folders))
            else:
                root = self._path.rstrip("/")
                paths = self._fs.find(root)
                if paths == [root]:
                    return [self.address]
            below = (path for path in paths if not _hidden(path[len(root) :]))
            return sorted(self._named_alike(path) for path in below)

    def _named_alike(self, path: str) -> str:
        """Return the address of a file with the protocol that was given: one system answers to several."""
        protocol = self.address.partition("://")[0]
        address: str = self._fs.unstrip_protocol(path)
        return f"{protocol}://{address.partition('://')[2]}"


@contextmanager
def _telling(address: str) -> Iterator[None]:
    """Turn what file systems raise into one line that names the address."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        # of http, a server that does not answer too
        raise DataError(f"{address}: no such file, or no answer", "check address and network") from error
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
