"""Local copies of datasets in object stores, bounded in size; the least recently read are removed first.

A copy is a folder under ``$BIGMC_CACHE/copies`` (by default ``~/.cache/bigmc/copies``) with a lock file
beside it. A reader holds a shared lock, which the system releases when the process dies. Removing a copy
needs the exclusive lock. The time of the lock file is when the copy was last opened.

``$BIGMC_CACHE_SIZE``, such as ``200GB``, bounds the copies; without it they may take half of the
free disk space. Unused copies are deleted before files are downloaded. Copies in use are never
removed, even if they exceed the bound.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import weakref
from pathlib import Path

from bigmc.budget import parse_bytes
from bigmc.errors import BigmcError
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, remove_tree

_LOCK = ".lock"
#: Free at least this share of the bound at a time, so that copies are seldom counted.
_STEP = 1 / 16
#: Default share that copies may take of the disk's free bytes plus their own.
_DEFAULT = 0.5


def cache_folder() -> Path:
    """Return the folder for local copies of objects in stores."""
    folder = os.environ.get("BIGMC_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "bigmc"


class Copy:
    """The local copy of a dataset in `folder`; kept while any process has an object of this class."""

    def __init__(self, name: str) -> None:
        self.folder = copies_folder() / name
        disk.make_folder(self.folder.parent)
        handle = _locked(_lock_of(self.folder), fcntl.LOCK_SH)
        assert handle is not None
        weakref.finalize(self, os.close, handle)
        disk.make_folder(self.folder)
        self._handle = handle
        self._room = 0
        self._counting = threading.Lock()

    @property
    def is_there(self) -> bool:
        """Whether it still exists."""
        return _is_named(self._handle, _lock_of(self.folder)) and self.folder.exists()

    def touch(self) -> None:
        """Record that it was opened now."""
        os.utime(self._handle)

    def make_room(self, n_bytes: int) -> None:
        """Remove unused copies, least recently opened first, to make space for new bytes.

        `BigmcError` if ``$BIGMC_CACHE_SIZE`` is no size.
        """
        with self._counting:
            if self._room < n_bytes:
                sizes = {folder: _size(folder) for folder in _copies()}
                bound = _bound(sum(sizes.values()))
                self._room = max(n_bytes, int(_STEP * bound))
                excess = sum(sizes.values()) + self._room - bound
                for folder in sorted(sizes, key=_last_opened):
                    if excess > 0 and _removed(folder):
                        excess -= sizes[folder]
            self._room -= n_bytes


_open: weakref.WeakValueDictionary[Path, Copy] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def open_copy(name: str) -> Copy:
    """Return the copy of a name, created if needed and shared within this process."""
    with _opening:
        path = copies_folder() / name
        entry = _open.get(path)
        if entry is None or not entry.is_there:
            entry = _open[path] = Copy(name)
        entry.touch()
        return entry


def copies_folder() -> Path:
    """Return the folder of the copies."""
    return cache_folder() / "copies"


def _copies() -> list[Path]:
    folders = [path for path in copies_folder().iterdir() if path.is_dir()]
    for left in folders:
        if left.name.startswith(".") and left.name.endswith(PARTIAL):  # by a process killed during removal
            disk.try_clear(left)
    return [folder for folder in folders if not folder.name.startswith(".")]


def _removed(folder: Path) -> bool:
    """Remove a copy unless it is in use; return whether it is gone."""
    handle = _locked(_lock_of(folder), fcntl.LOCK_EX | fcntl.LOCK_NB)
    if handle is None:
        return False
    try:
        remove_tree(folder)
        disk.unlink(_lock_of(folder))
    finally:
        os.close(handle)
    return True


def _locked(lock: Path, how: int) -> int | None:
    """Return the handle of an acquired lock file; None if it is held elsewhere and must not wait."""
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, how)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_named(handle, lock):
            return handle
        os.close(handle)  # the previous holder has removed the file


def _is_named(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _last_opened(folder: Path) -> float:
    try:
        return _lock_of(folder).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # renamed in the meantime
                continue
    return total


def _bound(n_bytes: int) -> int:
    """Return the bytes that copies may take, given how many they take now."""
    text = os.environ.get("BIGMC_CACHE_SIZE")
    if not text:
        return int(_DEFAULT * (n_bytes + shutil.disk_usage(copies_folder()).free))
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise BigmcError(
            f"BIGMC_CACHE_SIZE: {error}", "set it to a size such as 200GB, or unset it"
        ) from None
