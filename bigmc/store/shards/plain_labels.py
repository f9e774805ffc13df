"""Labels in memory whose missing values are marked: pandas' nullable types, Arrow arrays, lists with None."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError


def plain_labels(y: Any) -> Any:
    """Return labels without a type for missing values, and other labels as they are.

    NumPy and scikit-learn make floats of integers and booleans of pandas' nullable types, and floats above
    2**53 merge neighbouring integers into one class. Scikit-learn refuses NumPy's StringDType. `DataError`,
    naming its row, if a label is missing.
    """
    if hasattr(y, "__dask_graph__"):
        return y
    if hasattr(y, "iloc") and getattr(y, "ndim", 1) == 2:  # scikit-learn takes a frame of one column
        return np.asarray(plain_labels(y.iloc[:, 0])).reshape(-1, 1) if y.shape[1] == 1 else y
    missing = _missing(y)
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(f"row {row}: the label is missing", "leave the row out, or give its label")
    if isinstance(y, np.ndarray) and y.dtype.kind == "T":
        return y.astype(object)
    plain = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    return y if plain is None or plain.kind not in "iub" else y.to_numpy(dtype=plain)


def _missing(y: Any) -> NDArray[np.bool_]:
    """Return which labels are missing."""
    for name in ("isna", "is_null"):  # pandas; Arrow and polars
        if hasattr(y, name):
            return np.asarray(getattr(y, name)(), bool)
    if isinstance(y, np.ndarray):
        if y.dtype.kind == "f":
            return np.isnan(y).ravel()
        y = y.ravel().tolist() if y.dtype.kind in "OT" else []
    return np.array([_is_missing(label) for label in y] if isinstance(y, list | tuple) else [], bool)


def _is_missing(label: object) -> bool:
    """Return whether a label is None, NaN, or the missing value of pandas."""
    is_nan = isinstance(label, float) and math.isnan(label)
    return label is None or is_nan or type(label).__name__ == "NAType"
