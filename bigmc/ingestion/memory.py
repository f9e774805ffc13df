"""The memory of an ingest, and the share of each worker.

The limit counts what a run adds to the bare process: the interpreter and the libraries that
ingest imports. What is stored follows from a share: rows of a shard, sums of batches, counted names. So
shares depend on the limit and the input, and on no number of threads or processes; threads without a share
help those that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.engine.processes import ROOMY_LIMIT
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.parts.scan import Part
from bigmc.ingestion.readers import TEXT_FORMATS
from bigmc.ingestion.readers.parquet import DECODED
from bigmc.ingestion.readers.record_limit import UNTOLD_BYTES, RecordLimit, bytes_of_record
from bigmc.store.shards.memory_shard import MAX_ROWS

BATCH_COST = 32
"""Bytes in memory per source byte of a batch: raw and parsed text, n-grams of the densest analyzer."""

SMALLEST_BATCH, LARGEST_BATCH = 1 << 16, 1 << 20
"""Source bytes of a batch: texts of 4 MB took no less processor time than of 1 MB, and 30 to 80 MB more."""

COLUMN_BYTES = 512
"""Source bytes of a batch for each column of a text file, some 64 numbers, where that is more: a batch takes
0.1 ms for a column however few rows it has."""

DENSE_BATCH_COST = 8
"""The same if every column is a number: columns, float64 values, and these as rows."""

PIECES_OF_CATEGORIES = BATCH_COST // DENSE_BATCH_COST
"""Pieces in a batch of categories alone, which has no n-grams: with many columns, calls take as long as
values. 60 million values in 30 columns took 7.2 CPU seconds one by one, and 5.2 with four at once."""

THREADS_EACH, BATCHES_EACH = 2, 1.25
"""Threads of a worker, each with a batch, and batches that memory is reserved for: two are seldom at their
peaks at once, least of all while a shard is written. Texts in pieces of characters took 60 of 64 MB."""

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

COLUMN_COST, FEW_COLUMNS = 6_000, 1_000
"""Bytes for each column of a text file while pyarrow parses it, and how many columns the fixed cost covers:
400 rows of 20,000 columns took 120 MB more than of 1,000."""

NAME_COST = 256
"""Bytes per counted name: 64 in the counter, the rest while it becomes a table."""

LARGEST_CAPACITY = 1 << 16
"""Maximum number of names counted in a part."""

SMALLEST_WORKER = 12_000_000
"""Minimum buffer: with less, a worker would write shards of a few thousand rows."""

BATCHES_SHARE = 4
"""Batches may take a worker's bytes divided by this."""

ROOMY_WORKER = 200_000_000
"""Bytes from which on two workers share the memory where one would write longer dense shards."""

ENTRY_BYTES = 12
"""Bytes of a feature of one column in memory: an index and a number."""

WORD_COST, CHARACTER_COST = 0.4, 1.25
"""Bytes of samples in memory per byte of long texts, for each length of n-grams: a little more than 1 to 3
words (0.22 to 0.35) and 1 to 5 characters (0.7 to 1.25) took of programs and their documentation."""


@dataclass(frozen=True)
class Load:
    """Memory needs of the workers of an ingest.

    Sorting a shard by counting takes some bytes for each of the `n_features`; `names` says whether names of
    hashed features are counted, and `dense` whether every feature is a numeric column, so that batches grow
    less than texts. Each worker needs `record_bytes` for the longest record, or the largest pages of
    Parquet, and `footer_bytes` for the largest footer; `parquet` says whether there is any to decode. The
    distinct labels take `label_bytes` in each worker and then once for all; 0 before they are counted.

    `row_bytes` are those of a row's samples besides its texts, `growth` roughly the bytes of samples per
    source byte of texts and matrices, and `samples_bytes` those of the samples of the largest part, or of a
    whole shard of it. `chunk_bytes` are those of the largest chunk of dask arrays, which are computed whole.
    Each of the `n_columns` of text files takes memory while it is parsed.
    """

    n_features: int
    names: bool = False
    dense: bool = False
    record_bytes: int = 0
    footer_bytes: int = 0
    parquet: bool = False
    label_bytes: int = 0
    row_bytes: int = 0
    growth: float = 0.0
    samples_bytes: int = 0
    chunk_bytes: int = 0
    n_columns: int = 0

    @classmethod
    def of_features(cls, features: FeatureSpec, n_features: int, label_bytes: int) -> Load:
        """Return the load of features before there are parts."""
        load = cls(
            n_features,
            dense=features.only_dense,
            label_bytes=label_bytes,
            n_columns=len(features.columns),
        )
        if features.only_dense:
            return replace(load, row_bytes=8 * n_features)
        if not features.columns:
            return replace(load, growth=1.0)
        row_bytes, growth = ENTRY_BYTES * (len(features.columns) - len(features.text)), 0.0
        if features.text and features.hasher is not None:
            least, most = features.hasher.ngrams
            growth = WORD_COST if features.hasher.analyzer == "word" else CHARACTER_COST
            growth *= most - least + 1
        return replace(load, row_bytes=row_bytes, growth=growth)

    def of(self, parts: Sequence[Part]) -> Load:
        """Return the load with the largest record and footer of the parts."""
        is_parsed = any(part.format in TEXT_FORMATS - {"svmlight"} for part in parts)
        return replace(
            self,
            n_columns=self.n_columns if is_parsed else 0,
            record_bytes=max((bytes_held(part) for part in parts), default=0),
            footer_bytes=max((part.footer_bytes for part in parts), default=0),
            parquet=any(part.format == "parquet" for part in parts),
            samples_bytes=max((self._bytes_of_samples(part) for part in parts), default=0),
            chunk_bytes=max((part.n_bytes for part in parts if part.format == "dask"), default=0),
        )

    def _bytes_of_samples(self, part: Part) -> int:
        n_rows = min(part.n_rows, MAX_ROWS)
        return int(n_rows * (self.row_bytes + self.growth * part.n_bytes / max(1, part.n_rows)))

    @property
    def n_bytes(self) -> int:
        """Bytes of a worker, excluding its buffers."""
        labels = max(0, self.label_bytes - LABELS_BYTES)
        features = FEATURE_COST * self.n_features + self.column_bytes
        return features + self.record_bytes + labels + self.footer_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes for parsing columns of text files, besides those that the fixed cost covers."""
        return COLUMN_COST * max(0, self.n_columns - FEW_COLUMNS)

    def __str__(self) -> str:
        labels = f", {format_bytes(self.label_bytes)} of labels" if self.label_bytes else ""
        longest = "largest pages of Parquet" if self.parquet else "longest record"
        records = f", {format_bytes(self.record_bytes)} for the {longest}" if self.record_bytes else ""
        large = self.footer_bytes > UNTOLD_BYTES
        footers = f", {format_bytes(self.footer_bytes)} for a footer of Parquet" if large else ""
        columns = f", {self.n_columns:,} columns" if self.column_bytes else ""
        return f"{self.n_features:,} features{columns}{labels}{records}{footers}"

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
    """Memory share of one worker, and how many of them there is memory for.

    `most_workers` parts may be worked on at once, by `most_threads`. `batch_bytes` of the source are read at
    once, and `buffer_bytes` of samples collected before a shard is written. `name_capacity` feature names are
    counted; 0 keeps no names. Decoding Parquet may hold `reader_bytes`, and the distinct labels of a part
    `label_bytes`.
    """

    most_workers: int
    most_threads: int
    batch_bytes: int
    buffer_bytes: int
    name_capacity: int
    reader_bytes: int
    record_limit: RecordLimit
    label_bytes: int


def divide(limit: int, load: Load) -> Shares:
    """Return the share of each worker, and how many of them a memory limit, above the bare process, allows.

    `MemoryLimitError` if it does not allow one worker.
    """
    if limit < smallest_limit(load):
        raise MemoryLimitError(
            f"ingest of {load} with a memory limit of {format_bytes(limit)} cannot work",
            f"give --memory {-(-smallest_limit(load) // 10**6)}MB or more{load.other_cure}",
        )
    n_workers = _most_workers(limit, load)
    mine = (limit - FIXED_COST) // n_workers - load.n_bytes
    cost = DENSE_BATCH_COST if load.dense else BATCH_COST
    # A batch with a long record takes the bytes of this record, so there are not two of them at once.
    helped = mine >= THREADS_EACH * SMALLEST_WORKER and (load.parquet or not load.record_bytes)
    batch_cost = int(cost * (BATCHES_EACH if helped else 1))
    largest = max(LARGEST_BATCH, COLUMN_BYTES * load.n_columns)
    batch_bytes = int(np.clip(mine // (BATCHES_SHARE * batch_cost), SMALLEST_BATCH, largest))
    capacity = min(LARGEST_CAPACITY, 1 << (mine // (8 * NAME_COST)).bit_length() - 1) if load.names else 0
    # Bytes above the minimum, which is always reserved.
    reader_bytes = max(0, mine // READER_SHARE - READER_BYTES) if load.parquet else 0
    buffers = mine - batch_bytes * batch_cost - capacity * NAME_COST - reader_bytes
    return Shares(
        n_workers,
        n_workers * (THREADS_EACH if helped else 1),
        batch_bytes,
        buffers // _peak_factor(limit, load),
        capacity,
        reader_bytes=READER_BYTES + load.record_bytes + reader_bytes,
        record_limit=record_limit(limit, load.n_features),
        label_bytes=max(LABELS_BYTES, load.label_bytes),
    )


def _most_workers(limit: int, load: Load) -> int:
    """Return how many workers have memory for whole shards and for batches of full size, at least one.

    Two may write shorter shards if all features are dense: these are not merged at the end, and a second
    thread can hardly help to write them.
    """
    free = limit - FIXED_COST
    batches = LARGEST_BATCH * int(BATCHES_EACH * (DENSE_BATCH_COST if load.dense else BATCH_COST))
    names = NAME_COST * LARGEST_CAPACITY if load.names else 0
    whole = load.samples_bytes * _peak_factor(limit, load) + batches + names
    if load.parquet:
        whole += whole // (READER_SHARE - 1)
    n_workers = free // (max(whole, BATCHES_SHARE * batches) + load.n_bytes)
    if load.dense:
        n_workers = max(n_workers, min(2, free // (ROOMY_WORKER + load.n_bytes)))
    if load.chunk_bytes:
        n_workers = min(n_workers, limit // (2 * load.chunk_bytes))
    return max(1, n_workers)


def _peak_factor(limit: int, load: Load) -> int:
    if load.dense:
        return DENSE_PEAK_FACTOR
    return ROOMY_PEAK_FACTOR if limit >= ROOMY_LIMIT else PEAK_FACTOR


def smallest_limit(load: Load) -> int:
    """Return the least memory limit, in bytes, for one worker with a load."""
    return FIXED_COST + SMALLEST_WORKER + load.n_bytes


def record_limit(limit: int, n_features: int) -> RecordLimit:
    """Return the maximum length of a record if one worker has the whole memory limit."""
    base = FIXED_COST + SMALLEST_WORKER + FEATURE_COST * n_features
    return RecordLimit(limit, base)


def refuse_large_chunks(limit: int, load: Load) -> None:
    """Raise `MemoryLimitError` if a worker cannot hold the largest chunk of dask arrays, computed whole."""
    if 2 * load.chunk_bytes > limit:
        raise MemoryLimitError(
            f"a chunk of the dask array has {format_bytes(load.chunk_bytes)}, "
            f"a worker may use {format_bytes(limit)}",
            f"rechunk the array to fewer rows per chunk, or give --memory "
            f"{-(-2 * load.chunk_bytes // 10**6)}MB or more",
        )
