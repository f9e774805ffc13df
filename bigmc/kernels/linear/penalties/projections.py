# mypy: ignore-errors
"""How far a step goes that takes a gradient back to the ball of the penalty; see `composite.project`."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel
from bigmc.kernels.linear.penalties.formulas import prox

#: Longest step of a projection, in units of the one by the diagonal of the Hessian.
_LONGEST_PART = 20.0


@inner_kernel
def fill_excess(penalty, alpha, scale, of_column, excess):
    """Fill in what a gradient, ``scale * sums + pull``, has beyond the ball; returns its length.

    The proximal operator of a norm is what the projection on its dual ball leaves (Moreau).
    """
    sums, pull, ones = of_column
    for r in range(sums.shape[0]):
        sums[r] = scale * sums[r] + pull[r]
    prox(penalty, alpha, sums, ones, excess)
    total = 0.0
    for r in range(sums.shape[0]):
        total += excess[r] ** 2
    return np.sqrt(total)


@inner_kernel
def projection_part(factor, diagonal, excess):
    """Return the step in units of the excess, by the diagonal of the Hessian times a factor."""
    total = curve = 0.0
    for r in range(excess.shape[0]):
        total += excess[r] ** 2
        curve += factor * diagonal[r] * excess[r] ** 2
    return total / curve if curve > 0.0 else 0.0


@inner_kernel
def along(direction, sums):
    """Return the derivative along a direction."""
    total = 0.0
    for r in range(direction.shape[0]):
        total += direction[r] * sums[r]
    return total


@inner_kernel
def further_part(length, decrease):
    """Return how much further a step along the excess goes, in units of it, by what the derivative fell.

    The derivative along the excess was to fall by its squared length.
    """
    if not decrease > 0.0:
        return 0.0
    return min(length * length / decrease, _LONGEST_PART) - 1.0
