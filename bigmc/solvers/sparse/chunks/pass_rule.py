"""When a pass over everything is worth more than another round over the chunks."""

from __future__ import annotations

from bigmc.solvers.sparse.chunks.evaluation import distance
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


def pass_is_due(task: ChunkTask, state: ChunkState, max_passes: float, n_waiting: int) -> bool:
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
    if n_passes <= _FOR_CANDIDATES or several or no_more or state.gain <= 0.0:
        return True
    wanted = _VIOLATION * max(tol, _GAP_FACTOR * state.history[-1]["gap"])
    left = distance(task, state.anchor, state.layers)
    return left.violation <= wanted * task.alpha or left.gap <= wanted * state.anchor.objective
