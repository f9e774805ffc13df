"""Columns of categories: each hashed as ``column=value``, as scikit-learn's FeatureHasher does.

A value is formatted and hashed once per batch, or once for all batches of a row group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.hashing.hasher import hash_strings
from bigmc.ingestion.hashing.row_builder import RowBuilder
from bigmc.ingestion.hashing.scratch import FOLD_ROWS, PIECE_ENTRIES, scratch
from bigmc.kernels.hashing.codes import hashes_of_codes
from bigmc.lazy import LazyModule
from bigmc.store.shards.csr import Rows

pc = LazyModule("pyarrow.compute")


class Categories(NamedTuple):
    """A column of categories.

    `codes`, of shape (n_rows,), has the position of each row's name. `names` are ``column=value``, possibly
    with duplicates or unused ones; `hashes` and `values` are those of the names.
    """

    codes: NDArray[np.int32]
    names: pa.Array
    hashes: NDArray[np.uint32]
    values: pa.Array


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, or nothing."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_null(kind)
        or types.is_string_view(kind)
        or (types.is_dictionary(kind) and is_text(kind.value_type))
    )


def plain_text(column: pa.Array) -> pa.Array:
    """Return a text column as ``string`` or ``large_string``, decoded."""
    kind = column.type
    return column if pa.types.is_string(kind) or pa.types.is_large_string(kind) else column.cast(pa.string())


def category_text(column: pa.Array) -> pa.Array:
    """Return category values formatted like Python's ``str``."""
    if is_text(column.type):
        return plain_text(column)
    return pa.array([str(value) for value in column.to_pylist()], pa.string())


def categories_of(column: pa.Array, name: str, before: Categories | None = None) -> Categories:
    """Return the categories of a column of texts, integers, booleans or other scalars.

    `before` has those of an earlier batch: batches of one Parquet row group share their values, which need
    not be formatted and hashed again. `DataError` if a value is missing.
    """
    kind = column.type
    if not pa.types.is_dictionary(kind):
        if is_text(kind):
            column = plain_text(column)
        if is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            column = column.dictionary_encode()
    encoded = pa.types.is_dictionary(column.type) and not column.null_count
    if encoded and not column.dictionary.null_count:
        codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        values = column.dictionary
    else:
        codes, values = np.arange(len(column), dtype=np.int32), column
    if before is not None and values.equals(before.values):
        return before._replace(codes=codes)
    prefix, nothing = (pa.scalar(text, pa.large_string()) for text in (f"{name}=", ""))
    texts = category_text(values).cast(pa.large_string())
    names = pc.binary_join_element_wise(prefix, texts, nothing)
    return Categories(codes, names, hash_strings(names), values)


def hash_categories(columns: Sequence[Categories], hash_bits: int) -> Rows:
    """Return columns of categories as ``2**hash_bits`` features; those of a row add up."""
    n_rows, width = len(columns[0].codes), len(columns)
    builder = RowBuilder(n_rows, hash_bits)
    step = max(1, min(FOLD_ROWS, PIECE_ENTRIES // width))
    for first in range(0, n_rows, step):
        hashes = np.empty((min(step, n_rows - first), width), np.uint32)
        for number, column in enumerate(columns):
            hashes_of_codes(column.codes[first : first + step], column.hashes, hashes[:, number])
        builder.add(np.arange(len(hashes) + 1) * width, hashes.reshape(-1), scratch.ones(hashes.size))
    return builder.finish()
