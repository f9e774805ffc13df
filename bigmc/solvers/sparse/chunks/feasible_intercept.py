"""A dual point that is feasible by the intercept, where sweeps do not find one or have no memory.

It is that of the weights, but for the samples of one chunk, whose intercept is moved until the gradients of
all samples by the intercept add up to zero. Where one chunk cannot make up for all others, because its
residuals are bounded as with the log loss, every chunk takes its share. The weights stay, so that it takes no
more than a chunk's scores; what `bigmc.solvers.sparse.chunks.feasible_dual` does beside takes vectors of all
candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bigmc.errors import DataError
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.spill import Piece, Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: Newton steps at most; what may be left of the gradient, in units of the scores' precision and of the
#: residuals; and chunks that are tried.
_STEPS, _ROUNDING, _CHUNKS = 40, 16.0, 4


def feasible_by_intercept(task: ChunkTask, spill: Spill, anchor: Evaluated) -> list[MovedSamples]:
    """Return other intercepts for the samples of chunks, with which no gradient by the intercept is left.

    Nothing if there are none.

    Parameters
    ----------
    task : ChunkTask
        With an intercept.
    spill : Spill
    anchor : Evaluated
        Weights whose columns the spill has, and the gradient by the intercept of all samples.
    """
    for pieces, problem in _problems(task, spill, anchor, range(min(_CHUNKS, spill.n_chunks))):
        moved = _moved(task, anchor, pieces, problem, 1.0)
        if moved:
            return [moved]
    everything = []
    for pieces, problem in _problems(task, spill, anchor, range(spill.n_chunks)):
        moved = _moved(task, anchor, pieces, problem, problem.weight_sum / task.weight_sum)
        if moved is None:
            return []
        everything.append(moved)
    return everything


def _problems(
    task: ChunkTask, spill: Spill, anchor: Evaluated, numbers: Iterable[int]
) -> Iterator[tuple[frozenset[Piece], Problem]]:
    """Yield the samples of chunks, and their problem at the weights of the anchor."""
    for number in numbers:
        pieces = spill.pieces_of_chunk(number)
        chunk = spill.read(pieces)
        if chunk.samples.weightless:
            continue
        problem = task.problem(chunk)
        problem.rebuild_scores(anchor.coef, anchor.intercept, chunk.held)
        yield frozenset(pieces), problem


def _moved(
    task: ChunkTask, anchor: Evaluated, pieces: frozenset[Piece], problem: Problem, share: float
) -> MovedSamples | None:
    """Return an intercept for samples that makes up for a share of the gradient of all samples."""
    own, level = problem.margins(), anchor.intercept.copy()
    others = share * task.weight_sum / 2.0 * anchor.intercept_gradient - own.intercept_gradient
    terms = Terms(problem.padded(problem.two_over_n * others), np.zeros(1))
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # there may be no minimum
            now = improve_intercept(problem, level, _STEPS, terms, own)
    except DataError:
        return None
    left = others + now.intercept_gradient
    noise = _ROUNDING * float(np.finfo(task.dtype).eps) * share * task.weight_sum / problem.weight_sum
    if not np.abs(left).max() <= noise * now.total_residual:
        return None
    product = float(left @ anchor.intercept) / (task.weight_sum / 2.0)
    none = Coefficients.zeros(task.width)
    return MovedSamples(pieces, anchor.coef, none.features, none.rows, level, product)
