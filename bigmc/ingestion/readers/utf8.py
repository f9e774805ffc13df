"""Find text that is not UTF-8, which Arrow's readers check late or never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.readers.base import broken
from bigmc.ingestion.readers.rejects import NOT_UTF8
from bigmc.lazy import LazyModule
from bigmc.store.shards.label_sets import is_sets

pc = LazyModule("pyarrow.compute")


def is_string(kind: pa.DataType) -> bool:
    """Return whether a column of this type has texts one after another, with offsets of either width."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _damage(array: Any) -> Exception | None:
    """Return why an array of texts is not valid, None if it is."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        damage: Exception = error
        return damage
    return None


def is_utf8(text: NDArray[np.uint8]) -> bool:
    """Return whether bytes are UTF-8; they are not copied."""
    bounds = pa.py_buffer(np.array([0, len(text)], dtype=np.int64))
    return _damage(pa.Array.from_buffers(pa.large_string(), 1, [None, bounds, pa.py_buffer(text)])) is None


def undecodable(array: Any) -> list[int]:
    """Return the positions of the values of a text column that are not UTF-8."""
    if not is_string(array.type):
        return []
    return sorted(i for i, _ in broken(lambda lo, hi: _damage(array.slice(lo, hi - lo)), len(array)))


def undecodable_rows(batch: Any) -> dict[int, str]:
    """Return, by position, the rows of a record batch with text that is not UTF-8, and the reason.

    Only the requested columns are checked, in every format.
    """
    reasons: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        lists = is_sets(column.type)
        wrong = undecodable(column.flatten() if lists else column)
        for i in np.asarray(pc.list_parent_indices(column))[wrong].tolist() if lists and wrong else wrong:
            reasons.setdefault(i, f"column {name!r} {NOT_UTF8}")
    return reasons
