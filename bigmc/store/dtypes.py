"""The dtypes values are stored in: always the smallest that holds every one of them exactly."""

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


def smallest_exact_dtype(data: NDArray[Any]) -> np.dtype[Any]:
    """Return the smallest of `VALUE_DTYPES` that holds every value of `data` exactly.

    Parameters
    ----------
    data : array of booleans, integers or floats
        NaN and infinities are exact in float32; a zero may lose its sign.

    Raises
    ------
    DataError
        If the values are not real numbers, or are integers that float64 cannot hold.
    """
    kind = data.dtype.kind
    if kind == "b":
        return VALUE_DTYPES[0]
    if kind in "iu":
        low, high = (int(data.min()), int(data.max())) if data.size else (0, 0)
        small = _smallest_integer(low, high)
        if small is not None:
            return small
        for dtype in VALUE_DTYPES[3:]:
            # Compared one by one and as floats of the full width: a cast back to integers may overflow.
            if all(float(dtype.type(x)) == x for x in np.unique(data).tolist()):
                return dtype
        raise DataError(f"integers up to {max(high, -low)} are not exact in float64")
    if kind != "f" or data.dtype.itemsize > 8:
        raise DataError(f"values of type {data.dtype} cannot be stored", "use integers, float32 or float64")
    flat = data.ravel()
    if flat.dtype.itemsize < 4:
        flat = flat.astype(np.float32)
    integral, single, lowest, highest = scan_floats(flat)
    small = _smallest_integer(lowest, highest) if integral else None
    return small or VALUE_DTYPES[3 if single else 4]


def common_dtype(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the smallest of `VALUE_DTYPES` that holds values of every one of `dtypes` exactly."""
    return np.dtype(np.result_type(*dtypes)) if dtypes else VALUE_DTYPES[0]
