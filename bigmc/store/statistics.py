"""What is known of every feature, and of every class and feature: entries, sum, sum of squares.

The values are those of `bigmc.store.block.read_block`: raw, or ones if the weighting is binary.
On disk they are kept per split, so that those of the training rows contain nothing of the test rows,
and only where they are small beside the data: 5.6 M entries of hashed text with 2^18 features and 20
classes took 2.0 bytes per entry and their statistics 1.3 more, to save one pass over data that small.
Whoever asks for statistics that are not stored gets them computed from the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels.csc import add_class_statistics
from bigmc.store.block import Block, stream_blocks
from bigmc.store.layout import STATISTICS, FileEntry, damaged
from bigmc.store.zarr_chunks import ArrayReader, ArrayWriter, ByteCounter
from bigmc.store.zarr_groups import write_group

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset

#: A statistic is stored if its elements are at most this many, or this part of the split's entries.
_SMALL = 1 << 16
_SMALL_PART = 1 / 32

_Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def block_statistics(
    dataset: Dataset,
    block: Block,
    labels: NDArray[np.int32],
    row_scale: NDArray[np.float32] | None = None,
) -> _Pair:
    """Return sum and sum of squares of a block's columns, of shape (hi - lo, n_classes).

    Where labels are sets the samples are all of one class: a sample would be in several.
    The values are raw, or times the scale of their rows where that is given, shape (n_samples,).
    """
    n_classes = _n_groups(dataset)
    if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
        raise DataError(f"labels outside the {n_classes} classes", "statistics need labelled samples")
    sums = np.zeros((block.hi - block.lo, n_classes))
    squares = np.zeros_like(sums)
    for s in range(dataset.n_shards):
        here = slice(block.base[s], block.base[s + 1])
        offsets, indices, values = block.indptr[s], block.indices, block.data
        if row_scale is not None:
            first, last = offsets[0], offsets[-1]
            offsets, indices = offsets - first, indices[first:last]
            values = values[first:last] * row_scale[here].astype(np.float64)[indices]
        add_class_statistics(offsets, indices, values, labels[here], sums, squares)
    return sums, squares


def group_codes(dataset: Dataset) -> NDArray[np.int32]:
    """Return the class code of every sample; where labels are sets 0, for the one class of all."""
    return np.zeros(dataset.n_samples, np.int32) if dataset.has_sets else dataset.labels()


def _n_groups(dataset: Dataset) -> int:
    return 1 if dataset.has_sets else dataset.n_classes


def write_statistics(
    path: Path,
    dataset: Dataset,
    split: str,
    memory_limit: int,
    progress: Callable[[int], None],
    beside: int = 0,
) -> list[FileEntry]:
    """Compute and write the statistics of one split in one pass over its blocks.

    Parameters
    ----------
    path : Path
        Of the dataset on disk.
    dataset : Dataset
        The samples of the split.
    split : str
    memory_limit : int
        Bytes for two blocks and the statistics of one; at least one feature is taken at a time.
    progress : callable
        Called with the number of features done.
    beside : int, optional
        Entries of the data that these samples are appended to: their statistics are worth storing if
        those are.

    Returns
    -------
    list of FileEntry
        Empty if the statistics are too large to be worth storing.
    """
    most = max(_SMALL, int((dataset.nnz + beside) * _SMALL_PART))
    if dataset.n_features > most:
        return []
    counts = dataset.column_nnz()
    labels, n_classes, n_features = group_codes(dataset), _n_groups(dataset), dataset.n_features
    # Integer sums are exact in int64 and pack far better than float64; squares of int32 might not fit.
    exact = np.dtype(np.int64)
    dtype = exact if dataset.dtype.kind == "i" and dataset.dtype.itemsize < 4 else np.dtype(np.float64)
    folder = path / STATISTICS / split
    files = [write_group(folder, path, {})]
    shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
        "nnz": ((n_features,), exact),
        "sum": ((n_features,), dtype),
        "sum_squares": ((n_features,), dtype),
    }
    by_class = n_classes * n_features <= most and not dataset.has_sets
    if by_class:
        shapes["class_sum"] = shapes["class_sum_squares"] = ((n_classes, n_features), dtype)
    writers = {name: ArrayWriter(folder / name, path, *shape) for name, shape in shapes.items()}
    writers["nnz"].append(counts)
    width = max(1, memory_limit // 4 // (32 * max(n_classes, 1)))
    ranges = [
        (start, min(start + width, hi))
        for lo, hi in dataset.plan(memory_limit // 4)
        for start in range(lo, hi, width)
    ]
    for block in stream_blocks(dataset, ranges):
        sums, squares = block_statistics(dataset, block, labels)
        for name, values in (("sum", sums), ("sum_squares", squares)):
            writers[name].append(values.sum(axis=1).astype(dtype))
            if by_class:
                writers[f"class_{name}"].append(values.astype(dtype))
        progress(block.hi)
    return files + [file for writer in writers.values() for file in writer.close()]


def read_statistic(
    path: Path, split: str, name: str, shape: tuple[int, ...], lo: int, hi: int, counter: ByteCounter
) -> NDArray[np.float64]:
    """Read columns ``lo`` to ``hi`` of one statistic as float64.

    `shape` is that of the whole array, which may have fewer rows: of the classes known when it was written.
    """
    folder = path / STATISTICS / split / name
    reader = ArrayReader(folder, counter)
    if len(reader.shape) != len(shape) or reader.shape[-1] != shape[-1] or reader.shape[0] > shape[0]:
        raise damaged(folder, f"has the shape {reader.shape} instead of {shape}")
    rows = reader.shape[0] if len(shape) == 2 else 1
    out = np.empty((hi - lo) * rows)
    reader.read(lo * rows, hi * rows, out)
    return out if len(shape) == 1 else out.reshape(hi - lo, rows).T
