"""How a run of the minimax learner divides its memory limit."""

from __future__ import annotations

from dataclasses import dataclass

from bigmc.budget import Plan, plan_within

#: Compiled kernels, the linear programming library, stacks of threads, chunks being decoded: measured.
_FIXED = 26 << 20
#: Arrays of the shape of μ: expectations, steps, sums, anchors, products and the best one.
_COEF_ARRAYS = 20
#: Arrays of a row of p: steps, sums, anchors, scores and temporaries.
_DUAL_ARRAYS = 14
#: Bytes of a worker's decoded columns.
_LEAST_SCRATCH, _MOST_SCRATCH = 1 << 20, 64 << 20
#: Part of the limit for the workers that scan, if one needs less.
_SCAN_PART = 6
#: Rows of the first working set of any problem.
_FEW_ROWS = 300


@dataclass(frozen=True)
class MinimaxPlan:
    """Memory plan of a run of the minimax learner.

    Each worker may use `scratch_bytes` to read a shard, excluding its scores, and `n_workers` may scan at
    once in this process. A block for computing expectations has `block_bytes`; the working set has at
    most `max_rows` samples, and the linear program at most `program_bytes`.
    """

    memory: Plan
    scratch_bytes: int
    block_bytes: int
    max_rows: int
    program_bytes: int
    n_workers: int


@dataclass(frozen=True)
class Shape:
    """The size of a problem, as far as it determines the memory.

    `n_psi` counts the features in use with the intercept, and `row_entries` the mean of stored values of
    a sample. `value_bytes` is that of a value in the arrays of rows, copies included; 0 if rows are kept
    sparse. `shard_rows` is that of the largest shard, `column_bytes` that of a block with only the
    longest column.
    """

    n_samples: int
    n_psi: int
    n_classes: int
    row_entries: float
    value_bytes: int
    shard_rows: int
    column_bytes: int


def plan_memory(shape: Shape, limit: int) -> MinimaxPlan:
    """Divide the memory limit, the same for any number of workers, since the model depends on it.

    `MemoryLimitError` if the limit cannot work, with every item and the least limit that would.
    """
    return plan_within(limit, lambda n_bytes: _plan(shape, n_bytes))


def _plan(shape: Shape, limit: int) -> MinimaxPlan:
    size = shape.n_psi * shape.n_classes
    scratch_bytes = min(_MOST_SCRATCH, max(_LEAST_SCRATCH, limit // 32))
    worker = scratch_bytes + shape.shard_rows * 8 * (shape.n_classes + 4)
    scan = max(worker, 2 * max(scratch_bytes, shape.column_bytes), limit // _SCAN_PART)
    # Sparse: a row in double precision, the old and the new one while the set changes: measured.
    entries = 44 * (shape.row_entries + 1)
    row_bytes = shape.value_bytes * shape.n_psi if shape.value_bytes else int(entries)
    row_bytes += 8 * _DUAL_ARRAYS * shape.n_classes
    few = min(shape.n_samples, _FEW_ROWS) + shape.n_classes
    items = [
        ("code and buffers", _FIXED),
        ("labels and row scale", 12 * shape.n_samples),
        ("expectations and coefficients", 8 * _COEF_ARRAYS * size),
        ("scores and columns of the shards being read", scan),
        ("centroids", (8 if shape.value_bytes else 52) * size),
        ("fewest rows of the working set", few * row_bytes),
    ]
    memory = Plan.of(limit, items).check("training")
    program_bytes = memory.free // 4
    more_rows = (memory.free - program_bytes) // row_bytes
    max_rows = min(shape.n_samples, few + more_rows) + shape.n_classes
    block_bytes = max(scratch_bytes, shape.column_bytes)
    return MinimaxPlan(memory, scratch_bytes, block_bytes, max_rows, program_bytes, scan // worker)
