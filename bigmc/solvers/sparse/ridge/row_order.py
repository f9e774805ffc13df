"""Samples of shards, which are stored by columns, put in row order and weighted."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.arguments import Rows
from bigmc.kernels.linear.dual_descent import weigh_entries
from bigmc.kernels.linear.newton import count_entries, place_entries
from bigmc.solvers.sparse.ridge.lone_features import LoneFeatures
from bigmc.store.block import Block, read_block
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import inverse
from bigmc.store.weighting import Weighting


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
    turned: tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[Any]],
    features: NDArray[np.int64],
    column_scale: NDArray[np.float32] | None,
    weighting: Weighting,
    constant: bool,
) -> tuple[Rows, NDArray[np.float32]]:
    """Weight samples in row order, given as offsets, places among the features, and stored values."""
    indptr, slots, values = turned
    n_samples = len(indptr) - 1
    scale = np.ones(len(features), np.float32) if column_scale is None else column_scale[features]
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
    block = read_block(dataset, 0, dataset.n_features)
    parts = [(features[some], *_turned(block, features[some], engine)) for some in (~lone, lone)]
    del block

    def weighed() -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32], NDArray[np.float32]]:
        own, indptr, slots, values = parts.pop()
        scale = np.ones(len(own), np.float32) if column_scale is None else column_scale[own]
        weighted, squares = np.empty(len(values), np.float32), np.empty(dataset.n_samples, np.float32)
        weigh_entries(indptr, slots, values, scale, row_scale, weighted, squares)
        return indptr, slots, weighted, squares

    indptr, slots, weighted, squares = weighed()
    alone = LoneFeatures.of(np.flatnonzero(lone), slots, indptr, weighted, squares)
    indptr, slots, weighted, squares = weighed()
    return Rows(indptr, slots, weighted, constant), squares + alone.squares + np.float32(constant), alone


def _turned(
    block: Block, features: NDArray[np.int64], engine: Engine
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[Any]]:
    """Return offsets, places among the features, and stored values of the samples in row order."""
    base, shards = block.base, range(len(block.indptr))
    indptr = np.zeros(int(base[-1]) + 1, np.int64)

    def count(s: int) -> None:
        counts = indptr[base[s] + 1 : base[s + 1] + 1]
        count_entries(features, block.indptr[s], block.indices, counts)

    for _ in engine.map(count, shards):
        pass
    np.cumsum(indptr, out=indptr)
    free = indptr[:-1].copy()
    slots, values = np.empty(int(indptr[-1]), np.uint32), np.empty(int(indptr[-1]), block.data.dtype)

    def place(s: int) -> None:
        shard = (block.indptr[s], block.indices, block.data)
        place_entries(features, 0, shard, free[base[s] : base[s + 1]], slots, values)

    for _ in engine.map(place, shards):
        pass
    return indptr, slots, values
