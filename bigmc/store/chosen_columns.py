"""A store of chosen features of a dataset; the other features are not read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.store.block import plan_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.shards.shard import Shard
from bigmc.store.weighting import Weighting

#: Offsets that are read at once.
_OFFSETS = 1 << 16


class ChosenColumns:
    """Some features of a dataset, numbered from 0: a `bigmc.store.protocols.ColumnStore`.

    `chosen` are the features, increasing.
    """

    def __init__(self, dataset: Dataset, chosen: NDArray[np.int64]) -> None:
        self.dataset, self.chosen = dataset, chosen

    def __reduce__(self) -> Any:
        """Pickle as a path and the features."""
        return ChosenColumns, (self.dataset, self.chosen)

    @cached_property
    def shards(self) -> Sequence[Shard]:
        """The shards, which have these features only."""
        return [ChosenShard(shard, self.chosen) for shard in self.dataset.shards]

    @property
    def base(self) -> NDArray[np.int64]:
        """Number of the first sample of every shard, and of all samples."""
        return self.dataset.base

    @property
    def weighting(self) -> Weighting:
        """Weighting of the values."""
        return self.dataset.weighting

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.dataset.dtype

    @property
    def n_features(self) -> int:
        """Number of these features."""
        return len(self.chosen)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.dataset.n_samples

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.dataset.n_classes

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.dataset.n_shards

    @property
    def nnz(self) -> int:
        """Stored entries of these features."""
        return int(self.column_nnz().sum())

    def column_nnz(self) -> NDArray[np.int64]:
        """Return the number of stored entries of each of these features."""
        return self.dataset.column_nnz(self.chosen)

    def plan(self, block_bytes: int) -> list[tuple[int, int]]:
        """Cut these features into blocks of at most `block_bytes` decoded bytes."""
        return plan_blocks(self.column_nnz(), self.n_shards, self.dtype.itemsize, block_bytes)


AnyColumns = Dataset | ChosenColumns


def frequent_columns(dataset: Dataset, share: float) -> AnyColumns:
    """Return the features that a share of the samples have; the dataset if these are all or none."""
    frequent = dataset.column_nnz() >= share * dataset.n_samples
    every_or_none = frequent.all() or not frequent.any()
    return dataset if every_or_none else ChosenColumns(dataset, np.flatnonzero(frequent))


class ChosenShard:
    """Some columns of a shard, numbered from 0; see `bigmc.store.shards.shard.Shard`."""

    def __init__(self, shard: Shard, chosen: NDArray[np.int64]) -> None:
        self._shard = shard
        self.n_rows, self.n_features = shard.n_rows, len(chosen)
        self.dtype, self.split = shard.dtype, shard.split
        self._starts, self._offsets = _places(shard, chosen)
        self.nnz = int(self._offsets[-1])
        self.nbytes = self.nnz * (2 + self.dtype.itemsize)

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the first entry of these columns."""
        return self._offsets[lo : hi + 1]

    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers, neighbouring columns at once."""
        first = int(np.searchsorted(self._offsets, start, side="right")) - 1
        last = int(np.searchsorted(self._offsets, stop, side="left"))
        shift = self._starts[first:last] - self._offsets[first:last]
        heads = first + np.flatnonzero(np.diff(shift, prepend=-1))
        edges = np.append(self._offsets[heads], stop).clip(start, stop)
        for head, lo, hi in zip(heads.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            move = int(self._starts[head] - self._offsets[head])
            rows = None if indices_out is None else indices_out[lo - start : hi - start]
            values = None if data_out is None else data_out[lo - start : hi - start]
            self._shard.read(lo + move, hi + move, rows, values)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows' table, or the named columns of it."""
        return self._shard.table(columns)


def _places(shard: Shard, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each chosen column of a shard starts, and their offsets counted among themselves."""
    starts, counts = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
    for lo in range(0, shard.n_features, _OFFSETS):
        hi = min(lo + _OFFSETS, shard.n_features)
        own = slice(*np.searchsorted(chosen, [lo, hi]).tolist())
        if own.start < own.stop:
            offsets, columns = shard.indptr(lo, hi), chosen[own] - lo
            starts[own], counts[own] = offsets[columns], offsets[columns + 1] - offsets[columns]
    return starts, np.concatenate([[0], np.cumsum(counts)])
