"""The 95 % interval of an accuracy: of single rows, or of groups of rows that belong together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.inference.evaluation.saved_sums import FieldSums

INTERVAL_Z = 1.959964
"""Quantile of the normal distribution for intervals of 95 %."""
N_BINS = 1_024
"""Bins that groups are put into by their hash: the sums of any number of groups take the same memory."""


def _zeros() -> NDArray[np.int64]:
    return np.zeros(N_BINS, np.int64)


@dataclass
class GroupSums(FieldSums):
    """Rows, and rows that are right, by bins of groups; no rows where there are no groups.

    Rows of a document or a patient are right or wrong together, so they tell less of new groups than as many
    rows that have nothing in common. How much less the sums of the bins say, which vary more than by chance
    ("random groups": Wolter, "Introduction to variance estimation", 2007, chapter 2).
    """

    rows_of_bins: NDArray[np.int64] = field(default_factory=_zeros)
    right_of_bins: NDArray[np.int64] = field(default_factory=_zeros)

    @classmethod
    def of(cls, groups: NDArray[np.int64] | None, is_right: NDArray[np.bool_]) -> GroupSums:
        """Return the sums of rows, with hashes of their groups or None."""
        if groups is None:
            return cls()
        bins = (groups.view(np.uint64) % np.uint64(N_BINS)).astype(np.int64)
        right = np.bincount(bins[is_right], minlength=N_BINS)
        return cls(np.bincount(bins, minlength=N_BINS), right)

    def interval(self, share: float, n_rows: int) -> tuple[float, float]:
        """Return the interval of the share of all rows that is right."""
        return wilson(share, self._n_apart(n_rows))

    def _n_apart(self, n_rows: int) -> float:
        """Return the number of rows without groups that would say as much."""
        if not self.rows_of_bins.any():
            return n_rows
        n_bins = int(np.count_nonzero(self.rows_of_bins))
        share = float(self.right_of_bins.sum()) / n_rows
        by_chance = n_rows * share * (1.0 - share)
        if n_bins == 1 or by_chance == 0.0:
            return n_bins
        squares = float(np.square(self.right_of_bins - share * self.rows_of_bins).sum())
        return n_rows / float(max(squares * n_bins / (n_bins - 1) / by_chance, 1.0))


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a proportion of `n` rows (Wilson, 1927)."""
    if n <= 0:
        raise DataError("the test split has no rows to evaluate on", "give a larger test split")
    z2 = INTERVAL_Z**2 / n
    middle = (share + z2 / 2) / (1 + z2)
    half = INTERVAL_Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return middle - half, middle + half
