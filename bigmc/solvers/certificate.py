"""Bounds on the optimum, and the factors that make a dual point feasible for an intercept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

#: Cycles of the balancing, and the imbalance relative to the flow at which it counts as done.
_CYCLES = 2000
_DONE = 1e-14
_GOOD_ENOUGH = 1e-9


@dataclass(frozen=True)
class Certificate:
    """Proof of how good a solution is: ``lower <= optimum <= upper``.

    Attributes
    ----------
    lower : float
        Best dual value met so far.
    upper : float
        Objective of the solution.
    gap : float
        ``(upper - lower) / upper``, not below 0.
    """

    lower: float
    upper: float
    gap: float

    @classmethod
    def of(cls, lower: float, upper: float) -> Certificate:
        """Return the certificate of two bounds."""
        return cls(lower, upper, max(0.0, (upper - lower) / upper) if upper > 0 else 0.0)


def balance(flow: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Find factors that make what flows out of every class flow into it.

    With an intercept a dual point must satisfy ``sum_r b_cr = sum_r b_rc`` for its sums over the
    samples of class c, ``b_cr``. Multiplying them by ``t_c / t_r`` keeps them positive; the ``t`` are
    found by the cyclic balancing of Osborne, "On pre-conditioning of matrices", J. ACM 7 (1960), in
    the 1-norm. Flow between strongly connected components cannot come back and is dropped.

    Parameters
    ----------
    flow : float64 array of shape (n_classes, n_classes)
        Not negative; the diagonal is ignored.

    Returns
    -------
    float64 array of shape (n_classes, n_classes) or None
        Factor of each entry; None if the balancing did not converge.
    """
    flow = flow.copy()
    np.fill_diagonal(flow, 0.0)
    _, component = connected_components(flow > 0, directed=True, connection="strong")
    edge = (component[:, None] == component[None, :]) & (flow > 0)
    balanced = np.where(edge, flow, 0.0)
    total = balanced.sum()
    scale = np.ones(len(flow))
    for _ in range(_CYCLES):
        imbalance = np.abs(balanced.sum(axis=1) - balanced.sum(axis=0)).max(initial=0.0)
        if imbalance <= _DONE * total:
            break
        for c in range(len(flow)):
            out, into = balanced[c].sum(), balanced[:, c].sum()
            if out > 0 and into > 0:
                factor = np.sqrt(into / out)
                scale[c] *= factor
                balanced[c] *= factor
                balanced[:, c] /= factor
    else:
        if imbalance > _GOOD_ENOUGH * total:
            return None
    factors: NDArray[np.float64] = np.where(edge, scale[:, None] / scale[None, :], 0.0)
    return factors
