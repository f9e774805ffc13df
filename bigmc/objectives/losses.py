"""Losses: each one object with its name, its value, its dual and the effect of an intercept.

Most are given by sums over the samples, by own class (row) and other class (column), which the loss's
`class_sums` adds up: `residuals`, from which its derivatives follow, `values` and `curvatures`. What is
needed where pairs of classes would be too many is added up by `class_totals`.
A residual is half a derivative by a score, so that ``2 / n`` is the factor of all gradients.

Labels are a row of class codes for each sample, increasing, -1 after the last: one code where a sample has
one label, any number where labels are sets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.columns import hinge_columns
from bigmc.kernels.linear.losses import huber_hinge, log, multitask, squared_hinge
from bigmc.kernels.linear.losses.interface import LossKernels
from bigmc.kernels.linear.losses.sums import class_sums, class_totals
from bigmc.kernels.linear.scoring import score_matrix
from bigmc.objectives.balancing import balance_classes, balance_tasks

Floats = NDArray[np.float64]


class Loss(ABC):
    """What all losses have.

    Attributes
    ----------
    kernels : LossKernels
        What kernels take of it.
    set_kernels : LossKernels
        The same for Newton steps where labels are sets.
    newton_keeps_scores : bool
        What the gradient leaves for the Hessian in a Newton step is a number for every score, otherwise one
        word of bits for every sample.
    balanced_residuals : bool
        The derivatives of a sample's loss add up to zero over the classes, and so do those by the weights of
        a feature.
    keeps_residuals : bool
        Half the derivatives of a sample say what its Hessian is: sums over columns take them from a matrix
        that has been computed once, see `bigmc.kernels.linear.columns.log_columns`.
    plain_squared_hinge : bool
        Whether it is the one with kernels of its own in `bigmc.kernels.linear.columns.squared_hinge`.
    takes_labels, takes_sets : bool
        Whether it is for samples that have one label each, and for such that have a set of them.
    pad_score : float
        Score of the pads, which take part in nothing.
    """

    name: ClassVar[str]
    kernels: ClassVar[LossKernels]
    set_kernels: ClassVar[LossKernels]
    newton_keeps_scores: ClassVar[bool] = False
    balanced_residuals: ClassVar[bool] = True
    keeps_residuals: ClassVar[bool] = False
    plain_squared_hinge: ClassVar[bool] = False
    takes_labels: ClassVar[bool] = True
    takes_sets: ClassVar[bool] = False
    pad_score: ClassVar[float] = hinge_columns.PAD_SCORE

    def class_sums(
        self, scores: NDArray[np.floating], labels: NDArray[np.int32], weights: Floats, *sums: Floats
    ) -> None:
        """Add to residuals, values and curvatures; see `bigmc.kernels.linear.losses.sums.class_sums`."""
        class_sums(self.kernels, scores, labels, weights, sums)

    def class_totals(
        self, scores: NDArray[np.floating], labels: NDArray[np.int32], weights: Floats, *totals: Floats
    ) -> None:
        """Add to vectors by class; see `bigmc.kernels.linear.losses.sums.class_totals`."""
        class_totals(self.kernels, scores, labels, weights, totals)

    def n_kept(self, n_classes: int) -> int:
        """Return how many classes' derivatives say what those of all are."""
        return n_classes - 1 if self.balanced_residuals else n_classes

    def unpacked(self, kept: Floats, n_classes: int, width: int) -> Floats:
        """Return gradients of shape (n_features, width) from those of the last `n_kept` classes."""
        gradients = np.zeros((len(kept), width))
        first = n_classes - kept.shape[1]
        gradients[:, first:n_classes] = kept
        if first:
            gradients[:, 0] = -kept.sum(axis=1)
        return gradients

    def dual_values(self, values: Floats) -> Floats:
        """Return the values in the dual."""
        return values

    @abstractmethod
    def intercept_gradient(self, residuals: Floats) -> Floats:
        """Return half the derivative of the sum of losses by an intercept, of shape (n_classes,)."""

    @abstractmethod
    def intercept_curvature(self, curvatures: Floats) -> Floats:
        """Return half the Hessian of the sum of losses by an intercept, of shape (n_classes, n_classes)."""

    def balance(self, residuals: Floats) -> Floats | None:
        """Return factors of the residuals that make the dual point feasible for an intercept, or None."""
        return balance_classes(residuals)

    @abstractmethod
    def largest_scale(self, residual_sum: float, value: float) -> float:
        """Return the scale of the dual point of these residuals above which its value does not increase."""

    @abstractmethod
    def dual_value(
        self,
        scale: float,
        residual_sum: float,
        value: float,
        weight_sum: float,
        entropy: Callable[[float], float],
    ) -> float:
        """Return the dual value, without the penalty's part, of the scaled dual point.

        `scale` is at most `largest_scale`. `residual_sum` and `value` are sums of the residuals and
        of the `dual_values`, with the factors of `balance` applied; `weight_sum` is n, the sum of the
        sample weights. `entropy` sums the entropies of the scaled dual point in a pass over the
        scores, see `bigmc.kernels.linear.losses.sums.entropy`.
        """


class _Hinge(Loss):
    """A sum of squares of positive margins ``m``; values are their sums of squares.

    With ``b = 2 w m / n`` the dual is ``sum (b - n b² / (4 w))``; on the ray ``t b`` it is
    ``t * 2 / n * sum w m - t² / n * sum w m²``.
    """

    def largest_scale(self, residual_sum: float, value: float) -> float:
        return residual_sum / value if value > 0.0 else 0.0

    def dual_value(
        self,
        scale: float,
        residual_sum: float,
        value: float,
        weight_sum: float,
        entropy: Callable[[float], float],
    ) -> float:
        return scale * (2.0 * residual_sum - scale * value) / weight_sum


class _PairwiseHinge(_Hinge):
    """Margins of pairs of classes, in which residuals flow from one class to the other."""

    kernels: ClassVar[LossKernels] = squared_hinge.SquaredHinge()
    set_kernels: ClassVar[LossKernels] = squared_hinge.SquaredHingeOfSets()

    def intercept_gradient(self, residuals: Floats) -> Floats:
        """Return the flow into each class minus the flow out of it."""
        return np.asarray(residuals.sum(axis=0) - residuals.sum(axis=1))

    def intercept_curvature(self, curvatures: Floats) -> Floats:
        """Return the weighted Laplacian of the classes' active margins."""
        edges = curvatures + curvatures.T
        return np.asarray(np.diag(edges.sum(axis=1)) - edges)


class SquaredHinge(_PairwiseHinge):
    """``sum over r != y of max(1 - (s_y - s_r), 0)²``, equation (2) of Blondel et al. (2013)."""

    name = "squared_hinge"
    plain_squared_hinge = True

    def class_sums(
        self, scores_: NDArray[np.floating], labels: NDArray[np.int32], weights: Floats, *sums: Floats
    ) -> None:
        """Add to residuals, values and curvatures; see `score_matrix.class_margins`."""
        score_matrix.class_margins(scores_, labels[:, 0], weights, *sums)


class MultilabelRanking(_PairwiseHinge):
    """``sum over p in Y, r not in Y of max(1 - (s_p - s_r), 0)²``, of section 4.7 of Blondel et al. (2013).

    The samples' mean of the sum over all pairs of a label and a class that is none, as printed there: a
    sample with many such pairs counts for more, and one without any, since it has no labels or all of them,
    adds nothing. With one label per sample it is the squared hinge (2), whose dual, bounds on the curvature
    and steps of the intercept hold for pairs (p, r) as they do for (y, r).
    """

    name = "multilabel_ranking"
    takes_labels = False
    takes_sets = True


class MultitaskSquaredHinge(_Hinge):
    """``sum over r of max(1 - Y_r s_r, 0)²``, equation (11): every class against the rest.

    Sets of labels have ``Y_r = 1`` for each of them (binary relevance).
    """

    name = "multitask_squared_hinge"
    kernels = multitask.MultitaskSquaredHinge()
    balanced_residuals = False
    set_kernels = multitask.MultitaskSquaredHingeOfSets()
    takes_sets = True

    def intercept_gradient(self, residuals: Floats) -> Floats:
        """Return the margins of the rest less those of the class."""
        return np.asarray(residuals.sum(axis=0) - 2.0 * np.diag(residuals))

    def intercept_curvature(self, curvatures: Floats) -> Floats:
        """Return the diagonal matrix of the active margins of each class and its rest."""
        return np.diag(curvatures.sum(axis=0))

    def balance(self, residuals: Floats) -> Floats:
        """Return factors that make the margins of every class and its rest equal."""
        return balance_tasks(residuals)


class BoundedDual(Loss):
    """A loss whose dual variables are bounded: they may decrease, but not increase.

    Those of the logistic loss are probabilities, which add up to 1; those of a hinge with straight tails stop
    at the gradient of the tails.
    """

    def balance(self, residuals: Floats) -> Floats | None:
        """Return factors of at most 1."""
        factors = balance_classes(residuals)
        return None if factors is None else factors / max(1.0, float(factors.max()))

    def largest_scale(self, residual_sum: float, value: float) -> float:
        """Return 1: beyond it a dual variable could be out of bounds."""
        return 1.0


class HuberHinge(BoundedDual, _PairwiseHinge):
    """``sum over r != y of h(1 - (s_y - s_r))``, the squared hinge with straight tails.

    ``h(m) = u (2 m - u)`` with ``u = min(max(m, 0), 1)``. Values beside the diagonal are the sums of
    ``w u²``, with which the dual is that of the squared hinge, its variables ``b = 2 w u / n`` at most
    ``2 w / n``; what the losses have more is on the diagonal.
    """

    name = "huber_hinge"
    kernels = huber_hinge.HuberHinge()
    set_kernels = kernels

    def dual_values(self, values: Floats) -> Floats:
        """Return the values without their diagonal: the dual is that of the squared hinge."""
        return np.asarray(values - np.diag(np.diag(values)))


class LogLoss(BoundedDual):
    """``log(1 + sum over r != y of exp(s_r - s_y))``, equation (12)."""

    name = "log_loss"
    kernels = log.LogLoss()
    newton_keeps_scores = True
    keeps_residuals = True

    def intercept_gradient(self, residuals: Floats) -> Floats:
        """Return half of: probabilities of a class for other samples less those its own have elsewhere."""
        return np.asarray(0.5 * (residuals.sum(axis=0) - residuals.sum(axis=1)))

    def intercept_curvature(self, curvatures: Floats) -> Floats:
        """Return half of ``diag(p) - p p'``, summed over the samples."""
        return np.asarray(0.5 * (np.diag(curvatures.sum(axis=1)) - curvatures))

    def dual_value(
        self,
        scale: float,
        residual_sum: float,
        value: float,
        weight_sum: float,
        entropy: Callable[[float], float],
    ) -> float:
        """Return the mean entropy."""
        return entropy(scale) / weight_sum


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (SquaredHinge, MultilabelRanking, MultitaskSquaredHinge, HuberHinge, LogLoss)
}
