"""What a step may use while it runs, and whom it tells how far it is."""

from __future__ import annotations

from dataclasses import dataclass

from bigmc.engine.base import Engine
from bigmc.progress import ProgressCallback, silent


@dataclass(frozen=True)
class Resources:
    """Workers, memory, and the listener of a step.

    Attributes
    ----------
    engine : Engine
        Runs the parts.
    memory_limit : int
        Bytes that the step may add to this process, and to each of the engine's own.
    progress : callable
    """

    engine: Engine
    memory_limit: int
    progress: ProgressCallback = silent
