"""NumPy's file format; a header that does not fit the file is refused before memory is allocated."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ArraySize(NamedTuple):
    """Shape and type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: NDArray[Any]) -> ArraySize:
        """Return the size of an array."""
        return cls(array.shape, array.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.dtype.itemsize * math.prod(self.shape)


def read_npy(content: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a ``.npy`` file; nothing in it is ever executed.

    `ValueError` if the bytes are not such a file, hold Python objects, or do not match the size in the
    header.
    """
    stream = io.BytesIO(content)
    check_npy(stream, len(content))
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def npy_pieces(array: NDArray[Any]) -> Sequence[bytes | memoryview]:
    """Return the bytes of a ``.npy`` file: its header, and the memory of the array, which is not copied.

    `ValueError` if the array holds Python objects.
    """
    array, stream = np.ascontiguousarray(array), io.BytesIO()
    # The array itself comes below, but NumPy says whether it can be saved.
    np.lib.format.write_array(stream, array[:0], version=(1, 0), allow_pickle=False)
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
    return [stream.getvalue(), *([array.reshape(-1).view(np.uint8).data] if array.nbytes else [])]


def check_npy(stream: BinaryIO, n_bytes: int) -> ArraySize:
    """Return the size of the array in a ``.npy`` file of `n_bytes`, and rewind the file.

    `ValueError` if the header cannot be read, or the array it describes has another length.
    """
    start = stream.tell()
    size = read_size(stream)
    held = n_bytes - (stream.tell() - start)
    if size.nbytes != held:
        raise ValueError(f"an array of shape {size.shape} and type {size.dtype} is not in {held} bytes")
    stream.seek(start)
    return size


def read_size(stream: BinaryIO) -> ArraySize:
    """Return the size of the array in a ``.npy`` file, from its header only.

    `ValueError` if the header cannot be read, or the array holds Python objects.
    """
    version = np.lib.format.read_magic(stream)
    try:
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version} of the .npy format is not supported")
    except Exception as error:  # NumPy parses the header as Python literals: many errors
        raise ValueError(f"its header cannot be read ({type(error).__name__}: {error})") from None
    if dtype.hasobject or any(n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape} and type {dtype} is not plain")
    return ArraySize(tuple(int(n) for n in shape), dtype)
