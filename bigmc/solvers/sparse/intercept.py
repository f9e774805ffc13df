"""The unpenalised intercept: Newton steps over the scores alone, without reading the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.problem import Margins, Problem

_SUFFICIENT_DECREASE = 1e-4
_HALVINGS = 30
_RIDGE = 1e-10


def improve_intercept(
    problem: Problem, intercept: NDArray[np.float64], n_steps: int, margins: Margins | None = None
) -> Margins:
    """Minimise the loss over the intercept, at fixed weights, by at most `n_steps` Newton steps.

    The loss is piecewise quadratic in the intercept, so that a few steps reach the minimum to the last
    digits of the scores. Its Hessian is the weighted Laplacian of the classes' active margins; the
    direction in which all classes move together does not matter and gets a small ridge.

    Parameters
    ----------
    problem : Problem
        Its scores move along.
    intercept : float64 array of shape (n_classes,)
        Changed in place.
    n_steps : int
    margins : Margins, optional
        At the present scores, if known.

    Returns
    -------
    Margins
        At the new scores.
    """
    margins, loss = margins or problem.margins(), problem.objective.loss
    noise = 4.0 * float(np.finfo(problem.scores.dtype).eps)
    for _ in range(n_steps):
        gradient = problem.two_over_n * loss.intercept_slope(margins.sums)
        if np.abs(gradient).max() <= noise * problem.two_over_n * margins.sums.sum():
            break
        hessian = problem.two_over_n * loss.intercept_curvature(margins.active)
        hessian += np.eye(len(gradient)) * (_RIDGE * max(float(hessian.max()), 1e-300))
        step = np.negative(np.linalg.solve(hessian, gradient), dtype=np.float64)
        slope = float(gradient @ step)
        before = loss.value(margins.squares, problem.weight_sum)
        part = 1.0
        problem.shift(step)
        for _ in range(_HALVINGS):
            after = problem.margins()
            value = loss.value(after.squares, problem.weight_sum)
            if value <= before + _SUFFICIENT_DECREASE * part * slope:
                break
            part *= 0.5
            problem.shift(-part * step)
        else:  # nothing but rounding is left to gain
            problem.shift(-part * step)
            return problem.margins()
        intercept += part * step
        margins = after
    return margins
