"""A dual point that is feasible by what nearly all samples have, beside weights that are not optimal yet.

The lower bound of a pass goes by the gradient that is furthest out of the dual ball, and the intercept has no
ball at all. Both are mended by the dual variables of the samples of one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.solvers.sparse.chunk import Chunk
from bigmc.solvers.sparse.chunk_parts import (
    Part,
    centred_parts,
    gradients_of,
    padded,
    shift_of,
    whole_gradients,
)
from bigmc.solvers.sparse.chunk_task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.intercept import improve_intercept
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.proximal_terms import Terms
from bigmc.solvers.sparse.spill import Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.sweeps import Sweeper

#: Newton steps of the intercept that take out its slope, at most, and what of it may be left over: in units
#: of the scores' precision and of the margins, and of the margins alone.
_INTERCEPT_STEPS, _ROUNDING, _BALANCED = 20, 16.0, 1e-9
#: Sweeps over nearly constant features beside them.
_BALANCING_SWEEPS = 20


@dataclass(frozen=True)
class Balanced:
    """Weights for the samples of one chunk that make the dual point of all samples feasible by some features.

    Attributes
    ----------
    chunk : int
    coef : Coefficients
        Those of nearly constant features differ from the anchor's.
    intercept : float64 array of shape (n_classes,)
    left : float
        What rounding leaves of the slope by the intercept, times the intercept.
    """

    chunk: int
    coef: Coefficients
    intercept: NDArray[np.float64]
    left: float


def balanced(task: ChunkTask, spill: Spill, anchor: Evaluated) -> Balanced | None:
    """Return a dual point near that of the anchor that is feasible by intercept and nearly constant features.

    The dual variables of the samples of one chunk are those of other weights, the minimum of their loss with
    the slopes of all others as linear terms: few steps come as near to feasible by what all samples have. The
    slope by the intercept is zero. None if no chunk has enough positive margins for that.
    """
    for number, chunk in spill.chunks(range(spill.n_chunks)):
        problem = task.problem(chunk)
        rows = [anchor.coef.take(layer.features) for layer in spill.layers]
        centred = centred_parts(problem, chunk, rows)
        for parts in (centred, []) if centred else ([],):
            problem.rebuild_scores(anchor.coef, anchor.intercept, chunk.held)
            found = _balance(task, problem, chunk, anchor, parts)
            if found:
                return Balanced(number, *found)
    return None


def _balance(
    task: ChunkTask, problem: Problem, chunk: Chunk, anchor: Evaluated, centred: Sequence[Part]
) -> tuple[Coefficients, NDArray[np.float64], float] | None:
    """Return weights, intercept and what is left of the slope, if the chunk, at the anchor, has such."""
    own, share = problem.margins(), problem.weight_sum / task.weight_sum
    others = task.weight_sum / 2.0 * anchor.slope - own.intercept_slope
    of_level = Terms(padded(problem, problem.two_over_n * others), np.zeros(1))
    ridge = task.objective.ridge / share
    terms = [
        Terms(
            whole_gradients(part, chunk, anchor) / share - gradients_of(part.problem, part.columns)[0],
            np.full(len(part.rows), ridge),
        )
        for part in centred
    ]
    level = anchor.intercept + shift_of(centred, task.n_classes)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # where there is no minimum, steps go on for ever
            for sweep in range(_BALANCING_SWEEPS if centred else 0):
                improve_intercept(problem, level, 1, of_level)
                for part, more in zip(centred, terms, strict=True):
                    sweeper = Sweeper(part.problem, task.descent.line_search, task.seed, False, 0, 0)
                    moved = (part.columns, part.rows, np.zeros(len(part.rows)), part.active)
                    sweeper.sweep(*moved, sweep, task.alpha / share, 0.0, more)
            now = improve_intercept(problem, level, _INTERCEPT_STEPS, of_level)
    except DataError:
        return None
    left = others + now.intercept_slope
    noise = max(_ROUNDING * float(np.finfo(task.dtype).eps), _BALANCED)
    if not np.abs(left).max() <= noise * now.total_slope / share:
        return None
    coef = anchor.coef.updated([(part.columns.features, part.rows) for part in centred])
    level -= shift_of(centred, task.n_classes)
    return coef, level, float(left @ anchor.intercept) / (task.weight_sum / 2.0)
