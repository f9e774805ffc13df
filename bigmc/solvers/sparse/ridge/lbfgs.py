"""L-BFGS on a dense ridge problem."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.ridge.dense_problem import DenseProblem, Point

REMEMBERED = 10
"""Steps that are kept in mind."""
_MOST_STEPS, _HALVINGS = 300, 20
"""Steps at most, and halvings of one."""
_SUFFICIENT_DECREASE = 1e-4
_NOTHING = 1e-7
"""Share of an objective that is not worth a step: rounding may be of that size."""

OtherWay = Callable[[Point, int], NDArray[np.float64] | None]
"""Function that returns weights, after a number of steps, where another method is better."""


def minimised(
    problem: DenseProblem, place: NDArray[np.float64], tol: float, other_way: OtherWay | None = None
) -> NDArray[np.float64]:
    """Return the weights where L-BFGS ends, from whitened ones.

    Parameters
    ----------
    tol : float
        It ends when the gap is at most this share of the objective.
    """
    point = problem.at(place)
    pairs: deque[tuple[NDArray[np.float64], NDArray[np.float64]]] = deque(maxlen=REMEMBERED)
    for step in range(_MOST_STEPS):
        if other_way is not None and (weights := other_way(point, step)) is not None:
            return weights
        new = _searched(problem, point, _direction(point.gradient, pairs))
        if new is None:
            break
        move, change = new.place - point.place, new.gradient - point.gradient
        if np.vdot(move, change) > 0:
            pairs.append((move, change))
        gained = point.objective - new.objective
        point = new
        is_near = point.gap <= tol * point.objective or gained <= _NOTHING * point.objective
        if is_near or problem.is_over:
            break
    return point.weights


def _direction(
    gradient: NDArray[np.float64], pairs: deque[tuple[NDArray[np.float64], NDArray[np.float64]]]
) -> NDArray[np.float64]:
    """Return the step of L-BFGS, from the last moves and the changes of the gradient along them."""
    step, parts = -gradient, []
    for move, change in reversed(pairs):
        parts.append(np.vdot(move, step) / np.vdot(move, change))
        step -= parts[-1] * change
    if pairs:
        move, change = pairs[-1]
        step *= np.vdot(move, change) / np.vdot(change, change)
    for (move, change), part in zip(pairs, reversed(parts), strict=True):
        step += (part - np.vdot(change, step) / np.vdot(move, change)) * move
    return step


def _searched(problem: DenseProblem, point: Point, step: NDArray[np.float64]) -> Point | None:
    """Halve a step until Armijo's condition holds; None if it does not within so many tries."""
    slope, part = float(np.vdot(point.gradient, step)), 1.0
    for _ in range(_HALVINGS):
        new = problem.at(point.place + part * step)
        if new.objective <= point.objective + _SUFFICIENT_DECREASE * part * slope:
            return new
        part /= 2.0
    return None
