"""Files that are either complete or absent, whatever kills the process that writes them."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from bigmc.errors import BusyError
from bigmc.store.files import disk
from bigmc.store.files.layout import FileEntry

#: Ending of everything not yet in place; what a killed writer leaves behind.
PARTIAL = ".partial"

_READ_BYTES = 1 << 20
_FOLDER_TRIALS = 20


def replace_folder(aside: Path, folder: Path) -> None:
    """Put a finished folder, synced, in the place of what is there; a reader sees all or nothing."""
    disk.clear(folder)
    disk.rename(aside, folder)
    disk.sync(folder.parent)


def remove_tree(folder: Path) -> None:
    """Remove a folder so that it is all there or not at all, whatever kills the process."""
    aside = folder.with_name(f".{folder.name}{PARTIAL}")
    disk.try_clear(aside)
    if folder.exists():
        disk.rename(folder, aside)
        disk.try_clear(aside)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file aside for writing; on leaving it is renamed to `path`, on an error removed.

    Readers see the old contents or the new, never a part. What killed writers of the same file have left
    aside is removed.
    """
    _remove_leftovers(path)
    raw = _open_aside(path)
    try:
        with disk.buffered(raw) as file:
            yield file
            file.flush()
            raw.sync()
            disk.rename(raw.name, path)  # still locked: nobody takes it for a leftover
    except BaseException:
        with suppress(OSError):
            disk.unlink(raw.name)
        raise
    disk.sync(path.parent)


def _open_aside(path: Path) -> disk.OutputFile:
    """Return a new file beside `path`, locked as long as it is open: so others know that its writer lives."""
    while True:
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
        raw = disk.new_file(aside)
        raw.lock()
        if aside.exists():  # not removed between the two calls above
            return raw
        raw.close()


def _remove_leftovers(path: Path) -> None:
    """Remove files written aside for `path` whose writers are dead."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the writer lives
                disk.unlink(leftover)
            finally:
                os.close(handle)


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


class IfBusy(Enum):
    """What becomes of a process that wants a lock which another one holds."""

    REFUSE = "refuse"
    WAIT = "wait"


def _acquire(held: FileLock, folder: Path) -> None:
    """Acquire a lock in a folder that a process which has finished may remove at the same moment."""
    for _ in range(_FOLDER_TRIALS):
        disk.make_folder(folder)
        with suppress(FileNotFoundError):
            held.acquire()
            return
    disk.make_folder(folder)
    held.acquire()


@contextmanager
def exclusive(lock: Path, if_busy: IfBusy = IfBusy.REFUSE) -> Iterator[None]:
    """Hold the lock file `lock`; the system releases it when the process dies, however it dies.

    Parameters
    ----------
    lock : Path
        Made if it is not there.

    Raises
    ------
    BusyError
        If another process, or another thread of this one, holds it, and nothing is waited for.
    """
    held = FileLock(lock, timeout=-1 if if_busy is IfBusy.WAIT else 0)
    try:
        _acquire(held, lock.parent)
    except Timeout:
        raise BusyError(
            f"another process is writing {lock.parent.parent} (lock {lock})", "wait for it to end"
        ) from None
    try:
        yield
    finally:
        held.release()
