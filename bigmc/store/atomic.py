"""Files that are either complete or absent, whatever kills the process that writes them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from bigmc.errors import BusyError
from bigmc.store.layout import FileEntry

#: Ending of everything not yet in place; what a killed writer leaves behind.
PARTIAL = ".partial"

_READ_BYTES = 1 << 20


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_tree(folder: Path) -> None:
    """Make every file and every name under `folder` survive a power cut."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            handle = os.open(os.path.join(root, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        fsync_folder(Path(root))


def remove_tree(folder: Path) -> None:
    """Remove a folder so that it is all there or not at all, whatever kills the process."""
    aside = folder.with_name(f".{folder.name}{PARTIAL}")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        os.replace(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file aside for writing; on leaving it is renamed to `path`, on an error removed.

    Readers see the old contents or the new, never a part.
    """
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # mkstemp makes files private
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file so that readers see the old contents or the new."""
    with replacing(path) as file:
        file.write(content)


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


@contextmanager
def exclusive(lock: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `lock`; the system releases it when the process dies, however it dies.

    Parameters
    ----------
    lock : Path
        Made if it is not there.
    wait : bool, optional
        Wait for whoever holds it, instead of refusing.

    Raises
    ------
    BusyError
        If another process, or another thread of this one, holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock, timeout=-1 if wait else 0)
    try:
        held.acquire()
    except Timeout:
        raise BusyError(
            f"another process is writing {lock.parent.parent} (lock {lock})", "wait for it to end"
        ) from None
    try:
        yield
    finally:
        held.release()
