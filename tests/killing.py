"""Processes killed with SIGKILL at a chosen call, or after a time: what crash tests of every command use."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

ANY = "any"
"""Stands for all watched calls: their numbers count on."""

Kill = tuple[str, int, str]


def child(
    work: Callable[[], object],
    watch: Sequence[tuple[Any, str]],
    kill: Kill | None = None,
    after_seconds: float | None = None,
) -> tuple[int, dict[str, int]]:
    """Run ``work`` in a forked process; return how it ended and how often it made each watched call.

    Parameters
    ----------
    work : callable
    watch : sequence of (owner, name)
        Functions to watch: attributes of modules or classes.
    kill : (name, k, "before" or "after"), optional
        The process kills itself around its k-th call, from 1, of ``name`` or of `ANY`.
    after_seconds : float, optional
        The process is killed from here after this time.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            counts: dict[str, int] = {}
            for owner, name in watch:
                setattr(owner, name, _watched(name, getattr(owner, name), counts, kill))
            work()
            os.write(write_end, json.dumps(counts).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    if after_seconds is not None:
        time.sleep(after_seconds)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read_end) as pipe:
        said = pipe.read()
    return status, json.loads(said) if said else {}


def _watched(
    name: str, function: Callable[..., Any], counts: dict[str, int], kill: Kill | None
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        for key in (name, ANY):
            counts[key] = counts.get(key, 0) + 1
        here = [(key, counts[key]) for key in (name, ANY)]
        if kill is not None and kill[2] == "before" and kill[:2] in here:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if kill is not None and kill[2] == "after" and kill[:2] in here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call
