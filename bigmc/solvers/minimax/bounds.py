"""Certificates: bounds of the worst-case error probability that need no linear program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.minimax.expectations import Expectations

#: An expectation is met when it is within its slack and this part of the size of its feature, what
#: double precision can tell; it decides only where λ is zero.
ROUNDING = 1e-9


def upper_bound(
    expectations: Expectations, lam: NDArray[np.float64], coef: NDArray[np.float64], phi: float
) -> float:
    """Return the objective (3) of any μ, an upper bound of the optimum.

    Parameters
    ----------
    lam, coef : float64 arrays of shape (n_psi, n_classes)
        λ and μ.
    phi : float
        φ(μ) over all samples.
    """
    return float(1.0 - np.vdot(expectations.tau, coef) + phi + np.vdot(lam, np.abs(coef)))


def lower_bound(
    expectations: Expectations,
    lam: NDArray[np.float64],
    dual: NDArray[np.float64],
    moments: NDArray[np.float64],
) -> float:
    """Return a lower bound of the optimum from any distribution over samples and classes.

    The distribution is mixed with the empirical one, which has the expectations τ and the value 0, until
    all expectations are within their slack: with the share θ the value is at least ``θ (1 − Σ_x max_y p)``.

    Parameters
    ----------
    lam : float64 array of shape (n_psi, n_classes)
    dual : float64 array of shape (n_rows, n_classes)
        p, not negative, of sum 1.
    moments : float64 array of shape (n_psi, n_classes)
        ``Σ_x p_xy ψ(x)``.
    """
    distance = np.abs(moments - expectations.tau)
    slack = lam + ROUNDING * expectations.rms[:, np.newaxis]
    ratio = np.divide(slack, distance, out=np.ones_like(slack), where=distance > slack)
    share = float(ratio.min())
    return share * (1.0 - float(dual.max(axis=1).sum()))


def violations(
    expectations: Expectations, lam: NDArray[np.float64], moments: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return by how much each expectation leaves its slack, ``|Fᵀα − τ| − λ`` (function FEAT)."""
    return np.abs(moments - expectations.tau) - lam
