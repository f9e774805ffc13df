"""Names of features: which a model keeps, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.lazy import LazyModule
from bigmc.store.files.npy import ArraySize

pc = LazyModule("pyarrow.compute")

#: Maximum names kept of one feature, the most frequent ones; more would only show more collisions.
NAMES_PER_FEATURE = 8

#: Stored instead of the count of a column that is not hashed, which has none.
_NONE = -1

NAME_COST = 120
"""Bytes of a name, besides its arrays, while a model is opened: a Python object, and in a sorted copy."""

_COMPARED = 1024
"""Names compared at once, as Python objects."""

_NAME_COLUMNS = {"bucket": pa.int64(), "name": pa.string(), "sign": pa.int8(), "count": pa.int64()}


def names_of(features: NDArray[np.int64], names: pa.Table) -> pa.Table:
    """Return the most frequent names of the given features, ordered by feature, count and name."""
    if _are_in_order(features, names):
        return names  # without pyarrow's functions, which take .02 s to import
    table = names.select(list(_NAME_COLUMNS)).cast(pa.schema(_NAME_COLUMNS))
    table = table.filter(pa.array(np.isin(table.column("bucket").to_numpy(), features)))
    table = table.sort_by([("bucket", "ascending"), ("count", "descending"), ("name", "ascending")])
    buckets = table.column("bucket").to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    return table.filter(pa.array(rank < NAMES_PER_FEATURE)).combine_chunks()


def _are_in_order(features: NDArray[np.int64], names: pa.Table) -> bool:
    """Return whether names are as `names_of` returns them; those of a saved model are."""
    if names.schema != pa.schema(_NAME_COLUMNS) or names.column("name").null_count:
        return False
    buckets = names.column("bucket").to_numpy()
    counts = names.column("count").to_numpy()
    counts = np.where(np.isnan(counts), _NONE, counts) if counts.dtype.kind == "f" else counts
    is_same, steps = buckets[1:] == buckets[:-1], np.diff(counts)
    is_tie = is_same & (steps == 0)
    if not np.all((buckets[1:] > buckets[:-1]) | is_same & (steps < 0) | is_tie):
        return False
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    if np.any(rank >= NAMES_PER_FEATURE) or not np.isin(buckets, features).all():
        return False
    return all(
        _are_sorted(names.column("name"), lo, is_tie[lo : lo + _COMPARED])
        for lo in range(0, len(is_tie), _COMPARED)
    )


def _are_sorted(texts: pa.ChunkedArray, start: int, is_tie: NDArray[np.bool_]) -> bool:
    """Return whether each of these texts, from `start` on, that ties with the next is not greater than it."""
    if not is_tie.any():
        return True
    some = texts.slice(start, len(is_tie) + 1).to_pylist()
    return all(some[i] <= some[i + 1] for i in np.flatnonzero(is_tie).tolist())


def names_to_arrays(names: pa.Table) -> dict[str, NDArray[Any]]:
    """Return the arrays that hold a table of names; texts are joined."""
    encoded = [name.encode() for name in names.column("name").to_pylist()]
    columns = {column: names.column(column).fill_null(_NONE) for column in _NAME_COLUMNS if column != "name"}
    arrays = {f"names_{column}": values.to_numpy() for column, values in columns.items()}
    arrays["names_text"] = np.frombuffer(b"".join(encoded), np.uint8)
    arrays["names_ends"] = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return arrays


def sizes_of_names(names: pa.Table) -> dict[str, ArraySize]:
    """Return the sizes of the arrays of `names_to_arrays`, without making them."""
    n_bytes = pc.sum(pc.binary_length(names.column("name"))).as_py() or 0
    types = {"bucket": np.int64, "sign": np.int8, "count": np.int64, "ends": np.int64}
    sizes = {f"names_{name}": ArraySize((names.num_rows,), np.dtype(type)) for name, type in types.items()}
    return sizes | {"names_text": ArraySize((n_bytes,), np.dtype(np.uint8))}


def names_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> pa.Table | None:
    """Return the table of names in the arrays of an archive, None if it has none."""
    if "names_text" not in arrays:
        return None
    text, ends = arrays["names_text"], arrays["names_ends"]
    lengths = np.diff(ends, prepend=0)
    if (
        ends.dtype != np.int64
        or text.dtype != np.uint8
        or np.any(lengths < 0)
        or ends[-1:].sum() != len(text)
    ):
        raise ValueError("the ends of the names do not fit their text")
    if len(text) > np.iinfo(np.int32).max:
        raise ValueError(f"there are {len(text):,} bytes of names")
    offsets = pa.py_buffer(np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)]))
    name = pa.Array.from_buffers(pa.string(), len(ends), [None, offsets, pa.py_buffer(text)])
    name.validate(full=True)
    count = pa.array(arrays["names_count"], mask=arrays["names_count"] == _NONE)
    return pa.table(
        {"bucket": arrays["names_bucket"], "name": name, "sign": arrays["names_sign"], "count": count}
    )
