"""The one interface between an algorithm and the workers that run its parts, and what a step may use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from bigmc.progress import ProgressCallback, silent

P = TypeVar("P")
R = TypeVar("R")


class Engine(Protocol):
    """Runs a function over parts; knows neither data nor losses.

    A part is a small description (an index, a range, a path), never the data itself: a worker opens
    what it needs. Results come back in the order of the parts, whatever the number of workers, so
    that a reduction over them gives the same bits everywhere.
    """

    @property
    def n_workers(self) -> int:
        """Number of parts that run at once."""
        ...

    @property
    def n_threads(self) -> int:
        """Number of parts that run at once in one process: they share its memory limit."""
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether parts run in this process, so that they may fill arrays they are given."""
        ...

    @property
    def process_memory(self) -> int | None:
        """Bytes a worker's process may take before it is ended; None if the engine sets no limit."""
        ...

    def at_most(self, n_threads: int) -> Self:
        """Return this engine with at most so many parts at once in one process."""
        ...

    def local(self) -> Engine:
        """Return threads of this process, for parts that need what is in its memory."""
        ...

    def prepared(self, prepare: Callable[[], None]) -> Self:
        """Return this engine with a function that processes of its own call before the parts of a map."""
        ...

    def usage(self) -> dict[str, int]:
        """Return what went over the network so far: ``tasks`` and ``bytes_moved``; empty for threads."""
        ...

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` for every part, in the order of ``parts``.

        The first error of a part is raised when its turn comes; parts not yet started are cancelled.
        """
        ...


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
    ends : float
        Time by `time.monotonic` at which a training ends with the best it has; infinite: when it is done.
    """

    engine: Engine
    memory_limit: int
    progress: ProgressCallback = silent
    ends: float = math.inf
