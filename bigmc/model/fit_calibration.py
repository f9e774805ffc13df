"""Fit how scores become probabilities, on rows that training did not see (`bigmc.model.calibration`).

Apart from what applies a calibration, so that prediction does not import an optimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, log_softmax

from bigmc.errors import DataError
from bigmc.model.calibration import POWER, SIGMOID, Calibration

_FITTED_ENTRIES = 500_000
"""Scores that several numbers are fitted to, at most."""

_LOG_SCALES = (-7.0, 7.0)
"""Bounds of the logarithm of the factor."""
_OFFSETS, _LOG_POWERS = (-30.0, 30.0), (-4.0, 4.0)
_EVIDENCE = 1.0
"""Gain in log-likelihood that a power must bring, by Akaike's criterion for one number more."""


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
    """Return the power of sigmoids whose shares have the least log loss, at most that of `fit_temperature`.

    Parameters and errors as there.
    """
    single = fit_temperature(scores, codes)
    some = slice(None, None, max(1, scores.size // _FITTED_ENTRIES))
    scores, codes = scores[some], codes[some]
    own = np.arange(len(codes)), codes

    def log_loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale, power = np.exp(parameters[0]), np.exp(parameters[2])
        logits = log_expit(scale * scores + parameters[1])
        shares = log_softmax(power * logits, axis=1)
        slope = np.exp(shares)
        slope[own] -= 1.0
        by_power = (slope * logits).sum()
        slope *= -np.expm1(logits)
        gradient = power * np.array([(slope * scores).sum() * scale, slope.sum(), by_power])
        return float(-shares[own].mean()), gradient / len(codes)

    first = float(np.log(single.scale))
    starts = (np.array([first, offset, 0.0]) for offset in (0.0, -4.0))
    plain = min((_minimised(log_loss, x, (0.0, 0.0)) for x in starts), key=lambda f: f.fun)
    bent = _minimised(log_loss, plain.x, _LOG_POWERS)
    if (plain.fun - bent.fun) * len(codes) > _EVIDENCE:
        scale, offset, power = np.exp(bent.x[0]), bent.x[1], np.exp(bent.x[2])
        return Calibration(float(scale), float(offset), POWER, float(power))
    if log_loss(np.array([first, _OFFSETS[0], 0.0]))[0] <= plain.fun:
        return single
    return Calibration(float(np.exp(plain.x[0])), float(plain.x[1]), SIGMOID)


def _minimised(loss: Callable[..., Any], start: NDArray[np.float64], log_powers: tuple[float, float]) -> Any:
    bounds = [_LOG_SCALES, _OFFSETS, log_powers]
    return minimize(loss, start, jac=True, bounds=bounds)


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
