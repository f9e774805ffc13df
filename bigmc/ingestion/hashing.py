"""Feature hashing of text and categories, bit for bit as scikit-learn does it.

`TextHasher.transform` equals ``HashingVectorizer(n_features=2**hash_bits, norm=None, alternate_sign=True)``
in every index and every value, explicit zeros (two features of opposite sign in one bucket) included;
`hash_names` and `hash_categories` equal ``FeatureHasher``. The work is done by `bigmc.kernels.hashing` on
the buffers of Arrow arrays, without a Python object per document.

References
----------
Weinberger, Dasgupta, Langford, Smola, Attenberg: Feature hashing for large scale multitask learning, ICML
2009.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.folding import Nulls, fold_table, lower_special, string_pieces
from bigmc.kernels import hashing as kernel
from bigmc.kernels import hashing_fold as folding
from bigmc.kernels import hashing_words as wording
from bigmc.store.rows import Rows

Analyzer = Literal["word", "char", "char_wb"]

ANALYZERS: dict[str, int] = {"word": folding.WORD, "char": folding.CHAR, "char_wb": folding.CHAR_WB}
MAX_HASH_BITS = 30  # scikit-learn allows at most 2**31 - 1 features, so 2**30 is its widest power of two

PIECE_ENTRIES = 1 << 18  # entries hashed before they are moved out of the scratch buffers
FOLD_BYTES = 1 << 16  # text folded in one go, small enough to stay in the cache
FOLD_ROWS = 1 << 12  # documents folded in one go
KEEP_BYTES = 16 << 20  # more scratch than this is given back after the call


class Scratch(threading.local):
    """Buffers of one thread, used again from call to call: fresh pages would cost as much as hashing.

    Attributes
    ----------
    folded, bound, units : arrays
        Folded documents, as `bigmc.kernels.hashing_fold` describes them.
    hashes : uint32 array
        Scratch, or the hash of every unit of the folded documents.
    """

    def __init__(self) -> None:
        self.folded = np.empty(0, np.uint8)
        self.bound = np.empty(0, np.uint32)
        self.units = np.empty(FOLD_ROWS + 1, np.int64)
        self.reach = np.empty(0, np.uint32)
        self.parts = np.empty((5, kernel.TILE), np.uint32)
        self.hashes = np.empty(kernel.TILE, np.uint32)
        self.table = np.zeros(1 << 14, np.int64)  # all zero between calls of the kernel
        self.indices = np.empty(PIECE_ENTRIES, np.int32)
        self.values = np.empty(PIECE_ENTRIES, np.int32)
        # Words: the documents with their marks, and what finding words in them needs.
        self.begins = np.empty(FOLD_ROWS + 1, np.int64)
        self.lowered = np.empty(0, np.uint8)
        self.marks = np.empty(0, np.uint8)
        self.bits = np.empty(0, np.uint64)
        self.rank = np.empty(0, np.uint32)
        self.starts = np.empty(0, np.uint32)
        self.sizes = np.empty(0, np.uint32)
        self.kept = np.empty(0, np.uint32)

    def fit_document(self, n_bytes: int) -> None:
        """Make room for a document of this size, its characters folded."""
        size = max(n_bytes, FOLD_BYTES)
        self.folded = _at_least(self.folded, size + size // 2 + 4 + kernel.PADDING)
        self.bound = _at_least(self.bound, size + 4)
        self.reach = _at_least(self.reach, size + 4)

    def fit_words(self, n_bytes: int, join: bool) -> None:
        """Make room for the words of a document of this size, and for joining them."""
        size = (max(n_bytes, FOLD_BYTES) * 3 // 2 + 8 + folding.MARGIN) | 63
        # Documents are taken as long as they fit into `lowered`: the others follow it, whoever made it long.
        size = max(size, len(self.lowered) - 1)
        self.lowered = _at_least(self.lowered, size + 1)
        self.marks = _at_least(self.marks, size + 1)
        self.bits = _at_least(self.bits, size // 64 + 1)
        self.rank = _at_least(self.rank, size // 64 + 1)
        # Between two runs of word characters in a document is a byte at least.
        n_runs = size // 3 + FOLD_ROWS + 2
        self.starts = _at_least(self.starts, n_runs)
        self.sizes = _at_least(self.sizes, n_runs)
        self.kept = _at_least(self.kept, n_runs)
        if join:
            self.folded = _at_least(self.folded, size + FOLD_ROWS + 2 * kernel.PADDING)
            self.bound = _at_least(self.bound, n_runs)
        else:
            self.hashes = _at_least(self.hashes, n_runs)

    def widen_table(self) -> None:
        """Make the counting table twice as large."""
        self.table = np.zeros(2 * len(self.table), np.int64)

    def widen_output(self) -> None:
        """Make room for a row with more entries."""
        self.indices = np.empty(2 * len(self.indices), np.int32)
        self.values = np.empty(2 * len(self.values), np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(array.nbytes for array in vars(self).values())

    def trim(self) -> None:
        """Give back what only an unusually long document needed."""
        if self.nbytes > KEEP_BYTES:
            self.__init__()  # type: ignore[misc]


scratch = Scratch()


@dataclass(frozen=True)
class TextHasher:
    """Turns texts into hashed counts of words or characters, as scikit-learn's HashingVectorizer does.

    Parameters
    ----------
    analyzer : {"word", "char", "char_wb"}
        Features are n-grams of words (runs of two or more word characters), of characters, or of characters
        inside words padded with a space on either side.
    ngrams : tuple of two int
        Smallest and largest n.
    hash_bits : int
        ``2**hash_bits`` features, 1 to 30.
    lowercase : bool
        Lower-case the text first, as `str.lower` does.

    Raises
    ------
    DataError
        If a parameter is not as described.
    """

    analyzer: Analyzer = "word"
    ngrams: tuple[int, int] = (1, 2)
    hash_bits: int = 18
    lowercase: bool = True

    def __post_init__(self) -> None:
        if self.analyzer not in ANALYZERS:
            raise DataError(f"analyzer {self.analyzer!r} is unknown", f"choose one of {', '.join(ANALYZERS)}")
        pair = self.ngrams
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(_is_int(n) for n in pair)):
            raise DataError(f"ngrams {pair!r} is not a pair of integers", "give for example (1, 2)")
        object.__setattr__(self, "ngrams", (int(pair[0]), int(pair[1])))
        if not 1 <= pair[0] <= pair[1]:
            raise DataError(f"ngrams {self.ngrams} is no range", "let 1 <= smallest <= largest")
        if not _is_int(self.hash_bits) or not 1 <= self.hash_bits <= MAX_HASH_BITS:
            raise DataError(f"hash_bits {self.hash_bits!r} is out of range", f"choose 1 to {MAX_HASH_BITS}")
        object.__setattr__(self, "hash_bits", int(self.hash_bits))
        if not isinstance(self.lowercase, bool | np.bool_):
            raise DataError(f"lowercase {self.lowercase!r} is not a bool", "choose True or False")
        object.__setattr__(self, "lowercase", bool(self.lowercase))

    @property
    def n_features(self) -> int:
        """Number of features, ``2**hash_bits``."""
        return 1 << self.hash_bits

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON takes them."""
        return {**asdict(self), "ngrams": list(self.ngrams)}

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> TextHasher:
        """Build a hasher from what `to_dict` gave; an unknown parameter is a DataError."""
        unknown = sorted(set(parameters) - set(cls.__dataclass_fields__))
        if unknown:
            raise DataError(
                f"text hashing has no parameter {unknown[0]!r}", "was this written by a newer version?"
            )
        return cls(**parameters)

    def fold(self, texts: pa.Array | pa.ChunkedArray, nulls: Nulls = "refuse") -> Iterator[tuple[int, int]]:
        """Fold documents into the thread's `scratch` buffers, batch by batch.

        Parameters
        ----------
        texts, nulls
            As for `transform`.

        Yields
        ------
        first : int
            Row of the batch's first document.
        n_rows : int
            Number of its documents.
        """
        return self._fold(texts, nulls, join=True)

    def _fold(self, texts: pa.Array | pa.ChunkedArray, nulls: Nulls, join: bool) -> Iterator[tuple[int, int]]:
        """Fold; words are hashed one by one instead of joined if not ``join``."""
        table = fold_table(self.lowercase)
        code = ANALYZERS[self.analyzer]
        for first, piece, offsets, text in string_pieces(texts, nulls):
            if self.lowercase:
                offsets, text = lower_special(piece, offsets, text)
            longest = int(np.diff(offsets).max())
            if longest * min(self.ngrams[1] - self.ngrams[0] + 1, longest) >= 2**31:
                raise DataError(f"a document of {longest} bytes has too many n-grams", "cut it into parts")
            if code == folding.WORD:
                scratch.fit_words(longest, join)
            else:
                scratch.fit_document(longest)
            row = 0
            while row < len(piece):
                if code == folding.WORD:
                    n_rows, broken = folding.mark_rows(
                        row, offsets, text, table, scratch.lowered, scratch.marks, scratch.begins
                    )
                    _find_words(n_rows, join)
                else:
                    n_rows, broken = folding.fold_rows(
                        row, offsets, text, table, code, scratch.folded[: -kernel.PADDING],
                        scratch.bound, scratch.units,
                    )  # fmt: skip
                if n_rows:
                    yield first + row, n_rows
                row += n_rows
                if broken:
                    raise DataError(f"row {first + row}: the text is not UTF-8", "convert the file to UTF-8")

    def transform(self, texts: pa.Array | pa.ChunkedArray, nulls: Nulls = "refuse") -> Rows:
        """Hash documents; any number of threads may do so at once.

        Parameters
        ----------
        texts : pyarrow Array or ChunkedArray of strings
            One document per row.
        nulls : {"refuse", "empty"}
            Whether a missing document is an error or an empty document.

        Returns
        -------
        Rows
            Signed counts, int16 where all of this batch fit and int32 else.

        Raises
        ------
        DataError
            For a null, bytes that are not UTF-8, or a document with 2**31 or more n-grams.
        """
        indptr = np.zeros(len(texts) + 1, np.int64)
        indices: list[NDArray[np.int32]] = []
        values: list[NDArray[Any]] = []
        moved = 0  # entries no longer in the scratch buffers
        for first, n_rows in self._fold(texts, nulls, join=self.ngrams[1] > 1):
            row = 0
            while row < n_rows:
                status, row = kernel.hash_rows(
                    row, n_rows, scratch.units, scratch.folded, scratch.bound,
                    ANALYZERS[self.analyzer], *self.ngrams, self.hash_bits,
                    scratch.reach, scratch.parts, scratch.hashes, scratch.table,
                    moved, indptr[first : first + n_rows + 1], scratch.indices, scratch.values,
                )  # fmt: skip
                held = int(indptr[first + row]) - moved
                if status == kernel.MORE_TABLE:
                    scratch.widen_table()
                elif status == kernel.MORE_OUTPUT:
                    if held == 0:
                        scratch.widen_output()
                    moved += _move(scratch, held, indices, values)
        moved += _move(scratch, int(indptr[-1]) - moved, indices, values)
        scratch.trim()
        return Rows(indptr, np.concatenate(indices), np.concatenate(values), self.n_features)


def _find_words(n_rows: int, join: bool) -> None:
    """From marked documents in the scratch buffers to words joined, or to the hash of every word."""
    wording.find_words(
        n_rows, scratch.lowered, scratch.marks.view(np.uint64), scratch.begins, scratch.bits, scratch.rank,
        scratch.starts, scratch.sizes, scratch.kept, scratch.units,
    )  # fmt: skip
    n_words = scratch.units[n_rows]
    words = scratch.lowered, scratch.starts, scratch.sizes, n_words
    if join:
        wording.join_words(*words, scratch.folded, scratch.bound)
    else:
        kernel.hash_words(*words, scratch.parts, scratch.hashes)


def _at_least(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Give the array, or a new one if it is too short."""
    return array if len(array) >= size else np.empty(size, array.dtype)


def _move(
    buffers: Scratch, n_entries: int, indices: list[NDArray[np.int32]], values: list[NDArray[Any]]
) -> int:
    """Copy entries out of the buffers, as int16 if every value fits; their number."""
    data = buffers.values[:n_entries]
    fits = n_entries == 0 or (data.min() >= -(2**15) and data.max() < 2**15)
    indices.append(buffers.indices[:n_entries].copy())
    values.append(data.astype(np.int16) if fits else data.copy())
    return n_entries


def hash_categories(
    values: pa.Array | pa.ChunkedArray, name: str, hash_bits: int, nulls: Nulls = "refuse"
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Hash a column of categories as the features ``name=value``, like scikit-learn's FeatureHasher.

    Parameters
    ----------
    values : pyarrow Array or ChunkedArray of strings
        One category per row.
    name : str
        Name of the column.
    hash_bits : int
        ``2**hash_bits`` features, 1 to 30.
    nulls : {"refuse", "empty"}
        Whether a missing category is an error or an empty string.

    Returns
    -------
    indices : int32 array of shape (n_rows,)
        The feature of each row.
    signs : int8 array of shape (n_rows,)
        Its value, 1 or -1.
    """
    return _hash_strings(values, f"{name}=".encode(), hash_bits, nulls)


def hash_names(names: Sequence[str], hash_bits: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Feature and sign of single feature names, like scikit-learn's FeatureHasher.

    Parameters
    ----------
    names : sequence of str
        Names, for example ``"column=value"``.
    hash_bits : int
        ``2**hash_bits`` features, 1 to 30.

    Returns
    -------
    indices : int32 array of shape (len(names),)
        The feature each name falls into.
    signs : int8 array of shape (len(names),)
        The sign it counts with, 1 or -1.
    """
    return _hash_strings(pa.array(names, pa.large_string()), b"", hash_bits, "refuse")


def _hash_strings(
    strings: pa.Array | pa.ChunkedArray, prefix: bytes, hash_bits: int, nulls: Nulls
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    if not 1 <= hash_bits <= MAX_HASH_BITS:
        raise DataError(f"hash_bits {hash_bits!r} is out of range", f"choose 1 to {MAX_HASH_BITS}")
    indices = np.empty(len(strings), np.int32)
    signs = np.empty(len(strings), np.int8)
    for first, piece, offsets, text in string_pieces(strings, nulls):
        buffer = np.empty(len(prefix) + int(np.diff(offsets).max()) + kernel.PADDING, np.uint8)
        buffer[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        rows = slice(first, first + len(piece))
        kernel.hash_strings(offsets, text, buffer, len(prefix), hash_bits, indices[rows], signs[rows])
    return indices, signs


def _is_int(n: object) -> bool:
    return isinstance(n, int | np.integer) and not isinstance(n, bool)
