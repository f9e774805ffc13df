"""Unfinished work of a killed command, in a folder next to its result."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, exclusive
from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.files.outputs import Output, OutputKind

LOCK, CHECKPOINT = "lock", "checkpoint.npz"

SECONDS_BETWEEN_SAVES = 2.0
"""At most so much work is done again after a kill, unless saving takes long itself."""

SAVING_SHARE = 0.05
"""Most of the time that saving takes."""


@dataclass(frozen=True)
class WorkFolder:
    """The folder ``RESULT.wip`` of the command that makes a result.

    `own` names the files that the command may leave in it, besides its lock.
    """

    path: Path
    own: frozenset[str]

    @classmethod
    def of(cls, output: Output, own: frozenset[str]) -> WorkFolder:
        """Return the folder of a result that is a file or an object."""
        return cls(output.path.with_name(f"{output.path.name}.wip"), own)

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
        with exclusive(self.path / LOCK, target=self.path.with_suffix("")):
            for leftover in self.path.glob(f"*{PARTIAL}"):
                disk.unlink(leftover)
            try:
                yield self.path
            except BaseException:
                if not self._has_work():
                    self.clear()
                raise

    def clear(self) -> None:
        """Remove the folder, as after the result is there; another's is left alone."""
        if self._is_own():
            disk.try_clear(self.path)

    def _has_work(self) -> bool:
        return any(entry.name != LOCK and entry.stat().st_size for entry in self.path.iterdir())

    def _is_own(self) -> bool:
        if not self.path.is_dir():
            return not self.path.exists()
        names = {entry.name for entry in self.path.iterdir() if not entry.name.endswith(PARTIAL)}
        return names <= self.own | {LOCK}


class Sums(Protocol):
    """What is added up over the shards of a dataset: numbers and arrays in its attributes."""

    def add(self, other: Any) -> None:
        """Add what a shard gave."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums so far."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the result of `arrays`."""


class FieldSums:
    """Sums that are the fields of a dataclass: numbers and arrays."""

    def add(self, other: Self) -> None:
        """Add the sums of another part."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums as arrays, single numbers as arrays of length 1."""
        return {name: np.atleast_1d(value) for name, value in vars(self).items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the result of `arrays`."""
        for name, value in vars(self).items():
            is_number = isinstance(value, int | float)
            setattr(self, name, type(value)(arrays[name][0]) if is_number else arrays[name])


class SavedSums:
    """Sums over the parts of labelled samples, saved in a folder to survive a kill.

    `made` describes what the sums are of, as JSON data: saved sums of anything else are ignored.
    """

    def __init__(self, folder: Path | None = None, made: Mapping[str, Any] | None = None) -> None:
        self._checkpoint = None if folder is None else FileCheckpoint(folder)
        self._made = json.loads(json.dumps(made))
        self._next_save = time.monotonic() + SECONDS_BETWEEN_SAVES

    def begin(self, sums: Sums) -> int:
        """Fill sums with what was saved of them, and return the part that is next."""
        saved = None if self._checkpoint is None else self._checkpoint.load()
        if saved is None or saved[0]["made"] != self._made or saved[1].keys() != sums.arrays().keys():
            return 0  # of other data, or with probabilities, for which there is no memory now
        sums.restore(saved[1])
        return int(saved[0]["n_done"])

    def add(self, part: int, sums: Sums, counts: Any) -> None:
        """Add the counts of a part; from time to time all sums are saved."""
        sums.add(counts)
        now = time.monotonic()
        if self._checkpoint is not None and now >= self._next_save:
            self._checkpoint.save({"made": self._made, "n_done": part + 1}, sums.arrays())
            took = time.monotonic() - now
            self._next_save = time.monotonic() + max(SECONDS_BETWEEN_SAVES, took / SAVING_SHARE)


NOT_SAVED = SavedSums()
"""Sums that are only in memory."""


@contextmanager
def saved_beside(output: Output, made: Mapping[str, Any] | None) -> Iterator[SavedSums]:
    """Give sums that survive a kill beside a result, which no other process makes meanwhile.

    They are only in memory if the output is a stream, or `made` is None, because a part of the input is
    only in memory.
    """
    if output.kind is OutputKind.STREAM or made is None:
        yield NOT_SAVED
        return
    with WorkFolder.of(output, frozenset([CHECKPOINT])).locked() as path:
        yield SavedSums(path, made)
    clear_beside(output)


def clear_beside(output: Output) -> None:
    """Remove the sums beside a result that is there."""
    if output.kind is not OutputKind.STREAM:
        WorkFolder.of(output, frozenset([CHECKPOINT])).clear()
