"""Run parts on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import pickle
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import CancelledError
from copy import copy
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from distributed import Client, KilledWorker
from distributed.comm.core import CommClosedError

from bigmc.engine import dask_tasks
from bigmc.engine.base import sum_in_groups
from bigmc.engine.threads import ThreadEngine
from bigmc.errors import BigmcError

P = TypeVar("P")
R = TypeVar("R")

#: Seconds to wait for a scheduler or its file.
CONNECT_SECONDS = 20
#: Seconds to wait for workers if there are none, since they may be starting.
DESERTED_SECONDS = 300.0
#: Seconds between checks of the cluster while waiting for a result.
LOOK_SECONDS = 2.0
#: Seconds between checks for a scheduler's file or the first worker.
_PAUSE = 0.1
#: Tasks submitted per running task: while a slow worker has the next part in order, the others
#: can continue with these. Their results wait on the workers.
_AHEAD = 4
#: Larger shared arguments are sent once to each worker, not with every part.
_LARGE = 1 << 16

_AGAIN = "run the same command again, it continues"


class DaskEngine:
    """Run parts on a Dask cluster.

    The function must be defined at the top level of a module, or be a method of a picklable object. Parts and
    shared arguments must be small and picklable: paths and numbers, not data. The workers must see the same
    files. Shared arguments are sent once to each worker, in a separate task that the scheduler can repeat. If
    a worker is lost, only its parts are computed again: no data is left on workers. `scheduler` is a client,
    which stays open; or the address of a scheduler, such as ``"tcp://10.0.0.1:8786"``, or the file a
    scheduler wrote (``--scheduler-file``), whose connection is closed by `close` or at the end of a ``with``
    block. `BigmcError` if no scheduler answers at the address, no worker comes, or the client is
    asynchronous.
    """

    def __init__(self, scheduler: Client | str | Path) -> None:
        self._owns = isinstance(scheduler, str | Path)
        self._prepare: Callable[[], None] | None = None
        self._most: int | None = None
        self._usage = {"tasks": 0, "bytes_moved": 0}
        self._client: Any = _connect(scheduler) if isinstance(scheduler, str | Path) else scheduler
        if self._client.asynchronous:
            raise BigmcError("the Dask client is asynchronous", "give one made without asynchronous=True")
        # Noted now, since a client that loses the connection forgets the address.
        self._address = str(
            getattr(self._client.scheduler, "address", None) or self._client._start_arg or "?"
        )
        deadline = time.monotonic() + DESERTED_SECONDS
        while not self._workers():
            if time.monotonic() > deadline:
                self.close()
                raise BigmcError("the Dask cluster has no workers", "start some, then run the command again")
            time.sleep(_PAUSE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: Any) -> Self:
        """Return itself, since scikit-learn copies the parameters of an estimator, including the engine."""
        return self

    def close(self) -> None:
        """Close the connection, if this engine made it."""
        if self._owns:
            self._client.close(timeout=2)

    @property
    def n_workers(self) -> int:
        """Number of parts that run at once."""
        return max(1, sum(self._threads(worker) for worker in self._workers()))

    @property
    def n_threads(self) -> int:
        """Maximum number of parts that run at once in one worker process."""
        return max([1, *(self._threads(worker) for worker in self._workers())])

    @property
    def shares_memory(self) -> bool:
        """False: parts run in other processes."""
        return False

    @property
    def process_memory(self) -> int | None:
        """The smallest memory limit of a worker process, in bytes; None if none has one."""
        limits = [int(worker["memory_limit"] or 0) for worker in self._workers()]
        return min((limit for limit in limits if limit), default=None)

    def at_most(self, n_threads: int) -> Self:
        """Return this engine with at most this number of parts at once in one process."""
        if n_threads >= self.n_threads:
            return self
        return self._but(_most=n_threads)

    def local(self) -> ThreadEngine:
        """Return threads of this process."""
        return ThreadEngine()

    def prepared(self, prepare: Callable[[], None]) -> Self:
        """Return this engine with a function that a worker process calls before the first part of a map.

        It must be defined at the top level of a module, and may be called repeatedly.
        """
        return self._but(_prepare=prepare)

    def _but(self, **changes: Any) -> Self:
        """Return this engine with changed attributes; connection and counts are shared."""
        other = copy(self)
        vars(other).update(changes)
        return other

    def usage(self) -> dict[str, int]:
        """Return ``tasks`` done so far, and ``bytes_moved``: their pickled arguments and results."""
        return dict(self._usage)

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` in the order of ``parts``.

        Several short parts are sent in one task. The number of tasks submitted ahead is limited, so
        that waiting results cannot pile up. `BigmcError` if a part kills one worker after the other,
        or the scheduler or all workers are gone.
        """
        # Plain pickle refuses functions that close over arrays of this process.
        payload = pickle.dumps((fn, shared, self._prepare), pickle.HIGHEST_PROTOCOL)
        n_workers, looked = self.n_workers, time.monotonic()
        source, left, pace = iter(parts), length_hint(parts), _Pace()
        waiting: deque[tuple[list[P], Any]] = deque()
        reached: set[str] = set()
        number = 0
        task: Any = payload

        def submit(some: list[P]) -> tuple[list[P], Any]:
            packed = pickle.dumps(some, pickle.HIGHEST_PROTOCOL)
            self._usage["bytes_moved"] += len(packed)
            return some, self._submit(dask_tasks.run, task, packed, self._most)

        def take() -> Iterator[tuple[P, R]]:
            nonlocal number
            some, future = waiting[0]
            name = f"part {number}" + (f" to {number + len(some) - 1}" if len(some) > 1 else "")
            done: dask_tasks.Done = self._result(future, f"{name} ({fn.__name__.strip('_')})")
            waiting.popleft()
            if len(done.results) < len(some):
                waiting.appendleft(submit(some[len(done.results) :]))
            pace.add(done)
            self._usage["tasks"] += 1
            self._usage["bytes_moved"] += done.n_bytes + (0 if done.worker in reached else len(payload))
            reached.add(done.worker)
            number += len(done.results)
            for part, packed in zip(some, done.results, strict=False):
                yield part, pickle.loads(packed)  # from our own worker

        try:
            if len(payload) > _LARGE:
                task = self._submit(dask_tasks.same, payload)
            while some := list(islice(source, pace.parts(left, n_workers))):
                left -= len(some)
                if time.monotonic() - looked > LOOK_SECONDS:  # more workers may have come
                    n_workers, looked = self.n_workers, time.monotonic()
                waiting.append(submit(some))
                while len(waiting) >= _AHEAD * n_workers:
                    yield from take()
            while waiting:
                yield from take()
        finally:
            for _, future in waiting:
                _forget(future)

    def reduce(self, fn: Callable[..., R], add: Callable[[R, R], R], parts: Sequence[P], *shared: Any) -> R:
        """Return the sum of ``fn(part, *shared)`` over all parts; see `Engine.reduce`.

        Results stay on the workers until they are added up. Those of a lost worker are computed again. Errors
        as of `map`.
        """
        payload = pickle.dumps((fn, shared, self._prepare), pickle.HIGHEST_PROTOCOL)
        packed = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
        # Always as the result of a task: a worker that starts late gets it from another one.
        task = self._submit(dask_tasks.same, payload)
        adder = pickle.dumps(add, pickle.HIGHEST_PROTOCOL)
        n_adds = 0

        def add_there(total: Any, other: Any) -> Any:
            nonlocal n_adds
            n_adds += 1
            # Before further parts, so that few results wait.
            return self._submit(dask_tasks.add, adder, total, other, priority=1)

        results = (self._submit(dask_tasks.run_one, task, part, self._most) for part in packed)
        total = sum_in_groups(results, add_there)
        try:
            done: bytes = self._result(total, f"a part ({fn.__name__.strip('_')})")
        finally:
            _forget(total)
        self._usage["tasks"] += len(packed) + n_adds
        senders = min(len(packed), self.n_workers)
        self._usage["bytes_moved"] += sum(map(len, packed)) + senders * len(payload) + len(done)
        result: R = pickle.loads(done)  # from our own worker
        return result

    def _workers(self) -> list[Mapping[str, Any]]:
        try:
            return list(self._client.scheduler_info(n_workers=-1)["workers"].values())
        except (OSError, CancelledError, RuntimeError, KeyError):  # KeyError: it left before it answered
            raise self._gone() from None

    def _threads(self, worker: Mapping[str, Any]) -> int:
        threads = int(worker["nthreads"])
        return threads if self._most is None else min(threads, self._most)

    def _submit(self, fn: Callable[..., Any], *args: Any, priority: int = 0) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            try:
                # Not pure, since equal calls may read changed files.
                return self._client.submit(fn, *args, pure=False, priority=priority)
            except (OSError, CancelledError, RuntimeError):
                raise self._gone() from None

    def _result(self, future: Any, name: str) -> Any:
        """Wait for a result while there are a scheduler and workers, or workers may still come."""
        deserted: float | None = None
        answer = self._gathered(future)
        while True:
            try:
                return answer.result(LOOK_SECONDS)
            except (CancelledError, Exception) as error:
                if not isinstance(error, TimeoutError) or answer.done():
                    explained = self._explained(error, name)
                    if explained is None:
                        raise
                    raise explained from None
            if self._client.status != "running":
                raise self._gone()
            if self._workers():
                deserted = None
            elif deserted is None:
                deserted = time.monotonic()
            elif time.monotonic() - deserted > DESERTED_SECONDS:
                raise BigmcError(
                    f"the Dask cluster has had no workers for {DESERTED_SECONDS:.0f} seconds",
                    f"start some, then {_AGAIN}",
                )

    def _gathered(self, future: Any) -> futures.Future[Any]:
        """Return what will hold the result of a future, and can be waited for again and again.

        A wait for the future itself cancels, when its time is over, what the client has begun to fetch. Where
        that has not taken its first step the client keeps it as the one that others join: every later result
        is then cancelled at once, for ever.
        """
        try:
            loop = self._client.loop.asyncio_loop  # first: it raises an error where it has ended
            return asyncio.run_coroutine_threadsafe(self._client.gather(future, asynchronous=True), loop)
        except (OSError, CancelledError, RuntimeError):
            raise self._gone() from None

    def _explained(self, error: BaseException, name: str) -> BigmcError | None:
        """Return what an error of Dask means; None for an error of the part."""
        if isinstance(error, KilledWorker):
            return BigmcError(
                f"{name} ended {error.allowed_failures + 1} processes of workers, the last at "
                f"{error.last_worker.address}, which were killed or exceeded their memory limit",
                f"give a smaller --memory, or start the workers with a larger --memory-limit; then {_AGAIN}",
            )
        # The client of a scheduler that is just lost can raise nearly anything.
        if isinstance(error, CancelledError | CommClosedError) or self._client.status != "running":
            return self._gone()
        # A scheduler that cannot read a task raises a RuntimeError without the reason.
        unread = isinstance(error, RuntimeError) and "deserialization of the task" in str(error)
        if unread or isinstance(error, ImportError):
            reason = " ".join(str(error).split())[:80]
            return BigmcError(
                f"the Dask scheduler or a worker cannot load the code of bigmc ({reason})",
                "install the same bigmc and the packages it needs on all machines",
            )
        return None

    def _gone(self) -> BigmcError:
        return BigmcError(
            f"the connection to the Dask scheduler at {self._address} is lost", f"start it, then {_AGAIN}"
        )


def _connect(scheduler: str | Path) -> Any:
    connect: Any = Client
    deadline = time.monotonic() + CONNECT_SECONDS
    while isinstance(scheduler, Path) and not scheduler.is_file() and time.monotonic() < deadline:
        time.sleep(_PAUSE)  # the scheduler may be about to write it
    if isinstance(scheduler, Path) and not scheduler.is_file():
        raise BigmcError(f"there is no scheduler file {scheduler}", "give the file that the scheduler wrote")
    try:
        if isinstance(scheduler, Path):
            return connect(scheduler_file=str(scheduler), timeout=CONNECT_SECONDS, set_as_default=False)
        return connect(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise BigmcError(
            f"no Dask scheduler answers at {scheduler} ({reason})", "check the address"
        ) from None


def _forget(future: Any) -> None:
    """Cancel a future, unless the scheduler is gone."""
    try:
        future.cancel()
    except (OSError, CancelledError, RuntimeError):
        return


@dataclass
class _Pace:
    """Chooses the number of parts per task from the cost of finished parts."""

    share: float | None = None

    def add(self, done: dask_tasks.Done) -> None:
        """Update from a finished task, with more weight on recent ones."""
        whole = max(done.seconds / dask_tasks.TASK_SECONDS, done.n_bytes / dask_tasks.TASK_BYTES, 1e-6)
        share = whole / len(done.results)
        self.share = share if self.share is None else (self.share + share) / 2

    def parts(self, left: int, n_workers: int) -> int:
        """Return the number of parts of the next task, leaving some of the rest for other workers."""
        return 1 if self.share is None else max(1, int(min(1 / self.share, left / (2 * n_workers))))
