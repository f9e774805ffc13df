"""How a run of the sparse learner divides its memory limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigmc.budget import MemoryLimitError, Plan
from bigmc.store.memory import MAX_ROWS

#: Below this tolerance float32 scores are too coarse for the certificate.
_SINGLE_PRECISION_TOL = 1e-5
#: Score matrices up to this many bytes are float64 whatever the tolerance: it costs nothing.
_SMALL_SCORES = 4 << 20
#: With fewer rows a sample says too little.
_SMALLEST_SAMPLE = 1000
#: Most bytes of a streamed block; larger ones gain nothing.
_LARGEST_BLOCK = 64 << 20
#: Most bytes of the weights of one block during the first pass, where every column may get some.
_BLOCK_COEF = 32 << 20
#: Share of the room for columns that goes to the copy of them in row order.
_NEWTON_SHARE = 0.4
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
    weighted: bool = False,
    column_scaled: bool = False,
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
    weighted, column_scaled : bool
        Samples have weights; columns have a scale.
    block_bytes : int, optional
        Stream blocks of at most this many bytes although everything might fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work, with every item and the limit that would.
    """
    double = tol < _SINGLE_PRECISION_TOL or n_samples * width * 8 <= _SMALL_SCORES
    dtype = np.dtype(np.float64 if double else np.float32)
    score_bytes = n_samples * width * dtype.itemsize
    row_bytes = dtype.itemsize
    coef_row = width * 8 + 16
    items = [
        ("labels", 4 * n_samples),
        ("row scale", (row_bytes if row_bytes == 4 else row_bytes + 4) * n_samples),
        ("sample weights", (8 + row_bytes) * n_samples if weighted else 0),
        ("entries per feature", 8 * n_features),
        ("column scale", 12 * n_features if column_scaled else 0),
        ("sums per class", 6 * 8 * n_classes * width),
        ("workspace", _WORKSPACE if nnz > 1 << 20 else 1 << 20),
    ]
    # Weights of the non-zero features, old and new side by side: all features if that is cheap, else
    # a quarter of the limit, which the solver checks as it goes.
    coef = min(2 * n_features * coef_row, limit // 4)
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


def sample_share(limit: int, n_samples: int, nnz: int, **size: Any) -> float:
    """Return the largest share of the samples that can be trained on in memory, Newton steps included.

    Parameters
    ----------
    limit, n_samples, nnz : int
        See `plan_memory`.
    **size
        Its other parameters.

    Returns
    -------
    float
        A power of a half below 1; 0 if even a small sample would not fit.
    """
    share = 0.5
    while n_samples * share >= _SMALLEST_SAMPLE:
        rows, entries = math.ceil(n_samples * share), math.ceil(nnz * share)
        part = size | {"n_shards": -(-rows // MAX_ROWS), "widest": min(size["widest"], rows)}
        try:
            plan = plan_memory(limit=limit, n_samples=rows, nnz=entries, **part)
        except MemoryLimitError:
            return 0.0
        copy = entries * (4 + size["itemsize"]) + 24 * rows
        if plan.keep_blocks and plan.newton_bytes >= copy:
            return share
        share /= 2
    return 0.0
