"""Convert categories to indicators, and fill missing numbers.

A pass over the sources before the ingest determines the indicators and means; the dataset's recipe and its
models keep them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.known_labels import key_of, texts_by_meaning
from bigmc.ingestion.hashing.categories import category_text
from bigmc.lazy import LazyModule
from bigmc.store.feature_map import Moments

pc = LazyModule("pyarrow.compute")

MOST_LEVELS = 254
"""Maximum number of values of a category with features, the most frequent; others are 0 in all."""
FURTHEST = 4.0
"""Standard deviations from the mean at which numbers are clipped if there are hashed columns."""
LARGEST = 1e150
"""Larger numbers count neither for the mean nor for the deviation: their squares are infinite, and one alone
would make a column of ordinary numbers constant."""
MOST_COUNTED = 100_000
"""Maximum number of different values of a category that are counted."""


@dataclass(frozen=True)
class Levels:
    """The values of a category that have features, the most frequent first."""

    column: str
    values: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(f"{self.column}={value}" for value in self.values)

    def codes(self, texts: pa.Array) -> pa.Array:
        """Return the positions of values, null where a text is no value and means none.

        A column of integers becomes one of decimal fractions by a single missing value, and other
        programs write ``True`` as ``true``: a text that is no value stands for the one of its meaning.
        Fractions are compared as they are: versions ``1.1`` and ``1.10`` are two values.
        """
        codes = pc.index_in(texts, pa.array(self.values, pa.string()))
        if not codes.null_count or not self._meanings:
            return codes
        others = texts.filter(codes.is_null()).unique()
        meant = pa.array([self._meant(text) for text in others.to_pylist()], codes.type)
        return pc.coalesce(codes, meant.take(pc.index_in(texts, others)))

    def _meant(self, text: str) -> int | None:
        """Return the position of the only value that means the same as a text; None if there is none."""
        key = key_of(text)
        fraction = key is not None and isinstance(key[1], float) and not key[1].is_integer()
        found = [] if key is None or fraction else self._meanings.get(key, [])
        return self.values.index(found[0]) if len(found) == 1 else None

    @cached_property
    def _meanings(self) -> dict[tuple[bool, Any], list[str]]:
        return texts_by_meaning(self.values)


@dataclass(frozen=True)
class Filling:
    """Replacements of missing numbers, and the scales of numbers if there are hashed columns.

    `values` has the mean of each dense column, and `flagged` the positions of columns with missing numbers;
    each has a feature that marks them. `deviations` are those of standardised numbers, else empty. Unless it
    `fills`, missing numbers are refused.
    """

    values: tuple[float, ...]
    flagged: tuple[int, ...]
    deviations: tuple[float, ...] = ()
    fills: bool = True

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Filling:
        """Return the object of JSON data from `dataclasses.asdict`."""
        numbers = {name: tuple(data[name]) for name in ("values", "flagged", "deviations")}
        return cls(**numbers, fills=bool(data["fills"]))

    def flag_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the features that mark missing numbers."""
        return tuple(f"{columns[place]} is missing" for place in self.flagged)


def filled(values: NDArray[np.float64], filling: Filling) -> list[NDArray[np.float64]]:
    """Return filled and scaled numbers, and indicators of missing ones in flagged columns.

    Standardised numbers are clipped at `FURTHEST` deviations from the mean, so that none outweighs a text.
    """
    absent = np.isnan(values)
    whole = np.where(absent, np.array(filling.values), values)
    if filling.deviations:
        deviations = np.array(filling.deviations)
        inverse = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > 0)
        whole = np.clip((whole - np.array(filling.values)) * inverse, -FURTHEST, FURTHEST)
    return [whole, absent[:, list(filling.flagged)].astype(np.float64)]


def indicators(column: pa.Array, levels: Levels) -> NDArray[np.float64]:
    """Return indicators of the values of rows, shape (n_rows, n_values)."""
    codes = levels.codes(category_texts(column))
    matrix = np.zeros((len(column), len(levels.values)))
    rows = np.flatnonzero(codes.is_valid().to_numpy(zero_copy_only=False))
    matrix[rows, codes.drop_null().to_numpy()] = 1.0
    return matrix


def category_texts(column: pa.Array) -> pa.Array:
    """Return values as texts, formatted like names of hashed categories; missing ones are empty."""
    absent = pc.is_null(column, nan_is_null=True)
    return pc.if_else(absent, "", category_text(column).cast(pa.string()))


class LevelCount:
    """Counts the rows of each value of a category, but for values after the first `MOST_COUNTED`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, column: pa.Array) -> None:
        """Count the values of a batch."""
        for entry in category_texts(column).value_counts().to_pylist():
            if entry["values"] in self.counts or len(self.counts) < MOST_COUNTED:
                self.counts[entry["values"]] += entry["counts"]

    def levels(self, column: str) -> Levels:
        """Return the `MOST_LEVELS` most frequent values of the column, ties in alphabetical order."""
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return Levels(column, tuple(value for value, _ in ordered[:MOST_LEVELS]))


class MeanOfColumns:
    """Moments of the numbers that are not missing."""

    def __init__(self, n_columns: int) -> None:
        self._moments = [Moments.of(np.empty((0, 1))) for _ in range(n_columns)]
        self._missing = np.zeros(n_columns, np.int64)

    def add(self, place: int, values: Iterable[float]) -> None:
        """Add the numbers of a column, NaN where they are missing."""
        numbers = np.asarray(values, np.float64)
        finite = numbers[np.abs(numbers) <= LARGEST]
        self._moments[place] += Moments.of(finite[:, np.newaxis])
        self._missing[place] += np.isnan(numbers).sum()

    def filling(self, like: Filling, unflagged: Sequence[int] = ()) -> Filling:
        """Return the replacements of missing numbers: the mean, or 0 if all are missing.

        Missing ones are filled, and the columns standardised, as in `like`; `unflagged` places have no mark.
        """
        means = tuple(float(moments.mean[0]) for moments in self._moments)
        spread = (np.sqrt(moments.scatter[0] / max(moments.count, 1)) for moments in self._moments)
        deviations = tuple(float(each) for each in spread) if like.deviations else ()
        marked = np.setdiff1d(np.flatnonzero(self._missing), unflagged)
        flagged = tuple(marked.tolist()) if like.fills else ()
        return Filling(means, flagged, deviations, like.fills)
