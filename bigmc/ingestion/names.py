"""Names of hashed features: which words or n-grams stand behind a bucket, how often, and with which sign.

While a part is ingested a `NameCounter` keeps its most frequent n-grams in a table of fixed size;
`merge_names` makes one bounded table of those of all parts. Several names in one bucket are a
collision that is known. Counts are estimates: see `NameCounter`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.folding import Nulls
from bigmc.ingestion.hashing import ANALYZERS, TextHasher, features_of
from bigmc.ingestion.scratch import scratch
from bigmc.kernels import hashing as hashing_kernel
from bigmc.kernels import hashing_spell as spelling
from bigmc.kernels import names as kernel

SCHEMA = pa.schema(
    [("bucket", pa.int32()), ("name", pa.string()), ("sign", pa.int8()), ("count", pa.int64())]
)

WHOLE_BYTES = 1 << 20  # text of a part that is counted whole
SAMPLE_ONE_IN = 8  # of the documents after that
NAME_BYTES = 40  # a longer name is cut and ends in an ellipsis
LIST_LENGTH = 1 << 13  # n-grams listed before they are counted


class NameCounter:
    """The most frequent n-grams of one part.

    All documents are counted until `WHOLE_BYTES` of text have passed, then one in `SAMPLE_ONE_IN`, chosen by
    a hash of the document's running number and with its counts multiplied. So the result depends on the
    documents and their order only, not on how they are cut into batches. Two n-grams with the same
    32-bit hash, which fall into one bucket with one sign anyway, are taken for one.

    Parameters
    ----------
    hasher : TextHasher
        How the texts are hashed.
    capacity : int
        Names kept, a power of two of at least 8; 64 bytes each.
    """

    def __init__(self, hasher: TextHasher, capacity: int = 1 << 16) -> None:
        if capacity < kernel.WAYS or capacity & (capacity - 1):
            raise DataError(f"capacity {capacity} is no power of two", f"choose {kernel.WAYS} or more")
        self.hasher = hasher
        self.capacity = capacity
        self._keys = np.zeros(capacity, np.uint32)
        self._seen = np.zeros(capacity, np.int64)
        self._rank = np.zeros(capacity, np.int64)
        self._lengths = np.zeros(capacity, np.uint32)
        self._names = np.zeros((capacity, NAME_BYTES), np.uint8)
        self._hashes = np.empty(LIST_LENGTH + hashing_kernel.WIDTH, np.uint32)
        self._starts = np.empty(LIST_LENGTH, np.uint32)
        self._sizes = np.empty(LIST_LENGTH, np.uint32)
        self._n_documents = 0
        self._n_bytes = 0

    @staticmethod
    def projected_nbytes(capacity: int) -> int:
        """Bytes a counter of this capacity holds; its scratch is the one that hashing uses anyway."""
        return capacity * (4 + 8 + 8 + 4 + NAME_BYTES) + LIST_LENGTH * 12

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.projected_nbytes(self.capacity)

    @property
    def max_error(self) -> int:
        """By how much a count may at most fall short of the (sampled and multiplied) truth."""
        return int((self._rank - self._seen).max())

    def update(self, texts: pa.Array | pa.ChunkedArray, nulls: Nulls = "refuse") -> None:
        """Count the n-grams of documents; parameters as for `TextHasher.transform`."""
        if len(texts) == 0:
            return
        lengths = pc.fill_null(pc.binary_length(texts), 0).cast(pa.int64()).to_numpy()
        before = self._n_bytes + np.cumsum(lengths) - lengths
        whole = int(np.searchsorted(before, WHOLE_BYTES))  # the first so many documents
        numbers = np.arange(self._n_documents + whole, self._n_documents + len(texts), dtype=np.uint64)
        self._n_documents += len(texts)
        self._n_bytes = int(before[-1] + lengths[-1])
        self._count(texts[:whole], 1, nulls)
        sampled = _scatter(numbers) % np.uint64(SAMPLE_ONE_IN) == 0
        if sampled.any():
            self._count(texts[whole:].filter(pa.array(sampled)), SAMPLE_ONE_IN, nulls)

    def _count(self, texts: pa.Array | pa.ChunkedArray, weight: int, nulls: Nulls) -> None:
        code = ANALYZERS[self.hasher.analyzer]
        n_min, n_max = self.hasher.ngrams
        for _, n_rows in self.hasher.fold(texts, nulls):
            place = np.array([0, n_min, 0], np.int64)
            while place[0] < n_rows:
                n = spelling.spell_rows(
                    place, n_rows, scratch.units, scratch.folded, scratch.bound, code, n_min, n_max,
                    scratch.reach, self._starts, self._sizes,
                )  # fmt: skip
                hashing_kernel.hash_words(
                    scratch.folded, self._starts, self._sizes, n, scratch.parts, self._hashes
                )
                kernel.count_names(
                    self._hashes[:n], self._starts[:n], self._sizes[:n], scratch.folded, weight,
                    self._keys, self._seen, self._rank, self._lengths, self._names,
                )  # fmt: skip
        scratch.trim()

    def table(self) -> pa.Table:
        """Names seen, sorted by bucket, then from the most frequent to the least.

        Returns
        -------
        pyarrow.Table
            Columns ``bucket`` (int32), ``name`` (string: words joined by a space, or characters), ``sign``
            (int8) and ``count`` (int64, at most `max_error` too low).
        """
        slots = np.flatnonzero(self._seen)
        buckets, signs = features_of(self._keys[slots], self.hasher.hash_bits)
        table = pa.table(
            [
                pa.array(buckets),
                pa.array([self._name(slot) for slot in slots.tolist()], pa.string()),
                pa.array(signs),
                pa.array(self._seen[slots]),
            ],
            schema=SCHEMA,
        )
        return _sorted(table)

    def _name(self, slot: int) -> str:
        length = int(self._lengths[slot])
        name = self._names[slot, : min(length, NAME_BYTES)].tobytes().decode(errors="ignore")
        return name if length <= NAME_BYTES else name + "…"


def merge_names(tables: Iterable[pa.Table], max_bytes: int = 50 << 20, per_bucket: int = 4) -> pa.Table:
    """One table of the names of all parts.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        What `NameCounter.table` gave for each part; their order matters only once names must be left out.
    max_bytes : int
        Size of the result. While merging, one more table is held besides.
    per_bucket : int
        Names kept for a bucket, the most frequent ones.

    Returns
    -------
    pyarrow.Table
        As `NameCounter.table`, counts of equal names added up. Where there are too many names the least
        frequent are left out.
    """
    merged = SCHEMA.empty_table()
    for table in tables:
        merged = pa.concat_tables([merged, table.select(SCHEMA.names)])
        merged = merged.group_by(["bucket", "name", "sign"], use_threads=False).aggregate([("count", "sum")])
        merged = merged.rename_columns({"count_sum": "count"}).select(SCHEMA.names).cast(SCHEMA)
        merged = _most_frequent(merged, max_bytes)
    merged = _sorted(merged)
    bucket = merged["bucket"].to_numpy()
    first = np.searchsorted(bucket, bucket, side="left")
    return merged.filter(pa.array(np.arange(len(bucket)) - first < per_bucket)).combine_chunks()


def _most_frequent(table: pa.Table, max_bytes: int) -> pa.Table:
    """Leave out the least frequent names until the table has its size."""
    if table.nbytes <= max_bytes:
        return table
    table = table.sort_by([("count", "descending"), ("bucket", "ascending"), ("name", "ascending")])
    # Besides its name a row has its offset (4), bucket (4), sign (1), count (8) and four bits of validity.
    sizes = pc.binary_length(table["name"]).to_numpy().astype(np.int64) + 18
    return table.slice(
        0, int(np.searchsorted(np.cumsum(sizes) + 64, max_bytes, side="right"))
    ).combine_chunks()


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([("bucket", "ascending"), ("count", "descending"), ("name", "ascending")])


def _scatter(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash integers to 64 bits (finaliser of splitmix64)."""
    x = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
