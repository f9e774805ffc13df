"""Convert arrays to the inputs of learners: shards to train on, rows to score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.memory_shard import (
    MAX_ROWS,
    MemoryShard,
    memory_shards,
    native_values,
    refuse_unsound,
)

#: Entries of a dense array that are processed at a time.
_BATCH_ENTRIES = 1 << 22
_ONE_LABEL_EACH = "give one label for each row"


def is_lazy(X: Any) -> bool:
    """Return whether `X` is a dask collection."""
    return hasattr(X, "__dask_graph__")


def row_chunks(X: Any) -> Iterator[Any]:
    """Compute a dask array by chunks of its rows; data in memory is one chunk.

    `DataError` if `X` is another dask collection, does not have two dimensions, or is refused by
    `refuse_unsound`.
    """
    if not is_lazy(X):
        refuse_unsound(X, "X")
        yield X
        return
    if getattr(X, "ndim", 0) != 2 or not hasattr(X, "blocks"):
        raise DataError(
            f"a dask {type(X).__name__} is not supported here",
            "give a dask array with a row for every sample",
        )
    whole_rows = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
    for i in range(whole_rows.numblocks[0]):
        chunk = whole_rows.blocks[i].compute()
        if chunk.shape[0]:
            refuse_unsound(chunk, "X")
            yield chunk


def chunk_shards(chunks: Iterable[Any], codes: NDArray[np.int32] | pa.ListArray) -> Iterator[MemoryShard]:
    """Cut chunks of samples into the shards that the whole matrix would be cut into.

    The chunks have together as many rows as there are `codes`, the class or a set of classes of each
    sample; zeros of dense chunks are dropped.
    """
    done = 0
    waiting: list[Any] = []
    n_waiting = 0

    def cut(stop: int) -> Iterator[MemoryShard]:
        nonlocal done, waiting, n_waiting
        matrix = scipy.sparse.vstack(waiting, format="csr")
        if done + stop > len(codes):
            raise DataError(f"X has more rows than y, which has {len(codes)} labels", _ONE_LABEL_EACH)
        ids = np.arange(done, done + stop, dtype=np.int64)
        yield from memory_shards(matrix[:stop], codes[done : done + stop], ids, MAX_ROWS)
        done, waiting, n_waiting = done + stop, [matrix[stop:]], n_waiting - stop

    for chunk in chunks:
        waiting.append(scipy.sparse.csr_array(native_values(chunk)))
        n_waiting += chunk.shape[0]
        if n_waiting >= MAX_ROWS:
            yield from cut(n_waiting - n_waiting % MAX_ROWS)
    if n_waiting:
        yield from cut(n_waiting)
    if done != len(codes):
        raise DataError(f"X has {done} rows and y has {len(codes)}", _ONE_LABEL_EACH)


def row_batches(X: Any) -> Iterator[Rows]:
    """Cut a numpy array or scipy CSR matrix into batches of rows that need little memory."""
    n_rows, n_features = X.shape
    sparse = scipy.sparse.issparse(X)
    step = MAX_ROWS if sparse else min(MAX_ROWS, max(1, _BATCH_ENTRIES // n_features))
    for start in range(0, n_rows, step):
        rows = Rows.of_matrix(native_values(X[start : start + step]))
        yield rows._replace(data=rows.data.astype(np.int8)) if rows.data.dtype == bool else rows
