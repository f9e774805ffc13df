"""Probabilities from scores: one or two numbers, fitted on rows that training did not see.

Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017, section 4.2: one
factor of all scores before the softmax, with the least log loss on held-out rows. Where each class was
trained against the rest, a sigmoid of every score, divided by their sum, fits better (Zadrozny and Elkan,
"Transforming classifier scores into accurate multiclass probability estimates", KDD 2002); the softmax is its
limit for very negative offsets. Where labels are sets, every class is a yes or no of its own, and Platt's
sigmoid (1999), shared by all classes, takes the place of both. The order of the classes stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax

from bigmc.errors import DataError, ModelError

SOFTMAX, SIGMOID = "softmax", "sigmoid"

_FITTED_ENTRIES = 500_000
"""Scores that two numbers are fitted to, at most."""

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
        Added to them before a sigmoid; else 0.
    link : {"softmax", "sigmoid"}
        What makes probabilities of the classes of one label.
    """

    scale: float = 1.0
    offset: float = 0.0
    link: str = SOFTMAX

    def __post_init__(self) -> None:
        if not (np.isfinite([self.scale, self.offset]).all() and self.scale > 0):
            raise ModelError(f"a calibration of scale {self.scale} and offset {self.offset}", "train again")
        if self.link not in (SOFTMAX, SIGMOID):
            raise ModelError(f"a calibration by {self.link!r}", "train again, or take the latest bigmc")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Calibration | None:
        """Return the calibration of `to_dict`; None of None."""
        if fields is None:
            return None
        return cls(float(fields["scale"]), float(fields["offset"]), str(fields.get("link", SOFTMAX)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is the label; a row adds up to 1."""
        logits = self.scale * scores
        if self.link == SIGMOID:
            logits = log_expit(logits + self.offset)
        found: NDArray[np.float64] = softmax(logits, axis=1)
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


def fit_shares(scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> Calibration:
    """Return the sigmoid whose shares have the least log loss, at most that of `fit_temperature`.

    Parameters and errors as there.
    """
    single = fit_temperature(scores, codes)
    some = slice(None, None, max(1, scores.size // _FITTED_ENTRIES))
    scores, codes = scores[some], codes[some]
    own = np.arange(len(codes)), codes

    def log_loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale = np.exp(parameters[0])
        logits = log_expit(scale * scores + parameters[1])
        shares = log_softmax(logits, axis=1)
        slope = np.exp(shares)
        slope[own] -= 1.0
        slope *= -np.expm1(logits)
        gradient = np.array([(slope * scores).sum() * scale, slope.sum()])
        return float(-shares[own].mean()), gradient / len(codes)

    first = float(np.log(single.scale))
    bounds = [_LOG_SCALES, (-30.0, 30.0)]
    starts = (np.array([first, offset]) for offset in (0.0, -4.0))
    found = min((minimize(log_loss, x, jac=True, bounds=bounds) for x in starts), key=lambda f: f.fun)
    if log_loss(np.array([first, -30.0]))[0] <= found.fun:
        return single
    return Calibration(float(np.exp(found.x[0])), float(found.x[1]), SIGMOID)


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
