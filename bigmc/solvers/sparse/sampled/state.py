"""The state of passes over all samples with descent on a part of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from bigmc.solvers.loop import Packed
from bigmc.solvers.sparse.state import Evaluated, State, pack_anchor, unpack_anchor


@dataclass
class SampledState(State):
    """State of `bigmc.solvers.sparse.sampled.subsampled_newton`.

    Attributes
    ----------
    sample_rows : int
        Rows that its sample was cut to; 0 if it has all that fit into memory.
    scale : float
        Scale that made the last dual point feasible.
    anchor : Evaluated or None
        The best weights so far.
    """

    corrected: ClassVar[bool] = True  # tells its checkpoints from others
    sample_rows: int = 0
    scale: float = 1.0
    anchor: Evaluated | None = None

    def pack(self) -> Packed:
        """Return what a checkpoint must hold."""
        common, anchor = super().pack(), pack_anchor(self.anchor)
        return Packed({**common.meta, **anchor.meta}, common.arrays | anchor.arrays)

    @classmethod
    def unpack(cls, saved: Packed, width: int) -> Self:
        """Return the state that `pack` described, its rows of weights padded to `width`."""
        state = super().unpack(saved, width)
        state.anchor = unpack_anchor(saved, width)
        return state
