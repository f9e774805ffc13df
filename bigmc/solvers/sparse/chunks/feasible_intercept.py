"""A dual point that is feasible by the intercept, where sweeps have no memory for the candidates.

It is that of the weights, but for the samples of one chunk, whose intercept is moved until the gradients of
all samples by the intercept add up to zero. The weights stay, so that it takes no more than the chunk's
scores; what `bigmc.solvers.sparse.chunks.feasible_dual` does beside takes vectors of all candidates.
"""

from __future__ import annotations

import numpy as np

from bigmc.errors import DataError
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.chunk_parts import padded
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: Newton steps at most; what may be left of the gradient, in units of the scores' precision and of the
#: residuals; and chunks that are tried.
_STEPS, _ROUNDING, _CHUNKS = 40, 16.0, 4


def feasible_by_intercept(task: ChunkTask, spill: Spill, anchor: Evaluated) -> list[MovedSamples]:
    """Return another intercept for the samples of a chunk, with which no gradient by the intercept is left.

    Nothing if none of some chunks can make up for all other samples.

    Parameters
    ----------
    task : ChunkTask
        With an intercept.
    spill : Spill
    anchor : Evaluated
        Weights whose columns the spill has, and the gradient by the intercept of all samples.
    """
    for number in range(min(_CHUNKS, spill.n_chunks)):
        pieces = [piece for piece in spill.pieces if piece.chunk == number]
        chunk = spill.read(pieces)
        if chunk.samples.weightless:
            continue
        problem = task.problem(chunk)
        problem.rebuild_scores(anchor.coef, anchor.intercept, chunk.held)
        own, level = problem.margins(), anchor.intercept.copy()
        others = task.weight_sum / 2.0 * anchor.intercept_gradient - own.intercept_gradient
        terms = Terms(padded(problem, problem.two_over_n * others), np.zeros(1))
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # there may be no minimum
                now = improve_intercept(problem, level, _STEPS, terms, own)
        except DataError:
            continue
        left = others + now.intercept_gradient
        noise = _ROUNDING * float(np.finfo(task.dtype).eps) * task.weight_sum / problem.weight_sum
        if np.abs(left).max() <= noise * now.total_residual:
            product = float(left @ anchor.intercept) / (task.weight_sum / 2.0)
            return [MovedSamples(frozenset(pieces), anchor.coef, level, product)]
    return []
