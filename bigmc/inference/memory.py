"""Share the memory limit among the workers that score samples."""

from __future__ import annotations

from bigmc.budget import Plan, plan_within
from bigmc.engine import Engine, Resources
from bigmc.model import ModelOutline

FIXED_COST = 32_000_000
"""Bytes independent of data and model: compiled kernels, the Unicode table, decoding buffers,
stacks of threads."""

SMALLEST_SCRATCH = 8 << 20
"""Minimum bytes of a worker: with fewer it would score very few classes or rows at a time."""


def smallest_limit(model: ModelOutline) -> int:
    """Return the memory limit in bytes for scoring a model with one worker, excluding results."""
    return FIXED_COST + max(model.nbytes, model.kept_bytes + SMALLEST_SCRATCH)


def divide(model: ModelOutline, limit: int, n_workers: int, result: int, step: str) -> tuple[int, int]:
    """Return the number of workers that a memory limit allows, and the bytes of each for scoring.

    `limit` is above the bare process. `result` is the bytes of the result of one part: per worker one is
    held and another waits, and one is being written. `MemoryLimitError`, with the name of the step and
    what is needed, if not even one worker fits.
    """
    model_bytes = model.kept_bytes
    # the other bytes of opening are freed before scoring
    opening = model.nbytes - model_bytes - SMALLEST_SCRATCH - 3 * result
    one = Plan.of(
        limit,
        [
            ("the model", model_bytes),
            ("code and buffers", FIXED_COST),
            ("scoring", SMALLEST_SCRATCH),
            ("results of the parts", 3 * result),
            ("opening the model", max(0, opening)),
        ],
    )
    more = one.check(step).free // (SMALLEST_SCRATCH + 2 * result)
    n_workers = min(n_workers, 1 + more)
    free = limit - model_bytes - FIXED_COST - (2 * n_workers + 1) * result
    return n_workers, free // n_workers


def divide_limit(model: ModelOutline, resources: Resources, result: int, task: str) -> tuple[Engine, int]:
    """Return the engine with as many workers as memory allows, and the bytes of each, as `divide`."""
    engine, own = resources.engine, own_copy(model, resources.engine)
    n_threads, scratch = plan_within(
        resources.memory_limit, lambda limit: divide(model, limit - own, engine.n_threads, result, task)
    )
    return engine.at_most(n_threads), scratch


def own_copy(model: ModelOutline, engine: Engine) -> int:
    """Return the bytes of the pickled model, which a worker process keeps besides the model."""
    return 0 if engine.shares_memory else model.nbytes
