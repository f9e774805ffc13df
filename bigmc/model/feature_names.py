"""Names of features: which are kept in a model, and how they become arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Most names kept of one feature, the most frequent ones; more only repeat that hashes collide.
NAMES_PER_FEATURE = 8

#: Stands for the count of a column of the user's own, which has none.
_NONE = -1

_NAME_COLUMNS = {"bucket": pa.int64(), "name": pa.string(), "sign": pa.int8(), "count": pa.int64()}


def names_of(features: NDArray[np.int64], names: pa.Table) -> pa.Table:
    """Return the most frequent names of the given features, ordered by feature, count and name."""
    table = names.select(list(_NAME_COLUMNS)).cast(pa.schema(_NAME_COLUMNS))
    table = table.filter(pa.array(np.isin(table.column("bucket").to_numpy(), features)))
    table = table.sort_by([("bucket", "ascending"), ("count", "descending"), ("name", "ascending")])
    buckets = table.column("bucket").to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    return table.filter(pa.array(rank < NAMES_PER_FEATURE)).combine_chunks()


def names_to_arrays(names: pa.Table) -> dict[str, NDArray[Any]]:
    """Return the arrays that hold a table of names; texts are joined."""
    encoded = [name.encode() for name in names.column("name").to_pylist()]
    columns = {column: names.column(column).fill_null(_NONE) for column in _NAME_COLUMNS if column != "name"}
    arrays = {f"names_{column}": values.to_numpy() for column, values in columns.items()}
    arrays["names_text"] = np.frombuffer(b"".join(encoded), np.uint8)
    arrays["names_ends"] = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return arrays


def names_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> pa.Table | None:
    """Return the table of names in the arrays of an archive, None if it has none."""
    if "names_text" not in arrays:
        return None
    text, ends = arrays["names_text"].tobytes(), arrays["names_ends"].tolist()
    names = [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    columns = {column: arrays[f"names_{column}"] for column in ("bucket", "sign")}
    count = pa.array(arrays["names_count"], mask=arrays["names_count"] == _NONE)
    return pa.table({**columns, "count": count, "name": pa.array(names, pa.string())})
