"""The uncertainty set of a minimax risk classifier: expectations of the feature mapping and their slack."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.solvers.minimax.parameters import MinimaxParameters
from bigmc.store.block import stream_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.statistics import block_statistics


@dataclass(frozen=True)
class Expectations:
    """τ and s of the feature mapping ``Φ(x, y) = e_y ⊗ ψ(x)``, section II-B.

    ``ψ`` has the dataset's `features` that are not zero in every sample, and with an intercept a last
    feature that is always 1. `tau` and `deviation`, of shape (n_psi, n_classes), are the mean and
    population standard deviation of each component of ``Φ(x_i, y_i)``; `rms` is the root of the mean
    square of each feature, `shares` the share of the samples of each class.
    """

    features: NDArray[np.int64]
    intercept: bool
    tau: NDArray[np.float64]
    deviation: NDArray[np.float64]
    rms: NDArray[np.float64]
    shares: NDArray[np.float64]

    @property
    def absent(self) -> NDArray[np.bool_]:
        """Components of features that no sample of the class has, shape (n_psi, n_classes)."""
        absent: NDArray[np.bool_] = (self.tau == 0) & (self.deviation == 0)
        return absent


def expectations(
    dataset: Dataset,
    labels: NDArray[np.int32],
    n_classes: int,
    parameters: MinimaxParameters,
    block_bytes: int,
) -> Expectations:
    """Compute the expectations, from the stored statistics if these are of the values used.

    `labels` has the class of each sample, ``0`` to ``n_classes - 1``; every class occurs. If the data
    have to be read, a block has `block_bytes`. `DataError` if a value is not finite, or all are zero and
    there is no intercept.
    """
    n, d = dataset.n_samples, dataset.n_features
    sums, squares = np.zeros((d, n_classes)), np.zeros((d, n_classes))
    if dataset.weighting.l2 or n_classes != dataset.n_classes:
        row_scale = dataset.row_scale(dataset.column_scale())
        groups = [labels[first:last] for first, last in pairwise(dataset.base)]
        for block in stream_blocks(dataset, dataset.plan(block_bytes)):
            moments = block_statistics(block, groups, dataset.n_groups, row_scale)
            sums[block.lo : block.hi], squares[block.lo : block.hi] = (a[:, :n_classes] for a in moments)
    else:
        for lo, hi in dataset.spans(block_bytes):
            moments = dataset.class_statistics(lo, hi)
            sums[lo:hi], squares[lo:hi] = moments[0].T, moments[1].T
    scale = dataset.column_scale()
    if scale is not None:
        sums *= scale[:, np.newaxis]
        squares *= scale[:, np.newaxis].astype(np.float64) ** 2
    if not (np.isfinite(sums).all() and np.isfinite(squares).all()):
        raise DataError("the data have values that are not finite, or too large", "look for NaN and inf")
    shares = np.bincount(labels, minlength=n_classes) / n
    features = np.flatnonzero(squares.any(axis=1))
    sums, squares = sums[features] / n, squares[features] / n
    if parameters.fit_intercept:
        sums, squares = np.vstack([sums, shares]), np.vstack([squares, shares])
    if not len(sums):
        raise DataError("every feature is zero", "give other features, or fit an intercept")
    deviation = np.sqrt(np.maximum(squares - sums**2, 0.0))
    rms = np.sqrt(squares.sum(axis=1))
    return Expectations(features, parameters.fit_intercept, sums, deviation, rms, shares)
