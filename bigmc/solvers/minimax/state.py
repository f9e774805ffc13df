"""What a run of the minimax learner must remember to go on exactly as if it had not stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.checkpoint import Checkpoint, load_run, save_run
from bigmc.solvers.minimax.linear_program import Basis
from bigmc.solvers.minimax.pdhg import Iterate
from bigmc.solvers.minimax.restricted import WorkingSets

_LISTS = ("samples", "masks", "components")


@dataclass
class State:
    """State between two iterations. Feature vectors are no part of it: they are read again.

    Attributes
    ----------
    samples : int64 array
        Samples in the working set.
    features : int64 array
        Features of ψ in the working set of the first-order steps, increasing.
    iterate : Iterate
        Of the first-order steps.
    sets : WorkingSets
        Of the linear program; empty until it takes over.
    coef : float64 array of shape (n_psi, n_classes)
        Best μ so far.
    upper, lower : float
        Its bound, and the best lower bound.
    eps1, eps2 : float
        Thresholds in force.
    n_iter, n_scans : int
        Iterations of the loop, and passes over the samples.
    linear : bool
        The linear program has taken over.
    spent, allowance : float
        Expected seconds of the linear programs since then, and how many there may be.
    outgrown : bool
        The working set has no room for the constraints that were found.
    setbacks : int
        How often the first-order steps had to take over again.
    history : list of dict
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
    history: list[dict[str, float]] = field(default_factory=list)

    def save(self, checkpoint: Checkpoint, run: Mapping[str, Any]) -> None:
        """Save the state of the run described by `run`."""
        meta: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
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
        meta["iterate"] = iterate
        arrays |= {f"sets.{name}": getattr(self.sets, name) for name in _LISTS}
        if self.sets.basis is not None:
            arrays["basis.constraints"] = self.sets.basis.constraints
            arrays["basis.rows"] = self.sets.basis.rows
        save_run(checkpoint, run, meta, arrays)

    @classmethod
    def load(cls, checkpoint: Checkpoint, run: Mapping[str, Any], n_classes: int) -> State | None:
        """Return the saved state, or None.

        Raises
        ------
        ModelError
            If it belongs to a run with other data or parameters.
        """
        saved = load_run(checkpoint, run)
        if saved is None:
            return None
        meta, arrays = saved
        kept: dict[str, Any] = {
            n.removeprefix("iterate."): a for n, a in arrays.items() if n.startswith("iterate.")
        }
        sets = WorkingSets(n_classes)
        for name in _LISTS:
            setattr(sets, name, arrays[f"sets.{name}"])
        if "basis.rows" in arrays:
            sets.basis = Basis(arrays["basis.constraints"], arrays["basis.rows"])
        scalars = {name: meta[name] for name in _SCALARS}
        return cls(
            arrays["working_samples"],
            arrays["working_features"],
            Iterate(**kept, **meta["iterate"]),
            sets,
            arrays["coef"],
            **scalars,
        )


_SCALARS = (
    "eps1", "eps2", "upper", "lower", "n_iter", "n_scans", "linear", "spent", "allowance",
    "setbacks", "outgrown", "history",
)  # fmt: skip
