"""The last step of an ingest: write statistics, classes, and the manifest, which completes the dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import ThreadEngine
from bigmc.errors import DataError, StoreError
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.store.block import BlockBuffers, bytes_of_longest, cut_ranges, read_block
from bigmc.store.classes import write_classes
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, write_atomic
from bigmc.store.files.layout import (
    CLASSES,
    FORMAT_VERSION,
    MANIFEST,
    SHARDS,
    STATISTICS,
    FileEntry,
    Manifest,
    ShardEntry,
    file_entry,
)
from bigmc.store.shards.zarr_chunks import ArrayWriter, ByteCounter
from bigmc.store.shards.zarr_groups import write_group
from bigmc.store.snapshot import open_shard
from bigmc.store.statistics import block_statistics
from bigmc.store.weighting import Weighting

#: Splits name folders under statistics/.
_SPLIT_NAME = re.compile(r"[\w-]+")

#: A statistic is stored if it has at most this many elements, or at most this share of the split's entries.
SMALL_ENTRIES = 1 << 16
SMALL_SHARE = 1 / 32


def finish_dataset(
    path: Path,
    shards: Sequence[ShardEntry],
    *,
    classes: NDArray[Any],
    n_features: int,
    weighting: Weighting,
    features: Mapping[str, Any],
    provenance: Mapping[str, Any],
    rows_in: int,
    rows_quarantined: int = 0,
    signature: str = "",
    extra_files: Sequence[str] = (),
    beside: int = 0,
    memory_limit: int = 256 << 20,
    n_threads: int = 1,
    progress: ProgressCallback = silent,
) -> Dataset:
    """Complete the dataset with shards in ``path/shards`` and open it; may be repeated until it succeeds.

    The shards are in their final order, and their tables have final label codes, whose original labels are
    `classes`: integers, strings, booleans or floats. For `features`, `provenance` and `signature` see
    `bigmc.store.files.layout.Manifest`. `extra_files` are names of further files in the folder that belong to
    the dataset, `beside` is the number of entries of the dataset that this one will be appended to, and
    `memory_limit` is for the pass that computes the statistics on `n_threads`. `StoreError` if rows were
    lost: ``rows_in`` is not the sum of stored and quarantined rows; `DataError` if a weighting that counts
    stored entries meets a dense shard, or a label has no class.
    """
    rows = sum(entry.rows for entry in shards)
    if rows + rows_quarantined != rows_in:
        raise StoreError(f"{path}: {rows_in} rows in, but {rows} stored and {rows_quarantined} quarantined")
    if (weighting.binary or weighting.idf) and any(entry.kind == "dense" for entry in shards):
        raise DataError(
            "binary and tfidf weighting count non-zero entries, but dense data stores all entries",
            "use the weighting counts or l2",
        )
    for split in {entry.split for entry in shards}:
        if not _SPLIT_NAME.fullmatch(split):
            raise DataError(f"invalid name of a split: {split!r}", "use letters, digits, - and _")
    _clear(path, shards)
    counter = ByteCounter()
    opened = [open_shard(path, entry, n_features, counter) for entry in shards]
    dataset = Dataset(opened, classes, n_features, weighting, features)
    files: list[FileEntry] = []
    for split in (name for name, n in dataset.splits.items() if n):

        def tell(done: int, split: str = split) -> None:
            progress(Progress(f"statistics of {split}", done, n_features, "features"))

        means = _Means(memory_limit, n_threads, tell)
        files += _write_statistics(path, dataset[split], split, means, beside)
    if files:
        files.append(write_group(path / STATISTICS, path, {}))
        disk.sync_tree(path / STATISTICS)
    classes_type = write_classes(path, classes)
    about = {
        "format_version": FORMAT_VERSION,
        "n_features": n_features,
        "features": dict(features),
        "weighting": weighting.to_dict(),
        "provenance": dict(provenance),
    }
    files += [file_entry(path / name, path) for name in (CLASSES, *extra_files)]
    files.append(write_group(path, path, {"bigmc": about}))
    manifest = Manifest(
        n_features=n_features,
        classes_type=classes_type,
        splits=dataset.splits,
        shards=tuple(shards),
        files=tuple(files),
        label_sets=dataset.has_sets,
        features=dict(features),
        weighting=weighting.to_dict(),
        provenance=dict(provenance),
        rows_in=rows_in,
        rows_quarantined=rows_quarantined,
        signature=signature,
    )
    write_atomic(path / MANIFEST, manifest.to_json())
    return Dataset.open(path)


class _Means(NamedTuple):
    """Memory in bytes and threads of a pass over blocks, and what is told the features done."""

    memory: int
    n_threads: int
    progress: Callable[[int], None]

    def divided(self, longest: int, decoded_bytes: int) -> tuple[int, int]:
        """Return the threads and the bytes of a block: at least those of the longest feature."""
        n_threads = max(1, min(self.n_threads, self.memory // (2 * longest)))
        block_bytes = max(self.memory // (2 * (n_threads + 1)), longest)
        if n_threads > 1:  # two blocks for each thread, or more
            block_bytes = max(min(block_bytes, decoded_bytes // (2 * n_threads)), longest)
        return n_threads, block_bytes


def _write_statistics(
    path: Path, dataset: Dataset, split: str, means: _Means, beside: int = 0
) -> list[FileEntry]:
    """Write the statistics of one split in one pass over its blocks; return no files if they are too large.

    They are too large if they are not worth storing, or a feature does not fit into memory: then they are
    computed when needed. `beside` entries, of the data that these samples are appended to, count for whether
    statistics are worth storing.
    """
    most = max(SMALL_ENTRIES, int((dataset.nnz + beside) * SMALL_SHARE))
    if dataset.n_features > most:
        return []
    counts = dataset.column_nnz()
    longest = bytes_of_longest(counts, dataset.n_shards, dataset.dtype.itemsize)
    if longest > means.memory:
        return []
    n_threads, block_bytes = means.divided(longest, dataset.decoded_bytes)
    groups, n_classes, n_features = dataset.group_codes(means.memory), dataset.n_groups, dataset.n_features
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
    if not by_class and dtype == exact:  # sums over all samples, which are exact in any order
        one = np.zeros(max(shard.n_rows for shard in dataset.shards), np.int8)
        groups, n_classes = [one[: shard.n_rows] for shard in dataset.shards], 1
    writers = {name: ArrayWriter(folder / name, path, *shape) for name, shape in shapes.items()}
    writers["nnz"].append(counts)
    width = max(1, means.memory // (4 * n_threads) // (32 * max(n_classes, 1)))
    ranges = cut_ranges(dataset.plan(block_bytes), width)
    free = [BlockBuffers() for _ in range(n_threads)]

    def statistics_of(features: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        buffers = free.pop()
        block = read_block(dataset, *features, buffers)
        sums = block_statistics(block, groups, n_classes)
        free.append(buffers)
        return sums

    for (_, hi), (sums, squares) in ThreadEngine(n_threads).map(statistics_of, ranges):
        for name, values in (("sum", sums), ("sum_squares", squares)):
            writers[name].append(values.sum(axis=1).astype(dtype))
            if by_class:
                writers[f"class_{name}"].append(values.astype(dtype))
        means.progress(hi)
    return files + [file for writer in writers.values() for file in writer.close()]


def _clear(path: Path, shards: Sequence[ShardEntry]) -> None:
    """Remove leftovers of earlier attempts beside the current shards."""
    disk.unlink(path / MANIFEST)
    disk.clear(path / STATISTICS)
    for stray in path.glob(f".*{PARTIAL}"):
        disk.unlink(stray)
    wanted = {entry.name for entry in shards}
    for folder in (path / SHARDS).glob("*"):
        if folder.name not in wanted:
            disk.clear(folder)
