"""The state that a run of the sparse learner saves, to resume exactly as if it had not stopped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Figures, Packed
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.screening import Screened


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
    coef : Coefficients
    intercept : float64 array of shape (n_classes,)
    objective : float
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
class State:
    """State between two rounds. Scores are not part of it: they are rebuilt from the weights.

    Attributes
    ----------
    coef : Coefficients
    intercept : float64 array of shape (n_classes,)
    lower : float
        Best dual value so far.
    n_iter : int
        Sweeps so far; with the seed it determines every shuffle to come.
    nnz_read : int
        Entries of the data passed over so far, the working set not counted.
    bytes_read : int
        Decoded bytes read from the shards so far.
    stage : int
        Number of larger penalties already solved on the way to the requested one.
    top : float
        Smallest weight of the penalty at which all weights are zero; 0 where it was not needed.
    history : list of dict
        One entry per certificate.
    screened : Screened or None
        Features proved to have no weights at the optimum; None before the first round.
    norms : float32 array of shape (n_features,) or None
        Norms of the gradients at a start, until they are used, or over chunks those of the last pass.
    damping : float
        Share of the mean curvature that Newton steps add, or of that of all samples in a corrected run.
    least_damping : float
        Its minimum: rounds with less damping led to worse weights.
    own_damping : float32 array of shape (n_candidates,)
        Factor of the damping of each candidate in rounds over chunks; all are 1 if there are fewer.
    scale : float
        Scale that made the last dual point out of core feasible.
    corrected : bool
        The method is `bigmc.solvers.sparse.sampled.subsampled_newton`, which has the next two.
    sample_rows : int
        Rows that its sample was cut to; 0 if it has all that fit into memory.
    anchor : Evaluated or None
        The best weights so far.
    chunked : bool
        The method is `bigmc.solvers.sparse.chunks.rounds`, which has all that follow.
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

    coef: Coefficients
    intercept: NDArray[np.float64]
    lower: float = 0.0
    n_iter: int = 0
    nnz_read: int = 0
    bytes_read: int = 0
    stage: int = 0
    top: float = 0.0
    history: list[Figures] = field(default_factory=list)
    screened: Screened | None = None
    norms: NDArray[np.float32] | None = None
    damping: float = 0.0
    least_damping: float = 0.0
    own_damping: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    scale: float = 1.0
    corrected: bool = False
    sample_rows: int = 0
    anchor: Evaluated | None = None
    chunked: bool = False
    layers: list[NDArray[np.int64]] = field(default_factory=list)
    doubted: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    n_chunks: int = 0
    most_held: int = 0
    rounds: int = 0
    gain: float = 0.0
    trial: bool = False
    round_bytes: int = 0
    past: list[PastRound] = field(default_factory=list)

    @classmethod
    def at(cls, start: Start, width: int, alpha: float) -> State:
        """Return the state of a run that starts from given weights, and goes to `alpha` at once."""
        used = start.coef.any(axis=1)
        rows = np.zeros((int(used.sum()), width))
        rows[:, : start.coef.shape[1]] = start.coef[used]
        coef = Coefficients(np.asarray(start.features[used], np.int64), rows)
        return cls(coef, np.array(start.intercept, np.float64), top=alpha, norms=start.norms)

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
        meta = {
            "lower": self.lower,
            "n_iter": self.n_iter,
            "nnz_read": self.nnz_read,
            "bytes_read": self.bytes_read,
            "stage": self.stage,
            "top": self.top,
            "history": self.history,
            "corrected": self.corrected,
            "sample_rows": self.sample_rows,
            "damping": self.damping,
            "least_damping": self.least_damping,
            "scale": self.scale,
        }
        n_classes = len(self.intercept)
        arrays: dict[str, NDArray[Any]] = {
            "features": self.coef.features,
            "coef": self.coef.rows[:, :n_classes],
            "intercept": self.intercept,
        }
        if self.chunked:
            meta |= {
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
        if self.screened is not None:
            arrays |= {"screened": self.screened.bits, "screened_norms": self.screened.norms}
        if self.anchor is not None:
            meta |= {"anchor": self.anchor.objective, "intercept_curvature": self.anchor.intercept_curvature}
            arrays |= {
                "anchor_features": self.anchor.coef.features,
                "anchor_coef": self.anchor.coef.rows[:, :n_classes],
                "anchor_intercept": self.anchor.intercept,
                "anchor_gradient": self.anchor.gradient,
                "anchor_curvature": self.anchor.curvature,
                "anchor_intercept_gradient": self.anchor.intercept_gradient,
            }
        return Packed(meta, arrays)

    @classmethod
    def unpack(cls, saved: Packed, width: int) -> State:
        """Return the state that `pack` described, its rows of weights padded to `width`."""
        meta, arrays = dict(saved.meta), saved.arrays

        def padded(coef: NDArray[Any]) -> NDArray[Any]:
            rows = np.zeros((len(coef), width), coef.dtype)
            rows[:, : coef.shape[1]] = coef
            return rows

        def weights(features: NDArray[np.int64], coef: NDArray[np.float64]) -> Coefficients:
            return Coefficients(np.asarray(features, np.int64), padded(coef))

        anchor = None
        if "anchor" in meta:
            anchor = Evaluated(
                weights(arrays["anchor_features"], arrays["anchor_coef"]),
                arrays["anchor_intercept"],
                meta.pop("anchor"),
                arrays["anchor_gradient"],
                arrays["anchor_curvature"],
                arrays["anchor_intercept_gradient"],
                meta.pop("intercept_curvature"),
            )
        if "layer_sizes" in meta:
            cuts = np.cumsum(meta.pop("layer_sizes"))
            meta["layers"] = np.split(arrays["layers"], cuts[:-1]) if len(cuts) else []
            meta["norms"] = arrays.get("norms")
            meta |= {name: arrays[name] for name in ("doubted", "own_damping")}
        meta["past"] = [
            PastRound(
                weights(arrays[f"past_{k}_features"], arrays[f"past_{k}_coef"]),
                padded(arrays[f"past_{k}_moves"]),
                arrays[f"past_{k}_intercept"],
            )
            for k in range(meta.pop("n_past", 0))
        ]
        screened = None
        if "screened" in arrays:
            screened = Screened(arrays["screened"], arrays["screened_norms"])
        return cls(
            weights(arrays["features"], arrays["coef"]),
            np.array(arrays["intercept"], np.float64),
            screened=screened,
            anchor=anchor,
            **meta,
        )
