"""What a process does before it works for another one."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import lru_cache

from threadpoolctl import threadpool_limits

from bigmc.ingestion.memory import prompt_release
from bigmc.kernels.compile_server import compile_elsewhere


def prepare_process() -> None:
    """Prepare a process that works for another, once more for every kind of work it gets.

    Freed memory goes back at once, matrix products take one thread, and kernels that the work brought along
    are compiled by another process.
    """
    compile_elsewhere()
    _settle()


@lru_cache(maxsize=1)
def _settle() -> None:
    stack = ExitStack()
    stack.enter_context(prompt_release())
    stack.enter_context(threadpool_limits(1, "blas"))
    atexit.register(stack.close)
