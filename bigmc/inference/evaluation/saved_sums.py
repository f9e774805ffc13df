"""Sums over parts of labelled samples, saved beside the result, so that a killed run resumes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.store.files.checkpoint import CHECKPOINT, FileCheckpoint
from bigmc.store.files.outputs import Output, OutputKind
from bigmc.store.files.work_folder import WorkFolder

SECONDS_BETWEEN_SAVES = 2.0
"""Maximum work repeated after a kill, unless saving itself takes long."""

SAVING_SHARE = 0.05
"""Maximum share of the time spent on saving."""


class Sums(Protocol):
    """Sums over the shards of a dataset: numbers and arrays."""

    def add(self, other: Any) -> None:
        """Add the sums of a shard."""

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
    """Yield sums that are saved beside a result, and lock it against other processes.

    They are only in memory if the output is a stream, or `made` is None, because a part of the input is
    only in memory.
    """
    if output.kind is OutputKind.STREAM or made is None:
        yield NOT_SAVED
        return
    with WorkFolder.of(output.path, [CHECKPOINT]).locked() as path:
        yield SavedSums(path, made)
    clear_beside(output)


def clear_beside(output: Output) -> None:
    """Remove the sums beside a finished result."""
    if output.kind is not OutputKind.STREAM:
        WorkFolder.of(output.path, [CHECKPOINT]).clear()
