"""Compressed arrays in memory as far as they fit, else in a scratch file that ends with the process."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from bigmc.store.files import disk


class Codec(NamedTuple):
    """How Blosc compresses an array."""

    name: bytes
    level: int
    shuffle: int


SMALL = Codec(b"zstd", 1, blosc.BITSHUFFLE)
"""Few bytes: for what is read often."""
QUICK = Codec(b"lz4", 5, blosc.SHUFFLE)
"""For arrays of wide elements that are read a few times. Of samples in row order (a table, texts, long
texts), places of 4 bytes take .29 to .53 of their size, written with 1.1 to 3.7 GB/s; with `SMALL` they take
.39 to .49 with .6 to .7. Numbers of 8 bytes take .36 with 1.2 GB/s, and .37 with .3."""


class Stored(NamedTuple):
    """Where a compressed array lies in memory or else in the file, and its size in elements."""

    offset: int
    n_bytes: int
    size: int
    held: bool = False

    @classmethod
    def of(cls, place: NDArray[np.int64]) -> Stored:
        """Return what a row of `ShardPlaces` says."""
        offset, n_bytes, size, held = place.tolist()
        return cls(offset, n_bytes, size, bool(held))

    @property
    def file_bytes(self) -> int:
        """Bytes in the file."""
        return 0 if self.held else self.n_bytes


@dataclass(frozen=True)
class ShardPlaces:
    """Where the arrays of every part of a shard lie.

    Attributes
    ----------
    starts : int64 array of shape (n_parts + 1,)
        Number of the first array of each part.
    rows : int64 array of shape (n_arrays, 4)
        A `Stored` each. Tens of thousands of them would take ten times the memory as objects.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, stored: Mapping[int, Sequence[Stored]], n_parts: int) -> ShardPlaces:
        """Return the places of arrays by the number of their part, increasing; other parts have none."""
        sizes = [len(stored.get(part, ())) for part in range(n_parts)]
        rows = np.array([place for some in stored.values() for place in some], np.int64)
        return cls(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]), rows.reshape(-1, 4))

    @property
    def parts(self) -> list[int]:
        """Parts that have arrays."""
        found: list[int] = np.flatnonzero(np.diff(self.starts)).tolist()
        return found

    def of_part(self, part: int) -> NDArray[np.int64]:
        """Return the places of the arrays of a part, shape (n_arrays, 4); changes to them are kept."""
        return self.rows[self.starts[part] : self.starts[part + 1]]

    def stored(self, part: int) -> list[Stored]:
        """Return the same as objects."""
        return [Stored.of(place) for place in self.of_part(part)]

    def file_bytes(self, part: int) -> int:
        """Return the bytes of a part that are in the file."""
        places = self.of_part(part)
        return int(places[places[:, 3] == 0, 1].sum())


class ScratchArrays:
    """Writes arrays once and reads them any number of times, both from several threads; held by one alone.

    Parameters
    ----------
    folder : Path or None
        Of the file, by default the system's for temporary files.
    most_held : int
        Bytes of compressed arrays that stay in memory, at most. They lie in one block of that size: many
        small ones between other arrays would leave holes.

    Attributes
    ----------
    held_bytes : int
        Of compressed arrays in memory.
    written_bytes : int
        Of compressed arrays in the file.
    """

    def __init__(self, folder: Path | None, most_held: int) -> None:
        self._held, self.held_bytes = _pages(most_held), 0
        handle, self._name = tempfile.mkstemp(prefix="bigmc-columns-", dir=folder)
        os.unlink(self._name)  # the system removes it with the last descriptor, however the process ends
        self._file = handle
        self.written_bytes, self._lock = 0, threading.Lock()

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)

    def drop_held(self) -> None:
        """Give back the memory of what is held, which can no longer be read."""
        self._held, self.held_bytes = _pages(0), 0

    def give_back(self, stop: int) -> None:
        """Give back the memory of what is held before an offset, which can no longer be read."""
        pages = stop // mmap.PAGESIZE * mmap.PAGESIZE
        if pages:
            self._held.madvise(mmap.MADV_DONTNEED, 0, pages)

    def hold(self, array: NDArray[Any]) -> Stored:
        """Keep an array in memory where it fits, else write it into the file."""
        data = _compressed(array)
        start, stop = self.held_bytes, self.held_bytes + len(data)
        if stop > len(self._held):
            return self._put(data, len(array))
        self._held[start:stop] = data
        self.held_bytes = stop
        return Stored(start, len(data), len(array), held=True)

    def write(self, array: NDArray[Any], codec: Codec = SMALL) -> Stored:
        """Write an array into the file."""
        return self._put(_compressed(array, codec), len(array))

    def read(self, stored: Stored, out: NDArray[Any]) -> NDArray[Any]:
        """Decode an array into the front of `out`, which has its dtype and at least its size."""
        wanted = out[: stored.size]
        if stored.size:
            start, n_bytes = stored.offset, stored.n_bytes
            held = memoryview(self._held)[start : start + n_bytes] if stored.held else None
            blosc.decompress(os.pread(self._file, n_bytes, start) if held is None else held, wanted)
        return wanted

    def _put(self, data: bytes, size: int) -> Stored:
        with self._lock:
            start = self.written_bytes
            self.written_bytes += len(data)
        written = 0
        while written < len(data):
            with disk.naming(self._name):
                written += os.pwrite(self._file, data[written:], start + written)
        return Stored(start, len(data), size)


def _pages(n_bytes: int) -> mmap.mmap:
    """Return memory that can be given back page by page."""
    return mmap.mmap(-1, max(n_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _compressed(array: NDArray[Any], codec: Codec = SMALL) -> bytes:
    return bytes(blosc.compress(np.ascontiguousarray(array), *codec)) if len(array) else b""
