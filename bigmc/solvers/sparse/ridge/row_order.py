"""Samples of shards, which are stored by columns, put in row order and weighted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.dual_descent import weigh_entries
from bigmc.kernels.linear.newton import count_entries, place_entries
from bigmc.solvers.sparse.columns import scales_of
from bigmc.solvers.sparse.ridge.lone_features import LoneFeatures
from bigmc.store.block import Block, read_block
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import inverse
from bigmc.store.weighting import Weighting

_Turned = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[Any]]


def rows_of_block(
    part: Dataset,
    features: NDArray[np.int64],
    column_scale: NDArray[np.float32] | None,
    engine: Engine,
    constant: bool,
) -> tuple[Rows, NDArray[np.float32]]:
    """Return weighted samples in row order, and their squared norms with the constant; one read does.

    Parameters
    ----------
    part : Dataset
        The samples.
    features : int64 array
        All features that occur, increasing.
    column_scale : float32 array of shape (n_features,) or None
    engine : Engine
    constant : bool
        Whether there is a feature that is always 1.
    """
    turned = _turned(read_block(part, 0, part.n_features), features, engine)
    return weighted_rows(turned, features, column_scale, part.weighting, constant)


def weighted_rows(
    turned: _Turned,
    features: NDArray[np.int64],
    column_scale: NDArray[np.float32] | None,
    weighting: Weighting,
    constant: bool,
) -> tuple[Rows, NDArray[np.float32]]:
    """Weight samples in row order, given as offsets, places among the features, and stored values."""
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
    dataset: Dataset, features: NDArray[np.int64], lone: NDArray[np.bool_], engine: Engine, constant: bool
) -> tuple[Rows, NDArray[np.float32], LoneFeatures]:
    """Return the weighted samples as far as these features go, and the squared norms of that.

    The rows are of the features that are not `lone`; the norms are of all.
    """
    column_scale = dataset.column_scale()
    row_scale = dataset.row_scale(column_scale)
    samples = dataset if column_scale is None else dataset.with_column_scale(column_scale)  # computed once
    kinds = [_WeightedRows.to_fill(dataset, features[some]) for some in (lone, ~lone)]
    for s in range(dataset.n_shards):  # the columns of all beside their rows would take half as much again
        block = read_block(samples.part([s]), 0, dataset.n_features, dtype=dataset.dtype)
        turned = [_turned(block, rows.features, engine, rows.free_slots) for rows in kinds]
        del block
        for rows in kinds:
            rows.append(turned.pop(0), row_scale)
    few, many = kinds
    alone = LoneFeatures.of(np.flatnonzero(lone), few.slots, few.indptr, few.values, few.squares)
    squares = many.squares + alone.squares + np.float32(constant)
    return Rows(many.indptr, many.slots, many.values, constant), squares, alone


@dataclass
class _WeightedRows:
    """Weighted samples in row order, filled in from the first on.

    Attributes
    ----------
    features, scale : arrays of shape (n_used,)
        Features that they have, and the scale of each.
    indptr, slots, values, squares : arrays
        Offsets of the rows, places among the features, weighted values, and squared norms of the rows.
    n_rows, n_entries : int
        Filled in so far.
    """

    features: NDArray[np.int64]
    scale: NDArray[np.float32]
    indptr: NDArray[np.int64]
    slots: NDArray[np.uint32]
    values: NDArray[np.float32]
    squares: NDArray[np.float32]
    n_rows: int = 0
    n_entries: int = 0

    @classmethod
    def to_fill(cls, dataset: Dataset, features: NDArray[np.int64]) -> _WeightedRows:
        """Return room for all samples with these features."""
        nnz, n_samples = int(dataset.column_nnz(features).sum()), dataset.n_samples
        scale = scales_of(dataset.column_scale(), features)
        slots, values = np.empty(nnz, np.uint32), np.empty(nnz, np.float32)
        squares = np.empty(n_samples, np.float32)
        return cls(features, scale, np.zeros(n_samples + 1, np.int64), slots, values, squares)

    @property
    def free_slots(self) -> NDArray[np.uint32]:
        """Slots of the rows to come."""
        return self.slots[self.n_entries :]

    def append(self, turned: _Turned, row_scale: NDArray[np.float32]) -> None:
        """Weight the next rows, whose slots are in `free_slots`."""
        indptr, slots, stored = turned
        rows = slice(self.n_rows, self.n_rows + len(indptr) - 1)
        entries = slice(self.n_entries, self.n_entries + len(slots))
        own = self.values[entries], self.squares[rows]
        weigh_entries(indptr, slots, stored, self.scale, row_scale[rows], *own)
        self.indptr[rows.start + 1 : rows.stop + 1] = self.n_entries + indptr[1:]
        self.n_rows, self.n_entries = rows.stop, entries.stop


def _turned(
    block: Block, features: NDArray[np.int64], engine: Engine, room: NDArray[np.uint32] | None = None
) -> _Turned:
    """Return offsets, places among the features, and stored values of the samples in row order.

    The places are written to the beginning of `room`, if there is some.
    """
    base, shards = block.base, range(len(block.indptr))
    indptr = np.zeros(int(base[-1]) + 1, np.int64)

    def count(s: int) -> None:
        counts = indptr[base[s] + 1 : base[s + 1] + 1]
        count_entries(features, block.indptr[s], block.indices, counts)

    for _ in engine.map(count, shards):
        pass
    np.cumsum(indptr, out=indptr)
    free = indptr[:-1].copy()
    nnz = int(indptr[-1])
    slots = np.empty(nnz, np.uint32) if room is None else room[:nnz]
    values = np.empty(nnz, block.data.dtype)

    def place(s: int) -> None:
        shard = (block.indptr[s], block.indices, block.data)
        place_entries(features, 0, shard, free[base[s] : base[s + 1]], slots, values)

    for _ in engine.map(place, shards):
        pass
    return indptr, slots, values
