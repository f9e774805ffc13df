"""An objective, of a loss and a penalty, and the kernels that minimise it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import BigmcError
from bigmc.kernels.linear.arguments import (
    Columns,
    Entries,
    Extra,
    GradientSums,
    Level,
    Measures,
    Pair,
    Samples,
    Step,
    Support,
)
from bigmc.kernels.linear.columns import composite, log_columns, loss_columns, squared_hinge
from bigmc.kernels.linear.columns.hinge_columns import HingeWork
from bigmc.kernels.linear.columns.loss_columns import LossWork
from bigmc.kernels.linear.losses.interface import LossKernels
from bigmc.kernels.linear.parallel.team import Crew
from bigmc.kernels.linear.penalties import optimality
from bigmc.kernels.linear.rows import log_rows
from bigmc.objectives.losses import LOSSES, Loss
from bigmc.objectives.penalties import GROUP_LASSO, PENALTIES, SPARSE_GROUP, Penalty
from bigmc.objectives.row_kernels import RowKernels

ColumnWork = HingeWork | LossWork
"""Columns that a team of threads processes, see `bigmc.kernels.linear.parallel.team`."""
ColumnSteps = Callable[[ColumnWork, Step, Extra, NDArray[np.float64], NDArray[np.float64]], None]
"""Changes columns: called with them, a step, extra terms, weights, and violations, which are filled."""


class Curvature(Enum):
    """The element of the Hessian's diagonal that is used as the curvature along a column."""

    MEAN = "mean"
    LARGEST = "largest"


@dataclass(frozen=True)
class Objective:
    """A loss, a penalty and a ridge term, ``ridge / 2 ||W||²``, that are minimised together.

    With `sets`, labels are sets.
    """

    loss: Loss
    penalty: Penalty
    ridge: float = 0.0
    sets: bool = False

    @property
    def specialised(self) -> bool:
        """Multiclass squared hinge with l1/l2 has kernels of its own."""
        return self.loss.plain_squared_hinge and not self.sets and self.penalty == GROUP_LASSO

    @property
    def newton(self) -> bool:
        """Whether there are Newton steps over the non-zero weights: the penalty is smooth there."""
        return self.penalty.smooth_on_support

    @property
    def row_kernels(self) -> RowKernels:
        """Derivatives of the loss over samples in row order."""
        return RowKernels.of(self.loss, self.loss_kernels)

    @property
    def loss_kernels(self) -> LossKernels:
        """Formulas of the loss for one sample, for label sets if labels are."""
        return self.loss.set_kernels if self.sets else self.loss.kernels

    def regulariser(self, alpha: float, coef: NDArray[np.float64]) -> float:
        """Return ``alpha * penalty + ridge / 2 ||W||²`` of weights of shape (n_features, n_classes)."""
        squares = 0.5 * self.ridge * float((coef * coef).sum()) if self.ridge > 0 else 0.0
        return alpha * self.penalty.value(coef) + squares

    def column_work(self, columns: Columns, samples: Samples, crew: Crew, n_classes: int) -> ColumnWork:
        """Return columns for `sweep` and `project`, with the threads that assist."""
        if self.specialised:
            return HingeWork(columns, _one_label(samples), crew)
        return LossWork(self.loss.kernels, columns, samples, crew, n_classes)

    @property
    def sweep(self) -> ColumnSteps:
        """Takes a step for each column; see `bigmc.kernels.linear.columns.composite.sweep`."""
        return squared_hinge.sweep if self.specialised else partial(composite.sweep, self.penalty.kernel)

    @property
    def project(self) -> ColumnSteps:
        """Projects each gradient onto its ball; see `bigmc.kernels.linear.columns.composite.project`."""
        return squared_hinge.project if self.specialised else partial(composite.project, self.penalty.kernel)

    def residuals_width(self, n_classes: int, width: int) -> int:
        """Return the columns of arrays of residuals beside scores of a width: two classes are one margin."""
        return 1 if self.loss.keeps_residuals and n_classes == 2 else width

    def residuals_beside(self, n_classes: int, width: int) -> int:
        """Return the number of residuals and shares of a sample in addition to its scores."""
        if not self.loss.keeps_residuals:
            return 0
        of_residuals = self.residuals_width(n_classes, width)
        return of_residuals if of_residuals == width else 2 * of_residuals

    def fill_residuals(
        self,
        scores: NDArray[np.floating],
        labels: NDArray[np.int32],
        residuals: NDArray[np.floating],
        shares: NDArray[np.floating] | None,
    ) -> None:
        """Fill residuals, which may be the scores themselves, if the loss keeps them; and shares, if given.

        See `bigmc.kernels.linear.rows.log_rows.fill_residuals`.
        """
        if self.loss.keeps_residuals:
            none = np.empty((0, residuals.shape[1]), residuals.dtype)
            log_rows.fill_residuals(scores, labels, residuals, none if shares is None else shares)

    def add_gradients(
        self,
        places: NDArray[np.int64],
        entries: Entries,
        samples: Samples,
        n_classes: int,
        sums: GradientSums,
        curvature: Curvature = Curvature.MEAN,
    ) -> None:
        """Add up gradients of columns; see `bigmc.kernels.linear.columns.loss_columns.add_gradients`.

        Samples of a loss that keeps residuals have these instead of scores, see `fill_residuals`.
        """
        largest = curvature is Curvature.LARGEST
        if self.loss.keeps_residuals:
            log_columns.add_gradients(places, entries, samples, n_classes, sums, largest)
            return
        loss_columns.add_gradients(self.loss.kernels, places, entries, samples, n_classes, sums, largest)

    def measure_gradients(
        self,
        alpha: float,
        gradients: NDArray[np.floating],
        rows: NDArray[np.float64],
        n_classes: int,
        out: Measures,
    ) -> None:
        """Measure gradients of rows of weights; see `optimality.measure_gradients`."""
        level = Level(n_classes, 1.0, alpha, self.ridge)
        optimality.measure_gradients(self.penalty.kernel, level, gradients, rows, out)

    def add_dual_norms(
        self,
        gradients: NDArray[np.floating],
        scale: NDArray[np.float64],
        n_classes: int,
        norms: NDArray[np.float64],
    ) -> None:
        """Add the dual norms of scaled gradients; see `optimality.add_dual_norms`."""
        optimality.add_dual_norms(self.penalty.kernel, gradients, scale, n_classes, norms)

    def largest_curvatures(
        self,
        columns: Columns,
        samples: Samples,
        n_classes: int,
        two_over_n: float,
        bounds: NDArray[np.float64],
    ) -> None:
        """Bound curvatures of columns; see `bigmc.kernels.linear.columns.loss_columns.largest_curvatures`."""
        loss_columns.largest_curvatures(self.loss.kernels, columns, samples, n_classes, two_over_n, bounds)

    def gradient_norms(
        self,
        columns: Columns,
        samples: Samples,
        level: Level,
        factor: NDArray[np.floating],
        support: Support,
        out: Measures,
    ) -> None:
        """Measure columns; see `bigmc.kernels.linear.columns.composite.gradient_norms`.

        Samples of a loss that keeps residuals have these instead of scores, with the factors in them.
        """
        if self.loss.keeps_residuals:
            log_columns.gradient_norms(self.penalty.kernel, columns, samples, level, support, out)
        elif self.specialised:
            squared_hinge.gradient_norms(columns, _one_label(samples), level, factor, support, out)
        else:
            pair = Pair(self.loss.kernels, self.penalty.kernel)
            composite.gradient_norms(pair, columns, samples, level, factor, support, out)


def _one_label(samples: Samples) -> Samples:
    """Return samples in the form of kernels for one label each."""
    return samples._replace(labels=samples.labels[:, 0])


def objective(
    loss: str, penalty: str, l1_ratio: float | None = None, ridge: float = 0.0, *, sets: bool | None = None
) -> Objective:
    """Return the objective with the named loss of `LOSSES` and penalty of `PENALTIES`; any pair is possible.

    `l1_ratio` is the share of the l1 norm, for the penalty ``"sparse_group"`` only, by default 0.5;
    `ridge` is the weight of the squared norm. If it is known whether labels are `sets`, the loss must
    take such labels. `BigmcError` if a name is unknown, with a list of the known ones, or a number is
    invalid.
    """
    known: tuple[tuple[str, str, Any], ...] = (("loss", loss, LOSSES), ("penalty", penalty, PENALTIES))
    for kind, name, names in known:
        if name not in names:
            raise BigmcError(f"no {kind} is called {name!r}", f"use one of {', '.join(sorted(names))}")
    if not (math.isfinite(ridge) and ridge >= 0):
        raise BigmcError(f"ridge is {ridge}", "give a finite number that is not negative")
    chosen = PENALTIES[penalty]
    if l1_ratio is not None:
        if chosen != SPARSE_GROUP:
            raise BigmcError(
                f"l1_ratio does not go with penalty {penalty}", f"leave it out, or use {SPARSE_GROUP.name}"
            )
        if not 0 <= l1_ratio <= 1:
            raise BigmcError(f"l1_ratio is {l1_ratio}", "give a number from 0 to 1")
        chosen = replace(chosen, l1_ratio=float(l1_ratio))
    minimised = LOSSES[loss]()
    if sets is not None and not (minimised.takes_sets if sets else minimised.takes_labels):
        others = sorted(
            name for name, other in LOSSES.items() if (other.takes_sets if sets else other.takes_labels)
        )
        has = "sets of labels" if sets else "one label per sample"
        raise BigmcError(
            f"the loss {loss} is not for data with {has}", f"use one of the losses {', '.join(others)}"
        )
    return Objective(minimised, chosen, float(ridge), bool(sets))
