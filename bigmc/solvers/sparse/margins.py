"""Sums of a loss over samples: its value, its dual, and its derivatives by an intercept.

Few classes keep them by pairs of own and other class, from which factors that balance the flow between
classes follow. The sums of many classes are kept by class: their memory grows with the number of classes, not
with its square.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bigmc.objectives.losses import Loss

#: With more classes than this the sums are kept by class.
MOST_PAIRED_CLASSES = 128
#: Numbers kept beside the vectors: residuals, values of the dual, what the losses have beyond these.
_TOTALS = 3
#: Pair matrices, and vectors of a class, that exist at once in a pass or a step of the intercept.
_MATRICES, _VECTORS = 6, 64


@dataclass(frozen=True)
class Margins(ABC):
    """Sums over samples at some scores; they are added up over parts of the samples.

    Attributes
    ----------
    stacked : float64 array
        All sums in one array.
    """

    loss: Loss
    stacked: NDArray[np.float64]

    @staticmethod
    def of(loss: Loss, stacked: NDArray[np.float64]) -> Margins:
        """Return the sums that an array of `empty` holds."""
        return PairMargins(loss, stacked) if stacked.ndim == 3 else ClassMargins(loss, stacked)

    @staticmethod
    def empty(n_classes: int) -> NDArray[np.float64]:
        """Return the array of the sums over no samples."""
        if n_classes <= MOST_PAIRED_CLASSES:
            return np.zeros((3, n_classes, n_classes))
        return np.zeros(2 * n_classes + _TOTALS)

    @staticmethod
    def memory(n_classes: int, width: int) -> int:
        """Return the bytes that passes and steps of the intercept take of sums."""
        return 8 * width * (_MATRICES * n_classes if n_classes <= MOST_PAIRED_CLASSES else _VECTORS)

    def plus(self, other: Margins) -> Self:
        """Return the sums over the samples of both."""
        return type(self)(self.loss, self.stacked + other.stacked)

    def minus(self, other: Margins) -> Self:
        """Return the sums without those over samples of the other."""
        return type(self)(self.loss, self.stacked - other.stacked)

    @property
    @abstractmethod
    def total_loss(self) -> float:
        """Sum of the losses."""

    @property
    @abstractmethod
    def total_residual(self) -> float:
        """Sum of the residuals, none of them negative."""

    @property
    @abstractmethod
    def dual_values(self) -> float:
        """Sum of the values that the dual is made of."""

    @property
    @abstractmethod
    def intercept_gradient(self) -> NDArray[np.float64]:
        """Half the derivative of the sum of losses by an intercept, of shape (n_classes,)."""

    @property
    @abstractmethod
    def intercept_curvatures(self) -> NDArray[np.float64]:
        """Diagonal of half the Hessian of the sum of losses by an intercept, of shape (n_classes,)."""

    def intercept_derivatives(self, weight_sum: float) -> tuple[NDArray[np.float64], float]:
        """Return the gradient of the mean loss by an intercept, and its curvature, mean over the classes."""
        factor, curvatures = 2.0 / weight_sum, self.intercept_curvatures
        return factor * self.intercept_gradient, factor * (float(curvatures.sum()) / len(curvatures))


class PairMargins(Margins):
    """Sums by own class (row) and other class (column), of shape (3, n_classes, n_classes).

    They are the residuals, values and curvatures of `bigmc.kernels.linear.losses.sums.class_sums`; for hinges
    ``sum w m``, ``sum w m²``, ``sum w [m > 0]``.
    """

    @property
    def residuals(self) -> NDArray[np.float64]:
        """Sums of the residuals, of shape (n_classes, n_classes)."""
        residuals: NDArray[np.float64] = self.stacked[0]
        return residuals

    @property
    def total_loss(self) -> float:
        """Sum of the losses."""
        return float(self.stacked[1].sum())

    @property
    def total_residual(self) -> float:
        """Sum of the residuals, none of them negative."""
        return float(self.stacked[0].sum())

    @property
    def dual_values(self) -> float:
        """Sum of the values that the dual is made of."""
        return float(self.loss.dual_values(self.stacked[1]).sum())

    @property
    def intercept_gradient(self) -> NDArray[np.float64]:
        """Half the derivative of the sum of losses by an intercept."""
        return self.loss.intercept_gradient(self.stacked[0])

    @property
    def intercept_curvatures(self) -> NDArray[np.float64]:
        """Diagonal of half the Hessian."""
        return np.diag(self.intercept_hessian())

    def intercept_hessian(self) -> NDArray[np.float64]:
        """Return half the Hessian of the sum of losses by an intercept, (n_classes, n_classes)."""
        return self.loss.intercept_curvature(self.stacked[2])

    def balanced(self, factor: NDArray[np.float64]) -> tuple[float, float]:
        """Return `total_residual` and `dual_values` of the residuals times factors of the pairs."""
        values = self.loss.dual_values(self.stacked[1] * factor * factor)
        return float((self.stacked[0] * factor).sum()), float(values.sum())


class ClassMargins(Margins):
    """Sums by class, of shape (2 n_classes + 3,); see `bigmc.kernels.linear.losses.sums.class_totals`."""

    @property
    def _n_classes(self) -> int:
        return (len(self.stacked) - _TOTALS) // 2

    @property
    def parts(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Views of the residuals and the curvatures of each class, and of the totals."""
        k = self._n_classes
        return self.stacked[:k], self.stacked[k : 2 * k], self.stacked[2 * k :]

    @property
    def total_loss(self) -> float:
        """Sum of the losses."""
        return float(self.stacked[-2] + self.stacked[-1])

    @property
    def total_residual(self) -> float:
        """Sum of the residuals, none of them negative."""
        return float(self.stacked[-3])

    @property
    def dual_values(self) -> float:
        """Sum of the values that the dual is made of."""
        return float(self.stacked[-2])

    @property
    def intercept_gradient(self) -> NDArray[np.float64]:
        """Half the derivative of the sum of losses by an intercept."""
        return self.parts[0]

    @property
    def intercept_curvatures(self) -> NDArray[np.float64]:
        """Diagonal of half the Hessian."""
        return self.parts[1]
