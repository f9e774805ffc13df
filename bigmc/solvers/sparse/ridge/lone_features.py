"""Features of one sample alone: their weights follow from its dual variables, and are not stored.

The weights of a feature are the sum of the dual variables of its samples times its values there. Where this
sum has one term, the feature only adds the square of its value to what the sample's dual variables say of
its own scores. A third to a half of the features of hashed texts are of this kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class LoneFeatures:
    """Features with one entry each.

    Attributes
    ----------
    places : int64 array of shape (n_lone,)
        Which of the features that may have weight they are, increasing.
    entries : uint32 array of shape (n_lone,)
        Where in `values` each of them is.
    indptr : int64 array of shape (n_samples + 1,)
        Offsets of the samples in `values`.
    values : float32 array of shape (n_lone,)
        Weighted, sample after sample.
    squares : float32 array of shape (n_samples,)
        Sums of the squares of a sample's values.
    """

    places: NDArray[np.int64]
    entries: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    values: NDArray[np.float32]
    squares: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        places: NDArray[np.int64],
        slots: NDArray[np.uint32],
        indptr: NDArray[np.int64],
        values: NDArray[np.float32],
        squares: NDArray[np.float32],
    ) -> LoneFeatures:
        """Return them by their entries in row order; `slots` are places among `places`."""
        entries = np.empty(len(places), np.uint32)
        entries[slots] = np.arange(len(places), dtype=np.uint32)
        return cls(places, entries, indptr, values, squares)

    def weights(self, lo: int, hi: int, duals: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the weights of some of them, shape (hi - lo, width)."""
        entries = self.entries[lo:hi]
        samples = np.searchsorted(self.indptr, entries, side="right") - 1
        weights: NDArray[np.float32] = self.values[entries, None] * duals[samples]
        return weights

    def scores(
        self, chosen: NDArray[np.int64], duals: NDArray[np.float32], change: Change | None
    ) -> NDArray[np.float32]:
        """Return what they add to the scores of some samples, shape (n_chosen, width).

        Parameters
        ----------
        chosen : int64 array of shape (n_chosen,)
        duals : float32 array of shape (n_samples, width)
        change : callable or None
            Turns the weights that follow from the dual variables into those to score with.
        """
        if change is None:
            products: NDArray[np.float32] = self.squares[chosen, None] * duals[chosen]
            return products
        counts = np.diff(self.indptr)[chosen]
        ends = np.cumsum(counts)
        rows = np.repeat(np.arange(len(chosen)), counts)
        values = self.values[np.arange(len(rows)) + (self.indptr[chosen] - (ends - counts))[rows], None]
        added = np.zeros((len(chosen), duals.shape[1]), np.float32)
        some = counts > 0
        if some.any():
            parts = change(values * duals[chosen][rows]) * values
            added[some] = np.add.reduceat(parts, (ends - counts)[some], axis=0)
        return added

    def half_norm(self, duals: NDArray[np.float32]) -> float:
        """Return half the sum of their squared weights."""
        if not len(self.places):
            return 0.0
        rows = np.einsum("ir,ir->i", duals, duals)
        return 0.5 * float(np.einsum("i,i->", rows, self.squares, dtype=np.float64))
