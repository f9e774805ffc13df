"""When a pass over everything is worth more than another round over the chunks."""

from __future__ import annotations

from bigmc.solvers.sparse.chunks.corrected_loss import distance
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.state import State

#: Rounds end when the last gained less than this share of the objective: first, every next time by this
#: factor less, and at last in units of the tolerance.
_FIRST_GAIN, _GAIN_FACTOR, _TOLERATED = 5e-3, 0.1, 0.03
#: Rounds between passes at most; and the least factor of the required gains where rounds read little.
_MOST_ROUNDS, _CHEAPEST = 24, 0.1
#: Passes of which that is all; later ones are made when the violation, in units of alpha, or the gap of the
#: candidates is this part of the tolerance, or of this part of the gap.
_FOR_CANDIDATES, _VIOLATION, _GAP_FACTOR = 1, 0.5, 0.2


def pass_is_due(task: ChunkTask, state: State, max_passes: float) -> bool:
    """Return whether a pass over everything is worth more than another round.

    First it is for the candidates that are missing, later for the gap, which the violations make.
    """
    if state.rounds > _MOST_ROUNDS:
        return True
    tol, n_passes, nnz = task.tol, max(1, len(state.history)), max(task.dataset.nnz, 1)
    assert state.anchor is not None
    # where a round reads little beside a pass, and what comes after it, smaller gains are worth it
    pass_bytes = nnz * (2 + task.dataset.dtype.itemsize)
    cheap = max(_CHEAPEST, min(1.0, 2 * state.round_bytes / pass_bytes))
    if state.gain > cheap * max(_FIRST_GAIN * _GAIN_FACTOR ** (n_passes - 1), _TOLERATED * tol):
        return False
    # with several chunks the dual variables of one of them take out what is left of the violations
    several, no_more = state.n_chunks > 1, state.nnz_read / nnz >= max_passes
    if n_passes <= _FOR_CANDIDATES or several or no_more or state.gain <= 0.0:
        return True
    wanted = _VIOLATION * max(tol, _GAP_FACTOR * state.history[-1]["gap"])
    left = distance(task, state.anchor, state.layers)
    return left.violation <= wanted * task.alpha or left.gap <= wanted * state.anchor.objective
