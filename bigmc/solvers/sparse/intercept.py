"""The unpenalised intercept: Newton steps over the scores alone, without reading the data."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.objectives import Objective
from bigmc.solvers.sparse.problem import Margins
from bigmc.solvers.sparse.proximal_terms import Terms

_SUFFICIENT_DECREASE = 1e-4
_HALVINGS = 30
_RIDGE = 1e-10
#: Steps that gain less than this share of the objective are judged by the gradient: rounding hides the rest.
_FLAT = 1e-12


class Shiftable(Protocol):
    """Samples whose scores move with an intercept; a `bigmc.solvers.sparse.problem.Problem` is that.

    Attributes
    ----------
    objective : Objective
    width : int
        Padded number of classes.
    weight_sum : float
    """

    objective: Objective
    width: int
    weight_sum: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the scores."""
        ...

    @property
    def two_over_n(self) -> float:
        """Factor of the gradient, ``2 / n``."""
        ...

    def margins(self) -> Margins:
        """Add up the margins of all samples at the present scores."""
        ...

    def shift(self, step: NDArray[np.float64]) -> None:
        """Add the step of the intercept to all scores."""
        ...


def improve_intercept(
    problem: Shiftable,
    intercept: NDArray[np.float64],
    n_steps: int,
    terms: Terms | None = None,
    margins: Margins | None = None,
) -> Margins:
    """Minimise the loss over the intercept, at fixed weights, by at most `n_steps` Newton steps.

    The loss is piecewise quadratic in the intercept, so that a few steps reach the minimum to the last
    digits of the scores. Its Hessian is the weighted Laplacian of the classes' active margins; the
    direction in which all classes move together does not matter and gets a small ridge.

    Parameters
    ----------
    problem : Shiftable
        Its scores move along.
    intercept : float64 array of shape (n_classes,)
        Changed in place.
    n_steps : int
    terms : Terms, optional
        What the intercept has beside the loss, as one feature; by default nothing.
    margins : Margins, optional
        At the present scores, if known.

    Returns
    -------
    Margins
        At the new scores.
    """
    margins, loss = margins or problem.margins(), problem.objective.loss
    n_classes = len(intercept)
    terms = (terms or Terms.ridge(0.0, 1, problem.width)).padded(1)
    tilt, ridge = terms.tilt[0, :n_classes], float(terms.ridges[0])

    def value(margins: Margins, intercept: NDArray[np.float64]) -> float:
        more = float(tilt @ intercept) + 0.5 * ridge * float(intercept @ intercept)
        return loss.value(margins.squares, problem.weight_sum) + more

    def gradient(margins: Margins, intercept: NDArray[np.float64]) -> NDArray[np.float64]:
        return problem.two_over_n * loss.intercept_slope(margins.sums) + tilt + ridge * intercept

    noise = 4.0 * float(np.finfo(problem.dtype).eps)
    for _ in range(n_steps):
        before, slopes = value(margins, intercept), gradient(margins, intercept)
        largest = np.abs(slopes).max()
        if largest <= noise * problem.two_over_n * margins.sums.sum():
            break
        hessian = problem.two_over_n * loss.intercept_curvature(margins.active)
        hessian += np.eye(n_classes) * (ridge + _RIDGE * max(float(hessian.max()), 1e-300))
        step = np.negative(np.linalg.solve(hessian, slopes), dtype=np.float64)
        along = float(slopes @ step)
        part = 1.0
        problem.shift(step)
        for _ in range(_HALVINGS):
            after, there = problem.margins(), intercept + part * step
            if -along > _FLAT * before:
                good = value(after, there) <= before + _SUFFICIENT_DECREASE * part * along
            else:
                good = np.abs(gradient(after, there)).max() < largest
            if good:
                break
            part *= 0.5
            problem.shift(-part * step)
        else:  # nothing but rounding is left to gain
            problem.shift(-part * step)
            return problem.margins()
        intercept[:] = there
        margins = after
    return margins
