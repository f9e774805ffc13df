"""Norms of weighted rows, and the row scales computed from them; numbers that tell rows apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import add_row_products, add_row_squares
from bigmc.store.protocols import ColumnStore
from bigmc.store.shards.sample_labels import row_column
from bigmc.store.shards.shard import Shard

#: Entries and features read at once; a column of a shard has at most 65,536 entries.
PIECE_ENTRIES = 1 << 20
PIECE_FEATURES = 1 << 17
_WEIGHTS_SEED = 0xD16E57

Piece = tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[Any]]
"""Offsets of columns, and the rows and values of their entries."""


def row_squares(store: ColumnStore, column_scale: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the squared norm of every row, shard by shard, in the memory of a few chunks."""
    squares = np.zeros(int(store.base[-1]), np.float64)
    for rows, columns, piece in _pieces(store):
        add_row_squares(*piece, column_scale[columns], squares[rows])
    return squares


def row_digests(store: ColumnStore) -> NDArray[np.float64]:
    """Return a number for every row that is the same for equal rows, of any store with these features.

    It is the product with random weights; entries are added in the order of the features, so that equal rows
    have equal bits. Rows that differ have the same number with a probability of about 2**-50.
    """
    weights = np.random.default_rng(_WEIGHTS_SEED).random(store.n_features)
    products = np.zeros(int(store.base[-1]), np.float64)
    for rows, columns, piece in _pieces(store):
        add_row_products(*piece, weights[columns], products[rows])
    return products


def _pieces(store: ColumnStore) -> Iterator[tuple[slice, slice, Piece]]:
    """Yield some columns of a shard after others: their rows in the store, their features, and entries."""
    most = min(PIECE_ENTRIES, max((shard.nnz for shard in store.shards), default=0))
    indices = np.empty(most, np.uint16)
    data = np.ones(most, store.dtype)
    for s, shard in enumerate(store.shards):
        rows = slice(int(store.base[s]), int(store.base[s + 1]))
        for lo, offsets in column_pieces(shard, indices, None if store.weighting.binary else data):
            yield rows, slice(lo, lo + len(offsets) - 1), (offsets, indices, data)


def column_pieces(
    shard: Shard, indices: NDArray[np.uint16], data: NDArray[Any] | None
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Read some columns of a shard after others into buffers for `PIECE_ENTRIES`, or all entries if fewer.

    Yields the first of these columns, and their offsets in the buffers.
    """
    lo = 0
    while lo < shard.n_features:
        offsets = shard.indptr(lo, min(lo + PIECE_FEATURES, shard.n_features))
        width = int(np.searchsorted(offsets, offsets[0] + PIECE_ENTRIES, side="right")) - 1
        start, stop = int(offsets[0]), int(offsets[width])
        shard.read(start, stop, indices, data)
        yield lo, offsets[: width + 1] - start
        lo += width


def row_scale(store: ColumnStore, column_scale: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Return the factor of every row: ones, or one over the row's norm with l2 weighting.

    With `column_scale`, computing the norms takes one pass over the values.
    """
    if not store.weighting.l2:
        return np.ones(int(store.base[-1]), np.float32)
    if column_scale is not None:
        return inverse(np.sqrt(row_squares(store, column_scale)))
    if store.weighting.binary:
        return inverse(np.sqrt(row_column(store.shards, store.base, "entries", np.float64)))
    return inverse(row_column(store.shards, store.base, "norm", np.float64))


def inverse(norms: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return one over each norm, and 0 for rows without entries."""
    scale = np.zeros(len(norms), np.float32)
    np.divide(1.0, norms, out=scale, where=norms > 0, casting="same_kind")
    return scale
