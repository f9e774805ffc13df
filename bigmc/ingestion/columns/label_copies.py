"""Columns that tell the class of every row, such as a code of the label, or the number it was made from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.number_columns import as_float, is_number
from bigmc.ingestion.columns.table_columns import category_texts
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

FEWEST_OF_CLASS = 10
"""Fewer rows of a class may be told by chance: some row has the largest value."""
FEWEST_OF_VALUE = 10
"""Rows that each value has on average at least: where all are different, each tells its own row's class."""
_FIRST_VALUES = 100
"""Further different texts to look at, since the first batch may be small."""
_LONGEST = 100
"""Bytes of a text above which it is no code, so that texts are not kept."""
_FEW = 20
"""Texts that mostly show that a column is not one of numbers."""


class Codes:
    """Gives every value a number, in all batches the same."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def of(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the number of the value of each row."""
        encoded = category_texts(column).dictionary_encode()
        known = [self._codes.setdefault(text, len(self._codes)) for text in encoded.dictionary.to_pylist()]
        numbers: NDArray[np.int64] = np.array(known, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
        return numbers

    def __len__(self) -> int:
        return len(self._codes)


class LabelCopy:
    """Finds out whether the values of a column tell the class of every row.

    They do if all rows of a value are of one class, or if the classes are intervals of the numbers.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[NDArray[np.float64], NDArray[np.int64]]] | None = []  # None if they do not
        self._codes = Codes()
        self._are_numbers = True

    def add(self, column: pa.Array, classes: NDArray[np.int64]) -> None:
        """Look at the next rows, of the given classes."""
        if self._rows is None or not len(column):
            return
        values = _numbers(column)
        are_numbers = values is not None
        if values is None:
            values = self._texts(column)
        if values is None or (self._rows and are_numbers != self._are_numbers):
            self._rows = None
            return
        self._are_numbers = are_numbers
        self._rows.append((values, classes))
        if not self._is_told(values, classes, len(values) / FEWEST_OF_VALUE + _FIRST_VALUES):
            self._rows = None

    def _texts(self, column: pa.Array) -> NDArray[np.float64] | None:
        """Return the numbers of texts; None if they are long, or there are too many different ones."""
        texts = category_texts(column)
        if pc.max(pc.binary_length(texts)).as_py() > _LONGEST:
            return None
        values = self._codes.of(texts).astype(np.float64)
        n_rows = len(values) + sum(len(seen) for seen, _ in self._rows or ())
        return values if len(self._codes) <= n_rows / FEWEST_OF_VALUE + _FIRST_VALUES else None

    @property
    def found(self) -> bool:
        """Whether the class of every row is told, and two classes have rows enough to tell."""
        if not self._rows:
            return False
        values, classes = (np.concatenate(parts) for parts in zip(*self._rows, strict=True))
        if np.count_nonzero(np.bincount(classes) >= FEWEST_OF_CLASS) < 2:
            return False
        return self._is_told(values, classes, len(values) / FEWEST_OF_VALUE)

    def _is_told(self, values: NDArray[np.float64], classes: NDArray[np.int64], most_values: float) -> bool:
        """Return whether so many values, or intervals of numbers, tell the classes."""
        order = np.lexsort((classes, values))
        values, classes = values[order], classes[order]
        another = values[1:] != values[:-1]
        changes = np.diff(classes) != 0
        if (changes & ~another).any():
            return False
        intervals = self._are_numbers and np.count_nonzero(changes) + 1 == len(np.unique(classes))
        return intervals or bool(np.count_nonzero(another) < most_values)


def _numbers(column: pa.Array) -> NDArray[np.float64] | None:
    """Return numbers, also those that are written as texts, with the same value for all missing ones."""
    if not is_number(column.type):
        return None
    for rows in (column.slice(0, _FEW), column):
        read = as_float(rows)
        if read.unreadable.any():
            return None
    return np.where(np.isnan(read.values), -np.inf, read.values)
