"""Terms of the objective beside loss and penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Terms:
    """Terms of the objective besides loss and penalty, for some features.

    Attributes
    ----------
    tilt : float64 array of shape (n_features, width), or of no rows
        Linear terms ``<tilt_j, W_j>``.
    ridges : float64 array of shape (n_features,)
        Weights of ``||W_j||² / 2``.
    """

    tilt: NDArray[np.float64]
    ridges: NDArray[np.float64]

    @classmethod
    def ridge(cls, ridge: float, n_features: int, width: int) -> Terms:
        """Return the ridge term alone."""
        return cls(np.empty((0, width)), np.full(n_features, ridge))

    def take(self, chosen: NDArray[np.int64]) -> Terms:
        """Return the terms of some of the features."""
        return Terms(self.tilt[chosen] if len(self.tilt) else self.tilt, self.ridges[chosen])

    def value(self, rows: NDArray[np.float64]) -> float:
        """Return the sum of the terms, of weights of shape (n_features, width)."""
        linear = float(np.vdot(self.tilt, rows)) if len(self.tilt) else 0.0
        return linear + 0.5 * float(self.ridges @ np.einsum("jr,jr->j", rows, rows))

    @classmethod
    def joined(cls, terms: Sequence[Terms]) -> Terms:
        """Return the terms of several groups of features as those of one."""
        return cls(np.concatenate([t.tilt for t in terms]), np.concatenate([t.ridges for t in terms]))

    def padded(self, size: int) -> Terms:
        """Return the terms with those of an intercept after them, which has none."""
        if len(self.tilt) == size:
            return self
        tilt, ridges = np.zeros((size, self.tilt.shape[1])), np.zeros(size)
        tilt[: len(self.tilt)] = self.tilt
        ridges[: len(self.ridges)] = self.ridges
        return Terms(tilt, ridges)
