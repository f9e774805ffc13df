"""Fit calibrations on rows that training did not see (`bigmc.model.calibration`).

A separate module, so that prediction does not import an optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.model.calibration import POWER, SIGMOID, SOFTMAX, Calibration

_FITTED_ENTRIES, _COARSE_ENTRIES = 500_000, 60_000
"""Maximum scores that parameters are fitted to, and those by which a start is chosen."""
_CHUNK_ENTRIES = 65_536
"""Scores processed at once: their intermediate results stay in the cache."""

_LOG_SCALES = (-7.0, 7.0)
"""Bounds of the logarithm of the factor."""
_OFFSETS, _LOG_POWERS, _NOISES = (-30.0, 30.0), (-4.0, 4.0), (-10.0, 3.0)
"""Bounds of the offset, the logarithm of the power, and the logit of the label noise."""
_STARTS = (0.0, -4.0)
"""Offsets that are started from."""
_NOISY_STARTS = ((0.0, -5.0), (1.0, -1.0))
"""What is added to the logarithm of the factor, and the logits of the label noise, that are started from:
without noise the factor is lower, to be less sure of the labels that are wrong."""
_EVIDENCE = 1.0
"""Gain in log-likelihood that a power must bring, by Akaike's criterion for one number more. For label noise
it is ``log(n_rows)``, twice Schwarz's: among few rows a steep curve with noise fits a wrong one or two, and
held to half of that the log loss of new rows rose on four of five tables of 270 to 690 rows."""
_TOL, _MOST_STEPS = 1e-6, 40
"""Expected decrease of the mean log loss below which the fit stops, and maximum steps."""
_FEW_ROWS = 3_000
"""Rows up to which a label counts as right with the chance (n + 1) / (n + 2) that Laplace's rule gives to
what happened n times of n, as Platt (1999) smooths his targets: scores that tell few rows apart without a
mistake would be made certainties, and one mistake later costs the log loss of thousands of rows."""
_LONGEST_STEP = 1.0
"""Of all parameters together: the level sets of the loss are curved."""

_Link = Callable[
    [NDArray[np.float32], NDArray[np.float64]], tuple[NDArray[np.float32], list[NDArray[np.float32]]]
]
"""From scores and parameters to logits and their derivatives by each parameter, all class after class."""


def fit_temperature(scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> Calibration:
    """Return the scale, and the label noise if there is any, with the least log loss.

    `scores`, of shape (n_rows, n_classes), and classes are those of rows that training did not see.
    `DataError` if there are no rows.
    """
    rows = _Rows.of(scores, codes)
    return rows.with_noise(_SOFTMAX, rows.temperature())


def fit_shares(scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> Calibration:
    """Return the power of sigmoids whose shares have the least log loss, at most that of `fit_temperature`.

    Parameters and errors as there.
    """
    rows = _Rows.of(scores, codes)
    single = rows.temperature()
    starts = (np.array([single.parameters[0], offset]) for offset in _STARTS)
    plain = rows.best_of(_SIGMOID, starts)
    bent = _fisher_scoring(rows.all, _POWER, np.append(plain.parameters, 0.0))
    if (min(plain.loss, single.loss) - bent.loss) * rows.all.n_rows > _EVIDENCE:
        return rows.with_noise(_POWER, bent)
    return rows.with_noise(*((_SOFTMAX, single) if single.loss <= plain.loss else (_SIGMOID, plain)))


class _HeldOut(NamedTuple):
    """Scores of rows that training did not see, in chunks, and the classes of these rows.

    A chunk has the shape (n_classes, n_rows): with the few classes of a row side by side, sums over them take
    a hundred times as long. `doubt` is the chance that a label is counted as another one.
    """

    chunks: list[tuple[NDArray[np.float32], NDArray[np.integer[Any]]]]
    n_rows: int
    doubt: float

    @classmethod
    def of(cls, scores: NDArray[np.float64], codes: NDArray[np.integer[Any]], most_entries: int) -> _HeldOut:
        """Return evenly spaced rows with at most `most_entries` scores."""
        if not len(scores):
            raise DataError("no rows are left to calibrate probabilities on", "hold out more rows")
        some = slice(None, None, -(-scores.size // most_entries))
        scores, codes = scores[some], codes[some]
        step = max(1, _CHUNK_ENTRIES // scores.shape[1])
        chunks = [
            (np.ascontiguousarray(scores[lo : lo + step].T, np.float32), codes[lo : lo + step])
            for lo in range(0, len(scores), step)
        ]
        return cls(chunks, len(scores), 1.0 / (len(scores) + 2) if len(scores) <= _FEW_ROWS else 0.0)


class _Fit(NamedTuple):
    """Parameters and their mean log loss."""

    parameters: NDArray[np.float64]
    loss: float


class _Curve(NamedTuple):
    """A map from scores to probabilities, with the bounds of its parameters."""

    name: str
    link: _Link
    bounds: tuple[tuple[float, float], ...]

    def with_noise(self) -> _Curve:
        """Return the mixture with the uniform distribution; the last parameter is the logit of its share."""

        def link(
            scores: NDArray[np.float32], parameters: NDArray[np.float64]
        ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
            logits, derivatives = self.link(scores, parameters[:-1])
            chances = np.exp(logits - logits.max(axis=0))
            chances /= chances.sum(axis=0)
            noise, uniform = np.float32(_share(parameters[-1])), np.float32(1.0 / len(scores))
            mixed = (1 - noise) * chances + noise * uniform
            clean = (1 - noise) * chances / mixed
            changes = [clean * (d - (chances * d).sum(axis=0)) for d in derivatives]
            return np.log(mixed), [*changes, noise * (1 - noise) * (uniform - chances) / mixed]

        return _Curve(self.name, link, (*self.bounds, _NOISES))

    def calibration(self, parameters: NDArray[np.float64], label_noise: float = 0.0) -> Calibration:
        """Return the calibration with these parameters of a curve without noise."""
        scale, offset, power = (*parameters.tolist(), 0.0, 0.0)[:3]
        return Calibration(float(np.exp(scale)), offset, self.name, float(np.exp(power)), label_noise)


class _Rows(NamedTuple):
    """Held-out rows: those that parameters are fitted to, and fewer by which a start is chosen."""

    all: _HeldOut
    few: _HeldOut

    @classmethod
    def of(cls, scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> _Rows:
        return cls(*(_HeldOut.of(scores, codes, most) for most in (_FITTED_ENTRIES, _COARSE_ENTRIES)))

    def temperature(self) -> _Fit:
        """Return the factor with the least log loss."""
        return _fisher_scoring(self.all, _SOFTMAX, np.zeros(1))

    def best_of(self, curve: _Curve, starts: Iterable[NDArray[np.float64]]) -> _Fit:
        """Return the parameters of a curve found from the best start."""
        best = min((_fisher_scoring(self.few, curve, start) for start in starts), key=lambda fit: fit.loss)
        return _fisher_scoring(self.all, curve, best.parameters)

    def with_noise(self, curve: _Curve, clean: _Fit) -> Calibration:
        """Return the calibration by a curve, with label noise if that explains the labels better."""
        starts = [
            np.array([clean.parameters[0] + more, *clean.parameters[1:], noise])
            for more, noise in _NOISY_STARTS
        ]
        noisy = self.best_of(curve.with_noise(), starts)
        rows = self.all._replace(doubt=0.0)  # which random labels would explain
        before = _derivatives(rows, curve, clean.parameters)[0]
        after = _derivatives(rows, curve.with_noise(), noisy.parameters)[0]
        if (before - after) * rows.n_rows > np.log(rows.n_rows):
            return curve.calibration(noisy.parameters[:-1], _share(noisy.parameters[-1]))
        return curve.calibration(clean.parameters)


def _share(logit: float) -> float:
    return float(1.0 / (1.0 + np.exp(-logit)))


def _softmax(
    scores: NDArray[np.float32], parameters: NDArray[np.float64]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return logits that are multiples of the scores; the parameter is the logarithm of the factor."""
    logits = np.float32(np.exp(parameters[0])) * scores
    return logits, [logits]


def _power_of_sigmoid(
    scores: NDArray[np.float32], parameters: NDArray[np.float64]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return powers of sigmoids; the parameters are log scale, offset and, unless it is 0, log power."""
    scale, offset = np.exp(parameters[0]), parameters[1]
    power = np.float32(np.exp(parameters[2]) if len(parameters) > 2 else 1.0)
    scaled = np.float32(scale) * scores
    inner = scaled + np.float32(offset)
    tail = np.exp(-np.abs(inner))
    logits = np.minimum(inner, 0) - np.log(1 + tail)  # in single precision log1p is many times slower
    logits *= power
    by_offset = np.where(inner > 0, tail, np.float32(1)) / (1 + tail)
    by_offset *= power
    return logits, [by_offset * scaled, by_offset, logits][: len(parameters)]


_SOFTMAX = _Curve(SOFTMAX, _softmax, (_LOG_SCALES,))
_SIGMOID = _Curve(SIGMOID, _power_of_sigmoid, (_LOG_SCALES, _OFFSETS))
_POWER = _Curve(POWER, _power_of_sigmoid, (_LOG_SCALES, _OFFSETS, _LOG_POWERS))


def _fisher_scoring(rows: _HeldOut, curve: _Curve, start: NDArray[np.float64]) -> _Fit:
    """Minimise the log loss by steps with the expected Hessian, of at most a length that what they gain sets.

    A trust region, as in Nocedal and Wright, Numerical Optimization, algorithm 4.1: scale, offset and power
    of a few rows nearly make up for one another, so that the loss hardly changes along some line. There a
    step has to be short, but not in other directions.
    """
    lower, upper = np.array(curve.bounds).T
    parameters, radius = start, _LONGEST_STEP
    loss, gradient, curvature = _derivatives(rows, curve, start)
    for _ in range(_MOST_STEPS):
        # what is at a bound stays, where the loss would fall beyond it
        kept = ((parameters <= lower) & (gradient > 0)) | ((parameters >= upper) & (gradient < 0))
        free = np.flatnonzero(~kept)
        step = np.zeros(len(parameters))
        step[free] = _step_within(radius, gradient[free], curvature[np.ix_(free, free)])
        expected = -(gradient @ step) - 0.5 * (step @ curvature @ step)
        if not expected >= _TOL:  # nor if scores are so large that it is no number
            break
        new = np.clip(parameters + step, lower, upper)
        derivatives = _derivatives(rows, curve, new)
        gained = loss - derivatives[0]
        if gained > 0.0:
            parameters, (loss, gradient, curvature) = new, derivatives
        if gained > 0.75 * expected:
            radius = min(2.0 * radius, _LONGEST_STEP)
        elif not gained >= 0.25 * expected:
            radius = 0.25 * float(np.linalg.norm(step))
    return _Fit(parameters, loss)


def _step_within(
    radius: float, gradient: NDArray[np.float64], curvature: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the step of the least value by a quadratic model among those of at most a length."""
    if not (len(gradient) and np.isfinite(curvature).all()):
        return np.zeros(len(gradient))
    curvatures, directions = np.linalg.eigh(curvature)
    curvatures = np.maximum(curvatures, 1e-12)
    along, damping = directions.T @ gradient, 0.0
    for _ in range(_MOST_STEPS):  # Newton's, for the damping that gives this length
        step: NDArray[np.float64] = along / (curvatures + damping)
        length = float(np.linalg.norm(step))
        if length <= 1.01 * radius:
            break
        slope = float((step**2 / (curvatures + damping)).sum())
        damping += length**2 / slope * (length - radius) / radius
    moved: NDArray[np.float64] = -directions @ step
    return moved


def _derivatives(
    rows: _HeldOut, curve: _Curve, parameters: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean log loss, its gradient, and its Hessian as expected by the probabilities."""
    n = len(parameters)
    loss, gradient, curvature, doubt = 0.0, np.zeros(n), np.zeros((n, n)), rows.doubt
    for scores, codes in rows.chunks:
        logits, derivatives = curve.link(scores, parameters)
        own = codes, np.arange(len(codes))
        largest = logits.max(axis=0)
        chances = np.exp(logits - largest)
        total = chances.sum(axis=0)
        chances /= total
        loss += float((np.log(total) + largest).sum(dtype=np.float64) - _expected(logits, own, doubt))
        parts = [(d, chances * d) for d in derivatives]
        means = [weighted.sum(axis=0) for _, weighted in parts]
        for i, (derivative, weighted) in enumerate(parts):
            gradient[i] += means[i].sum(dtype=np.float64) - _expected(derivative, own, doubt)
            for j in range(i + 1):
                entry = np.vdot(weighted, parts[j][0]) - np.vdot(means[i], means[j])
                curvature[i, j] += entry
                curvature[j, i] = curvature[i, j]
    return loss / rows.n_rows, gradient / rows.n_rows, curvature / rows.n_rows


def _expected(
    values: NDArray[np.float32], own: tuple[NDArray[np.integer[Any]], NDArray[np.int64]], doubt: float
) -> float:
    """Return the sum over rows of the values of their labels, or with a chance `doubt` of another class."""
    right = float(values[own].sum(dtype=np.float64))
    if doubt == 0.0:
        return right
    others = float(values.sum(dtype=np.float64)) - right
    return (1.0 - doubt) * right + doubt * others / max(len(values) - 1, 1)


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
