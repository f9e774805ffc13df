"""Compile kernels ahead: a second process compiles what a first fit needs later, while this one computes.

A kernel is compiled when it is called for the first time, and a fit calls some hundred one after the other:
nearly all the time of a first fit is compiling, by one processor. A program that calls the same kernels, the
last ones first, starts where a kernel is missing. Both share numba's cache and take turns at the kernels that
both need (`bigmc.kernels.compile_server`).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType

from bigmc.engine import threads
from bigmc.engine.base import Engine
from bigmc.kernels import compile_server

LEAST_MEMORY = 2_000_000_000
"""Smallest memory limit in bytes with which another process is started; it takes some 500 MB."""

LOCKED = __file__
"""What is locked; where it cannot be, no process is started."""

PATIENCE = 10.0
"""Seconds after which a process that does not end is killed."""


class Ahead:
    """Compile ahead while the context is open, where there are memory and processors for it.

    One process of a machine does, which holds a lock: twenty that start at once need the same kernels.
    Workers of a cluster compile for themselves.
    """

    def __init__(self, engine: Engine) -> None:
        self._has_processors = engine.shares_memory and threads.available_cpus() > 1
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    def expect(self, module: str, arguments: Sequence[str], limit: int) -> None:
        """Run a module with arguments, if there are any, as soon as a kernel is missing.

        It ends when its input is closed. `limit` is the memory limit of this process in bytes.
        """
        if arguments and self._has_processors and limit >= LEAST_MEMORY and sys.executable:
            compile_server.on_miss[:] = [partial(self._start, module, arguments)]

    def _start(self, module: str, arguments: Sequence[str]) -> None:
        with suppress(OSError):
            self._lock = os.open(LOCKED, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=compile_server.child_environment(),
            )

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        compile_server.on_miss.clear()
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._lock is not None:
            os.close(self._lock)
