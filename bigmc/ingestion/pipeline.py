"""Work on the batches of one part by several threads, in the order of the batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    work: Callable[[T], R], items: Iterable[T], pool: ThreadPoolExecutor | None, n_ahead: int = 1
) -> Iterator[R]:
    """Yield ``work(item)`` of all items in their order, some of them worked on ahead by the pool.

    Items are taken in the calling thread, at most ``n_ahead`` ahead of the one that is yielded. An error
    surfaces where its item would have come.
    """
    if pool is None:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
