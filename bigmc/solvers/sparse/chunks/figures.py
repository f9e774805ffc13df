"""Figures of rounds over chunks and of passes over all data."""

from __future__ import annotations

import numpy as np

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.sparse.chunks.conditions import Conditions
from bigmc.solvers.sparse.chunks.state import ChunkState


def figures_of_round(state: ChunkState, n_passes: float) -> dict[str, float]:
    """Return the figures of the best weights so far, with those of the last pass."""
    best = state.anchor
    assert best is not None
    return (state.history or [{}])[-1] | {
        "n_iter": float(state.n_iter),
        "objective": best.objective,
        "n_passes": n_passes,
        "n_nonzero": float(len(best.coef.features)),
        "gap": Certificate.of(state.lower, best.objective).gap,
    }


def figures_of_pass(
    state: ChunkState, measured: Conditions, n_passes: float, fit_intercept: bool
) -> dict[str, float]:
    """Return the figures of a pass, for the history."""
    best, violation = state.anchor, measured.violation
    assert best is not None
    if fit_intercept:
        violation = max(violation, float(np.linalg.norm(best.intercept_gradient)))
    certificate = Certificate.of(state.lower, best.objective)
    return state.figures(certificate, n_passes, violation, measured.largest_norm)
