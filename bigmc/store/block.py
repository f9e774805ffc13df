"""A block: a range of features over all shards of a dataset, decoded into memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.store.protocols import ColumnStore

#: Bytes of a row id and of an offset of a block.
INDEX_BYTES = 2
OFFSET_BYTES = 8


_WIDE = np.dtype(np.float64)
#: Maximum number of values to keep as float64: sweeps over so many take up to 4 % longer than over values of
#: one byte. Part of the spare bytes that they may take beyond those of the store's dtype. Number of features
#: from which on they may not: these are mostly words, whose values have one byte.
_MOST_WIDE_VALUES, _WIDE_SHARE, _MANY_FEATURES = 1 << 20, 16, 1000


class Residency(Enum):
    """Where to keep blocks of features between two passes."""

    MEMORY = "memory"
    DISK = "disk"


@dataclass(frozen=True)
class Block:
    """Columns ``lo`` to ``hi`` of every shard, shard after shard.

    Column ``lo + j`` of shard ``s`` has the entries ``indptr[s, j]:indptr[s, j + 1]``. Entry ``e``
    belongs to the sample ``base[s] + indices[e]``; rows increase within a column. `data` has the values
    before row and column scale, in one dtype for the whole dataset. `indptr` has the shape
    (n_shards, hi - lo + 1), `base` the shape (n_shards + 1,).
    """

    lo: int
    hi: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.uint16]
    data: NDArray[Any]
    base: NDArray[np.int64]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded arrays."""
        return self.bytes_as(self.data.dtype)

    def bytes_as(self, dtype: np.dtype[Any]) -> int:
        """Return the bytes that the decoded arrays would have with values of this dtype."""
        return self.indptr.nbytes + self.nnz * (INDEX_BYTES + dtype.itemsize)


class BlockBuffers:
    """Memory for one block, reused and grown from block to block.

    Fresh arrays for every block cost page faults (up to 40 % of the reading time). A block read into
    these buffers is valid until the next block is read.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialised array of `size` elements in the memory called `name`."""
        wanted = size * dtype.itemsize
        held = self._bytes.get(name)
        if held is None or held.nbytes < wanted:
            self._bytes.pop(name, None)  # free the old memory before the new is taken
            held = self._bytes[name] = np.empty(wanted, np.uint8)
        return held[:wanted].view(dtype)


def read_block(
    store: ColumnStore,
    lo: int,
    hi: int,
    buffers: BlockBuffers | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Block:
    """Read the features ``lo`` to ``hi`` of every shard of `store`.

    A block read earlier into the same buffers is overwritten. Values are converted to `dtype`, by default
    that of the store; if the weighting is binary, they are ones. `StoreError` if a file of the dataset is
    missing or damaged.
    """
    buffers = BlockBuffers() if buffers is None else buffers
    n_shards, width = len(store.shards), hi - lo
    if not 0 <= lo <= hi <= store.n_features:
        raise DataError(f"features {lo} to {hi} are outside the {store.n_features} features of the dataset")
    offsets = buffers.take("indptr", n_shards * (width + 1), np.dtype(np.int64)).reshape(n_shards, width + 1)
    starts = np.empty(n_shards, np.int64)
    nnz = 0
    for s, shard in enumerate(store.shards):
        columns = shard.indptr(lo, hi)
        starts[s] = columns[0]
        np.subtract(columns, columns[0] - nnz, out=offsets[s])
        nnz = int(offsets[s, width])
    indices = buffers.take("indices", nnz, np.dtype(np.uint16))
    data = buffers.take("data", nnz, store.dtype if dtype is None else dtype)
    binary = store.weighting.binary
    for s, shard in enumerate(store.shards):
        entries = slice(int(offsets[s, 0]), int(offsets[s, width]))
        stop = int(starts[s]) + entries.stop - entries.start
        shard.read(int(starts[s]), stop, indices[entries], None if binary else data[entries])
    if binary:
        data[:] = 1
    return Block(lo, hi, offsets, indices, data, store.base)


def stream_blocks(store: ColumnStore, ranges: Iterable[tuple[int, int]]) -> Iterator[Block]:
    """Read blocks of the features ``(lo, hi)``, prefetching the next ones on a thread.

    A block is valid until the next one is read: at most two are in memory. Errors are raised in
    the order of the blocks; closing the iterator stops the thread.
    """
    coming = iter(ranges)
    free = deque([BlockBuffers(), BlockBuffers()])
    pending: deque[tuple[BlockBuffers, Future[Block]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="bigmc-read") as pool:
        try:
            while True:
                while free and (wanted := next(coming, None)) is not None:
                    buffers = free.popleft()
                    pending.append((buffers, pool.submit(read_block, store, *wanted, buffers)))
                if not pending:
                    return
                buffers, future = pending.popleft()
                yield future.result()
                free.append(buffers)
        finally:
            for _, future in pending:
                future.cancel()


def dtype_in_memory(store: ColumnStore, nnz: int, free_bytes: int) -> np.dtype[Any]:
    """Return the dtype in which to keep the values of `nnz` entries in memory, with `free_bytes` to spare.

    It is float64 if its further bytes are few of these, so that tables need the same compiled kernels
    whatever types their values are stored in; else, and with many features, that of the store.
    """
    further = nnz * (_WIDE.itemsize - store.dtype.itemsize)
    fits = nnz <= _MOST_WIDE_VALUES and further <= free_bytes // _WIDE_SHARE
    return _WIDE if fits and store.n_features < _MANY_FEATURES else store.dtype


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Return few values as float64, so that tables need the same kernels, as in `dtype_in_memory`."""
    return values.astype(_WIDE, copy=False) if len(values) <= _MOST_WIDE_VALUES else values


def bytes_of_longest(column_nnz: NDArray[np.int64] | Sequence[int], n_shards: int, itemsize: int) -> int:
    """Return the decoded bytes of a block of the feature with the most entries alone."""
    most = int(np.asarray(column_nnz).max(initial=0))
    return most * (INDEX_BYTES + itemsize) + 2 * n_shards * OFFSET_BYTES


def plan_blocks(
    column_nnz: NDArray[np.int64] | Sequence[int], n_shards: int, itemsize: int, block_bytes: int
) -> list[tuple[int, int]]:
    """Cut the features into as few contiguous ranges ``(lo, hi)`` as fit `block_bytes` when decoded.

    `column_nnz` counts the stored entries of each feature, of `itemsize` bytes each. `DataError` if a
    single feature does not fit.
    """
    counts = np.asarray(column_nnz, np.int64)
    budget = block_bytes - n_shards * OFFSET_BYTES  # a block has one offset more than features
    whole = int(counts.sum()) * (INDEX_BYTES + itemsize) + len(counts) * n_shards * OFFSET_BYTES
    if len(counts) and whole <= budget:
        return [(0, len(counts))]
    cost = np.concatenate([[0], np.cumsum(counts * (INDEX_BYTES + itemsize) + n_shards * OFFSET_BYTES)])
    ranges = []
    lo = 0
    while lo < len(counts):
        hi = int(np.searchsorted(cost, cost[lo] + budget, side="right")) - 1
        if hi <= lo:
            needed = int(cost[lo + 1] - cost[lo]) + n_shards * OFFSET_BYTES
            raise DataError(
                f"feature {lo} alone needs {needed} bytes, but a block may have only {block_bytes}",
                "raise the memory limit",
            )
        ranges.append((lo, hi))
        lo = hi
    return ranges


def cut_ranges(ranges: Iterable[tuple[int, int]], most_columns: int) -> list[tuple[int, int]]:
    """Cut ranges of features so that none has more than `most_columns`."""
    return [
        (start, min(start + most_columns, hi)) for lo, hi in ranges for start in range(lo, hi, most_columns)
    ]
