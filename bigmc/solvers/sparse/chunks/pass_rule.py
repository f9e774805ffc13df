"""When a pass over everything is worth more than another round over the chunks."""

from __future__ import annotations

import numpy as np

from bigmc.solvers.sparse.chunks.damping import RoundKind
from bigmc.solvers.sparse.chunks.evaluation import distance, relative_norms
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.task import ChunkTask

#: Rounds end when the last gained less than this share of the objective: first, every next time by this
#: factor less, and at last in units of the tolerance.
_FIRST_GAIN, _GAIN_FACTOR, _TOLERATED = 5e-3, 0.1, 0.03
#: Rounds between passes at most; and the least factor of the required gains where rounds read little.
_MOST_ROUNDS, _CHEAPEST = 24, 0.1
#: Passes of which that is all; later ones are made when the violation, in units of alpha, or the gap of the
#: candidates is this part of the tolerance, or of this part of the gap.
_FOR_CANDIDATES, _VIOLATION, _GAP_FACTOR = 1, 0.5, 0.2
#: Rounds of stochastic steps up to which features of fewer entries in a chunk may not violate by more.
_FOR_RARE, _FEW_ENTRIES, _RARE_VIOLATION = 5, 50, 0.1


def pass_is_due(
    task: ChunkTask, state: ChunkState, kind: RoundKind, max_passes: float, n_waiting: int
) -> bool:
    """Return whether a pass over everything is worth more than another round.

    First it is for the candidates that are missing, later for the gap, which the violations make: chunks can
    make up for those of features of which they have enough entries. Where `n_waiting` features wait for it to
    become candidates, it comes as early as the one before.
    """
    if state.rounds > _MOST_ROUNDS:
        return True
    tol, n_passes, nnz = task.tol, max(1, len(state.history)), max(task.dataset.nnz, 1)
    assert state.anchor is not None
    # where a round reads little beside a pass, and what comes after it, smaller gains are worth it
    cheap = max(_CHEAPEST, min(1.0, 2 * state.round_bytes / max(task.dataset.decoded_bytes, 1)))
    n_before = len(state.history) - (n_waiting > 0)
    if state.gain > cheap * max(_FIRST_GAIN * _GAIN_FACTOR**n_before, _TOLERATED * tol):
        return False
    # with several chunks the dual variables of one of them take out what is left of the violations
    several, no_more = state.n_chunks > 1, state.nnz_read / nnz >= max_passes
    for_rare = kind is RoundKind.STOCHASTIC and state.history and state.rounds <= _FOR_RARE and not no_more
    if for_rare and _largest_of_rare(task, state) > 1.0 + _RARE_VIOLATION:
        return False
    if n_passes <= _FOR_CANDIDATES or several or no_more or state.gain <= 0.0:
        return True
    wanted = _VIOLATION * max(tol, _GAP_FACTOR * state.history[-1]["gap"])
    left = distance(task, state.anchor, state.layers)
    return left.violation <= wanted * task.alpha or left.gap <= wanted * state.anchor.objective


def _largest_of_rare(task: ChunkTask, state: ChunkState) -> float:
    """Return the largest dual norm of the gradient of a rare candidate, in units of alpha."""
    assert state.anchor is not None
    counts = task.dataset.column_nnz(np.concatenate(state.layers))
    norms = relative_norms(task, state.anchor, state.layers)
    return float(norms[counts < _FEW_ENTRIES * state.n_chunks].max(initial=0.0))
