"""A factor and an offset for the scores of each class, fitted on rows that training did not see.

Where each class is trained against the rest, the scores of rare classes spread otherwise than those of
frequent ones, and one map of all scores to probabilities fits neither. Vector scaling gives each class its
own factor and offset before a softmax (Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural
networks", ICML 2017, section 4.2). Here they are shrunk towards one factor and no offsets, and become part of
the weights, so that the class with the largest score stays the most probable one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.model.calibration import Calibration
from bigmc.model.fit_calibration import fit_temperature
from bigmc.training.search.trials import log_losses

SHRINKAGE = 10.0
"""Weight, in rows, of the squared deviation of a factor from the mean one, and of the squared offset in units
of the logits. On six sets of short texts 20 was best with 400 rows, and 1 with 4,000."""
ROWS_PER_CLASS, MOST_ENTRIES = 10, 1_000_000
"""Minimum rows to fit to, for each class, and maximum scores."""
SURE, WRONG = 1.0, 1.0
"""Standard errors of the difference by which the log loss of other rows must fall, and by which the share of
them that are right may."""
_PARTS = 4
_MOST_STEPS, _TOL, _SHORTEST, _DAMPING = 30, 1e-6, 1e-3, 1e-9
_LEAST_FACTOR = 0.1
"""Of the mean one: a factor of 0 or less would reverse the order of the scores of a class."""


class ClassScales(NamedTuple):
    """Scores of class ``k`` are multiplied by ``factors[k]``, then ``offsets[k]`` is added."""

    factors: tuple[float, ...]
    offsets: tuple[float, ...]

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scaled scores, shape (n_rows, n_classes)."""
        scaled: NDArray[np.float64] = scores * np.array(self.factors) + np.array(self.offsets)
        return scaled


def choose_class_scales(
    scores: NDArray[np.float64], codes: NDArray[np.integer[Any]], calibration: Calibration
) -> ClassScales | None:
    """Return the scales of these rows; None if they are too few, or gain nothing by scales of other rows.

    Each quarter of the rows judges scales of the others, with a softmax: its log loss is compared with that
    of the unscaled scores and their calibration. Other parameters as of `fit_class_scales`.
    """
    some = slice(None, None, -(-scores.size // MOST_ENTRIES))
    scores, codes = scores[some], codes[some]
    n_rows, n_classes = scores.shape
    if n_rows < ROWS_PER_CLASS * n_classes:
        return None
    less = log_losses(calibration, scores, codes)
    right = -1.0 * (scores.argmax(axis=1) == codes)
    for number in range(_PARTS):
        judged = np.arange(n_rows) % _PARTS == number
        scales = fit_class_scales(scores[~judged], codes[~judged])
        softmax = fit_temperature(scales(scores[~judged]), codes[~judged])
        after = scales(scores[judged])
        less[judged] -= log_losses(softmax, after, codes[judged])
        right[judged] += after.argmax(axis=1) == codes[judged]
    if _in_errors(less) <= SURE or _in_errors(right) < -WRONG:
        return None
    return fit_class_scales(scores, codes)


def fit_class_scales(
    scores: NDArray[np.float64], codes: NDArray[np.integer[Any]], shrinkage: float = SHRINKAGE
) -> ClassScales:
    """Return the factors, 1 on average, and offsets with the least penalised log loss of a softmax.

    It is a convex function of both, minimised by Newton steps.

    Parameters
    ----------
    scores : float64 array of shape (n_rows, n_classes)
        Scores of rows that training did not see.
    codes : integer array of shape (n_rows,)
        Their classes.
    """
    temperature = fit_temperature(scores, codes).scale
    problem = _Problem.of(temperature * scores, codes, shrinkage)
    n_classes = scores.shape[1]
    x = np.concatenate([np.ones(n_classes), np.zeros(n_classes)])
    loss, chances = problem.loss(x)
    for _ in range(_MOST_STEPS):
        gradient, curvature = problem.derivatives(x, chances)
        step = -np.linalg.solve(curvature + _DAMPING * np.eye(len(x)), gradient)
        if -0.5 * (gradient @ step) < _TOL:
            break
        length = 1.0
        new_loss, new_chances = problem.loss(x + step)
        while new_loss >= loss and length > _SHORTEST:
            length /= 2.0
            new_loss, new_chances = problem.loss(x + length * step)
        if new_loss >= loss:
            break
        x, loss, chances = x + length * step, new_loss, new_chances
    factors, offsets = x[:n_classes], x[n_classes:]
    mean = max(float(factors.mean()), _LEAST_FACTOR)
    factors, offsets = np.maximum(factors / mean, _LEAST_FACTOR), offsets / (mean * temperature)
    return ClassScales(tuple(factors.tolist()), tuple(offsets.tolist()))


def _in_errors(differences: NDArray[np.float64]) -> float:
    """Return the mean in standard errors."""
    error = float(differences.std()) / math.sqrt(len(differences))
    return float(differences.mean()) / max(error, 1e-12)


class _Problem(NamedTuple):
    """Log loss of logits with a factor and an offset for each class, and the penalty of these."""

    logits: NDArray[np.float32]
    codes: NDArray[np.integer[Any]]
    penalty: NDArray[np.float64]
    right: NDArray[np.float64]

    @classmethod
    def of(cls, logits: NDArray[np.float64], codes: NDArray[np.integer[Any]], shrinkage: float) -> Self:
        """Return the problem of these logits."""
        n_rows, n = logits.shape
        penalty = np.zeros((2 * n, 2 * n))
        penalty[:n, :n] = np.eye(n) - 1.0 / n  # of the deviations from the mean factor
        penalty[n:, n:] = np.eye(n)
        own = np.bincount(codes, logits[np.arange(n_rows), codes], n)
        right = np.concatenate([own, np.bincount(codes, minlength=n)]) / n_rows
        return cls(logits.astype(np.float32), codes, penalty * (2.0 * shrinkage / n_rows), right)

    def loss(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float32]]:
        """Return the mean loss with the penalty, and the probabilities."""
        n_rows, n = self.logits.shape
        chances = self.logits * x[:n].astype(np.float32) + x[n:].astype(np.float32)
        chances -= chances.max(axis=1, keepdims=True)
        own = chances[np.arange(n_rows), self.codes].sum(dtype=np.float64)
        np.exp(chances, out=chances)
        total = chances.sum(axis=1, keepdims=True)
        chances /= total
        loss = (np.log(total).sum(dtype=np.float64) - own) / n_rows
        return float(loss + 0.5 * x @ self.penalty @ x), chances

    def derivatives(
        self, x: NDArray[np.float64], chances: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the gradient and the Hessian."""
        n_rows, n = self.logits.shape
        parts = np.concatenate([chances * self.logits, chances], axis=1)
        expected = parts.sum(axis=0, dtype=np.float64) / n_rows
        squares = np.einsum("ij,ij->j", parts[:, :n], self.logits, dtype=np.float64) / n_rows
        curvature = self.penalty - (parts.T @ parts).astype(np.float64) / n_rows
        k = np.arange(n)
        curvature[k, k] += squares
        curvature[k + n, k + n] += expected[n:]
        curvature[k, k + n] += expected[:n]
        curvature[k + n, k] += expected[:n]
        return expected - self.right + self.penalty @ x, curvature
