"""The last step of an ingest: statistics, classes, and the manifest that makes a dataset complete."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bigmc.errors import DataError, StoreError
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.store.atomic import PARTIAL, file_entry, fsync_tree, write_atomic
from bigmc.store.classes import write_classes
from bigmc.store.dataset import Dataset
from bigmc.store.disk_shard import open_shard
from bigmc.store.layout import (
    CLASSES,
    FORMAT_VERSION,
    MANIFEST,
    SHARDS,
    STATISTICS,
    FileEntry,
    Manifest,
    ShardEntry,
)
from bigmc.store.statistics import write_statistics
from bigmc.store.weighting import Weighting
from bigmc.store.zarr_chunks import ByteCounter
from bigmc.store.zarr_groups import write_group

#: Splits name folders under statistics/.
_SPLIT_NAME = re.compile(r"[\w-]+")


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
    progress: ProgressCallback = silent,
) -> Dataset:
    """Complete the dataset whose shards lie under ``path/shards``; repeatable until it succeeds.

    Parameters
    ----------
    path : Path
        Folder of the dataset.
    shards : sequence of ShardEntry
        In the order the dataset shall have; their tables hold final label codes.
    classes : array of shape (n_classes,)
        Original label of each code: integers, strings, booleans or floats.
    n_features : int
    weighting : Weighting
    features, provenance : dict
        For JSON; see `bigmc.store.layout.Manifest`.
    rows_in, rows_quarantined : int
        Rows the sources held and rows set aside.
    signature : str, optional
        Digest of sources and options.
    extra_files : sequence of str, optional
        Names of further files in the folder that belong to the dataset.
    beside : int, optional
        Entries of the dataset that this one will be appended to.
    memory_limit : int, optional
        Bytes for the pass that computes the statistics.
    progress : callable, optional

    Returns
    -------
    Dataset
        The finished dataset, opened.

    Raises
    ------
    StoreError
        If rows were lost: ``rows_in`` is not the sum of stored and quarantined rows.
    DataError
        If a weighting that counts stored entries meets a dense shard, or a label has no class.
    """
    rows = sum(entry.rows for entry in shards)
    if rows + rows_quarantined != rows_in:
        raise StoreError(f"{path}: {rows_in} rows in, but {rows} stored and {rows_quarantined} quarantined")
    if (weighting.binary or weighting.idf) and any(entry.kind == "dense" for entry in shards):
        raise DataError(
            "binary and tfidf weighting count the stored entries, and dense data stores them all",
            "use the weighting counts or l2",
        )
    for split in {entry.split for entry in shards}:
        if not _SPLIT_NAME.fullmatch(split):
            raise DataError(f"a split cannot be called {split!r}", "use letters, digits, - and _")
    _clear(path, shards)
    counter = ByteCounter()
    opened = [open_shard(path, entry, n_features, counter) for entry in shards]
    dataset = Dataset(opened, classes, n_features, weighting, features)
    files: list[FileEntry] = []
    for split in (name for name, n in dataset.splits.items() if n):

        def tell(done: int, split: str = split) -> None:
            progress(Progress(f"statistics of {split}", done, n_features, "features"))

        files += write_statistics(path, dataset[split], split, memory_limit, tell, beside)
    if files:
        files.append(write_group(path / STATISTICS, path, {}))
        fsync_tree(path / STATISTICS)
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


def _clear(path: Path, shards: Sequence[ShardEntry]) -> None:
    """Remove what earlier attempts left beside the shards of this one."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path / STATISTICS, ignore_errors=True)
    for stray in path.glob(f".*{PARTIAL}"):
        stray.unlink()
    wanted = {entry.name for entry in shards}
    for folder in (path / SHARDS).glob("*"):
        if folder.name not in wanted:
            shutil.rmtree(folder)
