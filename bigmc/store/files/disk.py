"""All changes that bigmc makes to a disk, one system call each.

Only these functions write datasets, models, checkpoints and results, so a test can record the calls, stop
the process between any two of them, or make any of them fail. Two exceptions are scratch files, which last
only for a run, and the locks of ``filelock``.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview

_BUFFER_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OVER = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class SystemCalls:
    """The system calls; tests replace `calls` by an object of a subclass."""

    def open(self, path: str, flags: int) -> int:
        """Open a file and return its handle; a new file gets permissions by the user's umask."""
        return os.open(path, flags, 0o666)

    def write(self, handle: int, content: Bytes, offset: int) -> int:
        """Write to a place in a file and return how many bytes were written, which may be fewer."""
        return os.pwrite(handle, content, offset)

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file, or extend it with zeros."""
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """Sync a file's contents, or a folder's names, to survive a power cut."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder, replacing a file or empty folder of that name."""
        os.replace(source, target)

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        os.mkdir(path)

    def unlink(self, path: str) -> None:
        """Remove a name of a file."""
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)


calls = SystemCalls()
"""The calls of this process."""


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add the file to an error of a system call that knows only its handle."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


class OutputFile(io.RawIOBase):
    """A file open for writing; it has no ``fileno``, so all writes go through `calls`."""

    def __init__(self, path: str, handle: int) -> None:
        super().__init__()
        self.name = path
        self._handle = handle
        self._at = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: Any) -> int:
        """Write bytes, perhaps fewer than given, and return how many."""
        with naming(self.name):
            written = calls.write(self._handle, content, self._at)
        self._at += written
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seek, and return the new position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._handle).st_size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the position of the next write."""
        return self._at

    def truncate(self, size: int | None = None) -> int:
        """Cut the file and return its size."""
        size = self._at if size is None else size
        with naming(self.name):
            calls.truncate(self._handle, size)
        return size

    def sync(self) -> None:
        """Make the contents survive a power cut."""
        with naming(self.name):
            calls.sync(self._handle)

    def lock(self) -> None:
        """Hold the file's lock until it is closed, where the file system has locks."""
        with suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_EX)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            with naming(self.name):
                calls.close(self._handle)


def new_file(path: Path | str) -> OutputFile:
    """Create a new file and open it for writing."""
    return OutputFile(str(path), calls.open(str(path), _NEW))


def extend_file(path: Path | str, size: int) -> OutputFile:
    """Open a file to write after its first `size` bytes; truncate the rest, create a missing file."""
    file = OutputFile(str(path), calls.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    file.truncate(size)
    file.seek(size)
    return file


@contextmanager
def output(path: Path | str) -> Iterator[IO[bytes]]:
    """Open a file for overwriting."""
    with buffered(OutputFile(str(path), calls.open(str(path), _OVER))) as file:
        yield file


@contextmanager
def buffered(raw: OutputFile) -> Iterator[IO[bytes]]:
    """Write to a file through a buffer, and close it at the end."""
    file = io.BufferedWriter(raw, _BUFFER_BYTES)
    try:
        yield cast(IO[bytes], file)
        file.flush()
    except BaseException:
        with suppress(OSError):  # report the first error
            raw.close()
        raise
    raw.close()


def write_file(path: Path | str, content: Bytes) -> None:
    """Overwrite a file; neither atomic nor synced."""
    raw = OutputFile(str(path), calls.open(str(path), _OVER))
    try:
        left = memoryview(content)
        while len(left):
            left = left[raw.write(left) :]
    finally:
        raw.close()


def sync(path: Path | str) -> None:
    """Make the contents of a file, or the names in a folder, survive a power cut."""
    is_folder = os.path.isdir(path)
    handle = calls.open(str(path), _DIRECTORY if is_folder else os.O_RDONLY | os.O_CLOEXEC)
    with naming(path):
        try:
            calls.sync(handle)
        finally:
            calls.close(handle)


def sync_tree(folder: Path) -> None:
    """Sync every file and folder under `folder`, to survive a power cut."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(os.path.join(root, name))
        sync(root)


def rename(source: Path | str, target: Path | str) -> None:
    """Give a file or folder another name, replacing the file or empty folder that has it."""
    calls.rename(str(source), str(target))


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents; `FileExistsError` if there is a file of that name."""
    try:
        _make_folder(path)
    except FileNotFoundError:
        if path.parent.is_dir():  # made meanwhile, or on a file system, such as /proc, that says this always
            _make_folder(path)
            return
        make_folder(path.parent)
        make_folder(path)


def _make_folder(path: Path) -> None:
    try:
        calls.mkdir(str(path))
    except FileExistsError:
        if not path.is_dir():
            raise


def unlink(path: Path | str) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError):
        calls.unlink(str(path))


def clear(path: Path) -> None:
    """Remove a file, or a folder with its contents, if it exists; links are not followed."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        unlink(path)
        return
    for root, folders, names in os.walk(path, topdown=False):
        for name in names:
            unlink(os.path.join(root, name))
        for name in folders:
            inner = os.path.join(root, name)
            if os.path.islink(inner):
                unlink(inner)
            else:
                _remove_folder(inner)
    _remove_folder(path)


def _remove_folder(path: Path | str) -> None:
    with suppress(FileNotFoundError):
        calls.rmdir(str(path))


def try_clear(path: Path) -> None:
    """Remove an unneeded file or folder, ignoring errors."""
    with suppress(OSError):
        clear(path)


def save_array(path: Path | str, array: NDArray[Any]) -> None:
    """Write an array as ``.npy``; neither atomic nor synced."""
    import numpy as np

    with output(path) as file:
        np.save(file, array, allow_pickle=False)
