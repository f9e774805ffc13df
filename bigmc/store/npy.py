"""Arrays in NumPy's file format: a header that does not fit the file is refused before memory is taken."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


def read_npy(content: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a ``.npy`` file; nothing in it is ever executed.

    Raises
    ------
    ValueError
        If the bytes are no such file, hold Python objects, or are not as many as the header says.
    """
    stream = io.BytesIO(content)
    check_npy(stream, len(content))
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def check_npy(stream: BinaryIO, n_bytes: int) -> None:
    """Compare the header of a ``.npy`` file with its length, and go back to its beginning.

    Parameters
    ----------
    stream : file
        At the beginning of the ``.npy`` file, able to seek.
    n_bytes : int
        Length of the file.

    Raises
    ------
    ValueError
        If the header cannot be read, or the array it describes has another length.
    """
    start = stream.tell()
    version = np.lib.format.read_magic(stream)
    try:
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version} of the .npy format is not supported")
    except Exception as error:  # NumPy parses the header as Python's literals: there are many ways to fail
        raise ValueError(f"its header cannot be read ({type(error).__name__}: {error})") from None
    size = dtype.itemsize
    for n in shape:
        size *= int(n)
    held = n_bytes - (stream.tell() - start)
    if dtype.hasobject or size != held:
        raise ValueError(f"an array of shape {shape} and type {dtype} is not in {held} bytes")
    stream.seek(start)
