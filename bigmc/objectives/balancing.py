"""Factors that make a dual point feasible for an intercept, which is not penalised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Cycles of the balancing, and the imbalance relative to the flow at which it counts as done.
_CYCLES = 2000
_DONE = 1e-14
_GOOD_ENOUGH = 1e-9


def balance_classes(flow: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return factors that make the flow out of every class equal to the flow into it; None if not converged.

    With an intercept a dual point must satisfy ``sum_r b_cr = sum_r b_rc`` for its sums over the samples
    of class c, ``b_cr``. Multiplying them by ``t_c / t_r`` keeps them positive; the ``t`` are those of
    the cyclic balancing of Osborne, "On pre-conditioning of matrices", J. ACM 7 (1960), in the 1-norm.
    Flow between strongly connected components cannot come back and is dropped. The flow, of shape
    (n_classes, n_classes), is not negative; its diagonal is ignored.
    """
    flow = flow.copy()
    np.fill_diagonal(flow, 0.0)
    component = _strong_components(flow > 0)
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


def _strong_components(edges: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the smallest node of the strongly connected component of every node.

    As ``scipy.sparse.csgraph`` does, whose import takes 9 MB and all of scipy's linear algebra.
    """
    component = np.full(len(edges), -1, np.int64)
    for node in range(len(edges)):
        if component[node] < 0:
            component[_reached(edges, node) & _reached(edges.T, node)] = node
    return component


def _reached(edges: NDArray[np.bool_], node: int) -> NDArray[np.bool_]:
    """Return which nodes can be reached from a node."""
    reached, newest = np.zeros(len(edges), bool), np.zeros(len(edges), bool)
    newest[node] = True
    while newest.any():
        reached |= newest
        newest = edges[newest].any(axis=0) & ~reached
    return reached


def balance_tasks(residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return factors that make the sums of the dual variables of every class and of its rest equal.

    The larger of the two sums is scaled down. `residuals`, of shape (n_classes, n_classes), has the sums
    of the dual variables of the task of each class (column) over the samples of each (row).
    """
    own = np.diag(residuals)
    rest = residuals.sum(axis=0) - own
    common = np.minimum(own, rest)
    shares = [np.divide(common, part, out=np.zeros(len(own)), where=part > 0) for part in (own, rest)]
    factors = np.tile(shares[1], (len(own), 1))
    np.fill_diagonal(factors, shares[0])
    return factors
