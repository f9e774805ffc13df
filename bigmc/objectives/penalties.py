"""Penalties: each one object with its name, its value and its code in the kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import Norm
from bigmc.kernels.linear.penalties import formulas


@dataclass(frozen=True)
class RestrictedPenalty:
    """A penalty as a function of the non-zero weights, near some rows of them.

    Weights with a penalty each keep their signs; the others are unrestricted. With the length ``|w|`` of
    a row the gradient is ``group w / |w| + single sign(w)`` and the Hessian ``group / |w| (I - w w' /
    |w|²)``. `single` and `group` are the weights of the l1 and the l2 norm of each row; `unit` has the
    rows over their lengths; `free` marks the weights that may move.
    """

    rows: NDArray[np.float64]
    single: NDArray[np.float64]
    group: NDArray[np.float64]
    lengths: NDArray[np.float64]
    unit: NDArray[np.float64]
    free: NDArray[np.bool_]

    @property
    def gradient(self) -> NDArray[np.float64]:
        """Derivatives with respect to the non-zero weights."""
        return self.group[:, None] * self.unit + self.single[:, None] * np.sign(self.rows)

    @property
    def curvature(self) -> NDArray[np.float64]:
        """Factor of ``I - w w' / |w|²`` in the Hessian."""
        return self.group / self.lengths

    def turned(self, step: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which weights a step moves through zero: single weights, or groups by direction."""
        moved = self.rows + step
        groups = (np.einsum("jr,jr->j", moved, self.rows) <= 0) & (self.group > 0)
        singles = (moved * self.rows <= 0) & (self.single > 0)[:, None]
        return np.asarray((groups[:, None] | singles) & self.free)

    def change(self, moved: NDArray[np.float64]) -> float:
        """Return the penalty of other rows minus that of these."""
        groups = self.group @ (np.sqrt(np.einsum("jr,jr->j", moved, moved)) - self.lengths)
        if not self.single.any():
            return float(groups)
        return float(groups + self.single @ (np.abs(moved).sum(axis=1) - np.abs(self.rows).sum(axis=1)))


@dataclass(frozen=True)
class Penalty:
    """A norm of every row of weights, added up over the features; see `kernels.linear.penalties.formulas`.

    `l1_ratio` is the share of the l1 norm in a sparse group.
    """

    name: str
    code: int
    l1_ratio: float = 0.0

    @property
    def kernel(self) -> Norm:
        """The penalty in the form of kernels."""
        return Norm(self.code, float(self.l1_ratio))

    @property
    def smooth_on_support(self) -> bool:
        """Whether it is a smooth function of the non-zero weights, as long as they keep their signs.

        The maximum is not: at the optimum several weights attain it.
        """
        return self.code == formulas.SPARSE_GROUP

    def restricted(self, rows: NDArray[np.float64], alphas: NDArray[np.float64]) -> RestrictedPenalty:
        """Return the penalty near rows of weights, none of them all zero, times a factor for each."""
        single, group = self.l1_ratio * alphas, (1.0 - self.l1_ratio) * alphas
        lengths = np.maximum(np.sqrt(np.einsum("jr,jr->j", rows, rows)), np.finfo(np.float64).tiny)
        free = (rows != 0) | (single == 0)[:, None]
        return RestrictedPenalty(rows.copy(), single, group, lengths, rows / lengths[:, None], free)

    def value(self, coef: NDArray[np.float64]) -> float:
        """Penalty of weights of shape (n_features, n_classes), before the factor alpha."""
        if self.code == formulas.LARGEST:
            return float(np.abs(coef).max(axis=1, initial=0.0).sum())
        group = float(np.sqrt((coef * coef).sum(axis=1)).sum()) if self.l1_ratio < 1 else 0.0
        sparse = float(np.abs(coef).sum()) if self.l1_ratio > 0 else 0.0
        return (1.0 - self.l1_ratio) * group + self.l1_ratio * sparse

    def slopes(self, coef: NDArray[np.float64], moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the directional derivative of the norm of each row of weights along a move of it."""
        if self.code == formulas.LARGEST:
            sizes = np.abs(coef)
            largest = sizes == sizes.max(axis=1, keepdims=True)
            along = np.where(coef == 0, np.abs(moves), np.sign(coef) * moves)
            return np.asarray(np.where(largest, along, -np.inf).max(axis=1, initial=-np.inf))
        lengths = np.sqrt(np.einsum("jr,jr->j", coef, coef))
        group = np.sqrt(np.einsum("jr,jr->j", moves, moves))
        np.divide(np.einsum("jr,jr->j", coef, moves), lengths, out=group, where=lengths > 0)
        single = np.where(coef == 0, np.abs(moves), np.sign(coef) * moves).sum(axis=1)
        return np.asarray((1.0 - self.l1_ratio) * group + self.l1_ratio * single)

    def dual_conversion(self, n_classes: int) -> float:
        """Return the maximum ratio of the dual norm to the Euclidean norm.

        Penalties that are at least the Euclidean norm have a dual norm that is at most that; the dual
        norm of the maximum is the sum of ``n_classes`` absolute values.
        """
        return math.sqrt(n_classes) if self.code == formulas.LARGEST else 1.0


#: A feature is selected for all classes or none (group lasso).
GROUP_LASSO = Penalty("l1/l2", formulas.SPARSE_GROUP)
#: Every weight is penalised separately.
LASSO = Penalty("l1", formulas.SPARSE_GROUP, 1.0)
#: As the group lasso, with weights of equal size.
LARGEST = Penalty("l1/linf", formulas.LARGEST)
#: Few features, each for few classes (Friedman, Hastie, Tibshirani, "A note on the group lasso and a sparse
#: group lasso", 2010).
SPARSE_GROUP = Penalty("sparse_group", formulas.SPARSE_GROUP, 0.5)

PENALTIES = {penalty.name: penalty for penalty in (GROUP_LASSO, LASSO, LARGEST, SPARSE_GROUP)}
