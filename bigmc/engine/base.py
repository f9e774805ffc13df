"""The one interface between an algorithm and the workers that run its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

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

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` for every part, in the order of ``parts``.

        The first error of a part is raised when its turn comes; parts not yet started are cancelled.
        """
        ...
