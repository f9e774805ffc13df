"""Certificates: bounds of the worst-case error probability that need no linear program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.minimax.expectations import Expectations

#: An expectation is satisfied if it is within its slack plus this part of the size of its feature, the
#: accuracy of double precision; it matters only if λ is zero.
ROUNDING = 1e-9


def upper_bound(
    expectations: Expectations, lam: NDArray[np.float64], coef: NDArray[np.float64], phi: float
) -> float:
    """Return the objective (3) of any μ, given φ(μ) over all samples: an upper bound of the optimum."""
    return float(1.0 - np.vdot(expectations.tau, coef) + phi + np.vdot(lam, np.abs(coef)))


def lower_bound(
    expectations: Expectations,
    lam: NDArray[np.float64],
    dual: NDArray[np.float64],
    moments: NDArray[np.float64],
) -> float:
    """Return a lower bound of the optimum from any distribution p over samples and classes.

    The distribution is mixed with the empirical one, which has the expectations τ and the value 0, until
    all expectations are within their slack: with the share θ the value is at least ``θ (1 − Σ_x max_y
    p)``. `dual` is p, of shape (n_rows, n_classes), and `moments` ``Σ_x p_xy ψ(x)``, of shape (n_psi,
    n_classes).
    """
    distance = np.abs(moments - expectations.tau)
    slack = lam + ROUNDING * expectations.rms[:, np.newaxis]
    ratio = np.divide(slack, distance, out=np.ones_like(slack), where=distance > slack)
    share = float(ratio.min())
    return share * (1.0 - float(dual.max(axis=1).sum()))


def violations(
    expectations: Expectations, lam: NDArray[np.float64], moments: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return by how much each expectation exceeds its slack, ``|Fᵀα − τ| − λ`` (function FEAT)."""
    return np.abs(moments - expectations.tau) - lam
