"""The state of a run with all samples in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bigmc.solvers.loop import Packed
from bigmc.solvers.sparse.screening import Screened
from bigmc.solvers.sparse.state import State


@dataclass
class MemoryState(State):
    """State of `bigmc.solvers.sparse.working_set.rounds`.

    Attributes
    ----------
    stage : int
        Number of larger penalties already solved on the way to the requested one.
    top : float
        Smallest weight of the penalty at which all weights are zero; 0 where it was not needed.
    screened : Screened or None
        Features proved to have no weights at the optimum; None before the first round.
    """

    stage: int = 0
    top: float = 0.0
    screened: Screened | None = None

    def pack(self) -> Packed:
        """Return what a checkpoint must hold."""
        packed = super().pack()
        if self.screened is not None:
            packed.arrays.update(screened=self.screened.bits, screened_norms=self.screened.norms)
        return packed

    @classmethod
    def unpack(cls, saved: Packed, width: int) -> Self:
        """Return the state that `pack` described, its rows of weights padded to `width`."""
        state, arrays = super().unpack(saved, width), saved.arrays
        if "screened" in arrays:
            state.screened = Screened(arrays["screened"], arrays["screened_norms"])
        return state
