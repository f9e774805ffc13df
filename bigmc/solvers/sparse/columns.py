"""Columns of the data in memory: where they come from and which of them are worked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import gather_columns
from bigmc.kernels.linear import arguments
from bigmc.store.block import Block, Residency, read_block, stream_blocks
from bigmc.store.dataset import Dataset


@dataclass(frozen=True)
class Columns:
    """Some columns of a block.

    Attributes
    ----------
    number : int
        Number of the block; seeds the order of its columns.
    features : int64 array of shape (n_columns,)
        Feature of each column, increasing.
    positions : int64 array of shape (n_columns,)
        Its place in `indptr`.
    indptr, indices, data, base
        See `bigmc.store.block.Block`.
    nnz : int
        Entries of the chosen columns.
    """

    number: int
    features: NDArray[np.int64]
    positions: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.uint16]
    data: NDArray[Any]
    base: NDArray[np.int64]
    nnz: int

    @classmethod
    def of(cls, number: int, block: Block, positions: NDArray[np.int64]) -> Columns:
        """Choose columns of a block without copying them."""
        nnz = int((block.indptr[:, positions + 1] - block.indptr[:, positions]).sum())
        return cls(
            number, positions + block.lo, positions, block.indptr, block.indices, block.data, block.base, nnz
        )

    def sizes(self) -> NDArray[np.int64]:
        """Return the number of entries of each column."""
        return self._sizes(self.positions)

    def nnz_of(self, chosen: NDArray[np.int64], least: int = 0) -> int:
        """Return the number of entries of those of some columns that have at least `least` of them."""
        sizes = self._sizes(self.positions[chosen])
        return int(sizes[sizes >= least].sum())

    def _sizes(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        sizes = np.zeros(len(positions), np.int64)
        for offsets in self.indptr:  # those of all parts at once would be copied three times
            sizes += offsets[positions + 1] - offsets[positions]
        return sizes

    def choose(self, chosen: NDArray[np.int64]) -> Columns:
        """Return some of the columns, without copying entries."""
        nnz = self.nnz_of(chosen)
        return replace(self, features=self.features[chosen], positions=self.positions[chosen], nnz=nnz)

    def in_order(self, order: NDArray[np.int64], scale: NDArray[np.float64]) -> arguments.Columns:
        """Return the columns as kernels visit them, with the scale of each."""
        return arguments.Columns(order, self.positions, scale, self.entries)

    def shuffled(
        self, chosen: NDArray[np.int64], seed: tuple[int, int], scale: NDArray[np.float64]
    ) -> arguments.Columns:
        """Return some of the columns in a random order, which the seed and the block's number decide."""
        generator = np.random.default_rng([*seed, self.number])
        return self.in_order(generator.permutation(chosen), scale)

    @property
    def entries(self) -> arguments.Entries:
        """Entries of the whole block."""
        return arguments.Entries(self.indptr, self.indices, self.data, self.base)

    def gathered(self) -> Columns:
        """Return a copy that holds the chosen columns only."""
        n_columns = len(self.positions)
        indptr = np.empty((self.indptr.shape[0], n_columns + 1), np.int64)
        indices = np.empty(self.nnz, np.uint16)
        data = np.empty(self.nnz, self.data.dtype)
        gather_columns(self.positions, self.indptr, self.indices, self.data, indptr, indices, data)
        positions = np.arange(n_columns)
        return Columns(self.number, self.features, positions, indptr, indices, data, self.base, self.nnz)


def entries_of(block: Block) -> arguments.Entries:
    """Return the entries of a block as kernels take them."""
    return arguments.Entries(block.indptr, block.indices, block.data, block.base)


def scales_of(column_scale: NDArray[np.float32] | None, features: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the scale of some features: 1 where columns have none."""
    return np.ones(len(features), np.float32) if column_scale is None else column_scale[features]


class BlockSource:
    """Blocks of a dataset in any order, from its shards or from memory.

    Parameters
    ----------
    ranges : sequence of (lo, hi)
        Features of each block.
    residency : Residency
        Whether every block stays in memory once it was read.
    dtype : numpy.dtype, optional
        Of the values of blocks that stay; by default that of the dataset.

    Attributes
    ----------
    bytes_read : int
        Decoded bytes read from the shards so far, of values as they are stored.
    """

    def __init__(
        self,
        dataset: Dataset,
        ranges: Sequence[tuple[int, int]],
        residency: Residency,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self.dataset, self._dtype = dataset, dtype
        self.ranges = list(ranges)
        self._residency = residency
        self.bytes_read = 0
        self._kept: dict[int, Block] = {}

    def stream(self, numbers: Iterable[int]) -> Iterator[tuple[int, Block]]:
        """Yield the numbered blocks in the given order; one is valid until the next is read."""
        if self._residency is Residency.MEMORY:
            for number in numbers:
                if number not in self._kept:
                    self._kept[number] = read_block(self.dataset, *self.ranges[number], dtype=self._dtype)
                    self.bytes_read += self._kept[number].bytes_as(self.dataset.dtype)
                yield number, self._kept[number]
            return
        wanted = list(numbers)
        blocks = stream_blocks(self.dataset, [self.ranges[number] for number in wanted])
        for number, block in zip(wanted, blocks, strict=True):
            self.bytes_read += block.nbytes
            yield number, block

    def columns_of(self, features: NDArray[np.int64]) -> Iterator[Columns]:
        """Yield the columns of increasing `features`, block by block, as `stream` does."""
        positions = {}
        for number, (lo, hi) in enumerate(self.ranges):
            start, stop = np.searchsorted(features, [lo, hi])
            if stop > start:
                positions[number] = features[start:stop] - lo
        for number, block in self.stream(positions):
            yield Columns.of(number, block, positions[number])
