"""The spread of every feature, by which columns of different units are made comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset

_BLOCK_BYTES = 8 << 20
_ROUNDING = 1e-12
"""Variance over squared mean up to which a feature is constant but for rounding."""


def inverse_deviations(dataset: Dataset) -> NDArray[np.float32]:
    """Return one over the standard deviation of every feature, 1 for constant ones.

    Features that are not stored are 0. One pass over the columns, unless their statistics are stored.
    """
    found = np.ones(dataset.n_features, np.float32)
    n = max(dataset.n_samples, 1)
    for lo, hi in dataset.plan(_BLOCK_BYTES):
        sums, squares = dataset.class_statistics(lo, hi)
        mean = sums.sum(axis=0) / n
        variance = squares.sum(axis=0) / n - np.square(mean)
        spread = variance > _ROUNDING * np.square(mean)
        found[lo:hi][spread] = 1.0 / np.sqrt(variance[spread])
    return found
