"""Standard deviations of all features, to scale columns of different units."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 8 << 20
"""Decoded bytes of the features whose statistics are computed at a time."""
_ROUNDING = 1e-7
"""Ratio of variance to squared mean up to which features count as constant: a deviation of 1 in 3,000."""

Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Sum and sum of squares of each class and feature, both of shape (n_classes, n_features)."""


def inverse_deviations(n_samples: int, blocks: Iterable[Statistics]) -> NDArray[np.float32]:
    """Return one over the standard deviation of every feature; constant features are scaled to at most 1.

    `blocks` has the statistics of successive ranges of features; values that are not stored are 0.
    Unscaled large values, such as row numbers above a billion, would act as an intercept, and descent
    would not converge.
    """
    scales = []
    for sums, squares in blocks:
        mean = sums.sum(axis=0) / max(n_samples, 1)
        # Columns of infinite squares are scaled by the mean, as constants are.
        with np.errstate(over="ignore", invalid="ignore"):
            variance = squares.sum(axis=0) / max(n_samples, 1) - np.square(mean)
            spread = variance > _ROUNDING * np.square(mean)
        scale = (1.0 / np.maximum(np.abs(mean), 1.0)).astype(np.float32)
        scale[spread] = 1.0 / np.sqrt(variance[spread])
        scales.append(scale)
    return np.concatenate(scales)
