"""The saved state of a run of the minimax learner, from which it resumes as if it had not stopped."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.loop import Packed
from bigmc.solvers.minimax.linear_program import Basis
from bigmc.solvers.minimax.pdhg import Iterate
from bigmc.solvers.minimax.restricted import WorkingSets

_LISTS = ("samples", "masks", "components")


@dataclass
class State:
    """State between two iterations. Feature vectors are not part of it: they are read again.

    `features` are those of ψ in the working set of the first-order steps, increasing. `sets` are those of the
    linear program, empty until it is used. `coef`, of shape (n_psi, n_classes), is the best μ so far, with
    the bound `upper`; `lower` is the best lower bound. `n_scans` counts passes over the samples.

    `linear` says whether the linear program is used; `spent` and `allowance` are the expected seconds of the
    linear programs since then, and their maximum. `outgrown`: the working set cannot hold the violated
    constraints. `setbacks` counts switches back to the first-order steps. `exact`: the last linear program
    left nothing to add, and the bounds differ by rounding.
    """

    samples: NDArray[np.int64]
    features: NDArray[np.int64]
    iterate: Iterate
    sets: WorkingSets
    coef: NDArray[np.float64]
    eps1: float
    eps2: float
    upper: float = np.inf
    lower: float = 0.0
    n_iter: int = 0
    n_scans: int = 0
    linear: bool = False
    spent: float = 0.0
    allowance: float = 0.0
    setbacks: int = 0
    outgrown: bool = False
    exact: bool = False
    history: list[dict[str, float]] = field(default_factory=list)

    def pack(self) -> Packed:
        """Return the state as a checkpoint holds it."""
        arrays: dict[str, NDArray[Any]] = {
            "working_samples": self.samples,
            "working_features": self.features,
            "coef": self.coef,
        }
        iterate = {}
        for f in fields(Iterate):
            value = getattr(self.iterate, f.name)
            if isinstance(value, np.ndarray):
                arrays[f"iterate.{f.name}"] = value
            else:
                iterate[f.name] = value
        arrays |= {f"sets.{name}": getattr(self.sets, name) for name in _LISTS}
        if self.sets.basis is not None:
            arrays["basis.constraints"] = self.sets.basis.constraints
            arrays["basis.rows"] = self.sets.basis.rows
        return Packed({**{name: getattr(self, name) for name in _SCALARS}, "iterate": iterate}, arrays)

    @classmethod
    def unpack(cls, saved: Packed, n_classes: int) -> State:
        """Return the state that `pack` returned."""
        meta, arrays = saved
        sets = WorkingSets(n_classes)
        for name in _LISTS:
            setattr(sets, name, arrays[f"sets.{name}"])
        if "basis.rows" in arrays:
            sets.basis = Basis(arrays["basis.constraints"], arrays["basis.rows"])
        kept: dict[str, Any] = {
            name.removeprefix("iterate."): array
            for name, array in arrays.items()
            if name.startswith("iterate.")
        }
        return cls(
            arrays["working_samples"],
            arrays["working_features"],
            Iterate(**kept, **meta["iterate"]),
            sets,
            arrays["coef"],
            **{name: meta[name] for name in _SCALARS},
        )


_SCALARS = [f.name for f in fields(State) if f.name not in ("samples", "features", "iterate", "sets", "coef")]
