"""Samples whose nearly constant columns are read less their mean.

A column such as a year, a time stamp or a pressure varies little beside its mean. A step of its weight and
one of the intercept then undo each other, and single precision cannot tell them apart: 400 rows of six
columns, each 1,000 deviations from 0, kept descent going for minutes. Less its mean the column is easy. With
an unpenalised intercept the optimum is the same: ``b + w x = (b + w m) + w (x - m)``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.store.dataset import Dataset
from bigmc.store.deviations import BLOCK_BYTES
from bigmc.store.shards.sample_labels import SampleLabels
from bigmc.store.shards.shard import Shard

_FAR = 100.0
"""Ratio of mean to deviation above which a column is centred. On six such columns the same few passes ended
with a gap of .008 at a ratio of 100, and of .07 at 300."""
_ROUNDING, _SINGLE = 1e-14, float(np.finfo(np.float32).eps)
"""Ratios of deviation to mean up to which a column counts as constant, and is not scaled by its deviation: in
single precision, which many programs write, the same value read twice may differ by as much."""

_AT_ONCE = 1 << 18
"""Entries of a shard whose deviations are computed at once."""


class CentredShard:
    """A shard of which some columns are read less their mean; see `bigmc.store.shards.shard.Shard`.

    `features` has these columns, increasing; every row has an entry in each.
    """

    def __init__(self, shard: Shard, features: NDArray[np.int64], means: NDArray[np.float64]) -> None:
        self._shard, self._features, self._means = shard, features, means
        self.n_rows, self.n_features, self.nnz = shard.n_rows, shard.n_features, shard.nnz
        self.split, self.nbytes = shard.split, shard.nbytes
        self.dtype: np.dtype[Any] = np.dtype(np.float64)

    @cached_property
    def _firsts(self) -> NDArray[np.int64]:
        """First entry of each centred column, which has one of every row; read at first use."""
        lo = int(self._features[0])
        return self._shard.indptr(lo, int(self._features[-1]) + 1)[self._features - lo]

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the offsets of columns ``lo`` to ``hi``, counted from the shard's first entry."""
        return self._shard.indptr(lo, hi)

    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers."""
        self._shard.read(start, stop, indices_out, data_out)
        if data_out is None:
            return
        firsts, n_rows = self._firsts, self.n_rows
        lo, hi = np.searchsorted(firsts, [start - n_rows + 1, stop]).tolist()
        for first, mean in zip(firsts[lo:hi].tolist(), self._means[lo:hi].tolist(), strict=True):
            data_out[max(first, start) - start : min(first + n_rows, stop) - start] -= mean

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows' table, or the named columns of it."""
        return self._shard.table(columns)


class CentredDataset(Dataset):
    """A dataset of which some columns are read less their mean.

    Every sample has an entry in each of these `features`. The scale of columns is by default that of the
    weighting, and the weights of samples those of the original.
    """

    def __init__(
        self,
        original: Dataset,
        features: NDArray[np.int64],
        means: NDArray[np.float64],
        column_scale: NDArray[np.float32] | None = None,
        sample_weights: NDArray[np.float64] | None = None,
    ) -> None:
        shards = [CentredShard(shard, features, means) for shard in original.shards]
        own = original.class_labels, original.n_features, original.weighting, original.features
        # No files: their statistics are those of the columns as they are.
        super().__init__(shards, *own, None, column_scale, sample_weights)
        self._original, self._centred, self._means = original, features, means

    @property
    def centring(self) -> str:
        """What tells apart runs on columns that are centred or scaled otherwise."""
        scale = b"" if self._column_scale is None else self._column_scale.tobytes()
        digest = hashlib.sha256(self._centred.tobytes() + self._means.tobytes() + scale).hexdigest()
        return f"{len(self._centred)} columns, {digest[:16]}"

    def __reduce__(self) -> Any:
        """Pickle the original and the means: another process reads neither statistics nor weights of rows."""
        return CentredDataset, (self._original, self._centred, self._means, self._column_scale)

    @property
    def _sample_labels(self) -> SampleLabels:
        """Those of the original, which may be in memory."""
        return self._original._sample_labels

    def _count_entries(self) -> NDArray[np.signedinteger]:
        return self._original._count_entries()


@dataclass(frozen=True)
class Centred:
    """A dataset of which some columns are centred.

    It is in memory or on disk as the original; scaled columns have their own deviation, however small.
    `means` are those of the values as they are used, after the scale of columns.
    """

    dataset: CentredDataset
    features: NDArray[np.int64]
    means: NDArray[np.float64]

    def shift(self, features: NDArray[np.int64], coef: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return what centring adds to the intercept of some weights, ``sum_j m_j W_j``.

        `features` increase; `coef` has the shape (len(features), n_classes).
        """
        _, own, weighted = np.intersect1d(self.features, features, assume_unique=True, return_indices=True)
        added: NDArray[np.float64] = self.means[own] @ coef[weighted].astype(np.float64)
        return added


class FarColumns(NamedTuple):
    """Features that are far from 0 beside their deviation, increasing, with means and deviations."""

    features: NDArray[np.int64]
    means: NDArray[np.float64]
    deviations: NDArray[np.float64]


def far_columns(dataset: Dataset, ratio: float = _FAR) -> FarColumns | None:
    """Return the columns that can be centred and whose mean is above `ratio` times the deviation, or None.

    Only columns with an entry in every row can be, and only where rows have no scale: others would have to
    store what they leave out. A column that is constant is none of them.
    """
    weighting = dataset.weighting
    if weighting.binary or weighting.l2 or weighting.idf:
        return None
    full = dataset.column_nnz() == dataset.n_samples
    means, variances = _moments(dataset, full)
    with np.errstate(over="ignore"):
        far = np.flatnonzero(full & (np.square(means) > ratio**2 * variances))
    if not len(far):
        return None
    deviations = _deviations(dataset, far, means[far])
    varies = deviations > _ROUNDING * np.abs(means[far])
    return FarColumns(far[varies], means[far[varies]], deviations[varies]) if varies.any() else None


def centred(dataset: Dataset) -> Centred | None:
    """Return a dataset with centred columns, or None if none is far from 0 beside its deviation."""
    columns = far_columns(dataset)
    if columns is None:
        return None
    far, used, deviations = columns
    scale = dataset.column_scale()
    if scale is not None:
        scale, own = scale.copy(), deviations > _SINGLE * np.abs(used)
        scale[far[own]] = 1.0 / deviations[own]
    moved = CentredDataset(dataset, far, used, scale, dataset.sample_weights())
    return Centred(moved, far, used if scale is None else used * scale[far])


def _moments(dataset: Dataset, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of the chosen features, about; 0 of the others."""
    n, means, variances = dataset.n_samples, np.zeros(dataset.n_features), np.zeros(dataset.n_features)
    for lo, hi in dataset.spans(BLOCK_BYTES) if chosen.any() else ():
        if chosen[lo:hi].any():
            sums, squares = (each.sum(axis=0) / n for each in dataset.class_statistics(lo, hi))
            with np.errstate(over="ignore", invalid="ignore"):  # squares may be infinite
                variance = np.maximum(squares - np.square(sums), 0.0)
            means[lo:hi], variances[lo:hi] = sums, variance
    return np.where(chosen, means, 0.0), np.where(chosen, variances, 0.0)


def _deviations(
    dataset: Dataset, features: NDArray[np.int64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the standard deviations of some columns that have an entry in every row.

    They are those of the differences to the means, because a variance of the values may be nothing but
    rounding errors. Neighbours of a shard are read together.
    """
    sums, squares = np.zeros(len(features)), np.zeros(len(features))
    apart = np.flatnonzero(np.diff(features) > 1) + 1
    for shard in dataset.shards:
        most = max(1, _AT_ONCE // max(shard.n_rows, 1))
        for places in np.split(np.arange(len(features)), apart):
            for some in np.split(places, range(most, len(places), most)):
                lo, n_entries = int(features[some[0]]), len(some) * shard.n_rows
                first = int(shard.indptr(lo, lo + 1)[0])
                values = np.empty(n_entries)
                shard.read(first, first + n_entries, None, values)
                differences = values.reshape(len(some), shard.n_rows) - means[some, None]
                sums[some] += differences.sum(axis=1)
                squares[some] += np.square(differences).sum(axis=1)
    variances = squares / dataset.n_samples - np.square(sums / dataset.n_samples)
    return np.sqrt(np.maximum(variances, 0.0))
