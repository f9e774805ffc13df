"""The best weights on the way between two, whose objectives and gradients are known.

Along the way the loss and the ridge are taken for the cubic with their values and derivatives at both ends,
and the penalty for what it is. Nothing is read for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients, slabs_of_weights
from bigmc.solvers.sparse.feature_sets import union
from bigmc.solvers.sparse.state import Evaluated

#: Shares of the way that are tried: up to half as far again, in steps of 1/32.
_LAST, _FURTHEST = 32, 48
_SHARES = np.arange(_FURTHEST + 1) / _LAST


def best_share(task: ChunkTask, start: Evaluated, end: Evaluated, candidates: NDArray[np.int64]) -> float:
    """Return the share of the way from `start` to `end` after which the objective is least, 0 to 1.5.

    It is 0 where the objective at the end is not finite.

    Parameters
    ----------
    task : ChunkTask
    start, end : Evaluated
    candidates : int64 array of shape (n_candidates,)
        Features of their gradients, in any order.
    """
    if not np.isfinite(end.objective):
        return 0.0
    order = np.argsort(candidates)
    level = end.intercept - start.intercept
    penalty = np.zeros(len(_SHARES))
    first, last = np.vdot(level, start.intercept_gradient), np.vdot(level, end.intercept_gradient)
    for some in slabs_of_weights(len(order), task.width):
        features, at = candidates[order[some]], order[some]
        before, after = start.coef.take(features), end.coef.take(features)
        move = after - before
        first += np.vdot(move, start.gradient[at] + task.objective.ridge * before)
        last += np.vdot(move, end.gradient[at] + task.objective.ridge * after)
        penalty += [task.alpha * task.objective.penalty.value(before + share * move) for share in _SHARES]
    values = start.objective - penalty[0], end.objective - penalty[_LAST]
    return float(_SHARES[np.argmin(_cubic(values, (float(first), float(last))) + penalty)])


def between(start: Evaluated, end: Evaluated, share: float) -> tuple[Coefficients, NDArray[np.float64]]:
    """Return weights and intercept after a share of the way from `start` to `end`."""
    features = union(start.coef.features, end.coef.features)
    rows = (1.0 - share) * start.coef.take(features)
    for some in slabs_of_weights(*rows.shape):
        rows[some] += share * end.coef.take(features[some])
    return Coefficients(features, rows), (1.0 - share) * start.intercept + share * end.intercept


def _cubic(values: tuple[float, float], slopes: tuple[float, float]) -> NDArray[np.float64]:
    """Return the cubic with such values and derivatives at 0 and 1, at all shares."""
    t = _SHARES
    return (
        (1 + 2 * t) * (1 - t) ** 2 * values[0]
        + t * (1 - t) ** 2 * slopes[0]
        + t**2 * (3 - 2 * t) * values[1]
        + t**2 * (t - 1) * slopes[1]
    )
