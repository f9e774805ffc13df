"""Figures of rounds over chunks and of passes over all data."""

from __future__ import annotations

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.sparse.chunks.conditions import Conditions
from bigmc.solvers.sparse.chunks.evaluation import distance
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.task import ChunkTask


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
    task: ChunkTask, state: ChunkState, measured: Conditions, n_passes: float
) -> dict[str, float]:
    """Return the figures of a pass, for the history.

    The violation is that of the weights for intercept and candidates, and that of the dual point for all
    other features, of which there is nothing else.
    """
    best = state.anchor
    assert best is not None
    violation = max(distance(task, best, state.layers).violation, measured.violation)
    certificate = Certificate.of(state.lower, best.objective)
    return state.figures(certificate, n_passes, violation, measured.largest_norm)
