"""The full gradient pass: how far every feature is from optimal, and the columns worth working on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.store.block import Block

#: Parts a block is cut into for the workers, whatever their number.
_PARTS = 16


@dataclass(frozen=True)
class GradientPass:
    """What a pass over all features found.

    Attributes
    ----------
    largest_norm : float
        ``max_j ||G_j||`` in the dual norm of the penalty, of the gradients of the losses.
    distance : float
        With a ridge: ``sum_j dist(G_j, alpha * dual ball)²``.
    violation : float
        Largest violation of the optimality conditions.
    norms : float32 array of shape (n_features,)
        ``||G_j||`` of every feature.
    features : int64 array
        Features that violate them or have weights, increasing.
    violations : float64 array
        Violation of each of these.
    columns : list of Columns or None
        Their columns, in memory; None if they do not fit.
    nnz : int
        Entries read.
    """

    largest_norm: float
    distance: float
    violation: float
    norms: NDArray[np.float32]
    features: NDArray[np.int64]
    violations: NDArray[np.float64]
    columns: list[Columns] | None
    nnz: int


def gradient_pass(
    problem: Problem, source: BlockSource, coef: Coefficients, factor: NDArray[np.float64], room: int
) -> GradientPass:
    """Compute the gradient of every feature at the present scores.

    Parameters
    ----------
    problem : Problem
    source : BlockSource
    coef : Coefficients
        The weights the scores belong to.
    factor : float64 array of shape (n_classes, n_classes), or of no rows
        Factors of the margins, see `bigmc.solvers.certificate.balance`.
    room : int
        Bytes the gathered columns may take, unless the source keeps its blocks anyway.
    """
    kernel = problem.objective.gradient_norms
    wide = np.zeros((len(factor), problem.width), problem.scores.dtype)
    wide[:, : problem.n_classes] = factor

    def work(part: tuple[int, int], block: Block, *arrays: NDArray[np.float64]) -> None:
        scale, slots, norms, violations, distances = arrays
        kernel(
            *part, block.indptr, block.indices, block.data, block.base, problem.scores, problem.labels,
            problem.gain, scale, problem.n_classes, problem.two_over_n, problem.alpha,
            problem.objective.ridge, wide, slots, coef.rows, norms, violations, distances,
        )  # fmt: skip

    largest_norm, distance, nnz = 0.0, 0.0, 0
    all_norms = np.zeros(source.dataset.n_features, np.float32)
    kept: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    columns: list[Columns] | None = []
    for number, block in source.stream(range(len(source.ranges))):
        features = np.arange(block.lo, block.hi)
        slots = coef.slots(features)
        norms, violations, distances = np.empty((3, len(features)))
        arrays = (problem.scale_of(features), slots, norms, violations, distances)
        for _ in problem.engine.map(work, _equal_parts(block), block, *arrays):
            pass
        if not np.isfinite(norms).all():
            feature = int(features[~np.isfinite(norms)][0])
            raise DataError(
                f"the gradient of feature {feature} is not finite", "look for huge or non-finite values in it"
            )
        largest_norm = max(largest_norm, float(norms.max(initial=0.0)))
        all_norms[block.lo : block.hi] = norms
        distance += float(distances.sum())
        nnz += block.nnz
        chosen = np.flatnonzero((slots >= 0) | (violations > 0))
        kept.append((features[chosen], violations[chosen]))
        if columns is None or not len(chosen):
            continue
        picked = Columns.of(number, block, chosen)
        if not source.keeps:
            room -= memory_of(picked, problem.width)
            if room < 0:
                columns = None
                continue
            picked = picked.gathered()
        columns.append(picked)
    found, violations = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    violation = float(violations.max(initial=0.0))
    return GradientPass(largest_norm, distance, violation, all_norms, found, violations, columns, nnz)


def memory_of(columns: Columns, width: int) -> int:
    """Return the bytes that chosen columns take when gathered, with their weights and violations."""
    entry = int(columns.indices.itemsize + columns.data.itemsize)
    n_shards = columns.indptr.shape[0]
    n_bytes: int = (
        columns.nnz * entry + len(columns.features) * (8 * n_shards + 8 * width + 48) + 8 * n_shards
    )
    return n_bytes


def _equal_parts(block: Block) -> list[tuple[int, int]]:
    """Cut the columns of a block into parts of about equal work."""
    n_columns = block.hi - block.lo
    work = np.cumsum((block.indptr[:, 1:] - block.indptr[:, :-1]).sum(axis=0) + block.indptr.shape[0])
    cuts = np.searchsorted(work, np.linspace(0, work[-1], _PARTS + 1)[1:-1])
    edges = np.unique([0, *cuts.tolist(), n_columns])
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
