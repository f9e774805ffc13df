"""The memory of an ingest, and the share of each worker.

The limit counts what a run adds to the bare process: the interpreter and the libraries that
ingest imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.engine.processes import ROOMY_LIMIT
from bigmc.ingestion.parts.scan import Part
from bigmc.ingestion.readers.parquet import DECODED
from bigmc.ingestion.readers.record_limit import UNTOLD_BYTES, RecordLimit, bytes_of_record

BATCH_COST = 32
"""Bytes in memory per source byte of a batch: raw and parsed text, n-grams of the densest analyzer."""

SMALLEST_BATCH, LARGEST_BATCH = 1 << 16, 1 << 20
"""Source bytes of a batch: texts of 4 MB took no less processor time than of 1 MB, and 30 to 80 MB more."""

DENSE_BATCH_COST = 8
"""The same if every column is a number: columns, float64 values, and these as rows."""

PIECES_OF_CATEGORIES = BATCH_COST // DENSE_BATCH_COST
"""Pieces in a batch of categories alone, which has no n-grams: with many columns, calls take as long as
values. 60 million values in 30 columns took 7.2 CPU seconds one by one, and 5.2 with four at once."""

LABELS_BYTES = 2 << 20
"""Maximum bytes of distinct labels in every worker."""

READER_BYTES = 4 << 20
"""Minimum bytes for decoding Parquet with short values."""

READER_SHARE = 12
"""Decoding may use a worker's bytes divided by this: with all columns open it is twice as fast."""

PEAK_FACTOR = 3
"""Memory of a flush in multiples of the samples written: pieces, columns (at most as much), codec, and memory
that the allocator cannot return."""

ROOMY_PEAK_FACTOR = 2
"""The same from `ROOMY_LIMIT` on, without the last two."""

DENSE_PEAK_FACTOR = 4
"""The same if every feature is dense: pieces, their concatenation, columns, codec."""

FIXED_COST = 40_000_000
"""Bytes independent of the limit: compiled kernels, the Unicode table, scratch of hashing, newly used pages
of libraries, memory that the allocator cannot return."""

FEATURE_COST = 16
"""Bytes per feature while a shard is written: counts of its columns, and their offsets."""

NAME_COST = 256
"""Bytes per counted name: 64 in the counter, the rest while it becomes a table."""

LARGEST_CAPACITY = 1 << 16
"""Maximum number of names counted in a part."""

SMALLEST_WORKER = 12_000_000
"""Minimum buffer: with less, a worker would write shards of a few thousand rows."""


@dataclass(frozen=True)
class Load:
    """Memory needs of the workers of an ingest.

    Attributes
    ----------
    n_features : int
        Number of features: sorting a shard by counting takes some bytes per feature.
    names : bool
        Whether names of hashed features are counted.
    dense : bool
        Whether every feature is a numeric column, so that batches grow less than texts.
    record_bytes : int
        Bytes for the longest record, or for reading the largest columns of Parquet, in each worker.
    footer_bytes : int
        Bytes of the largest footer of a Parquet file, in each worker.
    parquet : bool
        Whether there is Parquet to decode.
    label_bytes : int
        Bytes for the distinct labels, in each worker and then once for all; 0 before they are counted.
    """

    n_features: int
    names: bool = False
    dense: bool = False
    record_bytes: int = 0
    footer_bytes: int = 0
    parquet: bool = False
    label_bytes: int = 0

    def of(self, parts: Sequence[Part]) -> Load:
        """Return the load with the largest record and footer of the parts."""
        return replace(
            self,
            record_bytes=max((bytes_held(part) for part in parts), default=0),
            footer_bytes=max((part.footer_bytes for part in parts), default=0),
            parquet=any(part.format == "parquet" for part in parts),
        )

    @property
    def n_bytes(self) -> int:
        """Bytes of a worker, excluding its buffers."""
        labels = max(0, self.label_bytes - LABELS_BYTES)
        return FEATURE_COST * self.n_features + self.record_bytes + labels + self.footer_bytes

    def __str__(self) -> str:
        labels = f", {format_bytes(self.label_bytes)} of labels" if self.label_bytes else ""
        records = f", {format_bytes(self.record_bytes)} for the longest record" if self.record_bytes else ""
        large = self.footer_bytes > UNTOLD_BYTES
        footers = f", {format_bytes(self.footer_bytes)} for a footer of Parquet" if large else ""
        return f"{self.n_features:,} features{labels}{records}{footers}"

    @property
    def other_cure(self) -> str:
        """Alternative cure for the error message."""
        if self.label_bytes > max(self.record_bytes, FEATURE_COST * self.n_features):
            return ", or check that --label names the right column"
        if self.record_bytes + self.footer_bytes > FEATURE_COST * self.n_features:
            return ", or write shorter records or smaller row groups"
        return ", or fewer --hash-bits" if FEATURE_COST * self.n_features > SMALLEST_WORKER else ""


def bytes_held(part: Part) -> int:
    """Return the bytes that a worker needs for long records or Parquet columns."""
    if part.format == "parquet":
        return max(0, DECODED * part.longest - READER_BYTES)
    return bytes_of_record(part.longest)


@dataclass(frozen=True)
class Shares:
    """Memory share of one worker.

    Attributes
    ----------
    batch_bytes : int
        Source bytes read at once.
    buffer_bytes : int
        Bytes of samples collected before a shard is written.
    name_capacity : int
        Feature names counted; 0 keeps no names.
    reader_bytes : int
        Bytes that decoding Parquet may hold.
    record_limit : RecordLimit
        Maximum length of a text.
    label_bytes : int
        Bytes of distinct labels of a part.
    """

    batch_bytes: int
    buffer_bytes: int
    name_capacity: int
    reader_bytes: int
    record_limit: RecordLimit
    label_bytes: int


def divide(limit: int, n_workers: int, load: Load) -> tuple[int, Shares]:
    """Return the number of workers that a memory limit allows, and the share of each.

    Parameters
    ----------
    limit : int
        Bytes above the bare process.
    n_workers : int
        Workers wanted.
    load : Load
        Memory needs of one worker.

    Raises
    ------
    MemoryLimitError
        If it does not allow one worker.
    """
    if limit < smallest_limit(load):
        raise MemoryLimitError(
            f"ingest of {load} with a memory limit of {format_bytes(limit)} cannot work",
            f"give --memory {-(-smallest_limit(load) // 10**6)}MB or more{load.other_cure}",
        )
    n_workers = min(n_workers, (limit - FIXED_COST) // (SMALLEST_WORKER + load.n_bytes))
    mine = (limit - FIXED_COST) // n_workers - load.n_bytes
    cost = DENSE_BATCH_COST if load.dense else BATCH_COST
    batch_bytes = int(np.clip(mine // (4 * cost), SMALLEST_BATCH, LARGEST_BATCH))
    capacity = min(LARGEST_CAPACITY, 1 << (mine // (8 * NAME_COST)).bit_length() - 1) if load.names else 0
    # Bytes above the minimum, which is always reserved.
    reader_bytes = max(0, mine // READER_SHARE - READER_BYTES) if load.parquet else 0
    factor = DENSE_PEAK_FACTOR if load.dense else _peak_factor(limit)
    buffer_bytes = int((mine - batch_bytes * cost - capacity * NAME_COST - reader_bytes) / factor)
    return n_workers, Shares(
        batch_bytes,
        buffer_bytes,
        capacity,
        reader_bytes=READER_BYTES + load.record_bytes + reader_bytes,
        record_limit=record_limit(limit, load.n_features),
        label_bytes=max(LABELS_BYTES, load.label_bytes),
    )


def _peak_factor(limit: int) -> int:
    return ROOMY_PEAK_FACTOR if limit >= ROOMY_LIMIT else PEAK_FACTOR


def smallest_limit(load: Load) -> int:
    """Return the least memory limit, in bytes, for one worker with a load."""
    return FIXED_COST + SMALLEST_WORKER + load.n_bytes


def record_limit(limit: int, n_features: int) -> RecordLimit:
    """Return the maximum length of a record if one worker has the whole memory limit."""
    base = FIXED_COST + SMALLEST_WORKER + FEATURE_COST * n_features
    return RecordLimit(limit, base)


def refuse_large_chunks(parts: Sequence[Part], share: int, n_workers: int) -> None:
    """Raise an error if one of `n_workers` cannot hold the chunks of dask arrays, which are computed whole.

    Raises
    ------
    MemoryLimitError
        The message has the size of the largest chunk.
    """
    largest = max((part.n_bytes for part in parts if part.format == "dask"), default=0)
    if 2 * largest > share:
        raise MemoryLimitError(
            f"a chunk of the dask array has {format_bytes(largest)}, a worker may use {format_bytes(share)}",
            f"rechunk the array to fewer rows per chunk, or give --memory "
            f"{-(-2 * largest * n_workers // 10**6)}MB or more",
        )
