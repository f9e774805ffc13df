"""Sort samples in row order into the compressed columns of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.csc import count_columns, place_rows
from bigmc.store.files.dtypes import smallest_exact_dtype
from bigmc.store.shards.csr import Rows

_NARROW = int(np.iinfo(np.int32).max)
"""Maximum number of entries with 32-bit offsets: half the memory, and twice as many columns in the cache."""


class Columns(NamedTuple):
    """At most 65,536 samples in compressed columns, as in `scipy.sparse.csc_array`.

    Rows increase within a column; `data` is in the smallest dtype that holds all values exactly. `norm`
    is the Euclidean norm of each row, `entries` the number of its stored entries.
    """

    indptr: NDArray[Any]
    indices: NDArray[np.uint16]
    data: NDArray[Any]
    norm: NDArray[np.float32]
    entries: NDArray[np.int32]


def columns_of(pieces: Sequence[Rows], name: str = "") -> Columns:
    """Sort batches of samples, at most 65,536 in all, into columns by counting; explicit zeros are kept.

    The batches are read one by one, so they need not be joined first. `DataError`, with the name of the
    shard, if the features of a row are out of range or not increasing.
    """
    n_features = pieces[0].n_features
    starts = np.cumsum([0, *(piece.n_rows for piece in pieces)]).tolist()
    nnz = sum(int(piece.indptr[-1] - piece.indptr[0]) for piece in pieces)
    offset_dtype = np.int32 if nnz <= _NARROW else np.int64
    counts = np.zeros(n_features + 1, offset_dtype)
    squares = np.empty(starts[-1])
    for first, piece in zip(starts, pieces, strict=False):
        own = squares[first : first + piece.n_rows]
        bad = count_columns(piece.indptr, piece.indices, piece.data, counts, own)
        if bad >= 0:
            within = f"increasing within 0..{n_features - 1}"
            raise DataError(f"the features of row {first + bad} of shard {name} are not {within}")
    indptr = np.cumsum(counts, dtype=offset_dtype)
    free = indptr[:-1].copy()
    dtype = smallest_exact_dtype(*(piece.data for piece in pieces))
    indices, data = np.empty(nnz, np.uint16), np.empty(nnz, dtype)
    for first, piece in zip(starts, pieces, strict=False):
        values = piece.data.astype(dtype, copy=False)
        place_rows(piece.indptr, piece.indices, values, first, free, indices, data)
    entries = np.concatenate([np.diff(piece.indptr) for piece in pieces]).astype(np.int32)
    return Columns(indptr, indices, data, np.sqrt(squares).astype(np.float32), entries)
