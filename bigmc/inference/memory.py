"""How the memory limit is shared among the workers that score samples."""

from __future__ import annotations

from bigmc.budget import plan_within
from bigmc.engine import Engine, Resources
from bigmc.model import ModelOutline, divide


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
