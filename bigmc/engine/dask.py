"""Parts on the workers of a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from distributed import Client

from bigmc.errors import BigmcError

P = TypeVar("P")
R = TypeVar("R")

#: Seconds to wait for a scheduler.
_TIMEOUT = 20
#: Parts submitted beyond the workers there are, so that none waits for work.
_AHEAD = 2


class DaskEngine:
    """Run parts on a Dask cluster.

    What is run must be a function at the top of a module, and parts and shared arguments small and
    picklable: paths and numbers, not data. The workers must see the same files. A worker that is lost
    costs the computation of its parts once more, nothing else: no data is left on workers.

    Parameters
    ----------
    scheduler : distributed.Client or str
        A client, which stays open, or the address of a scheduler, such as ``"tcp://10.0.0.1:8786"``;
        that connection is closed by `close` or at the end of a ``with`` block.

    Raises
    ------
    BigmcError
        If no scheduler answers at the address, or it has no workers.
    """

    def __init__(self, scheduler: Client | str) -> None:
        self._owns = isinstance(scheduler, str)
        self._client: Any = scheduler
        if self._owns:
            connect: Any = Client
            try:
                self._client = connect(scheduler, timeout=_TIMEOUT, set_as_default=False)
            except (OSError, ValueError) as error:
                reason = " ".join(str(error).split())
                raise BigmcError(
                    f"no Dask scheduler answers at {scheduler} ({reason})", "check the address"
                ) from None
        if not self._client.scheduler_info(n_workers=-1)["workers"]:
            self.close()
            raise BigmcError("the Dask cluster has no workers", "start some, then train again")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if it was made here."""
        if self._owns:
            self._client.close()

    @property
    def n_workers(self) -> int:
        """Number of parts that run at once."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return max(1, sum(int(worker["nthreads"]) for worker in workers))

    def map(self, fn: Callable[..., R], parts: Iterable[P], *shared: Any) -> Iterator[tuple[P, R]]:
        """Yield ``(part, fn(part, *shared))`` in the order of ``parts``.

        A few parts more than there are threads are submitted ahead of the reader, so that results
        waiting for their turn cannot pile up.
        """
        most = self.n_workers + _AHEAD
        waiting: deque[tuple[P, Any]] = deque()
        try:
            for part in parts:
                # Not pure: equal calls may read files that have changed in between.
                waiting.append((part, self._client.submit(fn, part, *shared, pure=False)))
                if len(waiting) >= most:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
