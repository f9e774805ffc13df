"""How much memory ingest takes: the share of each worker, and allocators that give back what is freed.

The limit counts what a run adds to the bare process, which is the interpreter and the libraries that
ingest imports.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numba.core.registry import cpu_target

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.ingest.part import Shares

# Numba imports 116 modules (52 MB) at the first call of a kernel, pyarrow imports pandas (37 MB, where it
# is installed) at the first conversion. They are imported libraries like the others, so they are loaded
# with them and not in the middle of a run.
cpu_target.target_context.refresh()
pa.array([0])

BATCH_COST = 32
"""Bytes in memory per source byte of a batch: raw and parsed text, n-grams of the densest analyzer."""

PEAK_FACTOR = 3.5
"""Memory of a flush in multiples of the samples written: pieces, their concatenation, columns, codec."""

SMALLEST_WORKER = 12_000_000
"""With less than this a worker would write shards of a few thousand rows."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BLOCK = 1 << 18


def divide(limit: int, n_workers: int, names: bool) -> tuple[int, Shares]:
    """Return how many workers a memory limit allows, and the share of each.

    Raises
    ------
    MemoryLimitError
        If it does not allow one.
    """
    n_workers = max(1, min(n_workers, limit // SMALLEST_WORKER))
    mine = limit // n_workers
    if mine < SMALLEST_WORKER:
        raise MemoryLimitError(
            f"ingest with a memory limit of {format_bytes(limit)} cannot work",
            f"give at least {format_bytes(SMALLEST_WORKER)}",
        )
    batch_bytes = int(np.clip(mine // (4 * BATCH_COST), 1 << 16, 4 << 20))
    name_bytes = min(mine // 6, 24 << 20) if names else 0
    buffer_bytes = int((mine - batch_bytes * BATCH_COST - name_bytes) / PEAK_FACTOR)
    return n_workers, Shares(batch_bytes, buffer_bytes, name_bytes)


@contextmanager
def prompt_release() -> Iterator[None]:
    """Let freed memory go back to the system at once, so that the peak is that of what is in use.

    By default each thread of glibc's malloc keeps a heap of its own and raises the size from which
    blocks are returned, and Arrow's allocator keeps what it has; together they held three times what was
    in use.
    """
    pool = pa.default_memory_pool()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc; musl returns freed memory anyway
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BLOCK)
        libc.mallopt(_M_ARENA_MAX, 2)
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
