"""Answers of the learners in use on the training samples: in memory, by slot, shared by the classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError
from bigmc.kernels.boosting.arguments import Visits, Weighted
from bigmc.kernels.boosting.descent import (
    WORD,
    BitLearners,
    RowLearners,
    add_bit_learners,
    add_row_learners,
    bit_scores,
    bit_sweep,
    row_scores,
    row_sweep,
)
from bigmc.kernels.boosting.predictions import leaf_bits, range_bits, range_rows, spread_codes
from bigmc.solvers.boosting.binning import CodedBlock
from bigmc.solvers.boosting.forest import n_words

Range = tuple[int, int]

#: Default maximum bytes of answers, and maximum number of answers.
_MAX_BYTES = 1 << 28
_SLOTS = 1 << 20


class Signed(NamedTuple):
    """Learners by the slots of their answers; a sign of -1 means the opposite of the answer."""

    slots: NDArray[np.int64]
    signs: NDArray[np.int8]


class Responses(ABC):
    """Answers of learners; each has a key, and a slot that is freed when no learner needs it.

    They take at most `max_bytes`; the system allocates memory only for what is written. `n_padded` is the
    number of samples rounded up to whole words: the length of t.
    """

    _write_scores: ClassVar[Callable[..., None]]
    _update: ClassVar[Callable[..., float]]

    def __init__(self, labels: NDArray[np.int32], n_classes: int, max_bytes: int = _MAX_BYTES) -> None:
        self.labels = labels
        self.n_samples = len(labels)
        self.n_words = n_words(self.n_samples)
        self.n_padded = self.n_words * WORD
        self._slots: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._free: list[int] = []
        self._n_slots = 0

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the answers in use, without unused capacity."""

    def find(self, key: bytes) -> int | None:
        """Return the slot of a key, if it has one."""
        return self._slots.get(key)

    def add(self, key: bytes, answer: NDArray[Any]) -> int:
        """Store an answer and return its slot."""
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._n_slots = self._n_slots, self._n_slots + 1
        self._slots[key], self._keys[slot] = slot, key
        self._store(slot, answer)
        return slot

    def keys_of(self, slots: NDArray[np.int64]) -> list[bytes]:
        """Return the keys of slots in use."""
        return [self._keys[slot] for slot in slots.tolist()]

    def keep(self, slots: NDArray[np.int64]) -> None:
        """Free all other slots."""
        kept = set(slots.tolist())
        for slot in [slot for slot in self._keys if slot not in kept]:
            del self._slots[self._keys.pop(slot)]
            self._free.append(slot)
        self._free.sort(reverse=True)

    def scores(self, c: int, own: Signed, r: float, t: NDArray[Any]) -> NDArray[np.float64]:
        """Return ``r (V+ - V-)`` of learners of class `c`."""
        out = np.empty(len(own.slots))
        self._write_scores(self._learners(c, own), r, t, out)
        return out

    def sweep(
        self, c: int, own: Signed, visits: Visits, t: NDArray[Any], weights: NDArray[np.float64]
    ) -> float:
        """Update learners of class `c` in an order; return the largest violation met, see `bit_sweep`."""
        return float(self._update(self._learners(c, own), visits, t, weights))

    @abstractmethod
    def _store(self, slot: int, answer: NDArray[Any]) -> None: ...

    @abstractmethod
    def _learners(self, c: int, own: Signed) -> BitLearners | RowLearners: ...

    @abstractmethod
    def everywhere(self) -> NDArray[Any]:
        """Return the answer of the learner that is 1 on every sample."""

    @abstractmethod
    def add_scores(self, weighted: Weighted, first: int, scores: NDArray[np.float64]) -> None:
        """Add ``w h`` of learners on the samples from `first` (a whole word) to ``scores[class]``."""


class BitResponses(Responses):
    """One bit per sample: set for +1, clear for -1."""

    _write_scores, _update = staticmethod(bit_scores), staticmethod(bit_sweep)

    def __init__(self, labels: NDArray[np.int32], n_classes: int, max_bytes: int = _MAX_BYTES) -> None:
        super().__init__(labels, n_classes)
        n_slots = min(_SLOTS, max_bytes // (8 * self.n_words))
        self._words = np.empty((n_slots, self.n_words), np.uint64)
        self._own = np.empty((n_classes, self.n_words), np.uint64)
        leaf = np.zeros(256, np.int8)
        leaf[1] = 1
        for c in range(n_classes):
            leaf_bits((labels == c).astype(np.uint8), leaf, self._own[c])

    @property
    def nbytes(self) -> int:
        """Bytes of the answers in use, without unused capacity."""
        return 8 * self.n_words * len(self._slots)

    def _store(self, slot: int, answer: NDArray[Any]) -> None:
        if slot >= len(self._words):
            raise _out_of_memory()
        self._words[slot] = answer

    def everywhere(self) -> NDArray[Any]:
        """Return the answer of the learner that is 1 on every sample."""
        return np.full(self.n_words, ~np.uint64(0))

    def add_scores(self, weighted: Weighted, first: int, scores: NDArray[np.float64]) -> None:
        """Add ``w h`` of learners on the samples from `first` (a whole word) to ``scores[class]``."""
        words = self._words[:, first // WORD : first // WORD + scores.shape[1] // WORD]
        add_bit_learners(words, weighted, scores)

    def _learners(self, c: int, own: Signed) -> BitLearners:
        return BitLearners(self._words, own.slots, own.signs, self._own[c])


class RowResponses(Responses):
    """The samples on which a learner is 1, in order; elsewhere it is 0."""

    _write_scores, _update = staticmethod(row_scores), staticmethod(row_sweep)

    def __init__(self, labels: NDArray[np.int32], n_classes: int, max_bytes: int = _MAX_BYTES) -> None:
        super().__init__(labels, n_classes)
        self._rows = np.empty(max_bytes // 4, np.int32)
        self._end = 0
        self._starts = np.zeros((_SLOTS, 2), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the answers in use, without unused capacity."""
        used = self._starts[list(self._slots.values())]
        return int(4 * (used[:, 1] - used[:, 0]).sum()) + 16 * len(used)

    def keep(self, slots: NDArray[np.int64]) -> None:
        """Free all other slots, and close the gaps they leave."""
        super().keep(slots)
        used = sorted(self._slots.values(), key=lambda slot: int(self._starts[slot, 0]))
        self._end = 0
        for slot in used:
            start, stop = self._starts[slot].tolist()
            self._rows[self._end : self._end + stop - start] = self._rows[start:stop].copy()
            self._starts[slot] = self._end, self._end + stop - start
            self._end += stop - start

    def _store(self, slot: int, answer: NDArray[Any]) -> None:
        stop = self._end + len(answer)
        if slot >= _SLOTS or stop > len(self._rows):
            raise _out_of_memory()
        self._rows[self._end : stop] = answer
        self._starts[slot] = self._end, stop
        self._end = stop

    def everywhere(self) -> NDArray[Any]:
        """Return the answer of the learner that is 1 on every sample."""
        return np.arange(self.n_samples, dtype=np.int32)

    def add_scores(self, weighted: Weighted, first: int, scores: NDArray[np.float64]) -> None:
        """Add ``w h`` of learners on the samples from `first` (a whole word) to ``scores[class]``."""
        add_row_learners(self._starts, self._rows, weighted, first, scores)

    def _learners(self, c: int, own: Signed) -> RowLearners:
        return RowLearners(self._starts, self._rows, own.slots, own.signs, self.labels, c)


def bits_of_ranges(
    block: CodedBlock, column: int, ranges: Sequence[Range], codes: NDArray[np.uint8]
) -> list[NDArray[np.uint64]]:
    """Return bits, set if the code of a column is in a range; `codes` is scratch for one of every sample."""
    spread_codes(column, block.entries, block.bins.zero[column], codes)
    answers = []
    for low, high in ranges:
        words = np.empty(n_words(len(codes)), np.uint64)
        range_bits(codes, low, high, words)
        answers.append(words)
    return answers


def rows_of_ranges(block: CodedBlock, column: int, ranges: Sequence[Range]) -> list[NDArray[np.int32]]:
    """Return the samples for which the code of a column is in a range, in order."""
    buffer = np.empty(int((block.indptr[:, column + 1] - block.indptr[:, column]).sum()), np.int32)
    answers = []
    for low, high in ranges:
        n = range_rows(column, block.entries, low, high, buffer)
        answers.append(buffer[:n].copy())
    return answers


def _out_of_memory() -> MemoryLimitError:
    return MemoryLimitError(
        "the answers of the learners do not fit into the memory limit", "raise it, or give a smaller C"
    )
