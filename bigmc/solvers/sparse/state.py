"""The state that a run of the sparse learner saves, to resume exactly as if it had not stopped."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Figures, Packed
from bigmc.solvers.sparse.coefficients import Coefficients


@dataclass(frozen=True)
class Start:
    """Weights to start from, such as those of a larger penalty or of yesterday's data.

    Attributes
    ----------
    features : int64 array of shape (n_nonzero,)
        Increasing.
    coef : float64 array of shape (n_nonzero, n_classes)
    intercept : float64 array of shape (n_classes,)
    norms : float32 array of shape (n_features,), optional
        Norm of the gradient of every feature at these weights, with which the first pass can be left out.
    """

    features: NDArray[np.int64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    norms: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Evaluated:
    """Weights, and the objective and its derivatives there, from a pass over all samples.

    Attributes
    ----------
    intercept : float64 array of shape (n_classes,)
    gradient : float array of shape (n_used, width)
        Of the losses, for the features that occur, in the precision of the scores.
    curvature : float array of shape (n_used,)
        Mean over the classes.
    intercept_gradient : float64 array of shape (n_classes,)
        Gradient of the losses by the intercept.
    intercept_curvature : float
        Their curvature by the intercept, mean over the classes.
    """

    coef: Coefficients
    intercept: NDArray[np.float64]
    objective: float
    gradient: NDArray[Any]
    curvature: NDArray[Any]
    intercept_gradient: NDArray[np.float64]
    intercept_curvature: float

    def of_features(self, before: NDArray[np.int64], features: NDArray[np.int64]) -> Evaluated:
        """Return the same with the gradients of `features`, which are some of those `before`, alone."""
        order = np.argsort(before)
        at = order[np.searchsorted(before, features, sorter=order)]
        return replace(self, gradient=self.gradient[at], curvature=self.curvature[at])


@dataclass
class State:
    """Weights between two rounds, and what every method counts. Scores are rebuilt from the weights.

    Methods add what they need: `working_set.state.MemoryState`, `sampled.state.SampledState` and
    `chunks.state.ChunkState`.

    Attributes
    ----------
    intercept : float64 array of shape (n_classes,)
    lower : float
        Best dual value so far.
    n_iter : int
        Sweeps so far; with the seed it determines every shuffle to come.
    nnz_read : int
        Entries of the data passed over so far, the working set not counted.
    bytes_read : int
        Decoded bytes read from the shards so far.
    history : list of dict
        One entry per certificate.
    norms : float32 array of shape (n_features,) or None
        Norms of the gradients at a start, until they are used, or over chunks those of the last pass.
    damping : float
        Share of the mean curvature that Newton steps add, or of that of all samples on a corrected sample.
    """

    coef: Coefficients
    intercept: NDArray[np.float64]
    lower: float = 0.0
    n_iter: int = 0
    nnz_read: int = 0
    bytes_read: int = 0
    history: list[Figures] = field(default_factory=list)
    norms: NDArray[np.float32] | None = None
    damping: float = 0.0

    @classmethod
    def zeros(cls, width: int, n_classes: int) -> Self:
        """Return the state of a run that starts from nothing."""
        return cls(Coefficients.zeros(width), np.zeros(n_classes))

    @classmethod
    def at(cls, start: Start, width: int) -> Self:
        """Return the state of a run that starts from given weights."""
        used = start.coef.any(axis=1)
        rows = np.zeros((int(used.sum()), width))
        rows[:, : start.coef.shape[1]] = start.coef[used]
        coef = Coefficients(np.asarray(start.features[used], np.int64), rows)
        return cls(coef, np.array(start.intercept, np.float64), norms=start.norms)

    @classmethod
    def of(cls, state: State) -> Self:
        """Return the state of a method that goes on from another one's."""
        return cls(**{own.name: getattr(state, own.name) for own in fields(State)})

    def figures(
        self,
        certificate: Certificate,
        n_passes: float,
        violation: float,
        largest_norm: float,
        **more: float,
    ) -> Figures:
        """Return the figures of a certificate of the weights, for the history."""
        return {
            "n_passes": n_passes,
            "n_iter": float(self.n_iter),
            "objective": certificate.upper,
            "lower": certificate.lower,
            "gap": certificate.gap,
            "violation": violation,
            "largest_norm": largest_norm,
            "n_nonzero": float(len(self.coef.features)),
            **more,
            "bytes_read": float(self.bytes_read),
        }

    def pack(self) -> Packed:
        """Return what a checkpoint must hold."""
        meta = {name: getattr(self, name, unused) for name, unused in _SAVED.items()}
        arrays: dict[str, NDArray[Any]] = {
            "features": self.coef.features,
            "coef": self.coef.rows[:, : len(self.intercept)],
            "intercept": self.intercept,
        }
        return Packed(meta, arrays)

    @classmethod
    def unpack(cls, saved: Packed, width: int) -> Self:
        """Return the state that `pack` described, its rows of weights padded to `width`."""
        meta, arrays = saved
        own = {one.name: meta[one.name] for one in fields(cls) if one.name in _SAVED}
        coef = weights_of(arrays["features"], arrays["coef"], width)
        return cls(coef, np.array(arrays["intercept"], np.float64), **own)


#: Numbers that checkpoints of all methods have, with the values of those that do not use them.
_SAVED: dict[str, object] = {
    "lower": 0.0,
    "n_iter": 0,
    "nnz_read": 0,
    "bytes_read": 0,
    "stage": 0,
    "top": 0.0,
    "history": [],
    "corrected": False,
    "sample_rows": 0,
    "damping": 0.0,
    "least_damping": 0.0,
    "scale": 1.0,
}


def padded(rows: NDArray[Any], width: int) -> NDArray[Any]:
    """Return saved rows of weights with as many columns as kernels ask for."""
    out = np.zeros((len(rows), width), rows.dtype)
    out[:, : rows.shape[1]] = rows
    return out


def weights_of(features: NDArray[np.int64], rows: NDArray[Any], width: int) -> Coefficients:
    """Return saved weights."""
    return Coefficients(np.asarray(features, np.int64), padded(rows, width))


def pack_anchor(anchor: Evaluated | None) -> Packed:
    """Return what a checkpoint must hold of the best weights so far."""
    if anchor is None:
        return Packed({}, {})
    return Packed(
        {"anchor": anchor.objective, "intercept_curvature": anchor.intercept_curvature},
        {
            "anchor_features": anchor.coef.features,
            "anchor_coef": anchor.coef.rows[:, : len(anchor.intercept)],
            "anchor_intercept": anchor.intercept,
            "anchor_gradient": anchor.gradient,
            "anchor_curvature": anchor.curvature,
            "anchor_intercept_gradient": anchor.intercept_gradient,
        },
    )


def unpack_anchor(saved: Packed, width: int) -> Evaluated | None:
    """Return the best weights that `pack_anchor` described, None if there were none."""
    meta, arrays = saved
    if "anchor" not in meta:
        return None
    return Evaluated(
        weights_of(arrays["anchor_features"], arrays["anchor_coef"], width),
        arrays["anchor_intercept"],
        meta["anchor"],
        arrays["anchor_gradient"],
        arrays["anchor_curvature"],
        arrays["anchor_intercept_gradient"],
        meta["intercept_curvature"],
    )
