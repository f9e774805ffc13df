"""Probabilities from scores: temperature scaling, fitted on rows that training did not see.

Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017, section 4.2: one
factor of all scores before the softmax, with the least log loss on held-out rows. It leaves the order of the
classes as it is. Where labels are sets, every class is a yes or no of its own, and Platt's sigmoid (1999),
shared by all classes, takes the place of the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, softmax

from bigmc.errors import DataError, ModelError

_LOG_SCALES = (-7.0, 7.0)
"""Bounds of the logarithm of the factor."""

MOST_ROWS = 20_000
"""Rows that calibration uses at most: one or two numbers need no more."""


@dataclass(frozen=True)
class Calibration:
    """The map from scores to probabilities.

    Attributes
    ----------
    scale : float
        Factor of the scores, above 0.
    offset : float
        Added to them where labels are sets; else 0.
    """

    scale: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite([self.scale, self.offset]).all() and self.scale > 0):
            raise ModelError(f"a calibration of scale {self.scale} and offset {self.offset}", "train again")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Calibration | None:
        """Return the calibration of `to_dict`; None of None."""
        return None if fields is None else cls(float(fields["scale"]), float(fields["offset"]))

    def to_dict(self) -> dict[str, float]:
        """Return the fields for JSON."""
        return asdict(self)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is the label; a row adds up to 1."""
        found: NDArray[np.float64] = softmax(self.scale * scores, axis=1)
        return found

    def memberships(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is among the labels."""
        found: NDArray[np.float64] = expit(self.scale * scores + self.offset)
        return found


def fit_temperature(scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> Calibration:
    """Return the scale with the least log loss.

    Parameters
    ----------
    scores : float64 array of shape (n_rows, n_classes)
        Of rows that training did not see.
    codes : integer array of shape (n_rows,)
        Their classes.

    Raises
    ------
    DataError
        If there are no rows.
    """
    if not len(scores):
        raise DataError("no rows are left to calibrate probabilities on", "hold out more of the rows")
    own = scores[np.arange(len(codes)), codes]
    below = scores - scores.max(axis=1, keepdims=True)
    own = own - scores.max(axis=1)

    def log_loss(log_scale: float) -> float:
        scaled = np.exp(log_scale) * below
        return float(np.log(np.exp(scaled).sum(axis=1)).mean() - np.exp(log_scale) * own.mean())

    found = minimize_scalar(log_loss, bounds=_LOG_SCALES, method="bounded", options={"xatol": 1e-6})
    return Calibration(float(np.exp(found.x)))


def fit_sigmoid(scores: NDArray[np.float64], is_label: NDArray[np.bool_]) -> Calibration:
    """Return the sigmoid with the least log loss over all pairs of a row and a class.

    Parameters
    ----------
    scores : float64 array of shape (n_rows, n_classes)
        Of rows that training did not see.
    is_label : bool array of shape (n_rows, n_classes)

    Raises
    ------
    DataError
        If there are no rows.
    """
    if not len(scores):
        raise DataError("no rows are left to calibrate probabilities on", "hold out more of the rows")

    def log_loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale = np.exp(parameters[0])
        logits = scale * scores + parameters[1]
        value = np.logaddexp(0.0, np.where(is_label, -logits, logits)).mean()
        slope = expit(logits) - is_label
        return float(value), np.array([(slope * scores).mean() * scale, slope.mean()])

    found = minimize(log_loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[_LOG_SCALES, (-50.0, 50.0)])
    return Calibration(float(np.exp(found.x[0])), float(found.x[1]))
