"""The objective of a ridge problem on a dense matrix of its rows, in whitened coordinates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from bigmc.engine import Engine
from bigmc.objectives.losses import LogLoss, MultitaskSquaredHinge
from bigmc.store.files.file_array import give_back_pages

_AT_ONCE = 2048
"""Rows whose scores are in memory together."""
_DAMPING = 1e-6
"""Share of its diagonal that is added to the Gram matrix: the intercept has no ridge."""

Own = tuple[NDArray[np.intp], NDArray[np.int32]]
"""Places of rows and the codes of their labels."""
Differentiate = Callable[[NDArray[np.float32], Own], NDArray[np.float32]]
"""Function that turns scores into derivatives of a loss by them, in place, and returns each row's loss."""


def _squared_hinge(scores: NDArray[np.float32], own: Own) -> NDArray[np.float32]:
    right = 1.0 - scores[own]
    scores += 1.0
    scores[own] = right
    np.maximum(scores, 0.0, out=scores)
    losses: NDArray[np.float32] = np.einsum("ir,ir->i", scores, scores)
    scores *= 2.0
    scores[own] *= -1.0
    return losses


def _log_loss(scores: NDArray[np.float32], own: Own) -> NDArray[np.float32]:
    scores -= scores.max(axis=1, keepdims=True)
    right = scores[own]
    np.exp(scores, out=scores)
    total = scores.sum(axis=1)
    scores /= total[:, None]
    scores[own] -= 1.0
    losses: NDArray[np.float32] = np.log(total) - right
    return losses


LOSSES: dict[str, tuple[Differentiate, float]] = {
    MultitaskSquaredHinge.name: (_squared_hinge, 2.0),
    LogLoss.name: (_log_loss, 0.5),
}
"""Losses, and a bound of their second derivatives."""


class DenseRows(NamedTuple):
    """Weighted rows.

    Attributes
    ----------
    values : float32 array of shape (n_rows, n_features + 1)
        With a constant; in memory or in a file.
    row_weights : float32 array of shape (n_rows,)
    targets : int32 array of shape (n_rows, most labels of a row)
        Classes, -1 after the last.
    """

    values: NDArray[np.float32]
    row_weights: NDArray[np.float32]
    targets: NDArray[np.int32]

    def own(self, some: slice) -> Own:
        """Return where the labels of some rows are among their scores."""
        targets = self.targets[some]
        rows, places = np.nonzero(targets >= 0)
        return rows, targets[rows, places]

    def of_class(self, rows: NDArray[np.intp], r: int) -> DenseRows:
        """Return some rows in memory, with one class: whether they are of class r."""
        is_own = (self.targets[rows] == r).any(axis=1, keepdims=True)
        return DenseRows(self.values[rows], self.row_weights[rows], is_own.astype(np.int32) - 1)


class Point(NamedTuple):
    """Whitened weights, the objective there and its gradients, and a bound of its distance to the minimum.

    Attributes
    ----------
    gradient, slopes : float64 arrays of shape (n_features + 1, n_classes)
        By the whitened weights, and by the weights.
    """

    place: NDArray[np.float64]
    weights: NDArray[np.float64]
    objective: float
    gradient: NDArray[np.float64]
    slopes: NDArray[np.float64]
    gap: float


class Stop(NamedTuple):
    """When a descent is given up: at a time of `time.monotonic`, or after a number of evaluations."""

    ends: float = math.inf
    most_reads: float = math.inf


@dataclass
class DenseProblem:
    """Sum of the losses of weighted rows, and half the squared weights times their ridges.

    Attributes
    ----------
    loss : str
        One of `LOSSES`.
    ridges : float64 array of shape (n_features + 1,)
        0 for the intercept.
    factor : float64 array of shape (n_features + 1, n_features + 1)
        Cholesky factor of the bound of the Hessian of each class.
    n_reads : int
        Times that all rows were gone through: for the factor, and for each evaluation.
    """

    rows: DenseRows
    loss: str
    n_classes: int
    ridges: NDArray[np.float64]
    factor: NDArray[np.float64]
    engine: Engine
    stop: Stop
    n_reads: int = 1

    @classmethod
    def of(
        cls,
        rows: DenseRows,
        loss: str,
        n_classes: int,
        ridges: NDArray[np.float64],
        engine: Engine,
        stop: Stop,
    ) -> Self | None:
        """Return the problem of rows; None without a factorisation."""
        gram = np.zeros((len(ridges), len(ridges)))
        for some in _spans(len(rows.values)):
            gram += rows.values[some].T @ (rows.row_weights[some, None] * rows.values[some])
            give_back_pages(rows.values[some])
        gram *= LOSSES[loss][1]
        diagonal = gram.diagonal()
        gram[np.diag_indices_from(gram)] += ridges + np.where(diagonal > 0, _DAMPING * diagonal, 1.0)
        factor, failed = lapack.dpotrf(gram, lower=1)
        return None if failed else cls(rows, loss, n_classes, ridges, factor, engine, stop)

    @property
    def is_over(self) -> bool:
        """Whether no further evaluation may be made."""
        return self.n_reads >= self.stop.most_reads or time.monotonic() >= self.stop.ends

    def place_of(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return weights, whitened."""
        return self.factor.T @ weights

    def at(self, place: NDArray[np.float64], margins: NDArray[np.float32] | None = None) -> Point:
        """Return the objective and its derivatives at whitened weights.

        Parameters
        ----------
        margins : float32 array of shape (n_classes, n_rows), optional
            Set to the margin of each row to each class, the score or its negative; infinite without a weight.
        """
        weights = solve_triangular(self.factor, place, lower=True, trans="T", check_finite=False)
        single, differentiate = weights.astype(np.float32), LOSSES[self.loss][0]
        self.n_reads += 1

        def work(some: slice) -> tuple[float, NDArray[np.float32]]:
            values, row_weights, own = (
                self.rows.values[some],
                self.rows.row_weights[some],
                self.rows.own(some),
            )
            scores = values @ single
            if margins is not None:
                margins[:, some] = _margins(scores, own, row_weights)
            loss = differentiate(scores, own) @ row_weights.astype(np.float64)
            scores *= row_weights[:, None]
            slope = values.T @ scores
            give_back_pages(values)
            return float(loss), slope

        gradient = self.ridges[:, None] * weights
        objective = 0.5 * float(np.vdot(weights, gradient))
        for _, (loss, slope) in self.engine.map(work, _spans(len(self.rows.values))):
            objective += loss
            gradient += slope
        whitened = solve_triangular(self.factor, gradient, lower=True, check_finite=False)
        gap = float(np.einsum("jr,jr,j->", gradient[:-1], gradient[:-1], 0.5 / self.ridges[:-1]))
        gap = max(gap, 0.5 * float(np.vdot(whitened, whitened)))  # the intercept has no ridge
        return Point(place, weights, objective, whitened, gradient, gap)


def _margins(scores: NDArray[np.float32], own: Own, row_weights: NDArray[np.float32]) -> NDArray[np.float32]:
    margins = -scores
    margins[own] *= -1.0
    margins[row_weights == 0] = np.inf
    return margins.T


def _spans(n_rows: int) -> list[slice]:
    return [slice(lo, lo + _AT_ONCE) for lo in range(0, n_rows, _AT_ONCE)]


def bytes_of_part(width: int, n_classes: int) -> int:
    """Return the bytes of the rows that are evaluated at once, of this number of values."""
    return 4 * _AT_ONCE * (width + 2 * n_classes) + 12 * width * n_classes
