"""How a run of the boosted learner divides its memory limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, Plan, least_limit, plan_within
from bigmc.kernels.boosting.bins import MAX_EDGES
from bigmc.kernels.boosting.cuts import LANES
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.boosting.restricted_master import tile_rows
from bigmc.solvers.boosting.tables import TABLE_BYTES
from bigmc.store.block import Residency, cut_ranges
from bigmc.store.chosen_columns import AnyColumns

#: Below this relative gap float32 dual weights are too coarse; small ones are float64 anyway.
_SINGLE_PRECISION_TOL = 1e-5
_SMALL_WEIGHTS = 4 << 20
#: Maximum decoded bytes of a streamed block; larger ones are no faster.
_LARGEST_BLOCK = 64 << 20
#: Decoded bytes of a block whose codes are kept: the first with which they fit. The fewer, the fewer tables.
_KEPT_BLOCKS = (_LARGEST_BLOCK, 16 << 20, 4 << 20)
#: Maximum columns of a block: the data kept of each is small compared with the block.
_BLOCK_COLUMNS = 1 << 16
#: Learners of every class that must fit if all codes are kept in memory.
_MANY_LEARNERS = 64
#: Rays of a class that a pass returns, to estimate their length.
_SEVERAL = 20
#: Histograms and stack of a thread.
_THREAD = 3 << 20
#: Part of the limit for threads, if one needs less. It does not depend on their number, since the rest
#: is for answers, and limits the learners that a pass returns, which changes the model.
_THREADS_PART = 8
#: Part of the limit for the histograms of trees, if the codes stay in memory.
_HISTOGRAMS_PART = 8
#: Part of what is left then for the codes side by side: the answers of learners need the rest.
_TABLES_PART = 4
#: Compiled kernels with the pages of LLVM that load them (22 MB were measured, 25 on another machine), chunks
#: being decoded, tables of the learners.
_WORKSPACE = 22 << 20


@dataclass(frozen=True)
class _Needs:
    """Memory that the data and the family of learners need, whatever the limit.

    `fixed` has name and bytes of every array whose size does not depend on the limit; `thread` the bytes
    of one thread; `learner` the maximum bytes of the answer of one learner while it is searched for and
    afterwards; `codes` those of all columns, `decoded` those of what is read to make them;
    `largest_column` those of the smallest block that can hold every column; `entry` those of an entry;
    `columns` is the maximum of a block. `tables` are the bytes of the codes of all columns that trees may
    cut, side by side.
    """

    fixed: tuple[tuple[str, int], ...]
    thread: int
    learner: int
    codes: int
    decoded: int
    largest_column: int
    entry: int
    columns: int
    n_classes: int
    grows_trees: bool
    tables: int

    def threads(self, limit: int) -> int:
        return max(self.thread, limit // _THREADS_PART)

    def resident(self, limit: int) -> list[tuple[str, int]]:
        return [*self.fixed, ("threads", self.threads(limit))]


@dataclass(frozen=True)
class BoostingPlan:
    """Memory plan of a run of the boosted learner.

    `memory` has every resident array by name; answers of learners take the rest, `learner_bytes` at most
    for each. The dual weights are of `dtype`. With `keep_blocks` the codes of all columns stay in memory;
    `ranges` has the features of each block. `parts_at_once` is the number of parts of columns that
    another process, with the same limit, may price at once.
    """

    memory: Plan
    dtype: np.dtype[Any]
    keep_blocks: bool
    ranges: list[tuple[int, int]]
    learner_bytes: int
    n_threads: int
    parts_at_once: int
    histogram_bytes: int
    table_bytes: int
    needs: _Needs
    block_bytes: int | None

    @property
    def n_features(self) -> int:
        """Columns that are read."""
        return self.ranges[-1][1] if self.ranges else 0

    @property
    def residency(self) -> Residency:
        """Where the codes of the columns are kept between two passes."""
        return Residency.MEMORY if self.keep_blocks else Residency.DISK

    def pool(self, wanted: int, n_classes: int, in_use: int) -> int:
        """Return how many learners of each class to search for, given the bytes of the answers in use.

        It is 0 if the answers in use leave no space for another one of every class.
        """
        space = self.memory.free - in_use
        return max(0, min(wanted, space // (self.learner_bytes * n_classes)))

    def limit_for(self, n_bytes: int) -> int:
        """Return the least limit that leaves `n_bytes` for answers of learners."""
        return least_limit(
            lambda limit: _fits(self.needs, limit, self.block_bytes, n_bytes), self.memory.limit
        )


@dataclass(frozen=True)
class _Layout:
    """How a limit is divided; see `BoostingPlan` for the fields."""

    memory: Plan
    keep_blocks: bool
    block_bytes: int
    threads: int
    bytes_of_part: int
    histograms: int
    tables: int


def plan_memory(
    dataset: AnyColumns,
    *,
    limit: int,
    tol: float,
    depth: int,
    cut_kind: CutKind,
    block_bytes: int | None = None,
    left_out: int = 0,
) -> BoostingPlan:
    """Divide the memory limit of a run, in bytes, for a relative gap `tol` and learners of a depth.

    The codes of the columns that trees may cut stay side by side if that takes little of the limit. The
    dataset has `left_out` further features, which are not read. With `block_bytes`, blocks of at most this
    size are streamed although everything might fit.
    `MemoryLimitError` if the limit cannot work, with every item and the least limit that would.
    """
    dtype = _dual_type(dataset, tol)
    needs = _needs(dataset, dtype, depth, cut_kind, left_out)
    layout = plan_within(limit, lambda n_bytes: _layout(needs, n_bytes, block_bytes))
    return BoostingPlan(
        memory=layout.memory,
        dtype=dtype,
        keep_blocks=layout.keep_blocks,
        # Tables of a block's columns: the fewer blocks, the fewer tables.
        ranges=cut_ranges(
            dataset.plan(layout.block_bytes),
            dataset.n_features if layout.keep_blocks and depth > 1 else _BLOCK_COLUMNS,
        ),
        learner_bytes=needs.learner,
        n_threads=layout.threads // needs.thread,
        parts_at_once=1 + layout.memory.free // (layout.bytes_of_part + needs.thread),
        histogram_bytes=layout.histograms,
        table_bytes=layout.tables,
        needs=needs,
        block_bytes=block_bytes,
    )


class _SomeSamples:
    """The size of a share of the samples, as far as a plan needs it."""

    def __init__(self, dataset: AnyColumns, share: float) -> None:
        self.n_features, self.n_classes, self.dtype = dataset.n_features, dataset.n_classes, dataset.dtype
        self.n_samples, self.nnz = math.ceil(share * dataset.n_samples), math.ceil(share * dataset.nnz)
        self.n_shards, self._column_nnz = math.ceil(share * dataset.n_shards), dataset.column_nnz()
        self._share = share

    def column_nnz(self) -> NDArray[np.int64]:
        """Entries of every feature."""
        return np.asarray(np.ceil(self._share * self._column_nnz), np.int64)


def keeps_codes(
    dataset: AnyColumns, limit: int, depth: int, tol: float, left_out: int = 0, share: float = 1.0
) -> bool:
    """Return whether a run of trees within a limit reads the data once and keeps the codes of all columns.

    The run is on a share of the samples, which have `left_out` further features.
    """
    some = _SomeSamples(dataset, share)
    needs = _needs(some, _dual_type(some, tol), depth, CutKind.STUMP, left_out)
    try:
        return _layout(needs, limit, None).keep_blocks
    except MemoryLimitError:
        return False


def _dual_type(dataset: AnyColumns | _SomeSamples, tol: float) -> np.dtype[Any]:
    """Return the precision of the dual weights."""
    double = tol < _SINGLE_PRECISION_TOL or dataset.n_samples * _width(dataset) * 8 <= _SMALL_WEIGHTS
    return np.dtype(np.float64 if double else np.float32)


def _width(dataset: AnyColumns | _SomeSamples) -> int:
    """Return the classes, rounded up to whole vectors."""
    return -(-dataset.n_classes // LANES) * LANES


def _needs(
    dataset: AnyColumns | _SomeSamples, dtype: np.dtype[Any], depth: int, cut_kind: CutKind, left_out: int
) -> _Needs:
    n, n_features, n_classes = dataset.n_samples, dataset.n_features, dataset.n_classes
    column_nnz = dataset.column_nnz()
    longest = int(column_nnz.max(initial=0))
    entry = 2 + dataset.dtype.itemsize
    trees = depth > 1
    fixed = [
        ("labels and weights", 12 * n),
        ("dual weights", n * (_width(dataset) + 2) * dtype.itemsize),
        ("classes as bits", n_classes * n // 8),
        ("entries per feature", 8 * (n_features + left_out)),
        ("edges of the bins", int(np.minimum(column_nnz + 1, MAX_EDGES).sum()) * 8 + 50 * n_features),
        ("workspace", _WORKSPACE),
    ]
    if trees:
        fixed.append(("dual weights by class", 8 * n * n_classes))
        listed = 5 * n if 2 * int(column_nnz.min(initial=n)) <= n else 0
        fixed.append(("codes side by side", max(n, TABLE_BYTES) + listed))
    answer = n // 8 + 64
    if cut_kind is CutKind.RAY:
        # A pass returns different columns: as many as are in a pool, at worst the longest ones.
        several = min(n_features, n_classes * _SEVERAL)
        answer = 4 * int(np.partition(column_nnz, -several)[-several:].mean()) + 64
        fixed.append(("the constant learner", 8 * n))
    held = dataset.nnz * 3 + dataset.n_shards * 8 * (n_features + 1) * (3 if left_out else 1)
    return _Needs(
        fixed=tuple(fixed),
        thread=_THREAD + 16 * n_classes * tile_rows(n_classes) + (4 * n if trees else 0),
        # While a tree grows, it has a bit for every sample and node of the last level.
        learner=2 * answer + (max(2, 2 ** (depth - 4) + 1) * n if trees else 0),
        codes=held,
        decoded=dataset.nnz * entry,
        largest_column=longest * entry + 2 * dataset.n_shards * 8,
        entry=entry,
        columns=min(n_features, _BLOCK_COLUMNS),
        n_classes=n_classes,
        grows_trees=trees,
        tables=n_features * (2 * n + 64) + 4 * n if trees else 0,
    )


def _layout(needs: _Needs, limit: int, block_bytes: int | None) -> _Layout:
    """Return the layout of a limit: everything in memory if the learners have space too, else blocks."""
    items, threads = needs.resident(limit), needs.threads(limit)
    histograms = limit // _HISTOGRAMS_PART if needs.grows_trees else 0
    for largest in _KEPT_BLOCKS if block_bytes is None else ():
        block = max(largest, needs.largest_column)
        codes = needs.codes + min(needs.decoded, block)
        kept = [*items, ("codes", codes), ("histograms", histograms)]
        spare = Plan.of(limit, kept).free - _MANY_LEARNERS * needs.learner * needs.n_classes
        if spare >= 0:
            tables = min(needs.tables, spare // _TABLES_PART)
            in_memory = Plan.of(limit, [*kept, ("tables of codes", tables)])
            return _Layout(in_memory, True, block, threads, largest, histograms, tables)
    if block_bytes is None:
        block_bytes = min(_LARGEST_BLOCK, Plan.of(limit, items).free // 5)
    block_bytes = max(block_bytes, needs.largest_column)
    blocks = 2 * block_bytes + block_bytes // needs.entry + 64 * needs.columns
    items.append(("two blocks", blocks))
    learners = ("learners", needs.learner * needs.n_classes)
    Plan.of(limit, [*items, learners]).check("training the boosted learner")
    return _Layout(Plan.of(limit, items), False, block_bytes, threads, blocks, 0, 0)


def _fits(needs: _Needs, limit: int, block_bytes: int | None, n_bytes: int) -> bool:
    """Return whether a limit leaves `n_bytes` for answers."""
    try:
        return _layout(needs, limit, block_bytes).memory.free >= n_bytes
    except MemoryLimitError:
        return False
