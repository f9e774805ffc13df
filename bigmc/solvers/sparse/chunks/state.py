"""The state of rounds over chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.loop import Packed
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.state import Evaluated, State, pack_anchor, padded, unpack_anchor, weights_of


@dataclass(frozen=True)
class PastRound:
    """What a round over chunks came to, in single precision.

    Attributes
    ----------
    end : Coefficients
    moves : float32 array of shape (n_nonzero, width)
        Of the weights at the end that are not zero, from the start.
    intercept : float64 array of shape (n_classes,)
        At the end.
    """

    end: Coefficients
    moves: NDArray[np.float32]
    intercept: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        start: Coefficients,
        end: tuple[Coefficients, NDArray[np.float64]],
    ) -> PastRound:
        """Return a round, from its weights at the start, and weights and intercept at the end."""
        features, rows = end[0].features, end[0].rows
        moves = (rows - start.take(features)).astype(np.float32)
        ended = Coefficients(features, np.asarray(rows, np.float32))
        return cls(ended, moves, end[1])

    def moves_of(self, features: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the moves of increasing `features`."""
        return Coefficients(self.end.features, np.asarray(self.moves, np.float64)).take(features)


@dataclass
class ChunkState(State):
    """State of `bigmc.solvers.sparse.chunks.rounds`.

    Attributes
    ----------
    least_damping : float
        Minimum of the damping: rounds with less of it led to worse weights.
    own_damping : float32 array of shape (n_candidates,)
        Factor of the damping of each candidate in rounds over chunks; all are 1 if there are fewer.
    scale : float
        Scale that made the last dual point feasible.
    anchor : Evaluated or None
        The best weights so far.
    layers : list of int64 arrays
        Features in the scratch file, in the order they were written.
    doubted : int64 array
        Features whose gradients the last pass kept, since bounds of their norms are above the penalty.
    n_chunks : int
        Number of chunks in that file.
    most_held : int
        Maximum bytes of its columns that stay in memory instead.
    rounds : int
        One more than the rounds since the last pass over everything; 0 before such a pass.
    gain : float
        Share of the objective that the last of them gained.
    trial : bool
        The weights are those the last round came to, not evaluated; else those of the anchor are the best.
    round_bytes : int
        Bytes read by the last round.
    past : list of PastRound
        The last rounds over about the same candidates, none of which was given up.
    """

    least_damping: float = 0.0
    own_damping: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    scale: float = 1.0
    anchor: Evaluated | None = None
    layers: list[NDArray[np.int64]] = field(default_factory=list)
    doubted: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    n_chunks: int = 0
    most_held: int = 0
    rounds: int = 0
    gain: float = 0.0
    trial: bool = False
    round_bytes: int = 0
    past: list[PastRound] = field(default_factory=list)

    def pack(self) -> Packed:
        """Return what a checkpoint must hold."""
        common, anchor, n_classes = super().pack(), pack_anchor(self.anchor), len(self.intercept)
        meta = {
            "chunked": True,
            "n_chunks": self.n_chunks,
            "most_held": self.most_held,
            "rounds": self.rounds,
            "gain": min(self.gain, 1e300),
            "trial": self.trial,
            "round_bytes": self.round_bytes,
            "layer_sizes": [len(layer) for layer in self.layers],
            "n_past": len(self.past),
        }
        arrays: dict[str, NDArray[Any]] = {}
        for k, own in enumerate(self.past):
            arrays |= {
                f"past_{k}_features": own.end.features,
                f"past_{k}_coef": own.end.rows[:, :n_classes],
                f"past_{k}_moves": own.moves[:, :n_classes],
                f"past_{k}_intercept": own.intercept,
            }
        arrays["layers"] = np.concatenate([np.empty(0, np.int64), *self.layers])
        arrays |= {"doubted": self.doubted, "own_damping": self.own_damping}
        if self.norms is not None:
            arrays["norms"] = self.norms
        return Packed({**common.meta, **meta, **anchor.meta}, common.arrays | arrays | anchor.arrays)

    @classmethod
    def unpack(cls, saved: Packed, width: int) -> Self:
        """Return the state that `pack` described, its rows of weights padded to `width`."""
        (meta, arrays), state = saved, super().unpack(saved, width)
        for name in ("n_chunks", "most_held", "rounds", "gain", "trial", "round_bytes"):
            setattr(state, name, meta[name])
        cuts = np.cumsum(meta["layer_sizes"])
        state.layers = np.split(arrays["layers"], cuts[:-1]) if len(cuts) else []
        state.doubted, state.own_damping = arrays["doubted"], arrays["own_damping"]
        state.norms, state.anchor = arrays.get("norms"), unpack_anchor(saved, width)
        state.past = [
            PastRound(
                weights_of(arrays[f"past_{k}_features"], arrays[f"past_{k}_coef"], width),
                padded(arrays[f"past_{k}_moves"], width),
                arrays[f"past_{k}_intercept"],
            )
            for k in range(meta["n_past"])
        ]
        return state


def joined(state: ChunkState) -> NDArray[np.int64]:
    """Return the features of all layers, layer by layer."""
    return np.concatenate([np.empty(0, np.int64), *state.layers])
