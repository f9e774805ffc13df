"""What a process does before it works: freed memory goes back at once, kernels are compiled elsewhere."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache

import pyarrow as pa
from numba.core.registry import cpu_target
from threadpoolctl import threadpool_limits

from bigmc.budget import give_back_free_pages
from bigmc.kernels.compile_server import compile_elsewhere

# Numba prepares LLVM (30 MB) at the first call of a kernel, and pyarrow
# imports pandas (37 MB, where it is installed) at the first conversion. They are libraries like the others,
# so they are loaded with them and not in the middle of a run.
cpu_target.target_context  # noqa: B018  (made at first use)
pa.array([0])

_ARROW_POOL = pa.default_memory_pool()
"""What Arrow takes memory from where it cannot be told another pool, as when it writes Parquet."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BLOCK = 1 << 18
_LARGEST_BLOCK = 32 << 20  # glibc takes no larger one

ROOMY_LIMIT = 512_000_000
"""From this limit on, freed memory up to a sixteenth of it is kept: asking the system for new pages takes a
quarter of the processor time of an ingest."""


@contextmanager
def prompt_release(limit: int = 0) -> Iterator[None]:
    """Let freed memory go back to the system at once, so that the peak is that of what is in use.

    Where the memory limit is at least `ROOMY_LIMIT`, some is kept. Kernels that are not in numba's cache are
    compiled by another process meanwhile.

    By default each thread of glibc's malloc keeps a heap of its own and raises the size from which
    blocks are returned, and Arrow's allocator keeps what it has; together they held three times what was
    in use.
    """
    compile_elsewhere()
    pool = pa.default_memory_pool()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc; musl returns freed memory anyway
        roomy = limit >= ROOMY_LIMIT
        libc.mallopt(_M_MMAP_THRESHOLD, min(limit // 32, _LARGEST_BLOCK) if roomy else _LARGE_BLOCK)
        libc.mallopt(_M_TRIM_THRESHOLD, min(limit // 16, 1 << 30) if roomy else _LARGE_BLOCK)
        libc.mallopt(_M_ARENA_MAX, 2)
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
        trim()


def trim() -> None:
    """Return the free pages inside the heap, which many small blocks keep apart."""
    _ARROW_POOL.release_unused()
    give_back_free_pages()


def prepare_process() -> None:
    """Prepare a process that works for another, once more for every kind of work it gets.

    Freed memory goes back at once, matrix products take one thread, and kernels that the work loaded
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
