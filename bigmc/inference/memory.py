"""Share the memory limit among the workers that score samples."""

from __future__ import annotations

from bigmc.budget import Plan, plan_within
from bigmc.engine import Engine, Resources
from bigmc.model import ModelOutline

FIXED_COST = 32_000_000
"""Bytes that do not depend on data or model: compiled kernels, the table of Unicode, chunks being decoded,
stacks of threads."""

SMALLEST_SCRATCH = 8 << 20
"""With fewer bytes a worker would score very few classes, or rows, at a time."""


def smallest_limit(model: ModelOutline) -> int:
    """Return the memory limit in bytes that scores a model with one worker, results not counted."""
    return FIXED_COST + max(model.nbytes, model.kept_bytes + SMALLEST_SCRATCH)


def divide(model: ModelOutline, limit: int, n_workers: int, result: int, step: str) -> tuple[int, int]:
    """Return how many workers a memory limit allows, and the bytes each may use to score.

    Parameters
    ----------
    limit : int
        Bytes above the bare process.
    n_workers : int
        Workers wanted.
    result : int
        Bytes of the result of one part; a worker holds one, another one waits, and one is being written.
    step : str
        What is done, for the message.

    Raises
    ------
    MemoryLimitError
        If it does not allow one worker; the message lists what is needed.
    """
    model_bytes = model.kept_bytes
    # the other bytes of opening are released before anything is scored
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
    """Return the engine with as many workers as the memory limit allows, and the bytes for each.

    Parameters
    ----------
    result : int
        Bytes of the result of a part.
    task : str
        Name of the work, for messages.

    Raises
    ------
    MemoryLimitError
        If the limit does not allow one worker.
    """
    engine, own = resources.engine, own_copy(model, resources.engine)
    n_threads, scratch = plan_within(
        resources.memory_limit,
        lambda limit: divide(model, limit - own, engine.n_threads, result, task),
    )
    return engine.at_most(n_threads), scratch


def own_copy(model: ModelOutline, engine: Engine) -> int:
    """Return the bytes of the model as it came, which a process of its own keeps beside the model."""
    return 0 if engine.shares_memory else model.nbytes
