"""The unpenalised intercept: Newton steps over the scores alone, without reading the data."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.objectives import Objective
from bigmc.solvers.sparse.margins import Margins, PairMargins
from bigmc.solvers.sparse.steps.proximal_terms import Terms

_SUFFICIENT_DECREASE = 1e-4
_HALVINGS = 30
_RIDGE = 1e-10
#: Steps that gain less than this share of the objective, or than rounding of the scores may hide, are judged
#: by the gradient, and shorter ones are not tried. Half the time of a round with the log loss went into that.
_FLAT = 1e-12
#: Conjugate gradients end at this residual, relative to the gradient, or after so many products.
_FORCING, _PRODUCTS = 0.02, 30


class Shiftable(Protocol):
    """Samples whose scores move with an intercept; a `bigmc.solvers.sparse.problem.Problem` is that.

    Attributes
    ----------
    width : int
        Padded number of classes.
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

    def intercept_product(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half the Hessian of the sum of losses by an intercept times a direction, (n_classes,)."""
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
    noise: float = 4.0,
) -> Margins:
    """Minimise the loss over the intercept, at fixed weights, by at most `n_steps` Newton steps.

    The loss is piecewise quadratic in the intercept, so that a few steps reach the minimum to the last
    digits of the scores. Its Hessian is the weighted Laplacian of the classes' active margins; the
    direction in which all classes move together does not matter and gets a small ridge. Many classes have no
    matrix: conjugate gradients take products over the scores instead.

    Parameters
    ----------
    problem : Shiftable
        Its scores move along.
    intercept : float64 array of shape (n_classes,)
        Changed in place.
    terms : Terms, optional
        What the intercept has beside the loss, as one feature; by default nothing.
    margins : Margins, optional
        At the present scores, if known.
    noise : float, optional
        What may be left of the gradient, in units of the precision of the scores. The errors of many samples
        cancel, so that less than one unit makes sense.

    Returns
    -------
    Margins
        At the new scores.
    """
    margins = margins or problem.margins()
    n_classes = len(intercept)
    terms = (terms or Terms.ridge(0.0, 1, problem.width)).padded(1)
    tilt, ridge = terms.tilt[0, :n_classes], float(terms.ridges[0])

    def value(margins: Margins, intercept: NDArray[np.float64]) -> float:
        more = float(tilt @ intercept) + 0.5 * ridge * float(intercept @ intercept)
        return margins.total_loss / problem.weight_sum + more

    def gradient(margins: Margins, intercept: NDArray[np.float64]) -> NDArray[np.float64]:
        return problem.two_over_n * margins.intercept_gradient + tilt + ridge * intercept

    noise *= float(np.finfo(problem.dtype).eps)
    for _ in range(n_steps):
        before, derivatives = value(margins, intercept), gradient(margins, intercept)
        largest = np.abs(derivatives).max()
        if largest <= noise * problem.two_over_n * margins.total_residual:
            break
        step = _newton_direction(problem, margins, derivatives, ridge)
        along = float(derivatives @ step)
        part = 1.0
        problem.shift(step)
        flat = -along <= max(_FLAT, noise) * before
        for _ in range(1 if flat else _HALVINGS):
            after, there = problem.margins(), intercept + part * step
            if not flat:
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


def _newton_direction(
    problem: Shiftable, margins: Margins, derivatives: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """Return minus the inverse of the Hessian times the gradient."""
    if isinstance(margins, PairMargins):
        hessian = problem.two_over_n * margins.intercept_hessian()
        hessian += np.eye(len(derivatives)) * (ridge + _RIDGE * max(float(hessian.max()), 1e-300))
        step: NDArray[np.float64] = np.negative(np.linalg.solve(hessian, derivatives), dtype=np.float64)
        return step
    diagonal = problem.two_over_n * margins.intercept_curvatures
    ridge += _RIDGE * max(float(diagonal.max()), 1e-300)
    diagonal += ridge
    solution, residual = np.zeros_like(derivatives), -derivatives
    direction = residual / diagonal
    norm = float(residual @ direction)
    enough = _FORCING**2 * norm
    for _ in range(_PRODUCTS):
        product = problem.two_over_n * problem.intercept_product(direction) + ridge * direction
        curve = float(direction @ product)
        if not curve > 0.0:
            break
        solution += norm / curve * direction
        residual -= norm / curve * product
        before, norm = norm, float(residual @ (residual / diagonal))
        if norm <= enough:
            break
        direction = residual / diagonal + norm / before * direction
    return solution if solution.any() else direction
