"""Unfinished work of a command that may be killed, in a folder next to its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from bigmc.errors import DataError
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, exclusive

LOCK = "lock"


@dataclass(frozen=True)
class WorkFolder:
    """The folder of the unfinished work of a command.

    `target` is what the command makes, for messages. `own` are names, or patterns of them, of what the
    command may leave in the folder besides its lock and half-written files.
    """

    path: Path
    target: Path
    own: Sequence[str]

    @classmethod
    def of(cls, target: Path, own: Sequence[str]) -> WorkFolder:
        """Return the folder ``TARGET.wip`` beside a file."""
        return cls(target.with_name(f"{target.name}.wip"), target, own)

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Hold the folder against other processes, and remove half-written files of killed ones.

        An error before there is any work, such as a refused memory limit, leaves no folder.
        `DataError` if the folder holds something else, `BusyError` if another process makes the same
        result.
        """
        if not self._is_own():
            raise DataError(f"{self.path} is not a folder of unfinished work", "give another --to")
        disk.make_folder(self.path.parent)  # of an object there may be nothing on this machine yet
        with exclusive(self.path / LOCK, target=self.target):
            for leftover in self.path.glob(f"*{PARTIAL}"):
                disk.unlink(leftover)
            try:
                yield self.path
            except BaseException:
                if not self._has_work():
                    self.clear()
                raise

    def forget(self) -> None:
        """Remove the work, within `locked`, where to go on with it would fail again."""
        for entry in self.path.iterdir():
            if entry.name != LOCK:
                disk.try_clear(entry)

    def clear(self) -> None:
        """Remove the folder once the result is in place; another's is left alone."""
        if self._is_own():
            disk.try_clear(self.path)

    def _has_work(self) -> bool:
        return any(entry.name != LOCK and entry.stat().st_size for entry in self.path.iterdir())

    def _is_own(self) -> bool:
        return holds_only(self.path, (LOCK, *self.own))


def holds_only(folder: Path, names: Iterable[str]) -> bool:
    """Return whether all that a folder has is half-written or has one of these names, or patterns of them.

    Without a folder that is so.
    """
    if not folder.is_dir():
        return not folder.exists()
    own = (f"*{PARTIAL}", *names)
    return all(any(fnmatch(entry.name, name) for name in own) for entry in folder.iterdir())
