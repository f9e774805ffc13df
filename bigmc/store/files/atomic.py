"""Write files atomically: complete or absent, even if the process is killed."""

from __future__ import annotations

import fcntl
import glob
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

#: Extension of files not yet in place, which killed writers leave behind.
PARTIAL = ".partial"

_FOLDER_TRIALS = 20


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, ``FOLDER.partial``; at the end it is synced and takes the place of `folder`."""
    aside = folder.with_name(folder.name + PARTIAL)
    disk.clear(aside)
    disk.make_folder(aside)
    yield aside
    disk.sync_tree(aside)
    disk.clear(folder)
    disk.rename(aside, folder)
    disk.sync(folder.parent)


def remove_tree(folder: Path) -> None:
    """Remove a folder atomically: after a kill it is complete or gone."""
    aside = folder.with_name(f".{folder.name}{PARTIAL}")
    disk.try_clear(aside)
    if folder.exists():
        disk.rename(folder, aside)
        disk.try_clear(aside)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; at the end it is renamed to `path`, on an error removed.

    Readers see the old contents or the new, never a part. Temporary files of killed writers are removed.
    """
    _remove_leftovers(path)
    raw = _open_aside(path)
    try:
        with disk.buffered(raw) as file:
            yield file
            file.flush()
            raw.sync()
            disk.rename(raw.name, path)  # still locked, so no process treats it as a leftover
    except BaseException:
        with suppress(OSError):
            disk.unlink(raw.name)
        raise
    disk.sync(path.parent)


def _open_aside(path: Path) -> disk.OutputFile:
    """Return a new file beside `path`, locked while it is open to show that its writer is alive."""
    while True:
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
        raw = disk.new_file(aside)
        raw.lock()
        if aside.exists():  # not removed between the two calls above
            return raw
        raw.close()


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files for `path` whose writers are dead."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the writer is alive
                disk.unlink(leftover)
            finally:
                os.close(handle)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old contents or the new."""
    with replacing(path) as file:
        file.write(content)


class IfBusy(Enum):
    """What to do if another process holds a lock."""

    REFUSE = "refuse"
    WAIT = "wait"


def _acquire(held: FileLock, folder: Path) -> None:
    """Acquire a lock in a folder that a finishing process may remove at the same time."""
    for _ in range(_FOLDER_TRIALS):
        disk.make_folder(folder)
        with suppress(FileNotFoundError):
            held.acquire()
            return
    disk.make_folder(folder)
    held.acquire()


@contextmanager
def exclusive(lock: Path, if_busy: IfBusy = IfBusy.REFUSE, *, target: Path | None = None) -> Iterator[None]:
    """Hold a lock file, created if missing; the system releases it when the process dies, however it dies.

    `target` is what the holder writes, for the error; by default the folder with that of the lock.
    `BusyError` if another process, or another thread of this one, holds it, and waiting is not requested.
    """
    held = FileLock(lock, timeout=-1 if if_busy is IfBusy.WAIT else 0)
    try:
        _acquire(held, lock.parent)
    except Timeout:
        written = lock.parent.parent if target is None else target
        raise BusyError(f"another process is writing {written} (lock {lock})", "wait for it to end") from None
    try:
        yield
    finally:
        held.release()
