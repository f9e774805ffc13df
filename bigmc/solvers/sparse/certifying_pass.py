"""Passes over all entries of all shards, in the memory of one: objective, gradients, and bounds of them.

Gradients are kept for chosen features only. Of every other feature the norms of its gradients over single
shards are added up, which is at least the norm of their sum: mostly enough to show that it needs no weights,
in one number a feature instead of one for every class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.kernels.linear.arguments import Entries, GradientSums
from bigmc.objectives import Curvature, Objective
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.row_scales import RowNorms
from bigmc.store.dataset import Dataset
from bigmc.store.shard import Shard

#: Shards are added up in at most so many parts, whatever the number of workers.
_MOST_PARTS = 16
#: Features whose offsets are looked at together.
_FEATURES = 1 << 16
#: Sums of single precision are taken for larger by this for every shard.
_ROUNDING = 2.0 * float(np.finfo(np.float32).eps)

#: Makes the problem of a shard, its scores set, or None where its samples have no weight; returns with it the
#: bytes that took to read.
ShardProblem = Callable[[int], tuple[Problem | None, int]]


@dataclass(frozen=True)
class PassRequest:
    """What a pass is to find.

    Attributes
    ----------
    objective : Objective
    features : int64 array of shape (n_chosen,)
        Features whose gradients are wanted, increasing.
    weight_sum : float
        n of the objective.
    width : int
        Padded number of classes.
    scales : tuple of float
        Increasing scales of the dual point at which its entropy is wanted (log loss).
    block_bytes, block_columns : int
        Most bytes and columns decoded at once.
    """

    objective: Objective
    features: NDArray[np.int64]
    weight_sum: float
    width: int
    scales: tuple[float, ...]
    block_bytes: int
    block_columns: int


@dataclass
class PassSums:
    """What shards add to a pass.

    Attributes
    ----------
    margins : float64 array
        See `Margins.empty`.
    entropies : float64 array of shape (n_scales,)
    gradient : float64 array of shape (n_chosen, width)
        Of the mean loss.
    curvature : float64 array of shape (n_chosen,)
        Largest of the diagonal of its Hessian, over the classes, added up over blocks.
    norms : float32 array of shape (n_features,)
        Bounds of the dual norms of the gradients of all features.
    n_bytes : int
        Decoded bytes of shards, and bytes of scratch files.
    """

    margins: NDArray[np.float64]
    entropies: NDArray[np.float64]
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]
    norms: NDArray[np.float32]
    n_bytes: int = 0

    @classmethod
    def zeros(cls, n_classes: int, n_features: int, request: PassRequest) -> PassSums:
        """Return the sums of nothing."""
        chosen = len(request.features)
        return cls(
            Margins.empty(n_classes),
            np.zeros(len(request.scales)),
            np.zeros((chosen, request.width)),
            np.zeros(chosen),
            np.zeros(n_features, np.float32),
        )

    def add(self, other: PassSums) -> None:
        """Add the sums of other shards."""
        self.margins += other.margins
        self.entropies += other.entropies
        self.gradient += other.gradient
        self.curvature += other.curvature
        self.norms += other.norms
        self.n_bytes += other.n_bytes


def certifying_pass(
    dataset: Dataset,
    request: PassRequest,
    problem_of: ShardProblem,
    engine: Engine,
    row_norms: RowNorms | None = None,
) -> PassSums:
    """Add up losses and gradients of all samples.

    Parameters
    ----------
    dataset : Dataset
    request : PassRequest
    problem_of : callable
    engine : Engine
        Threads of this process; any number gives the same bits.
    row_norms : RowNorms, optional
        Gets the entries of all rows on the way.

    Raises
    ------
    DataError
        If a gradient is not finite.
    """
    parts = np.array_split(np.arange(dataset.n_shards), min(_MOST_PARTS, dataset.n_shards))
    total = PassSums.zeros(dataset.n_classes, dataset.n_features, request)
    for _, found in engine.map(_add_up, parts, dataset, request, problem_of, row_norms):
        total.add(found)
    total.norms *= np.float32(1.0 + _ROUNDING * dataset.n_shards)
    bad = ~np.isfinite(total.norms)
    bad[request.features] |= ~np.isfinite(total.gradient).all(axis=1)
    if bad.any():
        raise DataError(
            f"the gradient of feature {np.flatnonzero(bad)[0]} is not finite",
            "look for huge or non-finite values in it",
        )
    return total


def _add_up(
    part: NDArray[np.int64],
    dataset: Dataset,
    request: PassRequest,
    problem_of: ShardProblem,
    row_norms: RowNorms | None,
) -> PassSums:
    sums = PassSums.zeros(dataset.n_classes, dataset.n_features, request)
    for s in part.tolist():
        problem, n_bytes = problem_of(s)
        sums.n_bytes += n_bytes
        if problem is None:
            continue
        sums.margins += problem.margins().stacked
        nothing = np.empty((0, problem.n_classes))
        for k, scale in enumerate(request.scales):
            sums.entropies[k] += problem.entropy(nothing, scale)
        _add_gradients(dataset, s, problem, request, sums, row_norms)
    return sums


def _add_gradients(
    dataset: Dataset,
    s: int,
    problem: Problem,
    request: PassRequest,
    sums: PassSums,
    row_norms: RowNorms | None,
) -> None:
    """Add the gradients of one shard, block by block."""
    objective, factor = request.objective, 2.0 / request.weight_sum
    base = np.array([0, problem.n_samples])
    squares = np.zeros(problem.n_samples)
    for lo, hi, indptr, indices, data in _blocks(dataset, dataset.shards[s], request):
        if row_norms is not None:
            row_norms.add(squares, lo, indptr, indices, data)
        used = np.flatnonzero(np.diff(indptr))
        places = np.full(hi - lo, -1)
        places[used] = np.arange(len(used))
        gradient, curvature = np.zeros((len(used), request.width)), np.zeros(len(used))
        entries, added = Entries(indptr[None], indices, data, base), GradientSums(gradient, curvature)
        objective.add_gradients(places, entries, problem.samples, problem.n_classes, added, Curvature.LARGEST)
        scale = problem.scale_of(used + lo)
        norms = np.zeros(len(used))
        objective.add_dual_norms(gradient, factor * scale, problem.n_classes, norms)
        sums.norms[used + lo] += norms.astype(np.float32)
        first, last = np.searchsorted(request.features, [lo, hi])
        at = places[request.features[first:last] - lo]
        to, at = first + np.flatnonzero(at >= 0), at[at >= 0]
        sums.gradient[to] += gradient[at] * (factor * scale[at])[:, None]
        sums.curvature[to] += curvature[at] * (factor * scale[at] ** 2)
        sums.n_bytes += len(indices) * (2 + dataset.dtype.itemsize)
    if row_norms is not None:
        row_norms.finish(s, squares)


def _blocks(
    dataset: Dataset, shard: Shard, request: PassRequest
) -> Iterator[tuple[int, int, NDArray[np.int64], NDArray[np.uint16], NDArray[Any]]]:
    """Decode the columns of a shard, as many at a time as the request allows."""
    entries = max(request.block_bytes // (2 + dataset.dtype.itemsize), shard.n_rows)
    rows, values = np.empty(entries, np.uint16), np.ones(entries, dataset.dtype)
    step = min(_FEATURES, max(1, request.block_columns))
    lo = 0
    while lo < shard.n_features:
        offsets = shard.indptr(lo, min(lo + step, shard.n_features))
        width = max(1, int(np.searchsorted(offsets, offsets[0] + entries, side="right")) - 1)
        start, stop = int(offsets[0]), int(offsets[width])
        if stop > start:
            shard.read(start, stop, rows, None if dataset.weighting.binary else values)
            n = stop - start
            yield lo, lo + width, offsets[: width + 1] - start, rows[:n], values[:n]
        lo += width
