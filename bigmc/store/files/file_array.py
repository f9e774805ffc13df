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
            pages = mmap.mmap(handle, size)
    finally:
        os.close(handle)
    return np.frombuffer(pages, dtype).reshape(shape)
