"""Penalties: each one object that knows its name, its value and its code in the kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels import penalties


@dataclass(frozen=True)
class Penalty:
    """A norm of every row of weights, added up over the features; see `bigmc.kernels.penalties`.

    Attributes
    ----------
    name : str
    code : int
        Its code in `bigmc.kernels.penalties`.
    l1_ratio : float
        Share of the l1 norm in a sparse group.
    """

    name: str
    code: int
    l1_ratio: float = 0.0

    def value(self, coef: NDArray[np.float64]) -> float:
        """Penalty of weights of shape (n_features, n_classes), before the factor alpha."""
        if self.code == penalties.LARGEST:
            return float(np.abs(coef).max(axis=1, initial=0.0).sum())
        group = float(np.sqrt((coef * coef).sum(axis=1)).sum()) if self.l1_ratio < 1 else 0.0
        sparse = float(np.abs(coef).sum()) if self.l1_ratio > 0 else 0.0
        return (1.0 - self.l1_ratio) * group + self.l1_ratio * sparse

    def dual_conversion(self, n_classes: int) -> float:
        """Return the most that the dual norm is in units of the Euclidean norm.

        Penalties that are at least the Euclidean norm have a dual norm that is at most that; the dual norm of
        the largest weight is the sum of ``n_classes``.
        """
        return math.sqrt(n_classes) if self.code == penalties.LARGEST else 1.0


#: A feature is kept for all classes or for none (group lasso).
GROUP_LASSO = Penalty("l1/l2", penalties.SPARSE_GROUP)
#: Every weight for itself.
LASSO = Penalty("l1", penalties.SPARSE_GROUP, 1.0)
#: As the group lasso, with weights of one size.
LARGEST = Penalty("l1/linf", penalties.LARGEST)
#: Few features, each for few classes (Friedman, Hastie, Tibshirani, "A note on the group lasso and a sparse
#: group lasso", 2010).
SPARSE_GROUP = Penalty("sparse_group", penalties.SPARSE_GROUP, 0.5)

PENALTIES = {penalty.name: penalty for penalty in (GROUP_LASSO, LASSO, LARGEST, SPARSE_GROUP)}
