"""What the workers of a Dask cluster run: some parts of a map, a part of a sum, an addition."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from distributed import get_worker

from bigmc.errors import BigmcError

#: A task runs parts for at most this many seconds and bytes of results, but at least one part, since the
#: scheduler takes some milliseconds for every task.
TASK_SECONDS, TASK_BYTES = 0.3, 2 << 20


def same(payload: bytes) -> bytes:
    """Return the shared arguments as the result of a task, which is repeated if a worker is lost."""
    return payload


@dataclass(frozen=True)
class Done:
    """Result of a task: its worker, the pickled results of its finished parts, and the seconds."""

    worker: str
    results: list[bytes]
    seconds: float

    @property
    def n_bytes(self) -> int:
        """Bytes of the results."""
        return sum(map(len, self.results))


def run(payload: bytes, packed: bytes, most: int | None) -> Done:
    """Run parts in a worker up to the length of a task; stop before a later part with an error."""
    with _opening:
        fn, shared = _opened(payload)
    results: list[bytes] = []
    started, size = time.perf_counter(), 0
    for part in pickle.loads(packed):  # from the client
        try:
            results.append(_packed_result(fn, part, shared, most))
        except Exception:
            if results:
                break
            raise
        size += len(results[-1])
        if size >= TASK_BYTES or time.perf_counter() - started >= TASK_SECONDS:
            break
    return Done(get_worker().address, results, time.perf_counter() - started)


def run_one(payload: bytes, packed: bytes, most: int | None) -> bytes:
    """Run one part in a worker and return its pickled result, which stays there until it is added."""
    with _opening:
        fn, shared = _opened(payload)
    return _packed_result(fn, pickle.loads(packed), shared, most)  # from the client


def _packed_result(fn: Callable[..., Any], part: Any, shared: tuple[Any, ...], most: int | None) -> bytes:
    """Return the pickled result of a part; `BigmcError` if the worker lacks a file."""
    try:
        with _gate(most) if most else nullcontext():
            result = fn(part, *shared)
    except FileNotFoundError as error:
        raise BigmcError(
            f"the worker at {get_worker().address} cannot find {error.filename}",
            "put data, models and targets in a folder with the same path on all workers",
        ) from None
    return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)


def add(adder: bytes, total: bytes, other: bytes) -> bytes:
    """Add two pickled results; the arguments stay as they are, since the scheduler may repeat a task."""
    add_up = pickle.loads(adder)  # from the client
    return pickle.dumps(add_up(pickle.loads(total), pickle.loads(other)), pickle.HIGHEST_PROTOCOL)


_opening = threading.Lock()


@lru_cache(maxsize=2)
def _opened(payload: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return function and shared arguments, cached for the next parts, and prepare the process."""
    fn, shared, prepare = pickle.loads(payload)  # from the client
    if prepare is not None:
        prepare()
    return fn, shared


@lru_cache(maxsize=8)
def _gate(most: int) -> threading.BoundedSemaphore:
    """Return the semaphore that limits the parts at once in this process."""
    return threading.BoundedSemaphore(most)
