"""The weights: rows of the features that have any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Bytes of the weights that are looked at together, in double precision, where a copy of all would be too
#: large.
_SLAB_BYTES = 1 << 20


def slabs(n: int, size: int) -> Iterator[slice]:
    """Cut `n` rows into ranges that are worked on in turn."""
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def slabs_of_weights(n: int, width: int) -> Iterator[slice]:
    """Cut `n` features, with so many weights each, into ranges that are worked on in turn."""
    return slabs(n, max(1, _SLAB_BYTES // (8 * width)))


@dataclass(frozen=True)
class Coefficients:
    """Non-zero rows of the weight matrix.

    Attributes
    ----------
    features : int64 array of shape (n_nonzero,)
        Increasing.
    rows : float64 array of shape (n_nonzero, width)
        Weights of each, padded classes included (zeros); of single precision where there are too many.
    """

    features: NDArray[np.int64]
    rows: NDArray[np.float64]

    @classmethod
    def zeros(cls, width: int) -> Coefficients:
        """Return weights that are zero everywhere."""
        return cls(np.empty(0, np.int64), np.empty((0, width)))

    def slots(self, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each of the increasing `features`, -1 where its weights are zero."""
        places = np.searchsorted(self.features, features)
        inside = places < len(self.features)
        hit = np.zeros(len(features), bool)
        hit[inside] = self.features[places[inside]] == features[inside]
        return np.where(hit, places, -1)

    def take(self, features: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights of `features`, zeros included, as a new array."""
        slots = self.slots(features)
        rows = np.zeros((len(features), self.rows.shape[1]))
        rows[slots >= 0] = self.rows[slots[slots >= 0]]
        return rows

    def among(self, features: NDArray[np.int64]) -> Coefficients:
        """Return the weights of some features, in any order, alone."""
        kept = np.isin(self.features, features)
        return self if kept.all() else Coefficients(self.features[kept], self.rows[kept])

    def updated(self, changes: Sequence[tuple[NDArray[np.int64], NDArray[np.floating]]]) -> Coefficients:
        """Return the weights after those of some features, each named once, were replaced."""
        touched = np.zeros(len(self.features), bool)
        kept = []
        for features, rows in changes:
            slots = self.slots(features)
            touched[slots[slots >= 0]] = True
            nonzero = rows.any(axis=1)
            kept.append((features[nonzero], rows[nonzero]))
        kept.append((self.features[~touched], self.rows[~touched]))
        features = np.concatenate([f for f, _ in kept])
        order = np.argsort(features, kind="stable")
        places = np.split(np.argsort(order), np.cumsum([len(f) for f, _ in kept])[:-1])
        merged = np.empty((len(features), self.rows.shape[1]), np.result_type(*(rows for _, rows in kept)))
        for (_, rows), own in zip(kept, places, strict=True):
            merged[own] = rows  # not joined before they are put in order: that would be one more copy
        return Coefficients(features[order], merged)
