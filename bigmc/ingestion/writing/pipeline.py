"""Work on the batches of a part by several threads, in the order of the batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Crew:
    """Threads for some parts: the fewer parts are left, the more threads work on each.

    One thread for each of `n_parts` does what has to be done in order; `n_at_once` of them are worked on at
    once, by default as many as there are threads.
    """

    def __init__(self, n_threads: int = 1, n_parts: int = 1, n_at_once: int | None = None) -> None:
        self._n_threads, self._n_at_once = n_threads, n_at_once or n_threads
        self._left = deque(range(n_parts))  # its methods are atomic, and it can go to another process
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None  # starts none before its work

    def __enter__(self) -> Crew:
        """Return the crew."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def n_each(self) -> int:
        """Threads for each part that is worked on."""
        return max(1, self._n_threads // max(1, min(len(self._left), self._n_at_once)))

    @property
    def helpers(self) -> Executor | None:
        """The pool that helps the thread of a part, or None while every thread has a part."""
        return self._pool if self.n_each > 1 else None

    def end_part(self) -> None:
        """Say that a part is done."""
        if self._left:  # `ALONE` is there for any number of parts
            self._left.pop()


ALONE = Crew()
"""One thread."""


def in_order(work: Callable[[T], R], items: Iterable[T], crew: Crew) -> Iterator[R]:
    """Yield ``work(item)`` of all items in their order, some of them worked on ahead by the crew's helpers.

    Items are taken in the calling thread, at most ``crew.n_each`` ahead of the one that is yielded. An error
    surfaces where its item would have come.
    """
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            helpers = crew.helpers
            if helpers is None:
                yield work(item)
                continue
            waiting.append(helpers.submit(work, item))
            if len(waiting) > crew.n_each:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
