"""A dataset on disk: the ingest that made it, and appended ones.

An appended ingest is in the folder ``appends/000001`` and so on, with its own manifest and
statistics; it lists all classes up to it. The manifest of the dataset names the
appended manifests. Replacing this one file adds an ingest, and no other file ever changes, so open readers
are unaffected. In an object store an appended manifest is created under the next number; its existence adds
it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import StoreError
from bigmc.lazy import LazyModule
from bigmc.store.classes import read_classes
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.layout import (
    CLASSES,
    GROUP,
    MANIFEST,
    SHARDS,
    STATISTICS,
    FileEntry,
    Manifest,
    ShardEntry,
    check_files,
    damaged,
    digests_below,
    read_manifests,
)
from bigmc.store.files.object_store import Origin, find, is_remote
from bigmc.store.shards.disk_shard import DenseShard, SparseShard, StoredShard
from bigmc.store.shards.shard import Shard
from bigmc.store.shards.zarr_chunks import ArrayReader, ByteCounter
from bigmc.store.statistics import read_statistic
from bigmc.store.weighting import Weighting

pq = LazyModule("pyarrow.parquet")

#: Files of up to this many bytes are checked against their SHA-256 when a dataset is opened.
_SMALL = 1 << 20


@dataclass(frozen=True)
class Ingest:
    """One ingest on disk; `origin` is where its files come from, if it is a copy from an object store."""

    path: Path
    manifest: Manifest
    origin: Origin | None = None

    def bring(self, prefix: str) -> None:
        """Download the files with this prefix, if needed."""
        if self.origin is not None:
            self.origin.bring([file for file in self.manifest.files if file.path.startswith(prefix)])

    def check(self, name: str) -> Path:
        """Return the local path of a file outside the shards, checked against its SHA-256.

        `StoreError` if it does not match the manifest, or the manifest does not list it.
        """
        self.bring(name)
        listed = [file for file in self.manifest.files if file.path == name]
        if not listed:
            raise damaged(self.path / MANIFEST, f"it does not list {name}")
        check_files(self.path, listed)
        return self.path / name

    @property
    def small_files(self) -> list[FileEntry]:
        """Small files outside the shards and the statistics, which are checked when they are read."""
        files = [file for file in self.manifest.files if file.bytes <= _SMALL]
        return [file for file in files if not file.path.startswith(f"{STATISTICS}/")]


def read_ingests(path: Path | str, n_appends: int | None = None) -> tuple[Ingest, ...]:
    """Return the ingest at a path or address and its appends, or only the first so many.

    `StoreError` if there is no dataset, or an appended manifest has changed.
    """
    if is_remote(path):
        origins = find(str(path), n_appends)
        first, *appended = (origin.folder for origin in origins)
        read = zip(read_manifests(first, copies=appended), origins, strict=True)
        return tuple(Ingest(*each, origin) for each, origin in read)
    return tuple(Ingest(*each) for each in read_manifests(Path(path), n_appends))


class StoredLabels:
    """The labels of a dataset on disk, read at first use: reading a million takes 200 MB.

    `StoreError` if their file cannot be read, or has changed since the dataset was opened.
    """

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        file = ingest.check(CLASSES)
        try:
            self._n_labels = int(pq.read_metadata(arrow_file(file)).num_rows)
        except (OSError, pa.ArrowException) as error:
            raise damaged(file, f"cannot be read ({error})") from None

    def __len__(self) -> int:
        """Return the number of classes."""
        return self._n_labels

    def __getitem__(self, code: Any, /) -> Any:
        """Return the label of a class."""
        return self.values[code]

    def tolist(self) -> list[Any]:
        """Return all labels."""
        labels: list[Any] = self.values.tolist()
        return labels

    @cached_property
    def values(self) -> NDArray[Any]:
        """All labels, as an array of shape (n_classes,)."""
        self._ingest.check(CLASSES)
        return read_classes(self._ingest.path, self._ingest.manifest.classes_type)


@dataclass(frozen=True)
class Stored:
    """A snapshot of a dataset on disk when it was opened: its ingest, and the appends until then."""

    ingests: tuple[Ingest, ...]
    counter: ByteCounter

    @property
    def path(self) -> Path:
        """Folder of the dataset, or of its local copy."""
        return self.ingests[0].path

    @property
    def location(self) -> str:
        """Where other processes find the dataset: its folder or address."""
        origin = self.ingests[0].origin
        return str(self.path.resolve()) if origin is None else origin.address.url

    @property
    def identity(self) -> str:
        """SHA-256 of the digests of all files when the dataset was opened."""
        first, *appended = (ingest.manifest for ingest in self.ingests)
        manifests = [replace(first, appends=()), *appended]  # as it was before the first append
        digests = [hashlib.sha256(manifest.to_json()).hexdigest() for manifest in manifests]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def shards(self) -> list[StoredShard]:
        """Return all shards, in the order of the ingests; they are checked at first use."""
        return [
            open_shard(ingest.path, entry, ingest.manifest.n_features, self.counter, ingest.origin)
            for ingest in self.ingests
            for entry in ingest.manifest.shards
        ]

    def class_labels(self) -> StoredLabels:
        """Return the labels in the order of their codes, from the last ingest, which has all."""
        return StoredLabels(self.ingests[-1])

    @property
    def weighting(self) -> Weighting:
        """Weighting of the values; `StoreError` if this version does not know it."""
        first = self.ingests[0]
        try:
            return Weighting.from_dict(first.manifest.weighting)
        except TypeError as error:
            raise StoreError(
                f"{first.path / MANIFEST}: the weighting {first.manifest.weighting} is unknown ({error})",
                "install the version of bigmc that made the dataset, or ingest again",
            ) from None

    @property
    def has_sets(self) -> bool:
        """Whether labels are sets."""
        return self.ingests[0].manifest.label_sets

    @property
    def n_quarantined(self) -> int:
        """Number of rows that every ingest set aside, in all splits."""
        return sum(ingest.manifest.rows_quarantined for ingest in self.ingests)

    def name(self, shard: StoredShard) -> str:
        """Return the name of a shard, unique among all ingests."""
        folders = [ingest.path for ingest in self.ingests]
        return f"{folders.index(shard.folder.parents[1])}/{shard.folder.name}"

    def files(self, name: str) -> list[Path]:
        """Return the files called ``name`` of the ingests that have one."""
        having = [i for i in self.ingests if any(file.path == name for file in i.manifest.files)]
        return [ingest.check(name) for ingest in having]

    def bytes_beside(self, n_shards: int) -> int:
        """Return the bytes of all files outside shards; 0 if `n_shards` are not all shards."""
        if n_shards != sum(len(ingest.manifest.shards) for ingest in self.ingests):
            return 0
        listed = sum(file.bytes for ingest in self.ingests for file in ingest.manifest.files)
        return listed + sum(len(ingest.manifest.to_json()) for ingest in self.ingests)

    def statistic(
        self, shards: Sequence[Shard], name: str, shape: tuple[int, ...], lo: int, hi: int
    ) -> NDArray[np.float64] | None:
        """Return a statistic over `shards`, or None if it is not stored or they are not whole splits.

        Each ingest has its own statistics for each of its splits; they are added up. Earlier ingests have no
        rows for later classes.
        """
        mine = [shard for shard in shards if isinstance(shard, StoredShard) and shard.n_rows]
        counts = Counter((shard.folder.parents[1], shard.split) for shard in mine)
        total = np.zeros((*shape[:-1], hi - lo))
        for ingest in self.ingests:
            files = {file.path for file in ingest.manifest.files}
            for split, n in Counter(e.split for e in ingest.manifest.shards if e.rows).items():
                if counts.get((ingest.path, split), 0) == 0:
                    continue
                if counts[ingest.path, split] != n or f"{STATISTICS}/{split}/{name}/{GROUP}" not in files:
                    return None
                ingest.bring(f"{STATISTICS}/{split}/{name}/")
                own = self._statistic(ingest, f"{STATISTICS}/{split}/{name}", shape, lo, hi)
                total[: len(own)] += own
        return total

    def _statistic(
        self, ingest: Ingest, folder: str, shape: tuple[int, ...], lo: int, hi: int
    ) -> NDArray[np.float64]:
        digests = digests_below(f"{folder}/", ingest.manifest.files)
        reader = ArrayReader(ingest.path / folder, self.counter, digests)
        values = read_statistic(reader, shape, lo, hi)
        if values is None:
            raise damaged(ingest.path / folder, f"is no statistic of the shape {shape}")
        return values


def open_shard(
    path: Path, entry: ShardEntry, n_features: int, counter: ByteCounter, origin: Origin | None = None
) -> StoredShard:
    """Return the shard of `entry` in the dataset at `path`; its files are checked at first use."""
    kind = DenseShard if entry.kind == "dense" else SparseShard
    return kind(path / SHARDS / entry.name, entry, n_features, counter, origin)


def open_stored(path: Path | str, n_appends: int | None = None) -> Stored:
    """Return the dataset at `path`, optionally as it was after so many appends."""
    ingests = read_ingests(path, n_appends)
    for ingest in ingests:
        if ingest.origin is None:  # downloads are checked when they arrive
            check_files(ingest.path, ingest.small_files)
    return Stored(ingests, ByteCounter())


def reopen(path: str, signature: str, n_appends: int) -> Stored:
    """Return, in another process, the dataset opened in the first; `StoreError` if it has been replaced."""
    stored = open_stored(path, n_appends)
    if stored.ingests[0].manifest.signature != signature or len(stored.ingests) <= n_appends:
        raise StoreError(
            f"{path} has been replaced during the run", "do not change it until the run has ended"
        )
    return stored
