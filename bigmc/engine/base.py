"""The interface between algorithms and the workers that run their parts; limits of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, Self, TypeVar

from bigmc.progress import ProgressCallback, silent

P = TypeVar("P")
R = TypeVar("R")


class Engine(Protocol):
    """Runs a function over parts; independent of data and losses.

    A part is a small description (an index, a range, a path), never the data itself; the worker opens
    the data. Results are returned in the order of the parts for any number of workers, so
    reductions over them give the same bits everywhere.
    """

    @property
    def n_workers(self) -> int:
        """Number of parts that run at once."""

    @property
    def n_threads(self) -> int:
        """Number of parts that run at once in one process and share its memory limit."""

    @property
    def shares_memory(self) -> bool:
        """Whether parts run in this process, so that they may write to shared arrays."""

    @property
    def process_memory(self) -> int | None:
        """Bytes at which a worker's process is killed; None if the engine sets no limit."""

    def at_most(self, n_threads: int) -> Self:
        """Return this engine with at most this number of parts at once in one process."""

    def local(self) -> Engine:
        """Return threads of this process, for parts that need data in its memory."""

    def prepared(self, prepare: Callable[[], None]) -> Self:
        """Return this engine with a function that worker processes call before the parts of a map."""

    def usage(self) -> dict[str, int]:
        """Return the network usage so far: ``tasks`` and ``bytes_moved``; empty for threads."""

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` for every part, in the order of ``parts``.

        The error of a part is raised in the order of the parts; parts not yet started are then cancelled.
        """

    def reduce(self, fn: Callable[..., R], add: Callable[[R, R], R], parts: Sequence[P], *shared: Any) -> R:
        """Return the sum of ``fn(part, *shared)`` over all parts, in the order of `sum_in_groups`.

        Results are added up where they were computed, so that one leaves the workers, not one a part. `add`
        may change its first argument; of worker processes it must be at the top level of a module.
        """
        ...


def for_each(engine: Engine, fn: Callable[..., object], parts: Iterable[P], *shared: Any) -> None:
    """Call ``fn(part, *shared)`` for every part, for what it changes in memory."""
    for _ in engine.map(fn, parts, *shared):
        pass


#: Results that are added to each other before they are added to those of other groups.
_GROUP = 8


def sum_in_groups(results: Iterable[R], add: Callable[[R, R], R]) -> R:
    """Add up results, groups of eight successive ones by themselves first.

    The order depends on the number of results alone, so that any number of workers gives the same bits, and
    groups are independent of each other, so that workers can add them up at once. At most two sums are held.
    """
    total: R | None = None
    left = iter(results)
    for first in left:
        group = first
        del first  # else it stays beside the sum of the next group
        for other in islice(left, _GROUP - 1):
            group = add(group, other)
            del other
        total = group if total is None else add(total, group)
        del group
    if total is None:
        raise ValueError("there is nothing to add up")
    return total


@dataclass(frozen=True)
class Resources:
    """Engine, memory limit and progress callback of a step.

    The step may add `memory_limit` bytes to this process, and to each worker process. `ends` is the time
    of `time.monotonic` at which a training stops with its best result so far.
    """

    engine: Engine
    memory_limit: int
    progress: ProgressCallback = silent
    ends: float = math.inf
