"""The full gradient pass: how far every feature is from optimal, and the columns worth working on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import for_each
from bigmc.kernels.linear import arguments
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns, entries_of
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.store.block import Block
from bigmc.store.feature_titles import gradient_not_finite

#: Parts a block is cut into for the workers, whatever their number.
_PARTS = 16


@dataclass(frozen=True)
class GradientPass:
    """Gradients of a pass over all features.

    Attributes
    ----------
    largest_norm : float
        ``max_j ||G_j||`` in the dual norm of the penalty, of the gradients of the losses.
    distance : float
        With a ridge: ``sum_j dist(G_j, alpha * dual ball)²``.
    violation : float
        Largest violation of the optimality conditions.
    features : int64 array
        Features that violate them or have weights, increasing.
    violations : float64 array
        Violation of each of these.
    columns : list of Columns
        Their columns.
    nnz : int
        Entries worked on.
    """

    largest_norm: float
    distance: float
    violation: float
    features: NDArray[np.int64]
    violations: NDArray[np.float64]
    columns: list[Columns]
    nnz: int


def gradient_pass(
    problem: Problem,
    source: BlockSource,
    coef: Coefficients,
    factor: NDArray[np.float64],
    screening: Screening,
) -> GradientPass:
    """Compute the gradient of every feature that is left at the present scores.

    Parameters
    ----------
    coef : Coefficients
        The weights the scores belong to.
    factor : float64 array of shape (n_classes, n_classes), or of no rows
        Factors of the margins, see `bigmc.objectives.losses.Loss.balance`.
    screening : Screening
        Says which features are left; gets the norms of their gradients, and curvatures that it lacks.
    """
    largest_norm, distance, nnz = 0.0, 0.0, 0
    kept = [(np.empty(0, np.int64), np.empty(0))]
    columns: list[Columns] = []
    for part in _measured(problem, source, coef, factor, screening):
        features, violations = part.features, part.out.violations
        largest_norm = max(largest_norm, float(part.out.norms.max(initial=0.0)))
        screening.norms[features] = np.minimum(part.out.norms, np.finfo(np.float32).max)
        if screening.lacks_curvatures(features):
            curvatures = _curvatures(problem, part)
            screening.curvatures[features] = np.minimum(curvatures, np.finfo(np.float32).max)
        distance += float(part.out.distances.sum())
        nnz += int(source.dataset.column_nnz(features).sum())
        chosen = np.flatnonzero((part.slots >= 0) | (violations > 0))
        kept.append((features[chosen], violations[chosen]))
        if len(chosen):
            columns.append(Columns.of(part.number, part.block, part.positions[chosen]))
    violating, violations = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    violation = float(violations.max(initial=0.0))
    return GradientPass(largest_norm, distance, violation, violating, violations, columns, nnz)


@dataclass(frozen=True)
class DualGradients:
    """What of the gradients at a dual point decides its bound, and entries worked on; see `GradientPass`."""

    largest_norm: float
    distance: float
    nnz: int


def dual_gradients(
    problem: Problem,
    source: BlockSource,
    coef: Coefficients,
    factor: NDArray[np.float64],
    screening: Screening,
) -> DualGradients:
    """Compute the gradient of every feature that is left at a dual point; see `gradient_pass`."""
    largest_norm, distance, nnz = 0.0, 0.0, 0
    for part in _measured(problem, source, coef, factor, screening):
        largest_norm = max(largest_norm, float(part.out.norms.max(initial=0.0)))
        distance += float(part.out.distances.sum())
        nnz += int(source.dataset.column_nnz(part.features).sum())
    return DualGradients(largest_norm, distance, nnz)


class _Part(NamedTuple):
    """The columns of a block that are left, and their measures; see `arguments.Columns`."""

    number: int
    block: Block
    positions: NDArray[np.int64]
    features: NDArray[np.int64]
    slots: NDArray[np.int64]
    scale: NDArray[np.float64]
    out: arguments.Measures


def _measured(
    problem: Problem,
    source: BlockSource,
    coef: Coefficients,
    factor: NDArray[np.float64],
    screening: Screening,
) -> Iterator[_Part]:
    """Measure the gradients of the features that are left, block by block."""
    objective = problem.objective
    wide = np.zeros((len(factor), problem.width), problem.scores.dtype)
    wide[:, : problem.n_classes] = factor
    samples = problem.dual_samples(wide)
    level = arguments.Level(problem.n_classes, problem.two_over_n, float(problem.alpha), objective.ridge)

    def measure(some: NDArray[np.int64], part: _Part) -> None:
        columns = arguments.Columns(some, part.positions, part.scale, entries_of(part.block))
        support = arguments.Support(part.slots, coef.rows)
        objective.gradient_norms(columns, samples, level, wide, support, part.out)

    numbers = [n for n, (lo, hi) in enumerate(source.ranges) if not screening.zero[lo:hi].all()]
    for number, block in source.stream(numbers):
        positions = screening.remaining(block.lo, block.hi)
        features = positions + block.lo
        out = arguments.Measures(*np.empty((3, len(features))))
        scale = problem.scale_of(features)
        part = _Part(number, block, positions, features, coef.slots(features), scale, out)
        for_each(problem.engine, measure, _equal_parts(block, positions), part)
        if not np.isfinite(out.norms).all():
            feature = int(features[~np.isfinite(out.norms)][0])
            raise gradient_not_finite(source.dataset, feature)
        yield part


def _curvatures(problem: Problem, part: _Part) -> NDArray[np.float64]:
    """Return the largest curvature of the losses along each of the columns."""
    curvatures = np.empty(len(part.features))

    def measure(some: NDArray[np.int64]) -> None:
        columns = arguments.Columns(some, part.positions, part.scale, entries_of(part.block))
        level = problem.n_classes, problem.two_over_n
        problem.objective.largest_curvatures(columns, problem.samples, *level, curvatures)

    for_each(problem.engine, measure, _equal_parts(part.block, part.positions))
    return curvatures


def _equal_parts(block: Block, positions: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut some columns of a block into parts of about equal work."""
    if 2 * len(positions) < block.indptr.shape[1]:  # of hashed texts, few features occur at all
        entries = (block.indptr[:, positions + 1] - block.indptr[:, positions]).sum(axis=0)
    else:
        entries = (block.indptr[:, 1:] - block.indptr[:, :-1]).sum(axis=0)[positions]
    work = np.cumsum(entries + block.indptr.shape[0])
    cuts = np.searchsorted(work, np.linspace(0, work[-1], _PARTS + 1)[1:-1])
    return [part for part in np.split(np.arange(len(positions)), cuts) if len(part)]
