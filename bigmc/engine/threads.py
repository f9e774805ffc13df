"""Run parts on threads of this process; kernels and codecs release the GIL."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import itemgetter
from typing import Any, TypeVar

from bigmc.engine.base import Engine, sum_in_groups

P = TypeVar("P")
R = TypeVar("R")


def available_cpus() -> int:
    """Return the number of processors this process may run on."""
    return len(os.sched_getaffinity(0))


class ThreadEngine:
    """Run parts on threads of this process, by default one per processor available to it."""

    def __init__(self, n_workers: int | None = None) -> None:
        self._n_workers = n_workers or available_cpus()
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    @property
    def n_workers(self) -> int:
        """Number of parts that run at once."""
        return self._n_workers

    @property
    def n_threads(self) -> int:
        """Number of parts that run at once in this process."""
        return self._n_workers

    @property
    def shares_memory(self) -> bool:
        """True: parts run in this process."""
        return True

    @property
    def process_memory(self) -> int | None:
        """None: the engine sets no limit."""
        return None

    def at_most(self, n_threads: int) -> ThreadEngine:
        """Return an engine with at most this number of threads."""
        return self if n_threads >= self._n_workers else ThreadEngine(n_threads)

    def local(self) -> ThreadEngine:
        """Return this engine, whose threads belong to this process."""
        return self

    def prepared(self, prepare: Callable[[], None]) -> ThreadEngine:
        """Return this engine, which has no worker processes."""
        return self

    def usage(self) -> dict[str, int]:
        """Return an empty mapping: no network is used."""
        return {}

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` in the order of ``parts``.

        At most one part beyond the running ones is started ahead, so that waiting results
        cannot pile up in memory. Parts run on the calling thread if there is only one thread or part, or if
        the caller is itself a part: handing over costs more than many a part.
        """
        if self._n_workers == 1 or getattr(_here, "is_worker", False):
            for part in parts:
                yield part, fn(part, *shared)
            return
        if isinstance(parts, Sized) and len(parts) == 1:
            for part in parts:
                yield part, _as_worker(fn, part, *shared)
            return
        waiting: deque[tuple[P, Future[R]]] = deque()
        pool = self._threads()
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
            # As with a separate pool, nothing runs after the map has ended.
            left = [future for _, future in waiting if not future.cancel()]
            wait(left)

    def reduce(self, fn: Callable[..., R], add: Callable[[R, R], R], parts: Sequence[P], *shared: Any) -> R:
        """Return the sum of ``fn(part, *shared)`` over all parts; see `Engine.reduce`."""
        # A generator would keep a result beside the next one.
        results: Iterator[R] = map(itemgetter(1), self.map(fn, parts, *shared))
        return sum_in_groups(results, add)

    def _threads(self) -> ThreadPoolExecutor:
        """Return the thread pool, which is kept, since starting threads costs more than many a part."""
        if self._pool is None or self._process != os.getpid():  # a fork has no threads
            self._process = os.getpid()
            self._pool = ThreadPoolExecutor(self._n_workers, "bigmc", _become_worker)
        return self._pool

    def __getstate__(self) -> dict[str, Any]:
        """Do not pickle the threads."""
        return self.__dict__ | {"_pool": None}


_here = threading.local()


def _become_worker() -> None:
    _here.is_worker = True


def _as_worker(fn: Callable[..., R], *arguments: Any) -> R:
    """Call a function like on a thread of the pool: nested maps run on the same thread."""
    _here.is_worker = True
    try:
        return fn(*arguments)
    finally:
        _here.is_worker = False


def one_ahead(engine: Engine, make: Callable[[P], R], parts: Iterable[P]) -> Iterator[R]:
    """Yield ``make(part)`` of each part; another thread makes the next one meanwhile, if there are several.

    There are two of them at a time: what the caller has, and the next one.
    """
    if engine.n_threads == 1:
        yield from map(make, parts)
        return
    with ThreadPoolExecutor(1, "bigmc-ahead", _become_worker) as pool:
        made: Future[R] | None = None
        for part in parts:
            before, made = made, pool.submit(make, part)
            if before is not None:
                yield before.result()
        if made is not None:
            yield made.result()
