"""Local copies of datasets in object stores: bounded in size, the ones read longest ago go first.

A copy is a folder under ``$BIGMC_CACHE/copies`` (by default ``~/.cache/bigmc/copies``) with a lock file
beside it. A reader of a copy holds its lock shared, which the system releases when the process dies, and a
copy is removed only by who holds its lock alone. The time of the lock file is when the copy was last opened.

``$BIGMC_CACHE_SIZE``, such as ``200GB``, bounds the copies; without it they may take half of what the disk
has for them. Before files are downloaded, copies that nobody reads are deleted. What is being read is never
removed: where it alone takes more, the bound is passed.
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
#: Room is made for this part of the bound at least, so that the copies are seldom counted.
_STEP = 1 / 16
#: Part of the disk's free bytes and those of the copies together that they may take by default.
_DEFAULT = 0.5


def cache_folder() -> Path:
    """Return the folder for local copies of what lies in object stores."""
    folder = os.environ.get("BIGMC_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "bigmc"


class Copy:
    """The local copy of a dataset, which stays as long as somebody has an object of this class.

    Attributes
    ----------
    folder : Path
        Its files.
    """

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
        """Whether nobody has removed it by hand."""
        return _is_named(self._handle, _lock_of(self.folder)) and self.folder.exists()

    def touch(self) -> None:
        """Remember that it was opened now."""
        os.utime(self._handle)

    def make_room(self, n_bytes: int) -> None:
        """Remove copies that nobody reads, the ones opened longest ago first, for bytes about to come.

        Raises
        ------
        BigmcError
            If ``$BIGMC_CACHE_SIZE`` is no size.
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
    """Return the copy of a name, made if there is none; one for all that this process reads of it."""
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
        if left.name.startswith(".") and left.name.endswith(PARTIAL):  # by a process killed while it removed
            disk.try_clear(left)
    return [folder for folder in folders if not folder.name.startswith(".")]


def _removed(folder: Path) -> bool:
    """Remove a copy unless somebody reads it; return whether it is gone."""
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
    """Return a handle of a lock file that is held; None if it should not be waited for and another has it."""
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, how)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_named(handle, lock):
            return handle
        os.close(handle)  # who had it before has removed the file


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
            except FileNotFoundError:  # renamed meanwhile
                continue
    return total


def _bound(n_bytes: int) -> int:
    """Return the bytes that copies may take, of which there are so many now."""
    text = os.environ.get("BIGMC_CACHE_SIZE")
    if not text:
        return int(_DEFAULT * (n_bytes + shutil.disk_usage(copies_folder()).free))
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise BigmcError(f"BIGMC_CACHE_SIZE: {error}", "set it to 200GB, say, or leave it out") from None
