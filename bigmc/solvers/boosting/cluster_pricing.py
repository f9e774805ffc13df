"""Pricing on workers that share files with this process, and no memory: each reads and prices some columns.

Two layouts were weighed, for n samples in d features of b bins on average, and K classes (padded to w):

=====================  =========================================  ===============================
layout                 moved in a round                           besides
=====================  =========================================  ===============================
workers price columns  the dual weights to each machine:          answers of the added learners:
(this module)          ``n w 4`` bytes (8 in double precision)    n/8 bytes each, 4 per entry for rays
workers price shards   a histogram of every column from each      the same
                       worker: ``d b w 8`` bytes, to be added up
=====================  =========================================  ===============================

Hashed text has many columns for its samples (package descriptions, 63,666 rows and 58 classes in 2^18
columns of two bins: 268 MB of histograms from each worker against 16 MB of weights), and sums over shards
would make the model depend on how these were cut. So columns it is: every column is summed up by one worker
in the order of the rows, and the bits are those of threads. The weights go through one file per round in a
folder that all workers see, and are mapped, not copied, where it is a local disk. Codes are never moved: a
worker reads its columns from the dataset, and keeps them where the plan allows it.

**Where it does not pay.** The restricted master problem, and with it ``n w`` dual weights, stays in this
process: only the passes over the columns are spread. A pass adds w numbers for each of the entries of a
row (about 1.5e9 per second and thread), and moves 4 w bytes of the row to each machine: with 1 GB/s
between machines a row wants some 10 entries or more for each machine to be worth it. On many rows with
few entries (short words: 13.5 M rows, 1.3 GB of weights a round) threads on one machine should be as fast.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.solvers.boosting.binning import BinnedSource, equal_parts
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.boosting.pricing import Best, Place, answers_in, scan_cuts
from bigmc.store.block import Residency
from bigmc.store.chosen_columns import AnyColumns
from bigmc.store.files import disk

T = TypeVar("T")

#: Parts per part that runs at once, so that no worker waits long for the last.
_PARTS_EACH = 4
#: Prefix of folders with files for workers.
_FOLDER = "bigmc-columns-"


@dataclass(frozen=True)
class Columns:
    """What a worker needs to read some columns as codes; small, and plain data.

    The arrays of this run are in `folder`, which no other run has. `ranges` has the features of each
    part. If codes are kept in memory, it is that of the worker that read them.
    """

    folder: str
    dataset: AnyColumns
    ranges: tuple[tuple[int, int], ...]
    blocks: Residency
    max_bins: int
    cut_kind: CutKind

    def array(self, name: str) -> NDArray[Any]:
        """Return an array of the run, mapped from its file."""
        return _mapped(f"{self.folder}/{name}.npy")

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Write an array for the workers, atomically."""
        aside = f"{self.folder}/{name}.partial"
        disk.save_array(aside, array)
        disk.rename(aside, f"{self.folder}/{name}.npy")

    def remove(self, name: str) -> None:
        """Remove an array; workers that have mapped it keep it until they drop it."""
        disk.unlink(f"{self.folder}/{name}.npy")

    def part_of(self, feature: int) -> int:
        """Return the part that contains a feature."""
        return int(np.searchsorted([hi for _, hi in self.ranges], feature, side="right"))


def worker_ranges(
    dataset: AnyColumns, ranges: Sequence[tuple[int, int]], n_workers: int
) -> list[tuple[int, int]]:
    """Return the ranges of features cut into parts of about equal work, several for each worker."""
    nnz = dataset.column_nnz()
    pieces = -(-_PARTS_EACH * n_workers // max(len(ranges), 1))
    return [
        (lo + first, lo + stop) for lo, hi in ranges for first, stop in equal_parts(nnz[lo:hi] + 1, pieces)
    ]


@contextmanager
def columns_of(
    dataset: AnyColumns,
    ranges: Sequence[tuple[int, int]],
    blocks: Residency,
    max_bins: int,
    counted: NDArray[np.bool_],
    cut_kind: CutKind,
    scratch: Path | None,
) -> Iterator[Columns]:
    """Yield the columns of a dataset, with a folder of their own in `scratch`."""
    for leftover in [] if scratch is None else scratch.glob(f"{_FOLDER}*"):
        disk.try_clear(leftover)  # of a killed run
    if scratch is not None:
        disk.make_folder(scratch)
    folder = str(Path(tempfile.mkdtemp(prefix=_FOLDER, dir=scratch)).resolve())
    columns = Columns(folder, dataset, tuple(ranges), blocks, max_bins, cut_kind)
    try:
        columns.write("counted", counted)
        yield columns
    finally:
        disk.try_clear(Path(folder))


class WorkerScan:
    """Reads the columns part by part on workers; the same bits as `pricing.LocalScan`."""

    def __init__(self, columns: Columns, engine: Engine) -> None:
        self._columns, self._workers = columns, engine
        self._edges: dict[int, NDArray[np.float64]] = {}
        self._round = 0
        self.bytes_read = 0

    def edges_of(self, feature: int) -> NDArray[np.float64]:
        """Return the edges of the bins of a feature."""
        if feature not in self._edges:  # of a learner that had weight before this run was resumed
            self.answers([(feature, 0, 0)])
        return self._edges[feature]

    def find(self, u: NDArray[Any], totals: NDArray[np.float64], best: Best) -> dict[Place, NDArray[Any]]:
        """Merge the best cuts of all columns into `best`; their answers are requested afterwards."""
        self._round += 1
        name = f"duals-{self._round}"
        self._columns.write(name, u)
        parts = range(len(self._columns.ranges))
        shared = (self._columns, name, totals, best.shape)
        for _, (part_best, n_bytes) in self._workers.map(_price_part, parts, *shared):
            best.merge(part_best)
            self.bytes_read += n_bytes
        self._columns.remove(name)
        return {}

    def answers(self, places: Sequence[Place]) -> dict[Place, NDArray[Any]]:
        """Return the answers of cuts; remember the edges of their columns."""
        by_part: dict[int, list[Place]] = {}
        for place in sorted(places):
            by_part.setdefault(self._columns.part_of(place[0]), []).append(place)
        answers: dict[Place, NDArray[Any]] = {}
        answered = self._workers.map(_answer_part, by_part.items(), self._columns)
        for _, (part_answers, edges, n_bytes) in answered:
            answers |= part_answers
            self._edges |= edges
            self.bytes_read += n_bytes
        return answers


def _price_part(
    part: int, columns: Columns, name: str, totals: NDArray[np.float64], shape: tuple[int, int]
) -> tuple[Best, int]:
    """Return the best cuts of the columns of a part, and the bytes read."""
    source = _source(columns, part)
    before, best, u = source.bytes_read, Best.none(*shape), columns.array(name)
    for block in source.stream():
        best.merge(scan_cuts(block, u, totals, shape, ThreadEngine(1), cut_kind=columns.cut_kind))
    return best, source.bytes_read - before


def _answer_part(
    asked: tuple[int, list[Place]], columns: Columns
) -> tuple[dict[Place, NDArray[Any]], dict[int, NDArray[np.float64]], int]:
    """Return the answers of some cuts of a part, the edges of their columns, and the bytes read."""
    part, places = asked
    source = _source(columns, part)
    before = source.bytes_read
    answers: dict[Place, NDArray[Any]] = {}
    scratch = None if columns.cut_kind is CutKind.RAY else np.empty(columns.dataset.n_samples, np.uint8)
    for block in source.stream():
        in_block = [place for place in places if block.lo <= place[0] < block.hi]
        answers |= answers_in(block, in_block, scratch)
    edges = {feature: source.edges_of(feature).copy() for feature, _, _ in places}
    return answers, edges, source.bytes_read - before


def _source(columns: Columns, part: int) -> BinnedSource:
    """Return a part's columns, with the edges and codes that this worker already has."""

    def make() -> BinnedSource:
        counted, ranges = columns.array("counted"), [columns.ranges[part]]
        return BinnedSource(
            columns.dataset, ranges, columns.blocks, columns.max_bins, counted, ThreadEngine(1)
        )

    return _SOURCES.get(columns.folder, part, make)


class RunCache(Generic[T]):
    """Objects that a worker's process keeps for one run: made at their first use, dropped by the next run."""

    def __init__(self) -> None:
        self._lock, self._run = threading.Lock(), ""
        self._kept: dict[int, T] = {}

    def get(self, run: str, key: int, make: Callable[[], T]) -> T:
        """Return the object kept for a run, whose name is unique, under a key; made if it is missing."""
        with self._lock:
            if run != self._run:
                self._run, self._kept = run, {}
            if key not in self._kept:
                self._kept[key] = make()
            return self._kept[key]


_SOURCES: RunCache[BinnedSource] = RunCache()


@lru_cache(maxsize=3)
def _mapped(path: str) -> NDArray[Any]:
    # Copy on write: kernels are compiled for writable arrays, but do not write here.
    array: NDArray[Any] = np.load(path, mmap_mode="c")
    return array
