"""Arrays too large for memory, in a temporary file."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bigmc.store.files import disk


class _Mapped(mmap.mmap):
    """Pages of a file. Of pages that are of no file, `give_back_pages` would lose the content."""


def file_array(shape: tuple[int, ...], dtype: DTypeLike, folder: Path | None = None) -> NDArray[Any]:
    """Return an array of zeros, mapped from a file instead of allocated in memory.

    The system writes pages back when memory is needed. The file, by default in the system's temporary
    folder, has no name, so it disappears with the array, however the process ends. `OSError` if the disk
    has too little space; later, a lack of space could only be noticed by a signal.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    handle, name = tempfile.mkstemp(prefix="bigmc-array-", dir=folder)
    try:
        os.unlink(name)
        with disk.naming(name):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            else:  # no such call on macOS
                os.ftruncate(handle, size)
            pages = _Mapped(handle, size)
    finally:
        os.close(handle)
    return np.frombuffer(pages, dtype).reshape(shape)


def give_back_pages(array: NDArray[Any]) -> None:
    """Give back the memory of elements of a `file_array`, which stay in its file; no effect with others.

    Elements that were read or written count as memory of the process until the system needs it for others.
    The array is C-contiguous: all of a `file_array`, or a slice of it.
    """
    pages: Any = array
    while isinstance(pages, np.ndarray | memoryview):
        pages = pages.base if isinstance(pages, np.ndarray) else pages.obj
    if not isinstance(pages, _Mapped) or array.nbytes == 0:
        return
    start = array.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)
