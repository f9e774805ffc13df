"""Reusable buffers for hashing in one thread."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.hashing import murmur as kernel
from bigmc.kernels.hashing import ngrams
from bigmc.kernels.hashing import rows as counting
from bigmc.kernels.hashing import words as wording
from bigmc.kernels.hashing.arguments import FoldedText, MarkedText, WordLists

PIECE_ENTRIES = 1 << 18  # entries hashed before they are moved out of the scratch buffers
FOLD_BYTES = 1 << 16  # bytes of text folded at a time, small enough to stay in the cache
LISTED = 1 << 16  # n-grams hashed at a time: a kernel call costs as much as hashing a thousand
FOLD_ROWS = 1 << 12  # documents folded at a time
KEEP_BYTES = 16 << 20  # more scratch than this is freed after the call


class WordUse(Enum):
    """How to process the words of a document: join them for n-grams, or hash single words at once."""

    JOIN = "join"
    HASH = "hash"


class Scratch(threading.local):
    """Buffers of one thread, reused between calls: fresh pages would cost as much as hashing.

    `folded`, `bound` and `units` are folded documents, as `bigmc.kernels.hashing.folding` describes them.
    `hashes` are those of n-grams, with their counts `times`, or of every word of the folded documents.
    """

    def __init__(self) -> None:
        self.folded = np.empty(0, np.uint8)
        self.bound = np.empty(0, np.uint32)
        self.units = np.empty(FOLD_ROWS + 1, np.int64)
        self.reach = np.empty(0, np.uint32)
        self.parts = np.empty((7, kernel.TILE), np.uint32)
        self.hashes = np.empty(LISTED + 2 * kernel.TILE, np.uint32)
        self.times = np.empty(LISTED + 2 * kernel.TILE, np.uint16)
        self.counts = np.zeros(1 << 14, np.uint16)
        self.grouped = np.empty((ngrams.GROUP_SIZES, kernel.TILE + kernel.WIDTH), np.uint32)
        self.once = np.ones(0, np.uint16)
        self.offsets = np.empty(FOLD_ROWS + 1, np.int64)
        # Rows: buffers for sorting, and finished entries.
        self.keys = np.empty(counting.SORTED, np.uint64)
        self.spare = np.empty(counting.SORTED, np.uint64)
        self.heads = np.empty((counting.DIGITS, 1 << counting.DIGIT), np.uint32)
        self.ends = np.empty(FOLD_ROWS, np.int64)
        self.indices = np.empty(PIECE_ENTRIES, np.int32)
        self.values = np.empty(PIECE_ENTRIES, np.int32)
        # Words: documents with marks, and buffers for finding words.
        self.begins = np.empty(FOLD_ROWS + 1, np.int64)
        self.lowered = np.empty(0, np.uint8)
        self.marks = np.empty(0, np.uint8)
        self.bits = np.empty(0, np.uint64)
        self.rank = np.empty(0, np.uint32)
        self.starts = np.empty(0, np.uint32)
        self.sizes = np.empty(0, np.uint32)
        self.kept = np.empty(0, np.uint32)

    @property
    def documents(self) -> FoldedText:
        """Folded documents, as kernels take them."""
        return FoldedText(self.folded, self.bound, self.units)

    @property
    def marked(self) -> MarkedText:
        """Marked documents, as kernels take them."""
        return MarkedText(self.lowered, self.marks, self.lowered.view(np.uint64), self.begins)

    @property
    def words(self) -> WordLists:
        """Words of marked documents, as kernels take them."""
        return WordLists(self.starts, self.sizes, self.units, self.bits, self.rank, self.kept)

    def fit_document(self, n_bytes: int) -> None:
        """Enlarge the buffers for a document of this size, its characters folded."""
        size = max(n_bytes, FOLD_BYTES)
        self.folded = _at_least(self.folded, size + size // 2 + 4 + kernel.PADDING)
        self.bound = _at_least(self.bound, size + 4)
        self.reach = _at_least(self.reach, size + 4)

    def fit_words(self, n_bytes: int, use: WordUse) -> None:
        """Enlarge the buffers for the words of a document of this size, and for their n-grams."""
        size = (max(n_bytes, FOLD_BYTES) + wording.MARGIN) | 63
        # Batches take documents while they fit into `lowered`; the other buffers match its size.
        size = max(size, len(self.lowered) - 1)
        self.lowered = _at_least(self.lowered, size + 1)
        self.marks = _at_least(self.marks, size + 1)
        self.bits = _at_least(self.bits, size // 64 + 1)
        self.rank = _at_least(self.rank, size // 64 + 1)
        # There is at least one byte between two words of a document.
        n_runs = size // 2 + FOLD_ROWS + 2
        self.starts = _at_least(self.starts, n_runs)
        self.sizes = _at_least(self.sizes, n_runs)
        self.kept = _at_least(self.kept, n_runs)
        if use is WordUse.JOIN:
            self.folded = _at_least(self.folded, size + FOLD_ROWS + 2 * kernel.PADDING)
            self.bound = _at_least(self.bound, n_runs)
        else:
            self.hashes = _at_least(self.hashes, n_runs + kernel.WIDTH)

    def fit_row(self, n_entries: int) -> None:
        """Enlarge the buffers for this number of entries."""
        self.indices = _at_least(self.indices, n_entries)
        self.values = _at_least(self.values, n_entries)

    def ones(self, size: int) -> NDArray[np.uint16]:
        """Return counts of one for every hash."""
        if len(self.once) < size:
            self.once = np.ones(size, np.uint16)
        return self.once

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(array.nbytes for array in vars(self).values())

    def trim(self) -> None:
        """Free memory that only an unusually long document needed."""
        if self.nbytes > KEEP_BYTES:
            self.__init__()  # type: ignore[misc]


scratch = Scratch()


def _at_least(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the array, or a new one if it is too short."""
    return array if len(array) >= size else np.empty(size, array.dtype)
