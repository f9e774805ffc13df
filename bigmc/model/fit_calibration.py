"""Fit calibrations on rows that training did not see (`bigmc.model.calibration`).

A separate module, so that prediction does not import an optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.model.calibration import POWER, SIGMOID, Calibration

_FITTED_ENTRIES, _COARSE_ENTRIES = 500_000, 60_000
"""Maximum scores that parameters are fitted to, and those by which a start is chosen."""
_CHUNK_ENTRIES = 65_536
"""Scores processed at once: their intermediate results stay in the cache."""

_LOG_SCALES = (-7.0, 7.0)
"""Bounds of the logarithm of the factor."""
_OFFSETS, _LOG_POWERS = (-30.0, 30.0), (-4.0, 4.0)
_STARTS = (0.0, -4.0)
"""Offsets that are started from."""
_EVIDENCE = 1.0
"""Gain in log-likelihood that a power must bring, by Akaike's criterion for one number more."""
_TOL, _MOST_STEPS = 1e-6, 40
"""Expected decrease of the mean log loss below which the fit stops, and maximum steps."""
_FEW_ROWS = 3_000
"""Rows up to which a label counts as right with the chance (n + 1) / (n + 2) that Laplace's rule gives to
what happened n times of n, as Platt (1999) smooths his targets: scores that tell few rows apart without a
mistake would be made certainties, and one mistake later costs the log loss of thousands of rows."""
_LONGEST_STEP = 1.0
"""Of a parameter: the level sets of the loss are curved."""

_Link = Callable[
    [NDArray[np.float32], NDArray[np.float64]], tuple[NDArray[np.float32], list[NDArray[np.float32]]]
]
"""From scores and parameters to logits and their derivatives by each parameter."""


def fit_temperature(scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> Calibration:
    """Return the scale with the least log loss on rows that training did not see.

    `scores` has the shape (n_rows, n_classes), `codes` has the classes of the rows. `DataError` if there
    are no rows.
    """
    fit = _temperature(_HeldOut.of(scores, codes, _FITTED_ENTRIES))
    return Calibration(float(np.exp(fit.parameters[0])))


def fit_shares(scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> Calibration:
    """Return the power of sigmoids whose shares have the least log loss, at most that of `fit_temperature`.

    Parameters and errors as there.
    """
    rows = _HeldOut.of(scores, codes, _FITTED_ENTRIES)
    single = _temperature(rows)
    few = _HeldOut.of(scores, codes, _COARSE_ENTRIES)
    starts = (np.array([single.parameters[0], offset, 0.0]) for offset in _STARTS)
    start = min((_fisher_scoring(few, _power_of_sigmoid, x, 2) for x in starts), key=lambda fit: fit.loss)
    plain = _fisher_scoring(rows, _power_of_sigmoid, start.parameters, 2)
    bent = _fisher_scoring(rows, _power_of_sigmoid, plain.parameters, 3)
    if (min(plain.loss, single.loss) - bent.loss) * rows.n_rows > _EVIDENCE:
        scale, offset, power = np.exp(bent.parameters[0]), bent.parameters[1], np.exp(bent.parameters[2])
        return Calibration(float(scale), float(offset), POWER, float(power))
    if single.loss <= plain.loss:
        return Calibration(float(np.exp(single.parameters[0])))
    return Calibration(float(np.exp(plain.parameters[0])), float(plain.parameters[1]), SIGMOID)


class _HeldOut(NamedTuple):
    """Scores of rows that training did not see, in chunks, and the classes of these rows."""

    chunks: Sequence[tuple[NDArray[np.float32], NDArray[np.integer[Any]]]]
    n_rows: int

    @classmethod
    def of(cls, scores: NDArray[np.float64], codes: NDArray[np.integer[Any]], most_entries: int) -> _HeldOut:
        """Return evenly spaced rows with at most `most_entries` scores."""
        if not len(scores):
            raise DataError("no rows are left to calibrate probabilities on", "hold out more rows")
        some = slice(None, None, -(-scores.size // most_entries))
        scores, codes = scores[some], codes[some]
        step = max(1, _CHUNK_ENTRIES // scores.shape[1])
        chunks = [
            (np.ascontiguousarray(scores[lo : lo + step], np.float32), codes[lo : lo + step])
            for lo in range(0, len(scores), step)
        ]
        return cls(chunks, len(scores))


class _Fit(NamedTuple):
    """Parameters and their mean log loss."""

    parameters: NDArray[np.float64]
    loss: float


def _temperature(rows: _HeldOut) -> _Fit:
    return _fisher_scoring(rows, _softmax, np.zeros(1), 1)


def _softmax(
    scores: NDArray[np.float32], parameters: NDArray[np.float64]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return logits that are multiples of the scores; the parameter is the logarithm of the factor."""
    logits = np.float32(np.exp(parameters[0])) * scores
    return logits, [logits]


def _power_of_sigmoid(
    scores: NDArray[np.float32], parameters: NDArray[np.float64]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return powers of sigmoids; the parameters are log scale, offset and log power."""
    scale, offset, power = np.exp(parameters[0]), parameters[1], np.exp(parameters[2])
    scaled = np.float32(scale) * scores
    inner = scaled + np.float32(offset)
    tail = np.exp(-np.abs(inner))
    logits = np.minimum(inner, 0) - np.log(1 + tail)  # in single precision log1p is many times slower
    logits *= np.float32(power)
    by_offset = np.where(inner > 0, tail, np.float32(1)) / (1 + tail)
    by_offset *= np.float32(power)
    return logits, [by_offset * scaled, by_offset, logits]


def _fisher_scoring(rows: _HeldOut, link: _Link, start: NDArray[np.float64], n_free: int) -> _Fit:
    """Minimise the log loss over the first parameters by damped steps with the expected Hessian.

    Levenberg's damping as in Nocedal and Wright, Numerical Optimization, section 10.3, since scale, offset
    and power of a few rows nearly make up for one another.
    """
    lower, upper = np.array([_LOG_SCALES, _OFFSETS, _LOG_POWERS]).T[:, : len(start)]
    parameters, damping = start, 1e-3
    loss, gradient, curvature = _derivatives(rows, link, start, n_free)
    for _ in range(_MOST_STEPS):
        damped = curvature + np.diag(damping * np.diag(curvature) + 1e-12)
        step = -np.linalg.solve(damped, gradient)
        if -0.5 * (gradient @ step) < _TOL:
            break
        step /= max(1.0, np.abs(step).max() / _LONGEST_STEP)
        new = parameters.copy()
        new[:n_free] += step
        new = np.clip(new, lower, upper)
        derivatives = _derivatives(rows, link, new, n_free)
        if derivatives[0] < loss:
            parameters, (loss, gradient, curvature), damping = new, derivatives, max(damping / 10, 1e-9)
        else:
            damping *= 10
    return _Fit(parameters, loss)


def _derivatives(
    rows: _HeldOut, link: _Link, parameters: NDArray[np.float64], n_free: int
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean log loss, its gradient, and its Hessian as expected by the probabilities."""
    loss, gradient, curvature = 0.0, np.zeros(n_free), np.zeros((n_free, n_free))
    doubt = 1.0 / (rows.n_rows + 2) if rows.n_rows <= _FEW_ROWS else 0.0
    for scores, codes in rows.chunks:
        logits, derivatives = link(scores, parameters)
        own = np.arange(len(codes)), codes
        largest = logits.max(axis=1, keepdims=True)
        chances = np.exp(logits - largest)
        total = chances.sum(axis=1, keepdims=True)
        chances /= total
        loss += float((np.log(total) + largest)[:, 0].sum(dtype=np.float64) - _expected(logits, own, doubt))
        parts = [(d, chances * d) for d in derivatives[:n_free]]
        means = [weighted.sum(axis=1) for _, weighted in parts]
        for i, (derivative, weighted) in enumerate(parts):
            gradient[i] += means[i].sum(dtype=np.float64) - _expected(derivative, own, doubt)
            for j in range(i + 1):
                entry = np.vdot(weighted, parts[j][0]) - np.vdot(means[i], means[j])
                curvature[i, j] += entry
                curvature[j, i] = curvature[i, j]
    return loss / rows.n_rows, gradient / rows.n_rows, curvature / rows.n_rows


def _expected(
    values: NDArray[np.float32], own: tuple[NDArray[np.int64], NDArray[np.integer[Any]]], doubt: float
) -> float:
    """Return the sum over rows of the values of their labels, or with a chance `doubt` of another class."""
    right = float(values[own].sum(dtype=np.float64))
    if doubt == 0.0:
        return right
    others = float(values.sum(dtype=np.float64)) - right
    return (1.0 - doubt) * right + doubt * others / max(len(values[0]) - 1, 1)


def fit_sigmoid(scores: NDArray[np.float64], is_label: NDArray[np.bool_]) -> Calibration:
    """Return the sigmoid with the least log loss over all pairs of a row and a class.

    The targets are Platt's (1999): of n pairs of a row and its label, each counts as right with the chance
    (n + 1) / (n + 2), and so do the others: the slope would have no limit if scores told all pairs apart.

    `scores` and `is_label` have the shape (n_rows, n_classes), of rows that training did not see.
    `DataError` if there are no rows.
    """
    from scipy.optimize import minimize  # 13 MB that only sets of labels have a use for

    if not len(scores):
        raise DataError("no rows are left to calibrate probabilities on", "hold out more rows")

    n_labels = int(is_label.sum())
    n_others = is_label.size - n_labels
    targets = np.where(is_label, (n_labels + 1) / (n_labels + 2), 1 / (n_others + 2))

    def log_loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale = np.exp(parameters[0])
        logits = scale * scores + parameters[1]
        value = (np.logaddexp(0.0, logits) - targets * logits).mean()
        gradient = scipy.special.expit(logits) - targets
        return float(value), np.array([(gradient * scores).mean() * scale, gradient.mean()])

    bounds = [_LOG_SCALES, (-50.0, 50.0)]
    minimum = minimize(log_loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds)
    return Calibration(float(np.exp(minimum.x[0])), float(minimum.x[1]))
