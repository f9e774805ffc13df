"""How a run of the sparse learner divides its memory limit, and what of it a sample may take."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigmc.budget import MemoryLimitError, Plan
from bigmc.solvers.sparse.screening import Screening
from bigmc.store.block import INDEX_BYTES
from bigmc.store.shards.memory_shard import MAX_ROWS

#: Below this tolerance float32 scores are too coarse for the certificate.
SINGLE_PRECISION_TOL = 1e-5
#: Score matrices up to this many bytes are float64 whatever the tolerance: it costs nothing.
SMALL_SCORES = 4 << 20
#: Share of the memory limit for a sample that is trained on.
_SAMPLE_MEMORY = 0.75
#: Shares that are tried: the first, and each in units of the one before.
_LARGEST_SHARE, _NEXT_SHARE = 0.5, 0.75
#: Memory for samples that are drawn beyond the share.
_SAMPLE_MARGIN = 1.1
#: Share of samples in memory that training on all of them starts with.
_START_SHARE = 0.125
#: With fewer rows a sample says too little.
_SMALLEST_SAMPLE = 1000
#: Most bytes of a streamed block; larger ones gain nothing.
_LARGEST_BLOCK = 64 << 20
#: Most bytes of the weights of one block during the first pass, where every column may get some.
_BLOCK_COEF = 32 << 20
#: Stacks of threads, compressed chunks being decoded, results of parts.
WORKSPACE = 18 << 20


@dataclass(frozen=True)
class SolverPlan:
    """Memory plan of a run with all samples in memory.

    Attributes
    ----------
    memory : Plan
        Every resident array by name; Newton steps take what is left.
    score_dtype : numpy.dtype
        float64 if the tolerance is below 1e-5 or the score matrix is at most 4 MiB, else float32.
    block_bytes : int
        Most decoded bytes of one block.
    block_columns : int
        Most columns of one block.
    working_columns : int
        Most columns the inner solver works on.
    newton_bytes : int
        Most bytes of the samples in row order and what Newton steps make of them.
    """

    memory: Plan
    score_dtype: np.dtype[Any]
    block_bytes: int
    block_columns: int
    working_columns: int
    newton_bytes: int


@dataclass(frozen=True)
class Size:
    """Sizes of a problem, on which a memory plan depends.

    Attributes
    ----------
    width : int
        Padded number of classes of a row of scores.
    itemsize : int
        Bytes of a stored value.
    tol : float
        Relative gap to reach.
    most_labels : int
        Of one sample.
    weighted, column_scaled : bool
        Samples have weights; columns have a scale.
    n_certain : int
        Features that are certain to get weights: all that occur where there is no penalty.
    largest_shard : int
        Entries of the largest shard.
    n_frequent : int
        Features that nearly all samples have, whose columns chunks centre beside an intercept, see
        `bigmc.solvers.sparse.steps.chunk_parts`.
    n_kept : int
        Classes whose gradients say what those of all are, see `bigmc.objectives.losses.Loss.n_kept`; 0: all.
    n_beside : int
        Residuals and probabilities of a sample beside its scores, see
        `bigmc.solvers.sparse.steps.model_sweeps`.
    """

    n_samples: int
    n_features: int
    n_classes: int
    nnz: int
    n_shards: int
    width: int
    itemsize: int
    tol: float
    most_labels: int = 1
    weighted: bool = False
    column_scaled: bool = False
    n_certain: int = 0
    largest_shard: int = 0
    n_frequent: int = 0
    n_kept: int = 0
    n_beside: int = 0

    @property
    def entry_bytes(self) -> int:
        """Bytes of a decoded entry, see `bigmc.store.dataset.Dataset`."""
        return INDEX_BYTES + self.itemsize


def plan_memory(limit: int, size: Size) -> SolverPlan:
    """Divide the memory limit of a run with all data in memory.

    Parameters
    ----------
    limit : int
        Bytes.

    Raises
    ------
    MemoryLimitError
        If the data do not fit, with every item.
    """
    n_samples, n_features, width = size.n_samples, size.n_features, size.width
    double = size.tol < SINGLE_PRECISION_TOL or n_samples * width * 8 <= SMALL_SCORES
    dtype = np.dtype(np.float64 if double else np.float32)
    coef_row = width * 8 + 16
    # Weights of the non-zero features, old and new side by side: all features if that is cheap, else
    # a quarter of the limit, which the solver checks as it goes.
    coef = max(min(2 * n_features * coef_row, limit // 4), 2 * size.n_certain * coef_row)
    block_columns = max(1, min(_BLOCK_COEF, limit // 16) // coef_row)
    n_blocks = -(-n_features // block_columns)
    held = size.nnz * size.entry_bytes + size.n_shards * 8 * (n_features + n_blocks)
    column = width * 8 + 48
    working_columns = min(n_features, max(1, limit // 4 // column))
    items = [
        ("labels", 4 * n_samples * size.most_labels),
        ("row scale", (dtype.itemsize if dtype.itemsize == 4 else dtype.itemsize + 4) * n_samples),
        ("sample weights", (8 + dtype.itemsize) * n_samples if size.weighted else 0),
        ("entries per feature", 8 * n_features),
        ("column scale", 12 * n_features if size.column_scaled else 0),
        ("screening", Screening.memory(n_features)),
        ("sums per class", 6 * 8 * size.n_classes * width),
        ("workspace", WORKSPACE if size.nnz > 1 << 20 else 1 << 20),
        ("weights", coef),
        ("scores", n_samples * (width + size.n_beside) * dtype.itemsize),
        ("all blocks", held + working_columns * column + 16 * n_features),
    ]
    plan = Plan.of(limit, items)
    plan.check("training the sparse learner")
    return SolverPlan(plan, dtype, max(_LARGEST_BLOCK, held), block_columns, working_columns, plan.free)


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


def plan_sample(limit: int, n_workers: int, n_used: int, shard_rows: int, size: Size) -> SamplePlan | None:
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
    """
    workspace = WORKSPACE if size.nnz > 1 << 20 else 0
    block_bytes = shard_rows * size.entry_bytes + 16  # the longest column
    sums = 8 * n_used * (size.width + 1)
    # two blocks, the places of the features, and scores, labels and scales of a shard
    worker = sums + 8 * size.n_features + shard_rows * (8 * size.width + 20 + 4 * size.most_labels)
    least = workspace + 5 * sums + worker + 2 * block_bytes
    for_passes = max(int((1.0 - _SAMPLE_MEMORY) * limit), least)
    for_sample = limit - for_passes
    block_bytes = max(block_bytes, min(_LARGEST_BLOCK, (for_passes - least) // 4))
    n_workers = min(n_workers, (for_passes - workspace - 4 * sums) // (worker + 2 * block_bytes))
    share = _LARGEST_SHARE
    while n_workers > 0 and size.n_samples * share >= _SMALLEST_SAMPLE:
        part = _plan_part(for_sample + workspace, share, size)  # that of the passes does for both
        if part is not None:
            columns = max(1, block_bytes // (8 * size.width))
            return SamplePlan(share, *part, n_workers, block_bytes, columns)
        share *= _NEXT_SHARE
    return None


def plan_start(free: int, size: Size) -> SamplePlan | None:
    """Return the part of samples in memory that training starts on, if it fits.

    Parameters
    ----------
    free : int
        Bytes left beside all samples.
    size : Size
        Of all samples.
    """
    if size.n_samples * _START_SHARE < _SMALLEST_SAMPLE:
        return None
    part = _plan_part(free, _START_SHARE, size)
    return None if part is None else SamplePlan(_START_SHARE, *part, 0, 0, 0)


def _plan_part(limit: int, share: float, size: Size) -> tuple[int, int] | None:
    """Return the bytes to train on a share of the samples, and of these for Newton steps; None if too few."""
    # what is drawn is more or less than its share
    rows = math.ceil(_SAMPLE_MARGIN * size.n_samples * share)
    entries = math.ceil(_SAMPLE_MARGIN * size.nnz * share)
    # drawn rows of neighbouring shards are put together while they fit into one, which is at least half full
    n_shards = min(size.n_shards, 2 * -(-rows // MAX_ROWS))
    part = replace(size, n_samples=rows, nnz=entries, n_shards=n_shards)
    bytes_left = limit - entries * size.entry_bytes  # drawn, and once more in blocks for the solver
    with suppress(MemoryLimitError):
        plan = plan_memory(bytes_left, part)
        if plan.newton_bytes >= entries * (4 + size.itemsize) + 24 * rows:
            return bytes_left, plan.newton_bytes
    return None
