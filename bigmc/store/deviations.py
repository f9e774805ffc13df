"""The spread of every feature, by which columns of different units are made comparable."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 8 << 20
"""Decoded bytes of the features whose statistics are taken at once."""
_ROUNDING = 1e-12
"""Variance over squared mean up to which a feature is constant but for rounding."""

Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Sum and sum of squares of each class and feature, both of shape (n_classes, n_features)."""


def inverse_deviations(n_samples: int, blocks: Iterable[Statistics]) -> NDArray[np.float32]:
    """Return one over the standard deviation of every feature, 1 for constant ones.

    Parameters
    ----------
    n_samples : int
    blocks : iterable of Statistics
        Of one piece of the features after the other. Values that are not stored are 0.
    """
    found = []
    for sums, squares in blocks:
        mean = sums.sum(axis=0) / max(n_samples, 1)
        variance = squares.sum(axis=0) / max(n_samples, 1) - np.square(mean)
        scale = np.ones(len(mean), np.float32)
        spread = variance > _ROUNDING * np.square(mean)
        scale[spread] = 1.0 / np.sqrt(variance[spread])
        found.append(scale)
    return np.concatenate(found)
