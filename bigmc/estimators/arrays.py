"""From the arrays users have to what the learners read: shards to train on, rows to score, weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from bigmc.errors import DataError
from bigmc.options.label_kind import LabelKind
from bigmc.store.csr import Rows
from bigmc.store.memory_shard import MAX_ROWS, MemoryShard, memory_shards

#: Entries of a dense array that are looked at together.
_BATCH_ENTRIES = 1 << 22


def is_lazy(X: Any) -> bool:
    """Return whether `X` is a dask collection, whose values are not computed yet."""
    return hasattr(X, "__dask_graph__")


def row_chunks(X: Any) -> Iterator[Any]:
    """Compute a dask array chunk by chunk of its rows.

    Raises
    ------
    DataError
        If `X` is another dask collection or has not two dimensions.
    """
    if getattr(X, "ndim", 0) != 2 or not hasattr(X, "blocks"):
        raise DataError(
            f"a dask {type(X).__name__} cannot be used here", "give a dask array with a row for every sample"
        )
    whole_rows = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
    for i in range(whole_rows.numblocks[0]):
        chunk = whole_rows.blocks[i].compute()
        if chunk.shape[0]:
            yield chunk


def chunk_shards(chunks: Iterable[Any], codes: NDArray[np.int32] | pa.ListArray) -> Iterator[MemoryShard]:
    """Cut chunks of samples into the shards that the whole matrix would be cut into.

    Parameters
    ----------
    chunks : iterable of array or scipy sparse matrix
        Together as many rows as there are `codes`; zeros of dense chunks are dropped.
    codes : int32 array of shape (n_samples,), or such a column of sets
        Class or classes of each sample.
    """
    done = 0
    waiting: list[Any] = []
    n_waiting = 0

    def cut(stop: int) -> Iterator[MemoryShard]:
        nonlocal done, waiting, n_waiting
        matrix = scipy.sparse.vstack(waiting, format="csr")
        if done + stop > len(codes):
            raise DataError(f"X has more rows than y, which has {len(codes)}")
        ids = np.arange(done, done + stop, dtype=np.int64)
        yield from memory_shards(matrix[:stop], codes[done : done + stop], ids, MAX_ROWS)
        done, waiting, n_waiting = done + stop, [matrix[stop:]], n_waiting - stop

    for chunk in chunks:
        waiting.append(scipy.sparse.csr_array(chunk))
        n_waiting += chunk.shape[0]
        if n_waiting >= MAX_ROWS:
            yield from cut(n_waiting - n_waiting % MAX_ROWS)
    if n_waiting:
        yield from cut(n_waiting)
    if done != len(codes):
        raise DataError(f"X has {done} rows and y has {len(codes)}")


def row_batches(X: Any) -> Iterator[Rows]:
    """Cut a numpy array or scipy CSR matrix into batches of rows that need little memory."""
    n_rows, n_features = X.shape
    sparse = scipy.sparse.issparse(X)
    step = MAX_ROWS if sparse else min(MAX_ROWS, max(1, _BATCH_ENTRIES // n_features))
    for start in range(0, n_rows, step):
        part = scipy.sparse.csr_array(X[start : start + step])
        if not part.has_canonical_format:
            part = part.copy()
            part.sum_duplicates()
        data = part.data if part.data.dtype != bool else part.data.astype(np.int8)
        yield Rows(
            part.indptr.astype(np.int64, copy=False),
            part.indices.astype(np.int32, copy=False),
            data,
            n_features,
        )


def combined_weights(
    sample_weight: ArrayLike | None,
    class_weight: Mapping[Any, float] | str | None,
    labels: NDArray[np.int32],
    classes: NDArray[Any],
    kind: LabelKind,
) -> NDArray[np.float64] | None:
    """Return the weight of each sample times that of its class, None if all are 1.

    Parameters
    ----------
    sample_weight : float, array-like of shape (n_samples,) or None
    class_weight : dict from label to weight, "balanced" or None
        Balanced is the sum of weights over the number of classes and the class's own sum.
    labels : int32 array of shape (n_samples, most labels)
        Class codes, -1 after the last of a sample.
    classes : array of shape (n_classes,)
    kind : LabelKind

    Raises
    ------
    DataError
        If weights are negative, not finite or all zero, or fewer than 2 classes have any; with sets, if
        there are weights of classes, or no sample with weight has a label and lacks another.
    """
    weights = np.ones(len(labels))
    if sample_weight is not None:
        given = np.asarray(sample_weight, dtype=np.float64)
        if given.ndim > 0 and given.shape != weights.shape:
            raise DataError(f"sample_weight has the shape {given.shape} and there are {len(labels)} samples")
        weights *= given
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise DataError(
                "sample_weight has negative or infinite values or NaN", "give weights of at least 0"
            )
        if len(weights) and not weights.any():
            raise DataError("every sample_weight is zero", "give some samples a weight above 0")
    if kind is LabelKind.SET:
        if class_weight is not None:
            raise DataError("class_weight is for one label per sample", "give sample_weight instead")
        sizes = (labels >= 0).sum(axis=1)
        if not weights[(sizes > 0) & (sizes < len(classes))].any():
            raise DataError(
                "no sample with weight has a label and lacks another, so there is nothing to learn",
                "check the labels",
            )
        return None if sample_weight is None else weights
    labels = labels[:, 0]
    if class_weight is not None:
        sums = np.bincount(labels, weights, minlength=len(classes)).astype(np.float64)
        weights *= _class_weights(class_weight, sums, classes)[labels]
    present = np.flatnonzero(np.bincount(labels, weights, minlength=len(classes)))
    if len(present) < 2:
        which = f"one class ({classes[present[0]]!s})" if len(present) else "none"
        raise DataError(
            f"training needs at least 2 classes, the samples with weight have {which}", "check the labels"
        )
    return None if sample_weight is None and class_weight is None else weights


def _class_weights(
    class_weight: Mapping[Any, float] | str, sums: NDArray[np.float64], classes: NDArray[Any]
) -> NDArray[np.float64]:
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(f"class_weight {class_weight!r} is unknown", 'use "balanced" or a dict')
        present = sums > 0
        mean = sums.sum() / max(1, np.count_nonzero(present))
        balanced: NDArray[np.float64] = np.divide(mean, sums, out=np.ones(len(sums)), where=present)
        return balanced
    labels = classes.tolist()
    strangers = [label for label in class_weight if label not in labels]
    if strangers:
        raise DataError(f"class_weight names {strangers[0]!r}, which is no label of the data")
    weights = np.array([class_weight.get(label, 1.0) for label in labels], np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError("class_weight has negative or infinite values or NaN", "give weights of at least 0")
    return weights
