# mypy: ignore-errors
"""What kernels ask of a loss; the loss's type chooses the code when a kernel is compiled.

A function of this module, called in a kernel with a loss as its first argument, becomes the method of the
same name of the loss's class. Residuals are half derivatives, so that ``2 / n`` is the factor of all
gradients. The labels of a sample are a row of codes, increasing, -1 after the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from bigmc.kernels.linear.parallel.products import groups_of


class RowWork(NamedTuple):
    """What the derivatives of one sample are computed in, arrays of shape (width,).

    Attributes
    ----------
    residual, curvature, others, margins, move : of the type of the scores
    wide : float64 array
    groups : uint64 array of shape (groups of lanes + 1,)
    """

    residual: NDArray[Any]
    curvature: NDArray[Any]
    others: NDArray[Any]
    margins: NDArray[Any]
    move: NDArray[Any]
    wide: NDArray[np.float64]
    groups: NDArray[np.uint64]


def _by_loss(function):
    """Let calls of a function in kernels be calls of the loss's method of its name."""

    @overload(function, strict=False, jit_options={"nogil": True, "fastmath": False, "forceinline": True})
    def choose(loss, *arguments):
        return getattr(loss.instance_class, function.__name__)

    return function


@_by_loss
def residuals(loss, scores, i, labels, factor, others, residual):
    """Fill `residual` with half the derivative of a sample's loss by its scores, times the factors if any.

    `others` is overwritten; it has the width of the scores.
    """


@_by_loss
def curvatures(loss, scores, i, labels, others, residual, curvature):
    """Fill `curvature` with half the diagonal of the Hessian of a sample's loss, after `residuals`."""


@_by_loss
def add_coupling(loss, scores, i, labels, others, residual, square, hessian):
    """Add `square` times half the Hessian off its diagonal, after `curvatures`; may overwrite `residual`.

    What is added to ``hessian[r, q]`` counts for ``hessian[q, r]`` too.
    """


@_by_loss
def change(loss, scores, i, labels, others, value, step):
    """Return the change of a sample's loss when ``value * step`` joins its scores; overwrites `others`."""


@_by_loss
def add_squares(loss, labels, i, square, squares):
    """Add the weighted square of a feature's value to those from which `curvature_bound` follows."""


@_by_loss
def curvature_bound(loss, squares):
    """Bound half the eigenvalues of the Hessian of the sum of losses by the weights of one feature."""


@_by_loss
def couples_classes(loss):
    """Return whether the Hessian has more than its diagonal."""


@_by_loss
def most_model_classes(loss):
    """Return up to how many classes the Hessian by the weights of one feature is worth its entries."""


@_by_loss
def adds_by_lanes(loss):
    """Return whether `add_gradient` and `add_curvature` are there: by vector instructions."""


@_by_loss
def add_gradient(loss, scores, i, labels, value, wide):
    """Add `value` times the residuals of a sample: to ``wide[0]``, less what is added to ``wide[1]``."""


@_by_loss
def add_curvature(loss, scores, i, labels, factors, wide):
    """`add_gradient`, and `square` times the curvatures to ``wide[2]``; the factors are value and square."""


@_by_loss
def add_class_sums(loss, scores, i, labels, weight, work, sums):
    """Add a sample to the sums by own and other class, see `losses.sums.class_sums`."""


@_by_loss
def add_class_totals(loss, scores, i, labels, weight, work, totals):
    """Add a sample to the sums by class, see `losses.sums.class_totals`."""


@_by_loss
def row_residuals(loss, samples, i, kept, work):
    """Fill residual and curvature of a sample, and what `row_turn` needs; list the groups that are not zero.

    Returns the number of groups; of the others residual and curvature are undefined.
    """


@_by_loss
def row_groups(loss, kept, i, work):
    """List the groups of `row_residuals` again; returns their number."""


@_by_loss
def row_turn(loss, samples, i, kept, used, work):
    """Return half the Hessian of a sample's loss times ``work.move``, in the listed groups."""


@_by_loss
def row_change(loss, samples, i, part, used, work):
    """Return the change of a sample's loss when ``part * work.wide`` joins its scores."""


class LossKernels(NamedTuple):
    """What most losses have in common; the methods are the functions of this module."""

    def couples_classes(self):
        return True

    def most_model_classes(self):
        return 128

    def adds_by_lanes(self):
        return False

    def add_gradient(self, scores, i, labels, value, wide):
        pass

    def add_curvature(self, scores, i, labels, factors, wide):
        pass

    def add_coupling(self, scores, i, labels, others, residual, square, hessian):
        pass

    def add_squares(self, labels, i, square, squares):
        squares[0] += square

    def row_groups(self, kept, i, work):
        if kept[i] == 0:
            return np.uint64(0)
        return groups_of(kept[i], np.uint64(work.groups.shape[0] - 1), work.groups)
