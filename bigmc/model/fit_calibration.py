"""Fit how scores become probabilities, on rows that training did not see (`bigmc.model.calibration`).

Apart from what applies a calibration, so that prediction does not import an optimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit

from bigmc.errors import DataError
from bigmc.model.calibration import Calibration

_LOG_SCALES = (-7.0, 7.0)
"""Bounds of the logarithm of the factor."""


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
