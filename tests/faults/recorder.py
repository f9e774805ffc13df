"""Stands between bigmc and the disk: records every call that changes something, or lets one of them fail."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bigmc.store.files import disk


@dataclass(frozen=True)
class Call:
    """One call: its name, the path it is about, and what it was given besides."""

    name: str
    path: str
    other: str = ""
    content: bytes = b""
    number: int = 0


CHANGES = ("open", "write", "truncate", "sync", "close", "rename", "mkdir", "unlink", "rmdir")


class Recorder(disk.SystemCalls):
    """Carries out the calls and keeps them, those that succeeded.

    Paths are those of the moment; a handle is known by the number of the call that opened it.
    """

    def __init__(self) -> None:
        self.log: list[Call] = []
        self._opened: dict[int, int] = {}

    def open(self, path, flags):
        handle = super().open(path, flags)
        self._opened[handle] = len(self.log)
        kind = "create" if flags & os.O_CREAT else "look"
        self.log.append(Call("open", path, kind, number=flags & os.O_TRUNC))
        return handle

    def write(self, handle, content, offset):
        written = super().write(handle, content, offset)
        given = bytes(memoryview(content).cast("B")[:written])
        self.log.append(Call("write", str(self._opened[handle]), content=given, number=offset))
        return written

    def truncate(self, handle, size):
        super().truncate(handle, size)
        self.log.append(Call("truncate", str(self._opened[handle]), number=size))

    def sync(self, handle):
        super().sync(handle)
        self.log.append(Call("sync", str(self._opened[handle])))

    def close(self, handle):
        super().close(handle)
        self.log.append(Call("close", str(self._opened.pop(handle))))

    def rename(self, source, target):
        super().rename(source, target)
        self.log.append(Call("rename", source, target))

    def mkdir(self, path):
        super().mkdir(path)
        self.log.append(Call("mkdir", path))

    def unlink(self, path):
        super().unlink(path)
        self.log.append(Call("unlink", path))

    def rmdir(self, path):
        super().rmdir(path)
        self.log.append(Call("rmdir", path))


SHORT = 0
"""In place of an error number: a write that writes less than it was given, and says so."""


class Failing(disk.SystemCalls):
    """Lets the n-th call of one name fail, and all after it if asked to, as a full disk does."""

    def __init__(self, name: str, at: int, error: int, lasting: bool = False) -> None:
        self._name, self._at, self._error, self._lasting = name, at, error, lasting
        self.seen = 0
        self.failed = 0

    def _call(self, name, path, *given):
        if name == self._name:
            self.seen += 1
            if self.seen == self._at or (self._lasting and self.seen > self._at):
                self.failed += 1
                if name == "write" and self._error == SHORT:
                    handle, content, offset = given
                    half = memoryview(content).cast("B")[: max(1, len(memoryview(content).cast("B")) // 2)]
                    return super().write(handle, half, offset)
                if name == "close":
                    os.close(given[0])  # the system closes the file all the same
                raise OSError(self._error, os.strerror(self._error), path)
        return getattr(super(), name)(*given)

    def open(self, path, flags):
        return self._call("open", path, path, flags)

    def write(self, handle, content, offset):
        return self._call("write", None, handle, content, offset)

    def sync(self, handle):
        return self._call("sync", None, handle)

    def close(self, handle):
        return self._call("close", None, handle)

    def rename(self, source, target):
        return self._call("rename", target, source, target)

    def mkdir(self, path):
        return self._call("mkdir", path, path)

    def unlink(self, path):
        return self._call("unlink", path, path)

    def rmdir(self, path):
        return self._call("rmdir", path, path)


class FullDisk(disk.SystemCalls):
    """From the n-th call on whatever needs space fails: new files and folders, writes, renames."""

    FAILS = ("write", "truncate", "rename", "mkdir")

    def __init__(self, at: int) -> None:
        self._left = at

    def _space(self, path: str) -> None:
        self._left -= 1
        if self._left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path, flags):
        if flags & os.O_CREAT:
            self._space(path)
        return super().open(path, flags)

    def write(self, handle, content, offset):
        self._space("")
        return super().write(handle, content, offset)

    def truncate(self, handle, size):
        self._space("")
        super().truncate(handle, size)

    def rename(self, source, target):
        self._space(target)
        super().rename(source, target)

    def mkdir(self, path):
        self._space(path)
        super().mkdir(path)


@contextmanager
def instead(calls: disk.SystemCalls):
    """Let these calls be the process's for the time of a block."""
    before, disk.calls = disk.calls, calls
    try:
        yield calls
    finally:
        disk.calls = before


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file under a folder; an empty folder as a name that ends with a slash."""
    found: dict[str, bytes] = {}
    for root, folders, names in os.walk(folder):
        here = Path(root).relative_to(folder).as_posix()
        if not folders and not names:
            found[f"{here}/"] = b""
        for name in names:
            found[f"{here}/{name}"] = (Path(root) / name).read_bytes()
    return found
