"""How a run of the boosted learner divides its memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigmc.budget import MemoryLimitError, Plan, format_bytes
from bigmc.kernels.boosting.bins import MAX_EDGES
from bigmc.kernels.boosting.cuts import LANES
from bigmc.solvers.boosting.restricted_master import TILE_ROWS
from bigmc.solvers.boosting.tree_growth import TABLE_BYTES
from bigmc.store.dataset import Dataset

#: Below this relative gap float32 dual weights are too coarse; small ones are float64 anyway.
_SINGLE_PRECISION_TOL = 1e-5
_SMALL_WEIGHTS = 4 << 20
#: Most decoded bytes of a streamed block; larger ones gain nothing.
_LARGEST_BLOCK = 64 << 20
#: Most columns of a block: what is kept of each while it is worked on is small beside the block.
_BLOCK_COLUMNS = 1 << 16
#: Rays of a class that a pass brings, for an estimate of their length.
_SEVERAL = 20
#: Histograms and stack of a thread.
_THREAD = 3 << 20
#: Part of the limit for threads, where one needs less. It is no matter of how many there are: what is left
#: for answers decides how many learners a pass brings, and so which model comes out.
_THREADS_PART = 8
#: Part of the limit for the histograms of trees, where the codes stay in memory.
_HISTOGRAMS_PART = 8
#: Compiled kernels, chunks being decoded, tables of the learners found.
_WORKSPACE = 18 << 20


@dataclass(frozen=True)
class BoostingPlan:
    """What a run keeps in memory and how.

    Attributes
    ----------
    memory : Plan
        Every resident array by name; answers of learners take what is left.
    dtype : numpy.dtype
        Of the dual weights.
    keep_blocks : bool
        The codes of all columns stay in memory.
    ranges : list of (lo, hi)
        Features of each block.
    learner_bytes : int
        Bytes of the answer of one learner while it is searched for and afterwards, at most.
    n_threads : int
        Threads of this process that may work at once.
    parts_at_once : int
        Parts of columns that another process may price at once, which has the same limit.
    histogram_bytes : int
        Bytes for the histograms of growing trees.
    """

    memory: Plan
    dtype: np.dtype[Any]
    keep_blocks: bool
    ranges: list[tuple[int, int]]
    learner_bytes: int
    n_threads: int
    parts_at_once: int
    histogram_bytes: int

    def pool(self, wanted: int, n_classes: int, in_use: int) -> int:
        """Return how many learners of each class to look for, given the bytes of the answers in use.

        Raises
        ------
        MemoryLimitError
            If there is no room for one.
        """
        each = self.learner_bytes * n_classes
        room = self.memory.free - in_use
        if room < each:
            free, enough = self.memory.free, self.memory.total + 2 * in_use + 4 * each
            raise MemoryLimitError(
                f"the answers of the learners with weight take {format_bytes(in_use)}, and one more for "
                f"every class {format_bytes(each)}, where the memory limit leaves {format_bytes(free)}",
                f"give a memory limit of {format_bytes(enough)}, or a smaller C",
            )
        return min(wanted, room // each)


def plan_memory(
    dataset: Dataset,
    *,
    limit: int,
    tol: float,
    depth: int,
    rays: bool,
    block_bytes: int | None = None,
) -> BoostingPlan:
    """Divide the memory limit of a run of the boosted learner.

    Parameters
    ----------
    dataset : Dataset
    limit : int
        Bytes.
    tol : float
        Relative gap to reach.
    depth : int
        Of the learners.
    rays : bool
        Answers are lists of rows.
    block_bytes : int, optional
        Stream blocks of at most this many bytes although everything might fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work, with every item and the limit that would.
    """
    n, n_features, n_classes = dataset.n_samples, dataset.n_features, dataset.n_classes
    column_nnz = dataset.column_nnz()
    width = -(-n_classes // LANES) * LANES
    double = tol < _SINGLE_PRECISION_TOL or n * width * 8 <= _SMALL_WEIGHTS
    dtype = np.dtype(np.float64 if double else np.float32)
    entry = 2 + dataset.dtype.itemsize
    edges = int(np.minimum(column_nnz + 1, MAX_EDGES).sum()) * 8 + 50 * n_features
    thread = _THREAD + 16 * n_classes * TILE_ROWS + (4 * n if depth > 1 else 0)
    threads = max(thread, limit // _THREADS_PART)
    items = [
        ("labels and weights", 12 * n),
        ("dual weights", n * (width + 2) * dtype.itemsize),
        ("classes as bits", n_classes * n // 8),
        ("entries per feature", 8 * n_features),
        ("edges of the bins", edges),
        ("threads", threads),
        ("workspace", _WORKSPACE),
    ]
    if depth > 1:
        items.append(("dual weights by class", 8 * n * n_classes))
        items.append(("codes side by side", max(n, TABLE_BYTES)))
    longest = int(column_nnz.max(initial=0))
    if rays:
        # A pass brings different columns: as many as are in a pool, the longest ones at worst.
        several = min(n_features, n_classes * _SEVERAL)
        answer = 4 * int(np.partition(column_nnz, -several)[-several:].mean()) + 64
        items.append(("the constant learner", 8 * n))
    else:
        answer = n // 8 + 64
    # A tree is kept as the node of every sample while it grows.
    learner = 2 * answer + (2 * n if depth > 1 else 0)
    columns = min(n_features, _BLOCK_COLUMNS)
    held = dataset.nnz * 3 + dataset.n_shards * 8 * (n_features + 1)
    histograms = limit // _HISTOGRAMS_PART if depth > 1 else 0
    codes = [("codes", held + min(dataset.nnz * entry, _LARGEST_BLOCK)), ("histograms", histograms)]
    in_memory = Plan.of(limit, [*items, *codes])
    # With everything in memory there should be room for the learners too.
    if block_bytes is None and in_memory.free >= 64 * learner * n_classes:
        ranges = _cut(dataset.plan(max(_LARGEST_BLOCK, _smallest(dataset, longest, entry))))
        return BoostingPlan(
            in_memory, dtype, True, ranges, learner, threads // thread,
            1 + in_memory.free // (_LARGEST_BLOCK + thread), histograms,
        )  # fmt: skip
    smallest = _smallest(dataset, longest, entry)
    if block_bytes is None:
        block_bytes = min(_LARGEST_BLOCK, Plan.of(limit, items).free // 5)
    block_bytes = max(block_bytes, smallest)
    blocks = 2 * block_bytes + block_bytes // entry + 64 * columns
    plan = Plan.of(limit, [*items, ("two blocks", blocks)])
    with_one = Plan.of(limit, [*items, ("two blocks", blocks), ("learners", learner * n_classes)])
    with_one.check("training the boosted learner")
    return BoostingPlan(
        plan, dtype, False, _cut(dataset.plan(block_bytes)), learner, threads // thread,
        1 + plan.free // (blocks + thread), 0,
    )  # fmt: skip


def _smallest(dataset: Dataset, longest: int, entry: int) -> int:
    """Return the bytes of the smallest block that can hold every column."""
    return longest * entry + 2 * dataset.n_shards * 8


def _cut(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [
        (start, min(start + _BLOCK_COLUMNS, hi))
        for lo, hi in ranges
        for start in range(lo, hi, _BLOCK_COLUMNS)
    ]
