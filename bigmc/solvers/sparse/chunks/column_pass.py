"""Passes over the columns of the candidates instead of the shards, where no other features occur."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.balanced import Balanced
from bigmc.solvers.sparse.chunks.loss import Evaluation
from bigmc.solvers.sparse.chunks.pass_sums import PassRequest, PassSums
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.chunk import Chunk
from bigmc.solvers.sparse.scratch.spill import Piece, Spill
from bigmc.solvers.sparse.state import Evaluated


def column_sums(
    task: ChunkTask, spill: Spill, request: PassRequest, point: Evaluated, moved: Sequence[Balanced]
) -> PassSums:
    """Add up losses and gradients of all samples; one reading of the columns.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
        Its features are all that occur.
    request : PassRequest
        Its features are those of the spill, increasing.
    point : Evaluated
        Weights of the samples.
    moved : sequence of Balanced
        Other weights of some samples.
    """
    sums = PassSums.zeros(task.n_classes, task.dataset.n_features, request)
    entropies = _Entropies(request.scales, sums.entropies)
    layers = [layer.features for layer in spill.layers]
    order, n_kept = np.argsort(spill.features), sums.gradient.shape[1]
    taken = frozenset[Piece]().union(*(own.pieces for own in moved))
    parts = [(point.coef, point.intercept, frozenset(spill.pieces) - taken)]
    for coef, intercept, own in [*parts, *((m.coef, m.intercept, m.pieces) for m in moved)]:
        evaluation = Evaluation(task, layers, coef, intercept)
        for number in range(spill.n_chunks):
            pieces = [piece for piece in spill.pieces if piece.chunk == number and piece in own]
            if pieces and not (chunk := spill.read(pieces)).samples.weightless:
                evaluation.add(chunk, entropies)
                sums.n_rows += chunk.samples.n_samples
        sums.margins += evaluation.margins
        sums.gradient += evaluation.gradient[order, task.n_classes - n_kept : task.n_classes]
        sums.curvature += evaluation.curvature[order]
    return sums


class _Entropies:
    """Adds the entropies of the dual variables of samples at some scales, in place."""

    def __init__(self, scales: tuple[float, ...], sums: NDArray[np.float64]) -> None:
        self._scales, self._sums = scales, sums

    def add(self, chunk: Chunk, problem: Problem) -> None:
        """Add those of the samples of a chunk."""
        nothing = np.empty((0, problem.n_classes))
        for k, scale in enumerate(self._scales):
            self._sums[k] += problem.entropy(nothing, scale)
