"""Whether what a round came to is kept, and what is tried next if not."""

from __future__ import annotations

import numpy as np

from bigmc.solvers.sparse.chunks import damping
from bigmc.solvers.sparse.chunks.damping import RoundKind
from bigmc.solvers.sparse.chunks.interpolation import best_share, between
from bigmc.solvers.sparse.chunks.state import ChunkState, joined
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.state import Evaluated

#: An objective is larger only if by more than rounding, in units of the scores' precision.
_ROUNDING = 4.0


def accept(task: ChunkTask, state: ChunkState, kind: RoundKind, reached: Evaluated | None) -> bool:
    """Accept weights whose objective is no larger.

    The damping of all features changes with it where theirs alone do not tell: where steps follow single
    samples, or there is an intercept.
    """
    anchor, of_all = state.anchor, kind is RoundKind.STOCHASTIC or task.fit_intercept
    assert anchor is not None
    rounding = _ROUNDING * float(np.finfo(task.dtype).eps)
    if reached is None or not reached.objective <= anchor.objective * (1.0 + rounding):
        if of_all:
            damping.grow(state, kind)
        state.past = []
        return False
    gain = 1.0 - reached.objective / anchor.objective
    if of_all:
        damping.lower(state, kind, gain)
    state.gain, state.anchor = gain, reached
    return True


def accept_or_retreat(task: ChunkTask, state: ChunkState, reached: Evaluated) -> bool:
    """Accept the trial of sweeps, or let the next be the best weights on the way to it, if there are any."""
    anchor, gain, retreated = state.anchor, state.gain, not state.past
    assert anchor is not None
    damping.adapt(task, state, RoundKind.SWEEPS, reached, joined(state))
    if accept(task, state, RoundKind.SWEEPS, reached):
        state.gain = gain if retreated else state.gain  # a retreat does not tell what rounds gain
        return True
    share = best_share(task, anchor, reached, joined(state))
    state.trial = 0.0 < share < 1.0
    if state.trial:
        state.coef, state.intercept = between(anchor, reached, share)
    else:
        damping.grow(state, RoundKind.SWEEPS)
    return False
