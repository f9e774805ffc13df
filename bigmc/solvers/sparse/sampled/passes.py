"""Full passes by shards: loss, gradient and curvature of all samples at given weights.

The scores of a shard are made, used and forgotten, so that a pass takes the memory of a few shards and of
the sums, whatever the number of samples. What an engine runs stands at module level and takes a dataset,
weights and numbers only: a worker anywhere opens the shards it is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.kernels.linear.arguments import GradientSums
from bigmc.objectives import Objective
from bigmc.solvers.sparse.bounds import Entropies
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, entries_of
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem
from bigmc.store.block import Residency, cut_ranges
from bigmc.store.dataset import Dataset
from bigmc.store.feature_titles import gradient_not_finite

#: Shards are added up in at most so many parts, whatever the number of workers.
_MOST_PARTS = 64


@dataclass(frozen=True)
class Job:
    """Arguments of a worker besides the dataset.

    Attributes
    ----------
    intercept : float64 array of shape (n_classes,)
    features : int64 array of shape (n_used,)
        Features whose gradient is wanted, increasing.
    dtype : numpy.dtype
        Of the scores.
    block_bytes, block_columns : int
        Most bytes and columns of a shard decoded at once.
    scales : tuple of float
        Of the dual point at which its entropies are wanted (log loss).
    """

    objective: Objective
    coef: Coefficients
    intercept: NDArray[np.float64]
    features: NDArray[np.int64]
    dtype: np.dtype[Any]
    block_bytes: int
    block_columns: int
    scales: tuple[float, ...] = ()


@dataclass(frozen=True)
class Part:
    """Shards ``first`` to ``last``, and the weights of their samples, if they have any."""

    first: int
    last: int
    weights: NDArray[np.float64] | None


@dataclass
class Sums:
    """Sums of a pass over a part of the shards.

    Attributes
    ----------
    margins : float64 array
        See `Margins.empty`.
    gradient : float64 array of shape (n_used, width)
    curvature : float64 array of shape (n_used,)
    entropies : float64 array of shape (n_scales,)
    n_bytes : int
        Decoded bytes read.
    """

    margins: NDArray[np.float64]
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]
    entropies: NDArray[np.float64]
    n_bytes: int = 0

    @classmethod
    def zeros(cls, n_classes: int, job: Job) -> Sums:
        """Return the sums of nothing."""
        n_used, width = len(job.features), job.coef.rows.shape[1]
        gradient, curvature = np.zeros((n_used, width)), np.zeros(n_used)
        return cls(Margins.empty(n_classes), gradient, curvature, np.zeros(len(job.scales)))

    def add(self, other: Sums) -> Sums:
        """Add the sums of another part to these, and return these."""
        self.margins += other.margins
        self.gradient += other.gradient
        self.curvature += other.curvature
        self.entropies += other.entropies
        self.n_bytes += other.n_bytes
        return self


@dataclass(frozen=True)
class FullPass:
    """Losses and derivatives of all samples, from one pass.

    Attributes
    ----------
    features : int64 array of shape (n_used,)
    gradient : float64 array of shape (n_used, width)
        Gradient of the losses, ``2 / n`` and the scale of the columns applied.
    curvature : float64 array of shape (n_used,)
        Diagonal of their Hessian, its mean over the classes.
    entropies : Entropies
        Of the dual variables that the losses' derivatives are.
    n_bytes : int
        Decoded bytes read.
    """

    margins: Margins
    features: NDArray[np.int64]
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]
    entropies: Entropies
    n_bytes: int


def full_pass(
    dataset: Dataset, job: Job, weights: NDArray[np.float64] | None, weight_sum: float, engine: Engine
) -> FullPass:
    """Add up losses and gradients of all samples.

    Parameters
    ----------
    weights : float64 array of shape (n_samples,) or None
        Of the samples.
    weight_sum : float
        n of the objective.
    engine : Engine
        Any number of workers gives the same bits.

    Raises
    ------
    DataError
        If a gradient is not finite.
    """
    total = engine.reduce(_add_up, Sums.add, _parts(dataset, weights), dataset, job)
    scale = np.ones(len(job.features))
    column_scale = dataset.column_scale()
    if column_scale is not None:
        scale = column_scale[job.features].astype(np.float64)
    scale *= 2.0 / weight_sum
    total.gradient *= scale[:, None]
    finite = np.isfinite(total.gradient).all(axis=1)
    if not finite.all():
        raise gradient_not_finite(dataset, int(job.features[~finite][0]))
    curvature = total.curvature * scale * (scale * weight_sum / 2.0)
    margins = Margins.of(job.objective.loss, total.margins)
    entropies = Entropies(job.scales, total.entropies)
    return FullPass(margins, job.features, total.gradient, curvature, entropies, total.n_bytes)


def _parts(dataset: Dataset, weights: NDArray[np.float64] | None) -> list[Part]:
    """Cut the shards into parts of about equal numbers of samples."""
    edges = np.searchsorted(dataset.base, np.linspace(0, dataset.n_samples, _MOST_PARTS + 1))
    edges = np.unique([0, *edges.tolist(), dataset.n_shards])
    parts = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = slice(int(dataset.base[first]), int(dataset.base[last]))
        parts.append(Part(first, last, None if weights is None else weights[rows]))
    return parts


def _add_up(part: Part, dataset: Dataset, job: Job) -> Sums:
    sums = Sums.zeros(dataset.n_classes, job)
    places = np.full(dataset.n_features, -1)
    places[job.features] = np.arange(len(job.features))
    for s in range(part.first, part.last):
        rows = slice(*(dataset.base[s : s + 2] - dataset.base[part.first]).tolist())
        weights = None if part.weights is None else part.weights[rows]
        if rows.start < rows.stop and (weights is None or weights.any()):
            _add_shard(dataset.part([s]), weights, job, places, sums)
    return sums


def _add_shard(
    shard: Dataset, weights: NDArray[np.float64] | None, job: Job, places: NDArray[np.int64], sums: Sums
) -> None:
    problem = Problem(shard, job.objective, 0.0, weights, job.dtype, ThreadEngine(1))
    ranges = cut_ranges(shard.plan(job.block_bytes), job.block_columns)
    residency = Residency.MEMORY if len(ranges) == 1 else Residency.DISK
    source = BlockSource(shard, ranges, residency)
    problem.rebuild_scores(job.coef, job.intercept, source.columns_of(job.coef.features))
    sums.margins += problem.margins().stacked
    sums.entropies += problem.entropies(job.scales)
    problem.fill_residuals()
    for _, block in source.stream(range(len(ranges))):
        added = GradientSums(sums.gradient, sums.curvature)
        job.objective.add_gradients(
            places[block.lo : block.hi], entries_of(block), problem.residual_samples, problem.n_classes, added
        )
    sums.n_bytes += source.bytes_read
