"""The spread of every feature, by which columns of different units are made comparable."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 8 << 20
"""Decoded bytes of the features whose statistics are taken at once."""
_ROUNDING = 1e-7
"""Variance over squared mean up to which a feature counts as constant: 1 in 3,000."""

Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Sum and sum of squares of each class and feature, both of shape (n_classes, n_features)."""


def inverse_deviations(n_samples: int, blocks: Iterable[Statistics]) -> NDArray[np.float32]:
    """Return one over the standard deviation of every feature; constant ones become 1, or stay if smaller.

    Large ones as they are, as numbers of rows from a billion on, would leave an intercept nothing to do, and
    descent without end.

    Parameters
    ----------
    blocks : iterable of Statistics
        Of one piece of the features after the other. Values that are not stored are 0.
    """
    scales = []
    for sums, squares in blocks:
        mean = sums.sum(axis=0) / max(n_samples, 1)
        variance = squares.sum(axis=0) / max(n_samples, 1) - np.square(mean)
        scale = (1.0 / np.maximum(np.abs(mean), 1.0)).astype(np.float32)
        spread = variance > _ROUNDING * np.square(mean)
        scale[spread] = 1.0 / np.sqrt(variance[spread])
        scales.append(scale)
    return np.concatenate(scales)
