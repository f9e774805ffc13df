"""Arrays too large for memory, in a file that ends with them."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def file_array(shape: tuple[int, ...], dtype: DTypeLike, folder: Path | None = None) -> NDArray[Any]:
    """Return an array of zeros whose elements are pages of a file, not memory of the process.

    The system writes them back when others need memory. The file has no name: it goes with the array, however
    the process ends.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    folder : Path, optional
        Of the file, by default the system's for temporary files.

    Raises
    ------
    OSError
        If the disk has no space for all of it; later there is no other way to learn that than a signal.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    handle, name = tempfile.mkstemp(prefix="bigmc-array-", dir=folder)
    try:
        os.unlink(name)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:  # no such call on macOS
            os.ftruncate(handle, size)
        pages = mmap.mmap(handle, size)
    finally:
        os.close(handle)
    return np.frombuffer(pages, dtype).reshape(shape)
