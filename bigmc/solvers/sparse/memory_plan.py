"""How a run of the sparse learner divides its memory limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigmc.budget import MemoryLimitError, Plan
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.screening import Screening
from bigmc.store.dataset import Dataset
from bigmc.store.memory_shard import MAX_ROWS

#: Below this tolerance float32 scores are too coarse for the certificate.
SINGLE_PRECISION_TOL = 1e-5
#: Score matrices up to this many bytes are float64 whatever the tolerance: it costs nothing.
_SMALL_SCORES = 4 << 20
#: Share of the memory limit for a sample that is trained on.
_SAMPLE_MEMORY = 0.75
#: Shares that are tried: the first, and each in units of the one before.
_LARGEST_SHARE, _NEXT_SHARE = 0.5, 0.75
#: Room for samples that are drawn beyond the share.
_SAMPLE_MARGIN = 1.1
#: Share of samples in memory that training on all of them starts with.
_START_SHARE = 0.125
#: With fewer rows a sample says too little.
_SMALLEST_SAMPLE = 1000
#: Most bytes of a streamed block; larger ones gain nothing.
_LARGEST_BLOCK = 64 << 20
#: Most bytes of the weights of one block during the first pass, where every column may get some.
_BLOCK_COEF = 32 << 20
#: Share of the room for columns that goes to the copy of them in row order.
_NEWTON_SHARE = 0.4
#: Shares of what is left, when samples are gone through chunk by chunk: for gradients at least, beside more
#: than one worker of a pass; for a chunk, and for the vectors of the candidates beside it.
_GRADIENT_SHARE, _CHUNK_SHARE, _CANDIDATE_SHARE = 0.3, 0.4, 0.45
#: Chunks are drawn, some larger than others; shards that a chunk has samples of.
_CHUNK_MARGIN, _CHUNK_PIECES = 1.1, 17
#: Stacks of threads, compressed chunks being decoded, results of parts.
_WORKSPACE = 18 << 20


@dataclass(frozen=True)
class SolverPlan:
    """What a run keeps in memory and how.

    Attributes
    ----------
    memory : Plan
        Every resident array by name; the working set takes what is left.
    score_dtype : numpy.dtype
        float64 if the tolerance is below 1e-5 or the score matrix is at most 4 MiB, else float32.
    scores_on_disk : bool
        The score matrix is a memory-mapped scratch file; its pages are the system's to drop.
    keep_blocks : bool
        All blocks stay in memory after they were first read.
    block_bytes : int
        Most decoded bytes of one block.
    block_columns : int
        Most columns of one block.
    working_columns : int
        Most columns the inner solver works on.
    working_set_bytes : int
        Most bytes of the columns the inner solver works on (0 with `keep_blocks`).
    newton_bytes : int
        Most bytes of the samples in row order and what Newton steps make of them.
    """

    memory: Plan
    score_dtype: np.dtype[Any]
    scores_on_disk: bool
    keep_blocks: bool
    block_bytes: int
    block_columns: int
    working_columns: int
    working_set_bytes: int
    newton_bytes: int


#: What the allocator keeps between chunks of changing size, in shares of the limit: without it the peak was
#: measured 3 MB above a limit of 64 MB, with a share of .15 half a megabyte.
_FRAGMENTS = 0.25


def plan_memory(
    *,
    n_samples: int,
    n_features: int,
    width: int,
    n_classes: int,
    nnz: int,
    n_shards: int,
    widest: int,
    itemsize: int,
    limit: int,
    tol: float,
    most_labels: int = 1,
    weighted: bool = False,
    column_scaled: bool = False,
    n_certain: int = 0,
    block_bytes: int | None = None,
) -> SolverPlan:
    """Divide the memory limit of a run of the sparse learner.

    Parameters
    ----------
    n_samples, n_features, n_classes, nnz, n_shards : int
        Size of the data.
    width : int
        Padded number of classes of a row of scores.
    widest : int
        Entries of the longest column.
    itemsize : int
        Bytes of a stored value.
    limit : int
        Bytes.
    tol : float
        Relative gap to reach.
    most_labels : int
        Of one sample.
    weighted, column_scaled : bool
        Samples have weights; columns have a scale.
    n_certain : int
        Features that are certain to get weights: all that occur where there is no penalty.
    block_bytes : int, optional
        Stream blocks of at most this many bytes although everything might fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work, with every item and the limit that would.
    """
    double = tol < SINGLE_PRECISION_TOL or n_samples * width * 8 <= _SMALL_SCORES
    dtype = np.dtype(np.float64 if double else np.float32)
    score_bytes = n_samples * width * dtype.itemsize
    row_bytes = dtype.itemsize
    coef_row = width * 8 + 16
    items = [
        ("labels", 4 * n_samples * most_labels),
        ("row scale", (row_bytes if row_bytes == 4 else row_bytes + 4) * n_samples),
        ("sample weights", (8 + row_bytes) * n_samples if weighted else 0),
        ("entries per feature", 8 * n_features),
        ("column scale", 12 * n_features if column_scaled else 0),
        ("screening", Screening.memory(n_features)),
        ("sums per class", 6 * 8 * n_classes * width),
        ("workspace", _WORKSPACE if nnz > 1 << 20 else 1 << 20),
    ]
    # Weights of the non-zero features, old and new side by side: all features if that is cheap, else
    # a quarter of the limit, which the solver checks as it goes.
    coef = max(min(2 * n_features * coef_row, limit // 4), 2 * n_certain * coef_row)
    items.append(("weights", coef))
    entry = 2 + itemsize
    block_columns = max(1, min(_BLOCK_COEF, limit // 16) // coef_row)
    n_blocks = -(-n_features // block_columns)
    held = nnz * entry + n_shards * 8 * (n_features + n_blocks)
    column = width * 8 + 48
    working_columns = min(n_features, max(1, limit // 4 // column))
    working = working_columns * column + 16 * n_features
    everything = Plan.of(limit, [*items, ("scores", score_bytes), ("all blocks", held + working)])
    if block_bytes is None and everything.free >= 0:
        return SolverPlan(
            everything, dtype, False, True, max(_LARGEST_BLOCK, held), block_columns, working_columns, 0,
            everything.free,
        )  # fmt: skip
    smallest = widest * entry + 2 * n_shards * 8
    items.append(("weights of a block", 2 * min(n_features, block_columns) * coef_row))
    in_memory = Plan.of(limit, [*items, ("scores", score_bytes)])
    on_disk = in_memory.free < 2 * smallest
    fixed = Plan.of(limit, items) if on_disk else in_memory
    if block_bytes is None:
        block_bytes = max(smallest, min(_LARGEST_BLOCK, fixed.free // 6))
    block_bytes = max(block_bytes, smallest)
    plan = Plan.of(limit, [*((i.name, i.n_bytes) for i in fixed.items), ("two blocks", 2 * block_bytes)])
    plan.check("training the sparse learner, with its scores in a file," if on_disk else "training")
    newton = int(_NEWTON_SHARE * plan.free)
    return SolverPlan(
        plan, dtype, on_disk, False, block_bytes, block_columns, n_features, plan.free - newton, newton
    )  # fmt: skip


@dataclass(frozen=True)
class SamplePlan:
    """How a part of the samples is held in memory beside passes over all of them.

    Attributes
    ----------
    share : float
        Of the samples.
    memory_limit : int
        Bytes for training on them.
    newton_bytes : int
        Of these, for Newton steps.
    n_workers : int
        Most workers of a pass.
    block_bytes, block_columns : int
        Most bytes and columns of a shard a worker decodes at once.
    """

    share: float
    memory_limit: int
    newton_bytes: int
    n_workers: int
    block_bytes: int
    block_columns: int


def plan_sample(limit: int, n_workers: int, n_used: int, shard_rows: int, **size: Any) -> SamplePlan | None:
    """Return the largest part of the samples that can be trained on in memory, or None.

    What is left beside it is for the passes: per worker the sums of a part, and scores and columns of a
    shard. The share does not depend on the number of workers, which is cut to what fits.

    Parameters
    ----------
    limit : int
        Bytes of the whole run.
    n_workers : int
        Workers wanted.
    n_used : int
        Features that occur.
    shard_rows : int
        Rows of the largest shard.
    **size
        The other parameters of `plan_memory`.
    """
    n_samples, nnz, n_features = size["n_samples"], size["nnz"], size["n_features"]
    width, itemsize = size["width"], size["itemsize"]
    workspace = _WORKSPACE if nnz > 1 << 20 else 0
    block_bytes = shard_rows * (2 + itemsize) + 16  # the longest column
    sums = 8 * n_used * (width + 1)
    # two blocks, the places of the features, and scores, labels and scales of a shard
    worker = sums + 8 * n_features + shard_rows * (8 * width + 20 + 4 * size.get("most_labels", 1))
    least = workspace + 4 * sums + worker + 2 * block_bytes
    for_passes = max(int((1.0 - _SAMPLE_MEMORY) * limit), least)
    for_sample = limit - for_passes
    block_bytes = max(block_bytes, min(_LARGEST_BLOCK, (for_passes - least) // 4))
    n_workers = min(n_workers, (for_passes - workspace - 3 * sums) // (worker + 2 * block_bytes))
    share = _LARGEST_SHARE
    while n_workers > 0 and n_samples * share >= _SMALLEST_SAMPLE:
        part = _plan_part(for_sample + workspace, share, size)  # that of the passes does for both
        if part is not None:
            columns = max(1, block_bytes // (8 * width))
            return SamplePlan(share, *part, n_workers, block_bytes, columns)
        share *= _NEXT_SHARE
    return None


@dataclass(frozen=True)
class ChunkPlan:
    """How a run goes through chunks of the samples, see `bigmc.solvers.sparse.chunk_rounds`.

    Attributes
    ----------
    most_gradients : int
        Features whose gradients a pass over everything keeps, at most.
    most_candidates : int
        Features with a place in the scratch file, at most.
    chunk_bytes, newton_bytes : int
        Most bytes of a chunk, its scores included; and of Newton steps where there is one only.
    fixed_bytes : int
        Of all samples of a chunk, were there one only, without their entries.
    entry_bytes, feature_bytes : int
        Of an entry, and of a candidate's offsets in a chunk.
    n_workers : int
        Most workers of a pass.
    block_bytes, block_columns : int
        Most bytes and columns of a shard a worker decodes at once.
    """

    most_gradients: int
    most_candidates: int
    chunk_bytes: int
    newton_bytes: int
    fixed_bytes: int
    entry_bytes: int
    feature_bytes: int
    n_workers: int
    block_bytes: int
    block_columns: int

    def n_chunks(self, nnz: int, n_features: int) -> int:
        """Return the number of chunks for candidates of so many entries."""
        room = self.chunk_bytes - self.feature_bytes * n_features
        return max(1, -(-int(_CHUNK_MARGIN * (nnz * self.entry_bytes + self.fixed_bytes)) // max(room, 1)))


def plan_chunks(limit: int, n_workers: int, shard_rows: int, **size: Any) -> ChunkPlan | None:
    """Divide the memory limit for chunks of samples; None if it is too small for them.

    Parameters
    ----------
    limit : int
        Bytes of the whole run.
    n_workers : int
        Workers wanted.
    shard_rows : int
        Rows of the largest shard.
    **size
        The other parameters of `plan_memory`.
    """
    n_samples, nnz, n_features = size["n_samples"], size["nnz"], size["n_features"]
    width, itemsize, n_classes = size["width"], size["itemsize"], size["n_classes"]
    score = 8 if size["tol"] < SINGLE_PRECISION_TOL else 4
    fixed = _WORKSPACE + int(_FRAGMENTS * limit) if nnz > 1 << 20 else 1 << 20
    fixed += 6 * 8 * n_classes * width
    fixed += (8 + 16 + (8 if size.get("column_scaled") else 0)) * n_features
    fixed += 8 * n_samples if size.get("weighted") else 0
    free = limit - fixed
    row = score * width + 4 * size.get("most_labels", 1) + 24
    block_bytes = max(shard_rows * (2 + itemsize), min(8 << 20, free // 16))
    worker = 2 * block_bytes + int(1.3 * shard_rows * row) + 4 * n_features + (2 << 20)
    # a pass holds no chunk, and rounds no shard
    n_workers = max(1, min(n_workers, int((1.0 - _GRADIENT_SHARE) * free) // worker))
    gradients = free - n_workers * worker
    chunk_bytes = int(_CHUNK_SHARE * free)
    most_gradients = gradients // (8 * width * (n_workers + 2))
    most_candidates = min(most_gradients, int(_CANDIDATE_SHARE * free) // (56 * width))
    if most_candidates < size.get("n_certain", 0):
        return None
    least = (nnz * (2 + itemsize) * 64) // max(n_samples, 1) + 64 * row
    if most_candidates < 16 or chunk_bytes < max(least, 1 << 19):
        return None
    return ChunkPlan(
        most_gradients, most_candidates, chunk_bytes, int(0.2 * free), n_samples * row, 2 + itemsize,
        8 * _CHUNK_PIECES, n_workers, block_bytes, max(1, (4 << 20) // (8 * width)),
    )  # fmt: skip


def plan_start(free: int, **size: Any) -> SamplePlan | None:
    """Return the part of samples in memory that training starts on, if there is room for it.

    Parameters
    ----------
    free : int
        Bytes left beside all samples.
    **size
        Of all samples: the other parameters of `plan_memory`.
    """
    if size["n_samples"] * _START_SHARE < _SMALLEST_SAMPLE:
        return None
    part = _plan_part(free, _START_SHARE, size)
    return None if part is None else SamplePlan(_START_SHARE, *part, 0, 0, 0)


def _plan_part(limit: int, share: float, size: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the bytes to train on a share of the samples, and of these for Newton steps; None if too few."""
    # what is drawn is more or less than its share
    rows = math.ceil(_SAMPLE_MARGIN * size["n_samples"] * share)
    entries = math.ceil(_SAMPLE_MARGIN * size["nnz"] * share)
    # drawn rows of neighbouring shards are put together while they fit into one, which is at least half full
    n_shards = min(size["n_shards"], 2 * -(-rows // MAX_ROWS))
    part = {
        **size, "n_samples": rows, "nnz": entries, "n_shards": n_shards, "widest": min(size["widest"], rows),
    }  # fmt: skip
    room = limit - entries * (2 + size["itemsize"])  # drawn, and once more in blocks for the solver
    with suppress(MemoryLimitError):
        plan = plan_memory(limit=room, **part)
        copy = entries * (4 + size["itemsize"]) + 24 * rows
        if plan.keep_blocks and plan.newton_bytes >= copy:
            return room, plan.newton_bytes
    return None


def holds(plan: SolverPlan, dataset: Dataset, coef: Coefficients) -> bool:
    """Return whether scores and the columns of the features with weights fit into memory."""
    nnz = dataset.column_nnz()[coef.features]
    cost = nnz * (2 + dataset.dtype.itemsize) + 8 * dataset.n_shards + 8 * coef.rows.shape[1] + 48
    return not plan.scores_on_disk and int(cost.sum()) <= plan.working_set_bytes
