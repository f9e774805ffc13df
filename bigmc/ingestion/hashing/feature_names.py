"""Names of hashed features: the words or n-grams of a bucket, their counts and signs.

During the ingest of a part a `NameCounter` keeps its most frequent n-grams in a table of fixed size;
`merge_names` merges the tables of all parts into a bounded one. Several names of one bucket are a
known collision. Counts are estimates: see `NameCounter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.hashing.categories import Categories
from bigmc.ingestion.hashing.hasher import ANALYZERS, TextHasher, features_of
from bigmc.ingestion.hashing.scratch import scratch
from bigmc.ingestion.hashing.unicode import string_pieces
from bigmc.kernels.hashing import frequent_names as kernel
from bigmc.kernels.hashing import murmur as hashing_kernel
from bigmc.kernels.hashing import spelling
from bigmc.kernels.hashing.arguments import NameTable, NGrams, Ranges, SpelledNames
from bigmc.lazy import LazyModule
from bigmc.store.row_hash import splitmix64

pc = LazyModule("pyarrow.compute")

SCHEMA = pa.schema(
    [("bucket", pa.int32()), ("name", pa.string()), ("sign", pa.int8()), ("count", pa.int64())]
)

WHOLE_BYTES = 1 << 20  # bytes of text of a part that are counted completely
SAMPLE_ONE_IN = 8  # of the documents after that
NAME_BYTES = 40  # a longer name is cut and ends in an ellipsis
_ELLIPSIS = "…".encode()
LEAST_CAPACITY = kernel.WAYS
LIST_LENGTH = 1 << 13  # n-grams listed before they are counted
_MOST_BYTES = 1 << 32  # of the names of a batch of categories
_MERGED_BYTES = 16 << 20  # of tables merged at once, where the result may have four times as many


class NameCounter:
    """The most frequent n-grams and categories of one part.

    All categories are counted, and all documents up to `WHOLE_BYTES` of text. After that, one document in
    `SAMPLE_ONE_IN` is counted, chosen by a hash of its running number, with multiplied counts. So the result
    depends only on the documents and their order, not on batches. Two names with the same 32-bit hash, which
    have the same bucket and sign anyway, count as one.

    `capacity` names are kept, a power of two of at least 8; 64 bytes each. If the hasher is ``by_column``,
    names begin with that of the texts' column: ``column=word``.
    """

    def __init__(self, hasher: TextHasher, capacity: int = 1 << 16, column: str = "") -> None:
        if capacity < LEAST_CAPACITY or capacity & (capacity - 1):
            raise DataError(f"capacity {capacity} is not a power of two", f"choose {LEAST_CAPACITY} or more")
        self.hasher = hasher
        self._mark = hasher.mark_of(column)
        self._prefix = f"{column}=" if hasher.by_column else ""
        self._table = NameTable(
            np.zeros(capacity, np.uint32),
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.uint32),
            np.zeros((capacity, NAME_BYTES), np.uint8),
        )
        self._n_documents = 0
        self._n_bytes = 0

    @property
    def max_error(self) -> int:
        """Maximum by which a count may be below the (sampled and multiplied) true count."""
        return int((self._table.rank - self._table.seen).max())

    def update(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Count the n-grams of documents, as for `TextHasher.transform`."""
        if len(texts) == 0:
            return
        lengths = pc.fill_null(pc.binary_length(texts), 0).cast(pa.int64()).to_numpy()
        before = self._n_bytes + np.cumsum(lengths) - lengths
        whole = int(np.searchsorted(before, WHOLE_BYTES))  # the first so many documents
        numbers = np.arange(self._n_documents + whole, self._n_documents + len(texts), dtype=np.uint64)
        self._n_documents += len(texts)
        self._n_bytes = int(before[-1] + lengths[-1])
        self._count(texts[:whole], 1)
        sampled = splitmix64(numbers) % np.uint64(SAMPLE_ONE_IN) == 0
        if sampled.any():
            self._count(texts[whole:].filter(pa.array(sampled)), SAMPLE_ONE_IN)

    def update_categories(self, categories: Categories) -> None:
        """Count every row's ``column=value``."""
        slots = np.full(len(categories.hashes), -1, np.int32)
        for _, _, offsets, text in string_pieces(categories.names, piece_bytes=_MOST_BYTES):
            spelled = SpelledNames(text, offsets, categories.hashes)
            kernel.count_codes(categories.codes, spelled, slots, self._table)

    def _count(self, texts: pa.Array | pa.ChunkedArray, weight: int) -> None:
        ngrams = NGrams(ANALYZERS[self.hasher.analyzer], *self.hasher.ngrams)
        # Not kept: there may be a counter for each of many columns.
        hashes = np.empty(LIST_LENGTH + hashing_kernel.WIDTH, np.uint32)
        starts, sizes = np.empty((2, LIST_LENGTH), np.uint32)
        for _, n_rows in self.hasher.fold(texts):
            place = np.array([0, ngrams.n_min, 0], np.int64)
            while place[0] < n_rows:
                n = spelling.spell_rows(
                    place, n_rows, scratch.documents, ngrams, scratch.reach, starts, sizes
                )
                names = Ranges(scratch.folded, starts[:n], sizes[:n])
                hashing_kernel.hash_words(*names, n, scratch.parts, hashes)
                hashes[:n] ^= self._mark
                kernel.count_names(hashes[:n], names, weight, self._table)
        scratch.trim()

    def table(self) -> pa.Table:
        """Return the names seen, sorted by bucket, then by decreasing frequency, in the columns of `SCHEMA`.

        A name is words joined by a space, or characters; its count is at most `max_error` too low.
        """
        return _sorted(self.unsorted_table())

    def unsorted_table(self) -> pa.Table:
        """Names seen, like `table` but unsorted: `merge_names` sorts them anyway."""
        slots = np.flatnonzero(self._table.seen)
        buckets, signs = features_of(self._table.keys[slots], self.hasher.hash_bits)
        names = self._spelled(slots)
        if self._prefix:
            names = pc.binary_join_element_wise(pa.scalar(self._prefix), names, pa.scalar(""))
        columns = [buckets, names, signs, self._table.seen[slots]]
        return pa.table([pa.array(column) for column in columns], schema=SCHEMA)

    def _spelled(self, slots: NDArray[np.intp]) -> pa.Array:
        """Return the names in some slots; truncated names end in an ellipsis."""
        lengths = self._table.lengths[slots].astype(np.int32)
        letters = np.zeros((len(slots), NAME_BYTES + len(_ELLIPSIS)), np.uint8)
        letters[:, :NAME_BYTES] = self._table.names[slots]
        for i in np.flatnonzero(lengths > NAME_BYTES).tolist():
            whole = letters[i, :NAME_BYTES].tobytes().decode(errors="ignore").encode() + _ELLIPSIS
            letters[i, : len(whole)] = np.frombuffer(whole, np.uint8)
            lengths[i] = len(whole)
        used = letters[np.arange(letters.shape[1]) < lengths[:, None]]
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(used)]
        return pa.Array.from_buffers(pa.string(), len(slots), buffers)


def merge_names(tables: Iterable[pa.Table], max_bytes: int = 50 << 20, per_bucket: int = 4) -> pa.Table:
    """Return the names of all parts as `NameCounter.table` does, with the counts of equal names added up.

    The result has `max_bytes` at most; merging holds tables of a quarter of it besides, or one that is
    larger. If there are too many names, the least frequent are dropped, and only then the order of the tables
    matters. Of a bucket, the `per_bucket` most frequent names are kept.
    """
    merged = SCHEMA.empty_table()
    for group in _gathered(tables, min(_MERGED_BYTES, max_bytes // 4)):
        merged = _most_frequent(add_up(pa.concat_tables([merged, *group])), max_bytes)
    merged = _sorted(merged)
    bucket = merged["bucket"].to_numpy()
    first = np.searchsorted(bucket, bucket, side="left")
    return merged.filter(pa.array(np.arange(len(bucket)) - first < per_bucket)).combine_chunks()


def _gathered(tables: Iterable[pa.Table], n_bytes: int) -> Iterator[list[pa.Table]]:
    """Yield lists of consecutive tables, each of `n_bytes` or a little more."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table.select(SCHEMA.names))
        if sum(each.nbytes for each in held) >= n_bytes:
            yield held
            held = []
    if held:
        yield held


def add_up(table: pa.Table) -> pa.Table:
    """Merge rows with the same bucket, name and sign, adding up known counts.

    Arrow's ``group_by`` does the same, with ten times the memory.
    """
    if table.num_rows == 0:
        return table
    keys = ("bucket", "name", "sign")
    table = _sort(table, *((key, "ascending") for key in keys)).combine_chunks()
    first = np.ones(table.num_rows, np.bool_)
    for key in keys:
        column = table[key].chunk(0)
        same = pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        first[1:] = ~same if key == keys[0] else first[1:] | ~same
    starts = np.flatnonzero(first)
    unknown = pc.is_null(table["count"]).to_numpy()[starts]
    counts = np.add.reduceat(pc.fill_null(table["count"], 0).to_numpy(), starts)
    added = pa.array(counts, pa.int64(), mask=unknown)
    return table.take(pa.array(starts)).set_column(3, SCHEMA.field("count"), added)


def _most_frequent(table: pa.Table, max_bytes: int) -> pa.Table:
    """Drop the least frequent names until the table has its size."""
    if table.nbytes <= max_bytes:
        return table
    table = _sort(table, ("count", "descending"), ("bucket", "ascending"), ("name", "ascending"))
    # A row has a name, an offset (4), bucket (4), sign (1), count (8) and four bits of validity.
    sizes = pc.binary_length(table["name"]).to_numpy().astype(np.int64) + 18
    return table.slice(
        0, int(np.searchsorted(np.cumsum(sizes) + 64, max_bytes, side="right"))
    ).combine_chunks()


def _sorted(table: pa.Table) -> pa.Table:
    return _sort(table, ("bucket", "ascending"), ("count", "descending"), ("name", "ascending"))


def _sort(table: pa.Table, *keys: tuple[str, str]) -> pa.Table:
    return table.take(pc.sort_indices(table, sort_keys=list(keys)))
