"""Passes over the shards: pricing of the constraints, and the rows of chosen samples.

The functions that an engine runs are at module level and take a dataset and numbers only, so that any worker
opens the shard itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.kernels.csc import select_entries
from bigmc.kernels.minimax import subset_masks, subset_values
from bigmc.model.column_reader import column_runs
from bigmc.model.linear_scoring import LinearScorer
from bigmc.solvers.minimax.expectations import Expectations
from bigmc.store.dataset import Dataset

#: Points on the ray through μ that a scan prices: the objective is convex there, and far from the optimum
#: a shorter μ has a better bound.
SCALES = np.array([1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.03])
#: Bytes kept of a column while rows are selected from it.
_GATHER_BYTES = 64
#: Share of stored values above which rows are kept as a dense array.
_DENSE = 0.25


@dataclass(frozen=True)
class Weights:
    """A coefficient vector for prediction: features of the dataset with weight, increasing, and weights."""

    features: NDArray[np.int64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]

    @classmethod
    def of(cls, expectations: Expectations, coef: NDArray[np.float64]) -> Weights:
        """Return the weights of μ, of shape (n_psi, n_classes)."""
        n_used = len(expectations.features)
        intercept = coef[n_used] if expectations.intercept else np.zeros(coef.shape[1])
        used = coef[:n_used].any(axis=1)
        return cls(expectations.features[used], np.ascontiguousarray(coef[:n_used][used]), intercept.copy())


@dataclass(frozen=True)
class Priced:
    """The samples whose best label subset has the largest values, those first.

    `phi` is φ, the largest value over all samples, of μ times each of `SCALES`; `samples` are numbers in
    the dataset; `values` are ``max over C of (Σ_{y in C} Φ(x, y)ᵀμ − 1) / |C|``; `masks`, of shape
    (n_found, ceil(n_classes / 8)), are the subsets, see `bigmc.kernels.minimax.subset_masks`.
    """

    phi: NDArray[np.float64]
    samples: NDArray[np.int64]
    values: NDArray[np.float64]
    masks: NDArray[np.uint8]


def price_constraints(
    dataset: Dataset, weights: Weights, n_best: int, scratch_bytes: int, engine: Engine
) -> Priced:
    """Price the constraints of every sample (function CONSTR), one pass over the shards.

    Returns the `n_best` samples with the largest values; equal ones in the order of the data. A worker
    uses `scratch_bytes`, excluding the scores of its shard. `DataError` if a score is not finite.
    """
    column_scale = dataset.column_scale()
    parts = range(dataset.n_shards)
    priced = [
        f for _, f in engine.map(_price_shard, parts, dataset, weights, column_scale, n_best, scratch_bytes)
    ]
    samples, values = np.concatenate([f.samples for f in priced]), np.concatenate([f.values for f in priced])
    best = np.lexsort((samples, -values))[:n_best]
    masks = np.concatenate([f.masks for f in priced])[best]
    return Priced(np.max([f.phi for f in priced], axis=0), samples[best], values[best], masks)


def _price_shard(
    shard: int,
    dataset: Dataset,
    weights: Weights,
    column_scale: NDArray[np.float32] | None,
    n_best: int,
    scratch_bytes: int,
) -> Priced:
    n_classes = len(weights.intercept)
    opened = dataset.shards[shard]
    scorer = LinearScorer(
        weights.features, weights.coef, weights.intercept, dataset.n_features, dataset.weighting, column_scale
    )
    scores = scorer.shard(opened, scratch_bytes)
    values, phi = np.empty(len(scores)), np.empty(len(SCALES))
    subset_values(scores, SCALES, values, phi)
    if not np.isfinite(values).all():
        raise DataError("scores are not finite", "look for NaN, inf or huge values in the data")
    best = np.arange(len(values))
    if n_best < len(values):
        # All that are at least the n-th largest: which of equal ones a partition takes is not defined.
        best = np.flatnonzero(values >= -np.partition(-values, n_best - 1)[n_best - 1])
    best = best[np.lexsort((best, -values[best]))][:n_best]
    masks = np.empty((len(best), -(-n_classes // 8)), np.uint8)
    subset_masks(np.ascontiguousarray(scores[best]), masks)
    return Priced(phi, best + dataset.base[shard], values[best], masks)


Matrix = Any
"""Values of ψ, samples in rows: an array or a csr_array, which both support ``@`` and selection of rows."""


def gather_samples(
    dataset: Dataset,
    samples: NDArray[np.int64],
    expectations: Expectations,
    row_scale: NDArray[np.float32],
    scratch_bytes: int,
    engine: Engine,
    dtype: np.dtype[Any] | None,
) -> Iterator[tuple[slice, Matrix]]:
    """Yield ψ of some samples, which increase, shard by shard: their places, and their matrix.

    A worker reads with `scratch_bytes`. Without a `dtype`, matrices are sparse, in double precision.
    """
    bounds = np.searchsorted(samples, dataset.base)
    parts = [(s, lo, hi) for s, (lo, hi) in enumerate(pairwise(bounds.tolist())) if hi > lo]
    wanted = [(s, samples[lo:hi] - dataset.base[s]) for s, lo, hi in parts]
    features, scale = expectations.features, dataset.column_scale()
    pieces = engine.map(_gather_shard, wanted, dataset, features, len(expectations.tau), scratch_bytes, dtype)
    for (_, lo, hi), (_, piece) in zip(parts, pieces, strict=True):
        rows = row_scale[samples[lo:hi]].astype(np.float64)
        n_columns = len(features)
        if dtype is not None:
            if not (rows == 1).all():
                piece[:, :n_columns] *= rows[:, np.newaxis]
            if scale is not None:
                piece[:, :n_columns] *= scale[features]
        else:
            piece.data *= np.repeat(rows, np.diff(piece.indptr))
            if scale is not None:
                piece.data *= scale[features].astype(np.float64)[piece.indices]
            if expectations.intercept:
                ones = scipy.sparse.csr_array(np.ones((len(rows), 1)))
                piece = scipy.sparse.hstack([piece, ones], format="csr")
        yield slice(lo, hi), piece


def array_type(dataset: Dataset) -> np.dtype[Any] | None:
    """Return the smallest type of arrays that hold the values exactly; None if they are kept sparse."""
    if dataset.nnz < _DENSE * dataset.n_samples * max(dataset.n_features, 1):
        return None
    weighted = dataset.weighting.l2 or dataset.weighting.scales_columns
    single = not weighted and np.can_cast(dataset.dtype, np.float32)
    return np.dtype(np.float32 if single else np.float64)


def _gather_shard(
    part: tuple[int, NDArray[np.int64]],
    dataset: Dataset,
    features: NDArray[np.int64],
    width: int,
    scratch_bytes: int,
    dtype: np.dtype[Any] | None,
) -> Matrix:
    """Return the raw values of some rows of a shard, in the features used.

    An array has `width` columns: those after the features are 1.
    """
    shard, rows = part
    entries = _entries(dataset, shard, rows, features, scratch_bytes)
    if dtype is None:
        at, columns, values = (np.concatenate(pieces) for pieces in zip(_space(0), *entries, strict=True))
        return scipy.sparse.csr_array((values, (at, columns)), shape=(len(rows), len(features)))
    whole = np.zeros((len(rows), width), dtype)
    whole[:, len(features) :] = 1.0
    for at, columns, values in entries:
        whole[at, columns] = values
    return whole


_Entries = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]
"""Rows, columns and values."""


def _entries(
    dataset: Dataset, number: int, rows: NDArray[np.int64], features: NDArray[np.int64], scratch_bytes: int
) -> Iterator[_Entries]:
    """Yield the entries of some rows of a shard, some columns after others."""
    shard = dataset.shards[number]
    place = np.full(shard.n_rows, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    for run in column_runs(shard, features, scratch_bytes, _GATHER_BYTES, dataset.weighting):
        n = select_entries(run.starts, run.stops, run.rows, run.data, place, *_space(0))
        at, columns, values = _space(n)
        select_entries(run.starts, run.stops, run.rows, run.data, place, at, columns, values)
        columns += run.first
        if dataset.weighting.binary:
            values[:] = 1.0
        yield at, columns, values


def _space(n: int) -> _Entries:
    return np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
