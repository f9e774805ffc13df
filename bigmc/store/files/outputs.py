"""Where a command may write its result: never over an input, and only over its own files.

A result that does not record how it was made has a receipt beside it, the hidden file
``.NAME.receipt.json``. If a command finds its own receipt and an unchanged result, it has nothing to do. Any
other existing file is refused unless it may be replaced. Devices and pipes are written to directly.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from bigmc.errors import DataError
from bigmc.store.files import disk
from bigmc.store.files.atomic import write_atomic
from bigmc.store.files.layout import sha256
from bigmc.store.files.object_store import Address, is_remote
from bigmc.store.files.receipt import Receipt

STDOUT = "-"
"""Name of the standard output of the process."""

_STANDARD = {STDOUT: 1, "/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/")


class IfExists(Enum):
    """What to do if the output exists, by the value of the option ``overwrite``."""

    REFUSE = False
    REPLACE = True


class OutputKind(Enum):
    """Kinds of outputs."""

    FILE = "file"
    STREAM = "stream"
    OBJECT = "object"


@dataclass(frozen=True)
class Output:
    """The output of a command.

    `name` is as the user gave it. `path` is the file, with symbolic links resolved; for a stream the
    device or pipe; for an object the local file that is built first.
    """

    name: str
    path: Path
    kind: OutputKind

    @classmethod
    def at(cls, to: str | os.PathLike[str], option: str = "--to") -> Output:
        """Return the output at a user's path or address, or ``-`` for standard output.

        `DataError`, naming the option that gave it, if it is a folder, or its folder does not exist.
        """
        name = os.fspath(to)
        if is_remote(name):
            address = Address(name)
            return cls(address.url, address.building / address.name, OutputKind.OBJECT)
        if _is_stream(name):
            return cls(name, Path(name), OutputKind.STREAM)
        path = Path(os.path.realpath(name))
        if path.is_dir():
            raise DataError(f"{name} is a folder", f"give the path of a file with {option}")
        if not path.parent.is_dir():
            raise DataError(f"there is no folder {Path(name).parent}", f"create it, or give another {option}")
        return cls(name, path, OutputKind.FILE)

    @property
    def rejects(self) -> Path:
        """Local file for the rows that were set aside."""
        return self.path.with_name(f"{self.path.name}.rejects.parquet")

    def exists(self) -> bool:
        """Return whether the file or object exists; False for streams."""
        if self.kind is OutputKind.OBJECT:
            return Address(self.name).exists()
        return self.kind is OutputKind.FILE and self.path.exists()

    def content(self) -> bytes | None:
        """Return the existing file's or object's contents, or None."""
        if self.kind is OutputKind.OBJECT:
            return Address(self.name).read()
        return self.path.read_bytes() if self.exists() else None

    def refuse_existing(self, if_exists: IfExists) -> None:
        """Raise an error if the output exists and may not be replaced."""
        if if_exists is IfExists.REFUSE and self.exists():
            raise _taken(self.name)

    def refuse_existing_rejects(self, if_exists: IfExists) -> None:
        """Raise an error if another file exists in place of the rejects and may not be replaced."""
        if if_exists is IfExists.REPLACE or self.kind is not OutputKind.FILE:
            return
        if self.rejects.exists() and not self._has_own_rejects():
            raise _taken(str(self.rejects))

    def write_new(self, content: bytes, if_exists: IfExists) -> None:
        """Write a small result identified by its content; if it already exists, do nothing.

        The existing file is read once, so a process that writes the same result at the same time is harmless.
        """
        there = self.content()
        if there == content:
            return
        if there is not None and if_exists is IfExists.REFUSE:
            raise _taken(self.name)
        self.write(content)

    def write(self, content: bytes) -> None:
        """Write a small result, replacing an existing one."""
        if self.kind is OutputKind.OBJECT:
            Address(self.name).write(content)
        elif self.kind is OutputKind.STREAM:
            with self.open_stream() as file:
                file.write(content)
        else:
            write_atomic(self.path, content)

    def open_stream(self) -> IO[bytes]:
        """Open a device or a pipe for writing; if this process already has it open, it stays open."""
        descriptor = descriptor_of(self.name)
        if descriptor is None:
            return open(self.path, "wb")
        return os.fdopen(os.dup(descriptor), "wb")

    def deliver(self, file: Path, receipt: Receipt, rejects: Path | None = None) -> None:
        """Put a finished local file in place, with its receipt and rejects.

        The result comes last: after an earlier kill the same command finds no result and repeats this step.
        """
        stale = rejects is None and self._has_own_rejects()
        self.write_receipt(receipt)
        if self.kind is OutputKind.OBJECT:
            if rejects is not None:
                Address(self._beside(self.rejects.name)).put(rejects)
            Address(self.name).put(file)
            return
        if rejects is not None:
            disk.sync(rejects)
            disk.rename(rejects, self.rejects)
        elif stale:
            disk.unlink(self.rejects)
        disk.rename(file, self.path)
        disk.sync(self.path.parent)

    def receipt(self) -> Receipt | None:
        """Return the receipt of the result; None if it is missing, or the result has changed.

        The rejects may have been removed since, but not changed.
        """
        stored = self._stored_receipt()
        if stored is None or stored.sha256 != self.digest():
            return None
        changed = self.kind is OutputKind.FILE and self.rejects.is_file() and not self._has_own_rejects()
        return None if changed and stored.rejects_sha256 else stored

    def is_own(self) -> bool:
        """Return whether the same command wrote the existing file, with any inputs."""
        stored, digest = self._stored_receipt(), self.digest()
        return stored is not None and digest in (stored.sha256, stored.replaces_sha256)

    def digest(self) -> str | None:
        """Return the SHA-256 of the existing output."""
        if not self.exists():
            return None
        return Address(self.name).digest("") if self.kind is OutputKind.OBJECT else sha256(self.path)

    def write_receipt(self, receipt: Receipt) -> None:
        """Write the receipt, which records how the result was made, next to it."""
        if self.kind is OutputKind.OBJECT:
            Address(self._beside(self._receipt_name)).write(receipt.to_json())
        elif self.kind is OutputKind.FILE:
            write_atomic(self.path.with_name(self._receipt_name), receipt.to_json())

    @property
    def _receipt_name(self) -> str:
        return f".{self.path.name}.receipt.json"

    def _beside(self, name: str) -> str:
        return f"{self.name.rsplit('/', 1)[0]}/{name}"

    def _stored_receipt(self) -> Receipt | None:
        if self.kind is OutputKind.OBJECT:
            return Receipt.from_json(Address(self._beside(self._receipt_name)).read())
        file = self.path.with_name(self._receipt_name)
        return (
            Receipt.from_json(file.read_bytes()) if self.kind is OutputKind.FILE and file.is_file() else None
        )

    def _has_own_rejects(self) -> bool:
        """Return whether the file of rejects exists and is unchanged."""
        stored = self._stored_receipt() if self.kind is OutputKind.FILE and self.rejects.is_file() else None
        return stored is not None and stored.rejects_sha256 == sha256(self.rejects)


def refuse_inputs(to: str | os.PathLike[str], inputs: Iterable[Any]) -> None:
    """Raise `DataError` if a target is an input, by any path or link, or inside an input folder.

    The inputs are paths, objects with a path, or lists of these; others are ignored.
    """
    for item in paths_in(inputs):
        _refuse_input(os.fspath(to), item)


def paths_in(inputs: Iterable[Any]) -> Iterator[Any]:
    """Yield all paths among the inputs of a command: files, folders and datasets, possibly in lists."""
    for item in inputs:
        if isinstance(item, list | tuple):
            yield from paths_in(item)
        else:
            yield getattr(item, "path", item)


def _refuse_input(name: str, item: Any) -> None:
    if not isinstance(item, str | os.PathLike):
        return
    source = os.fspath(item)
    if is_remote(name):
        same = name.rstrip("/") == source.rstrip("/") or name.startswith(source.rstrip("/") + "/")
    elif not os.path.exists(name) and not os.path.isdir(source):
        same = False
    else:
        path, source_path = os.path.realpath(name), os.path.realpath(source)
        same = os.path.exists(path) and os.path.exists(source_path) and os.path.samefile(path, source_path)
        same = same or (os.path.isdir(source_path) and Path(source_path) in Path(path).parents)
    if same:
        raise DataError(f"{name} is an input of this command, or inside one", "give another --to")


def _is_stream(name: str) -> bool:
    if descriptor_of(name) is not None:
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def descriptor_of(name: str) -> int | None:
    """Return the file descriptor of this process that a name refers to, or None."""
    for prefix in _DESCRIPTORS:
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal():
            return int(name.removeprefix(prefix))
    return _STANDARD.get(name)


def _taken(name: str) -> DataError:
    return DataError(
        f"{name} exists and is not the result of the same command",
        "give another --to, or replace it with --overwrite",
    )
