"""Plain labels and JSON for model files, which hold no Python objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.store.shards.memory_shard import native_values


def label_array(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels as an array that is saved without pickle and opened again, with equal values."""
    if classes.dtype.kind not in "OT":
        if classes.dtype.kind not in "biufU":
            raise ModelError(f"labels of type {classes.dtype}", "use integers, strings, booleans or floats")
        plain: NDArray[Any] = native_values(classes)  # the other types are refused when a model is opened
        return plain
    labels = classes.tolist()
    kinds = {type(label) for label in labels}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ModelError(f"labels of the types {names}", "use one of: integers, strings, booleans or floats")
    plain = np.array(labels)
    if plain.dtype.kind == "O" or plain.tolist() != labels:  # huge integers, strings that end with NUL
        raise ModelError("some labels cannot be stored exactly", "use shorter numbers and plain text")
    return plain


def as_json(value: Any) -> Any:
    """Return a value as it is after JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
