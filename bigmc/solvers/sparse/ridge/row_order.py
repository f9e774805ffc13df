"""Samples of shards, which are stored by columns, put in row order and weighted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.rows.dual_descent import place_weighted, weigh_entries
from bigmc.kernels.linear.rows.newton import count_entries, place_entries
from bigmc.solvers.sparse.columns import scales_of
from bigmc.solvers.sparse.ridge.lone_features import LoneFeatures
from bigmc.solvers.sparse.scratch.shard_blocks import Block as DecodedColumns
from bigmc.solvers.sparse.scratch.shard_blocks import decoded_blocks
from bigmc.store.block import read_block
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import inverse
from bigmc.store.weighting import Weighting

ENTRIES_AT_ONCE = 1 << 18
"""Entries to decode at once while rows are put in order; more of them were no faster."""
_COLUMNS_AT_ONCE = 1 << 16

Turned = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[Any]]
"""Offsets, places among the features, and stored values of samples in row order."""


def weighted_rows(
    turned: Turned,
    features: NDArray[np.int64],
    column_scale: NDArray[np.float32] | None,
    weighting: Weighting,
    constant: bool,
) -> tuple[Rows, NDArray[np.float32]]:
    """Return weighted samples in row order, and their squared norms with the constant.

    Parameters
    ----------
    turned : tuple of arrays
    features : int64 array
        All features that occur, increasing.
    column_scale : float32 array of shape (n_features,) or None
    constant : bool
        Whether there is a feature that is always 1.
    """
    indptr, slots, values = turned
    n_samples = len(indptr) - 1
    scale = scales_of(column_scale, features)
    weighted, squares = np.empty(len(values), np.float32), np.empty(n_samples, np.float32)
    ones = np.ones(n_samples, np.float32)
    weigh_entries(indptr, slots, values, scale, ones, weighted, squares)
    if weighting.l2:
        factors = inverse(np.sqrt(squares.astype(np.float64)))
        weigh_entries(indptr, slots, weighted, np.ones_like(scale), factors, weighted, squares)
    return Rows(indptr, slots, weighted, constant), squares + np.float32(constant)


def in_row_order(
    dataset: Dataset, features: NDArray[np.int64], lone: NDArray[np.bool_], constant: bool
) -> tuple[Rows, NDArray[np.float32], LoneFeatures]:
    """Return the weighted samples as far as these features go, and the squared norms of that.

    The rows are of the features that are not `lone`; the norms are of all.
    """
    column_scale = dataset.column_scale()
    row_scale = dataset.row_scale(column_scale)
    kinds = [_RowsToFill(dataset.n_samples, features[some], column_scale) for some in (lone, ~lone)]

    def decoded() -> Iterator[tuple[slice, DecodedColumns]]:
        # some at a time: all of a shard would take as much memory as its rows
        for (lo, hi), shard in zip(itertools.pairwise(dataset.base.tolist()), dataset.shards, strict=True):
            for block in decoded_blocks(dataset, shard, min(ENTRIES_AT_ONCE, shard.nnz), _COLUMNS_AT_ONCE):
                yield slice(lo, hi), block

    for rows, block in decoded():
        for kind in kinds:
            kind.count(rows, block)
    for kind in kinds:
        kind.make_room()
    for rows, block in decoded():
        for kind in kinds:
            kind.place(rows, block, row_scale[rows])
    few, many = kinds
    few_squares, many_squares = (rows.squares.astype(np.float32) for rows in kinds)
    alone = LoneFeatures.of(np.flatnonzero(lone), few.slots, few.indptr, few.values, few_squares)
    squares = many_squares + alone.squares + np.float32(constant)
    return Rows(many.indptr, many.slots, many.values, constant), squares, alone


class _RowsToFill:
    """Weighted samples in row order, whose entries are counted first and then placed.

    Attributes
    ----------
    indptr, slots, values : arrays
        Offsets of the rows, places among the features, and weighted values.
    squares : float64 array of shape (n_samples,)
        Squared norms of the rows.
    """

    slots: NDArray[np.uint32]
    values: NDArray[np.float32]

    def __init__(
        self, n_samples: int, features: NDArray[np.int64], column_scale: NDArray[np.float32] | None
    ) -> None:
        self._features, self._scale = features, scales_of(column_scale, features)
        self.indptr, self.squares = np.zeros(n_samples + 1, np.int64), np.zeros(n_samples)

    def count(self, rows: slice, block: DecodedColumns) -> None:
        """Count the entries of a block in some rows."""
        lo, hi = self._span(block)
        counts = self.indptr[rows.start + 1 : rows.stop + 1]
        count_entries(self._features[lo:hi] - block.lo, block.indptr, block.indices, counts)

    def make_room(self) -> None:
        """Allocate the entries, all of which are counted."""
        np.cumsum(self.indptr, out=self.indptr)
        self._free, nnz = self.indptr[:-1].copy(), int(self.indptr[-1])
        self.slots, self.values = np.empty(nnz, np.uint32), np.empty(nnz, np.float32)

    def place(self, rows: slice, block: DecodedColumns, row_scale: NDArray[np.float32]) -> None:
        """Place the entries of a block in some rows, behind those of earlier features."""
        lo, hi = self._span(block)
        columns, entries = self._features[lo:hi] - block.lo, (block.indptr, block.indices, block.data)
        out = self.slots, self.values, self.squares[rows]
        place_weighted(columns, lo, entries, (self._scale, row_scale), self._free[rows], out)

    def _span(self, block: DecodedColumns) -> tuple[int, int]:
        """Return the range of the features that are among the columns of a block."""
        lo, hi = np.searchsorted(self._features, (block.lo, block.hi))
        return int(lo), int(hi)


def turned_samples(part: Dataset, features: NDArray[np.int64], engine: Engine) -> Turned:
    """Read samples, and put their entries of increasing features into row order."""
    block = read_block(part, 0, part.n_features)
    base, shards = block.base, range(len(block.indptr))
    indptr = np.zeros(int(base[-1]) + 1, np.int64)

    def count(s: int) -> None:
        counts = indptr[base[s] + 1 : base[s + 1] + 1]
        count_entries(features, block.indptr[s], block.indices, counts)

    for_each(engine, count, shards)
    np.cumsum(indptr, out=indptr)
    free = indptr[:-1].copy()
    nnz = int(indptr[-1])
    slots, values = np.empty(nnz, np.uint32), np.empty(nnz, block.data.dtype)

    def place(s: int) -> None:
        shard = (block.indptr[s], block.indices, block.data)
        place_entries(features, 0, shard, free[base[s] : base[s + 1]], slots, values)

    for_each(engine, place, shards)
    return indptr, slots, values
