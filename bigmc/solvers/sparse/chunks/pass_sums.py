"""What a pass over everything is to find, and what shards add to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.feature_sets import union
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem

#: Sums of single precision are taken for larger by this for every part that is added.
_ROUNDING = 2.0 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class PassRequest:
    """What a pass is to find.

    Attributes
    ----------
    task : ChunkTask
    features : int64 array of shape (n_chosen,)
        Features whose gradients are wanted, increasing.
    scales : tuple of float
        Increasing scales of the dual point at which its entropy is wanted (log loss).
    block_bytes, block_columns : int
        Most bytes and columns decoded at once.
    shard_parts : int
        Parts that a shard is cut into, so that the scores of one fit into memory.
    held_bytes : int
        Decoded columns of a shard that is cut are held in memory for all its parts, so many bytes at a time.
    left_out : int64 array
        Features of which nothing is wanted, increasing.
    every : int
        Of so many parts of a shard one is gone through.
    only : bool
        Nothing is wanted of other features; gradients are added up in single precision.
    weighted : int64 array, optional
        Where nothing is wanted of others: features with weights, increasing, whose columns are decoded beside
        those wanted, so that scores are computed from them. Without, scores take the scratch file.
    """

    task: ChunkTask
    features: NDArray[np.int64]
    scales: tuple[float, ...]
    block_bytes: int
    block_columns: int
    shard_parts: int
    held_bytes: int
    left_out: NDArray[np.int64]
    every: int = 1
    only: bool = False
    weighted: NDArray[np.int64] | None = None

    @property
    def decodes_weights(self) -> bool:
        """Whether the columns of all weights are decoded."""
        return not self.only or self.weighted is not None

    @cached_property
    def decoded(self) -> NDArray[np.int64]:
        """Features whose columns are decoded where nothing is wanted of others, increasing."""
        return self.features if self.weighted is None else union(self.features, self.weighted)


@dataclass
class PassSums:
    """What shards add to a pass.

    Attributes
    ----------
    margins : float64 array
        See `Margins.empty`.
    entropies : float64 array of shape (n_scales,)
    gradient : float array of shape (n_chosen, n_kept)
        Of the mean loss, by the last classes; see `bigmc.objectives.losses.Loss.unpacked`.
    curvature : float64 array of shape (n_chosen,)
        Largest of the diagonal of its Hessian, over the classes, added up over blocks.
    norms : float32 array of shape (n_features,)
        Sums of the dual norms of the gradients of all features over parts of shards, with signs where one
        class is kept; see `bound_norms`. None, of shape (0,), where only chosen features are looked at.
    largest : float
        Sum over these parts of the largest norm of a feature without a gradient.
    n_parts : int
        Parts of shards.
    n_bytes : int
        Decoded bytes of shards, and bytes of scratch files.
    n_rows : int
        Samples gone through.
    """

    margins: NDArray[np.float64]
    entropies: NDArray[np.float64]
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]
    norms: NDArray[np.float32]
    largest: float = 0.0
    n_parts: int = 0
    n_bytes: int = 0
    n_rows: int = 0

    @classmethod
    def zeros(cls, request: PassRequest) -> PassSums:
        """Return the sums of nothing."""
        task, chosen = request.task, len(request.features)
        n_kept = task.objective.loss.n_kept(task.n_classes)
        precision = np.float32 if request.only else np.float64
        return cls(
            Margins.empty(task.n_classes),
            np.zeros(len(request.scales)),
            np.zeros((chosen, n_kept), precision),
            np.zeros(chosen),
            np.zeros(0 if request.only else task.dataset.n_features, np.float32),
        )

    def add_losses(self, problem: Problem, scales: tuple[float, ...]) -> None:
        """Add what the losses of some samples come to at their scores."""
        self.n_rows += problem.n_samples
        self.margins += problem.margins().stacked
        self.entropies += problem.entropies(scales)

    def add(self, other: PassSums) -> None:
        """Add the sums of other shards."""
        self.margins += other.margins
        self.entropies += other.entropies
        self.gradient += other.gradient
        self.curvature += other.curvature
        self.norms += other.norms
        self.largest += other.largest
        self.n_parts += other.n_parts
        self.n_bytes += other.n_bytes
        self.n_rows += other.n_rows

    def rounded_up(self, norms: NDArray[np.floating], bounds: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return norms of gradients added up in single precision, with what rounding may have taken away.

        Parameters
        ----------
        norms : float array of shape (n_chosen,)
        bounds : float32 array of shape (n_chosen,)
            Sums of the norms of what was added up.
        """
        return norms.astype(np.float64) + _ROUNDING * self.n_parts * bounds

    @property
    def signed(self) -> bool:
        """Whether norms have the signs of the gradients of the one class that is kept."""
        return bool(self.gradient.shape[1] == 1)

    def bound_norms(self) -> None:
        """Make the sums of norms bounds of the norms of all gradients, once everything is added up.

        Adding n numbers of single precision is wrong by at most n rounding errors of the sum of their sizes.
        """
        np.abs(self.norms, out=self.norms)
        error = _ROUNDING * self.n_parts
        if self.signed:
            self.norms += np.float32(error * self.largest)
        else:
            self.norms *= np.float32(1.0 + error)
