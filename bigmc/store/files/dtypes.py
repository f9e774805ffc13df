"""Storage types of values: the smallest dtype that holds all of them exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.csc import scan_floats

#: Every dtype a shard's values may have, smallest first.
VALUE_DTYPES = tuple(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.float32, np.float64))


def _smallest_integer(low: float, high: float) -> np.dtype[Any] | None:
    for dtype in VALUE_DTYPES[:3]:
        limit = 2 ** (8 * dtype.itemsize - 1)
        if -limit <= low and high < limit:
            return dtype
    return None


def smallest_exact_dtype(*pieces: NDArray[Any]) -> np.dtype[Any]:
    """Return the smallest of `VALUE_DTYPES` that holds every value of some arrays exactly.

    NaN and infinities are exact in float32; a zero may lose its sign. `DataError` if the values are not
    real numbers, or are integers that float64 cannot hold.
    """
    dtype = np.result_type(*(piece.dtype for piece in pieces))
    if dtype.kind == "b":
        return VALUE_DTYPES[0]
    if dtype.kind in "iu":
        return _for_integers([piece for piece in pieces if piece.size])
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise DataError(f"values of type {dtype} cannot be stored", "use integers, float32 or float64")
    scanned = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    scans = [scan_floats(piece.ravel().astype(scanned, copy=False)) for piece in pieces]
    integral, single, lowest, highest = zip(*scans, strict=True)
    small = _smallest_integer(min(lowest), max(highest)) if all(integral) else None
    return small or VALUE_DTYPES[3 if all(single) else 4]


def _for_integers(pieces: list[NDArray[Any]]) -> np.dtype[Any]:
    """Return the smallest dtype for arrays of integers, none of them empty."""
    low = min((int(piece.min()) for piece in pieces), default=0)
    high = max((int(piece.max()) for piece in pieces), default=0)
    small = _smallest_integer(low, high)
    if small is not None:
        return small
    for dtype in VALUE_DTYPES[3:]:
        # Compared one by one and as floats of the full width: a cast back to integers may overflow.
        if all(float(dtype.type(x)) == x for piece in pieces for x in np.unique(piece).tolist()):
            return dtype
    raise DataError(f"float64 cannot represent integers up to {max(high, -low)} exactly")


def common_dtype(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the smallest of `VALUE_DTYPES` that holds values of every one of `dtypes` exactly."""
    return np.dtype(np.result_type(*dtypes)) if dtypes else VALUE_DTYPES[0]
