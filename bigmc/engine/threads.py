"""Parts on the threads of this process; the kernels and codecs release the GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

P = TypeVar("P")
R = TypeVar("R")


def available_cpus() -> int:
    """Return the number of processors this process may run on."""
    return len(os.sched_getaffinity(0))


class ThreadEngine:
    """Run parts on threads of this process.

    Parameters
    ----------
    n_workers : int, optional
        Number of threads; by default one per processor this process may use.
    """

    def __init__(self, n_workers: int | None = None) -> None:
        self._n_workers = n_workers or available_cpus()

    @property
    def n_workers(self) -> int:
        """Number of parts that run at once."""
        return self._n_workers

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` in the order of ``parts``.

        At most one part beyond the running ones is started ahead of the reader, so that results
        waiting for their turn cannot pile up in memory.
        """
        with ThreadPoolExecutor(self._n_workers, thread_name_prefix="bigmc") as pool:
            waiting: deque[tuple[P, Future[R]]] = deque()
            try:
                for part in parts:
                    waiting.append((part, pool.submit(fn, part, *shared)))
                    if len(waiting) > self._n_workers:
                        done, future = waiting.popleft()
                        yield done, future.result()
                while waiting:
                    done, future = waiting.popleft()
                    yield done, future.result()
            finally:
                for _, future in waiting:
                    future.cancel()
