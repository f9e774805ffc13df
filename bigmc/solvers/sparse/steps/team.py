"""Threads of an engine as a team that goes through columns together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigmc.engine import Engine
from bigmc.kernels.linear.team import MOST_PIECES, assist, close

#: Numbers of the scores to look at from which on a team is worth calling.
_WORTH_IT = 1 << 16


def lead_team(engine: Engine, work: Any, size: int, lead: Callable[[], None]) -> None:
    """Call a function that goes through columns, with the threads of the engine as assistants.

    Parameters
    ----------
    engine : Engine
        Of this process.
    work : NamedTuple
        See `bigmc.kernels.linear.team.together`.
    size : int
        Numbers of the scores that it looks at.
    lead : callable
        Calls a kernel with the work.
    """
    n_members = min(engine.n_threads, MOST_PIECES)
    if n_members == 1 or size < _WORTH_IT:
        lead()
        return

    def take_part(member: int) -> None:
        if member:
            assist(work)
            return
        try:
            lead()
        finally:
            close(work.crew.board)

    for _ in engine.map(take_part, range(n_members)):
        pass
