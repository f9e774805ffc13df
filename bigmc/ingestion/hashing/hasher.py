"""Feature hashing of text and categories, bit for bit as scikit-learn does it.

`TextHasher.transform` equals ``HashingVectorizer(n_features=2**hash_bits, norm=None, alternate_sign=True)``
in every index and every value, explicit zeros (two features of opposite sign in one bucket) included;
`hash_names` equals ``FeatureHasher``. The kernels of `bigmc.kernels.hashing` read the
buffers of Arrow arrays, without a Python object per document.

Words of several columns can be told apart, which scikit-learn does with a vectorizer for each: their hashes
are XORed with the hash of the column's name.

References
----------
Weinberger, Dasgupta, Langford, Smola, Attenberg: Feature hashing for large scale multitask learning, ICML
2009.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.hashing.row_builder import RowBuilder
from bigmc.ingestion.hashing.scratch import WordUse, scratch
from bigmc.ingestion.hashing.unicode import (
    case_kept_table,
    first_broken,
    lower_sigmas,
    lower_table,
    lowered,
    planes_of,
    string_pieces,
)
from bigmc.kernels.hashing import folding
from bigmc.kernels.hashing import murmur as kernel
from bigmc.kernels.hashing import ngrams as ngrams_kernel
from bigmc.kernels.hashing import words as wording
from bigmc.kernels.hashing.arguments import HashList, HashScratch, NGrams
from bigmc.kernels.hashing.rows import SORTED
from bigmc.store.shards.csr import Rows

Analyzer = Literal["word", "char", "char_wb"]

ANALYZERS: dict[str, int] = {"word": folding.WORD, "char": folding.CHAR, "char_wb": folding.CHAR_WB}
NO_MARK = np.uint32(0)
MAX_HASH_BITS = 30  # scikit-learn allows at most 2**31 - 1 features, so 2**30 is its widest power of two


class HashSink(Protocol):
    """Receives the hashes of n-grams, document by document."""

    def add(self, offsets: NDArray[np.int64], hashes: NDArray[np.uint32], times: NDArray[np.uint16]) -> None:
        """Receive documents: the n-grams of the k-th have the hashes ``offsets[k] .. offsets[k + 1]``."""
        ...

    def count(self, hashes: NDArray[np.uint32]) -> None:
        """Receive some n-grams of one long document."""
        ...

    def end_counting(self) -> None:
        """End the long document."""
        ...


@dataclass(frozen=True)
class TextHasher:
    """Converts texts to hashed counts of words or characters, like scikit-learn's HashingVectorizer.

    Features are n-grams of words (runs of two or more word characters), of characters ("char"), or of
    characters inside words padded with a space on either side ("char_wb"), from the smallest to the largest n
    of `ngrams`, in ``2**hash_bits`` features, 1 to 30. With `lowercase`, the text is lower-cased first, as
    `str.lower` does. With `by_column`, the same word is another feature in every column: its hash is XORed
    with that of the column's name. `DataError` if a parameter is invalid.
    """

    analyzer: Analyzer = "word"
    ngrams: tuple[int, int] = (1, 2)
    hash_bits: int = 18
    lowercase: bool = True
    by_column: bool = False

    def __post_init__(self) -> None:
        if self.analyzer not in ANALYZERS:
            raise DataError(f"analyzer {self.analyzer!r} is unknown", f"choose one of {', '.join(ANALYZERS)}")
        pair = self.ngrams
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(_is_int(n) for n in pair)):
            raise DataError(f"ngrams {pair!r} is not a pair of integers", "give for example (1, 2)")
        object.__setattr__(self, "ngrams", (int(pair[0]), int(pair[1])))
        if not 1 <= pair[0] <= pair[1]:
            raise DataError(
                f"ngrams {self.ngrams} is not a range", "give two numbers with 1 <= smallest <= largest"
            )
        if not _is_int(self.hash_bits) or not 1 <= self.hash_bits <= MAX_HASH_BITS:
            raise DataError(f"hash_bits {self.hash_bits!r} is out of range", f"choose 1 to {MAX_HASH_BITS}")
        object.__setattr__(self, "hash_bits", int(self.hash_bits))
        if not isinstance(self.lowercase, bool | np.bool_):
            raise DataError(f"lowercase {self.lowercase!r} is not a bool", "choose True or False")
        object.__setattr__(self, "lowercase", bool(self.lowercase))
        if not isinstance(self.by_column, bool):
            raise DataError(f"by_column {self.by_column!r} is not a bool", "choose True or False")

    @property
    def n_features(self) -> int:
        """Number of features, ``2**hash_bits``."""
        return 1 << self.hash_bits

    def to_dict(self) -> Mapping[str, Any]:
        """Parameters as JSON takes them."""
        parameters = {**asdict(self), "ngrams": list(self.ngrams)}
        if not self.by_column:
            parameters.pop("by_column")  # as before there was a choice
        return parameters

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> TextHasher:
        """Build a hasher from the data of `to_dict`; raise DataError for an unknown parameter."""
        unknown = sorted(set(parameters) - set(cls.__dataclass_fields__))
        if unknown:
            raise DataError(
                f"text hashing has no parameter {unknown[0]!r}", "install the version of bigmc that wrote it"
            )
        return cls(**parameters)

    def mark_of(self, column: str) -> np.uint32:
        """Return what the hashes of a column's n-grams are XORed with: 0 if all columns share theirs."""
        if not self.by_column:
            return NO_MARK
        return np.uint32(hash_strings(pa.array([column], pa.large_string()))[0])

    def fold(
        self, texts: pa.Array | pa.ChunkedArray, use: WordUse = WordUse.JOIN
    ) -> Iterator[tuple[int, int]]:
        """Fold documents into the thread's `scratch` buffers, batch by batch.

        Yields the row of the batch's first document, and the number of its documents.
        """
        tabulate = lower_table if self.lowercase else case_kept_table
        code = ANALYZERS[self.analyzer]
        for first, piece, offsets, text in string_pieces(texts):
            table = tabulate(planes_of(text[offsets[0] : offsets[-1]]))
            if self.lowercase:
                offsets, text = lower_sigmas(offsets, text)
            longest = int(np.diff(offsets).max())
            if longest * min(self.ngrams[1] - self.ngrams[0] + 1, longest) >= 2**31:
                raise DataError(f"a document of {longest} bytes has too many n-grams", "split it into parts")
            if code == folding.WORD:
                scratch.fit_words(longest, use)
            else:
                scratch.fit_document(longest)
            row = 0
            while row < len(piece):
                if code == folding.WORD:
                    n_rows, status = _find_words(row, offsets, text, table, use)
                    broken = status == wording.BROKEN
                    if status == wording.CHANGED and n_rows == 0:
                        # Rare letters whose lower case the kernel could not write in place.
                        document = lowered(text[offsets[row] : offsets[row + 1]])
                        scratch.fit_words(len(document), use)
                        n_rows, _ = _find_words(0, np.array([0, len(document)]), document, table, use)
                else:
                    out = scratch.documents._replace(text=scratch.folded[: -kernel.PADDING])
                    n_rows, broken = folding.fold_rows(row, offsets, text, table, code, out)
                if n_rows:
                    yield first + row, n_rows
                row += n_rows
                if broken:
                    row = first_broken(offsets, text, row)
                    raise DataError(f"row {first + row}: the text is not UTF-8", "convert the file to UTF-8")

    def transform(self, texts: pa.Array | pa.ChunkedArray, column: str = "") -> Rows:
        """Hash documents to signed counts, int16 if all of this batch fit, else int32; thread-safe.

        The name of their column matters if the hasher is `by_column`. `DataError` for a null, bytes that are
        not UTF-8, or a document with 2**31 or more n-grams.
        """
        rows = RowBuilder(len(texts), self.hash_bits)
        self.hash_into(rows, texts, self.mark_of(column))
        result = rows.finish()
        scratch.trim()
        return result

    def hash_into(self, sink: HashSink, texts: pa.Array | pa.ChunkedArray, mark: np.uint32 = NO_MARK) -> None:
        """Hash the n-grams of documents, as for `transform`, and pass them, XORed with `mark`, to `sink`."""
        single = self.analyzer == "word" and self.ngrams[1] == 1
        for _, n_rows in self.fold(texts, WordUse.HASH if single else WordUse.JOIN):
            if single:
                if mark:
                    scratch.hashes[: scratch.units[n_rows]] ^= mark
                sink.add(scratch.units[: n_rows + 1], scratch.hashes, scratch.ones(len(scratch.hashes)))
            else:
                self._add_ngrams(n_rows, sink, mark)

    def _add_ngrams(self, n_rows: int, sink: HashSink, mark: np.uint32) -> None:
        """Hash and count the n-grams of the folded documents."""
        place = np.zeros(3, np.int64)
        counted = NGrams(ANALYZERS[self.analyzer], *self.ngrams)
        while place[0] < n_rows:
            row, inside = place[0], place[1] > 0
            work = HashScratch(scratch.reach, scratch.parts, scratch.counts, scratch.grouped)
            listed = HashList(scratch.hashes[: len(scratch.times)], scratch.times, SORTED)
            n_hashes = ngrams_kernel.hash_ngrams(
                place, n_rows, scratch.documents, counted, work, scratch.offsets, listed
            )
            if mark:
                scratch.hashes[:n_hashes] ^= mark
            n_done = place[0] - row
            if not inside:
                sink.add(scratch.offsets[: n_done + 1], scratch.hashes, scratch.times)
            if inside or place[1] > 0:
                sink.count(scratch.hashes[:n_hashes])
            if inside and n_done:
                sink.end_counting()


def _find_words(
    row: int, offsets: NDArray[np.int64], text: NDArray[np.uint8], table: NDArray[np.uint32], use: WordUse
) -> tuple[int, int]:
    """Find the words of documents from ``row`` on, join them or hash each; as `hashing_words.mark_rows`."""
    marked = scratch.marked
    n_rows, status = wording.mark_rows(row, offsets, text, table, marked)
    wording.find_words(n_rows, marked, scratch.words)
    n_words = scratch.units[n_rows]
    words = scratch.lowered, scratch.starts, scratch.sizes, n_words
    if use is WordUse.JOIN:
        wording.join_words(*words, scratch.folded, scratch.bound)
    else:
        kernel.hash_words(*words, scratch.parts, scratch.hashes)
    return n_rows, status


def hash_names(names: Sequence[str], hash_bits: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return feature and sign of names such as ``column=value``, like scikit-learn's FeatureHasher."""
    if not 1 <= hash_bits <= MAX_HASH_BITS:
        raise DataError(f"hash_bits {hash_bits!r} is out of range", f"choose 1 to {MAX_HASH_BITS}")
    return features_of(hash_strings(pa.array(names, pa.large_string())), hash_bits)


def hash_strings(strings: pa.Array) -> NDArray[np.uint32]:
    """Return the hash of each string; `DataError` if one is missing."""
    hashes = np.empty(len(strings), np.uint32)
    for first, piece, offsets, text in string_pieces(strings):
        buffer = np.empty(int(np.diff(offsets).max()) + kernel.PADDING, np.uint8)
        kernel.hash_strings(offsets, text, buffer, hashes[first : first + len(piece)])
    return hashes


def features_of(hashes: NDArray[np.uint32], hash_bits: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Feature index ``abs(int32(h)) % n_features`` and sign of each hash.

    The hash -2**31, whose absolute value does not fit int32, gives index 0, as in scikit-learn.
    """
    signed = hashes.view(np.int32).astype(np.int64)
    indices = (np.abs(signed) & ((1 << hash_bits) - 1)).astype(np.int32)
    return indices, np.where(signed >= 0, 1, -1).astype(np.int8)


def _is_int(n: object) -> bool:
    return isinstance(n, int | np.integer) and not isinstance(n, bool)
