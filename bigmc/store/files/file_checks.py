"""Sizes and SHA-256 of files: as a manifest lists them, and compared with it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from bigmc.store.files.layout import FileEntry, damaged

_READ_BYTES = 1 << 20


def file_entry(path: Path, relative_to: Path) -> FileEntry:
    """Return size and SHA-256 of a file."""
    return FileEntry(path.relative_to(relative_to).as_posix(), path.stat().st_size, sha256(path))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits, without holding the file in memory."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def check_sizes(folder: Path, files: Iterable[FileEntry], root: Path) -> None:
    """Compare the sizes of files, whose paths are relative to `folder`, all of it in the dataset at `root`.

    `StoreError` if one is missing, has another size, or is a link to a place outside.
    """
    seen: set[str] = set()
    for file in files:
        path = folder / file.path
        try:
            status = os.lstat(path)
            parent = os.path.dirname(path)
            if parent not in seen or stat.S_ISLNK(status.st_mode):
                seen.add(parent)
                _check_inside(path, root)
                status = os.stat(path)
        except OSError as error:
            raise damaged(path, f"cannot be read ({error.strerror})") from None
        except ValueError as error:
            raise damaged(path, str(error)) from None
        if not stat.S_ISREG(status.st_mode):
            raise damaged(path, "is not a file")
        if status.st_size != file.bytes:
            raise damaged(path, f"has {status.st_size} bytes instead of {file.bytes}")


def _check_inside(path: Path, root: Path) -> None:
    """Raise an error if a path leaves a folder through a link; the caller adds the path."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.join(os.path.realpath(root), "")):
        raise ValueError(f"is a link to {real}, outside of the folder")


def check_file(path: Path, entry: FileEntry) -> None:
    """Compare the contents of a file with its SHA-256; `StoreError` if they differ or cannot be read."""
    try:
        same = sha256(path) == entry.sha256
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from None
    if not same:
        raise damaged(path, "its contents have changed")
