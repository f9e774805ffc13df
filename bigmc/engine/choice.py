"""Resolve the `engine` argument of the public functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigmc.engine.base import Engine
from bigmc.engine.threads import ThreadEngine
from bigmc.errors import BigmcError

EngineLike = Any
"""An `Engine`, a ``distributed.Client``, the address of a scheduler, or None: see `opened`."""


@contextmanager
def opened(given: EngineLike, prepare: Callable[[], None] | None = None) -> Iterator[Engine]:
    """Yield the engine for `given`; a connection opened by this call is closed at the end.

    An engine or a client stays open; a string or path is the address of a Dask scheduler or its scheduler
    file; None is one thread per processor. For `prepare` see `Engine.prepared`. `BigmcError` if it is
    something else, or no scheduler with workers is found.
    """
    if given is None:
        yield ThreadEngine()
    elif all(hasattr(given, name) for name in ("map", "n_workers", "prepared")):
        yield given if prepare is None else given.prepared(prepare)
    elif isinstance(given, str | Path) or hasattr(given, "scheduler_info"):
        try:
            from bigmc.engine.dask import DaskEngine
        except ImportError as error:
            raise BigmcError(
                f"a Dask cluster needs a package that is not installed ({error})",
                "pip install 'dask[distributed]'",
            ) from None
        with DaskEngine(given) as engine:
            yield engine if prepare is None else engine.prepared(prepare)
    else:
        raise BigmcError(
            f"engine is {given!r:.80}",
            "give an Engine, a distributed.Client, the address of a Dask scheduler, or nothing",
        )
