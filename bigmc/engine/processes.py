"""Prepare a process for work: return freed memory at once, compile kernels elsewhere."""

from __future__ import annotations

import atexit
import ctypes
import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import SimpleNamespace

import pyarrow as pa
from numba.core.registry import cpu_target
from threadpoolctl import threadpool_limits

from bigmc.budget import current_memory, give_back_free_pages
from bigmc.kernels.compile_server import compile_elsewhere

# Numba prepares LLVM (30 MB) at the first call of a kernel, and pyarrow
# imports pandas (37 MB, if installed) at the first conversion. Both count as libraries,
# so load them now and not in the middle of a run.
cpu_target.target_context  # noqa: B018  (made at first use)
pa.array([0])

_ARROW_POOL = pa.default_memory_pool()
"""Arrow's default memory pool, which it uses where no other can be set, as for writing Parquet."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BLOCK = 1 << 18
_LARGEST_BLOCK = 32 << 20  # glibc's maximum

ROOMY_LIMIT = 512_000_000
"""Memory limit from which on up to a sixteenth of it is kept after freeing: getting new pages from the system
takes a quarter of the processor time of an ingest."""

_KEPT_SHARE = 4
"""The process may grow by such a limit over this before `trim_if_full` gives back free pages: after every
shard, that took up to a tenth of the processor time of an ingest, since the pages are needed again."""

_state = SimpleNamespace(full=0)
"""Resident bytes from which on `trim_if_full` gives back free pages."""


@contextmanager
def prompt_release(limit: int = 0) -> Iterator[None]:
    """Return freed memory to the system at once, so that the peak is that of the memory in use.

    If the memory limit is at least `ROOMY_LIMIT`, some is kept. Meanwhile another process compiles kernels
    that are not in numba's cache.

    By default glibc's malloc keeps a heap per thread and raises the size from which
    blocks are returned, and Arrow's allocator keeps freed memory; together they held three times the memory
    in use.
    """
    compile_elsewhere()
    pool, full = pa.default_memory_pool(), _state.full
    _state.full = current_memory() + limit // _KEPT_SHARE if limit >= ROOMY_LIMIT else 0
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
        _state.full = full
        trim()


def trim() -> None:
    """Return the free pages inside the heap, which is fragmented by small blocks."""
    _ARROW_POOL.release_unused()
    give_back_free_pages()


def trim_if_full() -> None:
    """Return the free pages inside the heap, unless the limit of `prompt_release` is far from reached."""
    if current_memory() >= _state.full:
        trim()


def tidy() -> None:
    """Free what only refers to itself, and return free pages: between steps that keep other things.

    What a step leaves in the heap was measured to be up to 90 MB: texts of a sample, models of a search.
    """
    gc.collect()
    trim()


def prepare_process() -> None:
    """Prepare a worker process, again for every kind of work.

    Freed memory is returned at once, matrix products use one thread, and another process compiles the kernels
    of the work.
    """
    compile_elsewhere()
    _settle()


@lru_cache(maxsize=1)
def _settle() -> None:
    stack = ExitStack()
    stack.enter_context(prompt_release())
    stack.enter_context(threadpool_limits(1, "blas"))
    atexit.register(stack.close)
