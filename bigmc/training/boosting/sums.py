"""A weighted sum of the best linear and the best boosted model, fitted and judged on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.store.files.work_file import made_once
from bigmc.training.boosting.rounds import Boosting
from bigmc.training.search.search import Search
from bigmc.training.search.trials import Candidate, Trial, log_losses

_FITTED_ENTRIES = 500_000
"""Maximum number of scores per model for fitting the weights."""
SURE = 1.0
"""Standard errors of the difference by which the log loss of a sum must be below that of the better model:
a single model is preferred."""
_DAMPING, _TOL = 1e-9, 1e-9
"""Added to the diagonal of the Hessian, which is singular if all scores of a row are equal; and decrease of
the mean log loss below which the steps end."""
_MOST_STEPS, _SHORTEST = 50, 1e-6
"""Steps, and the share of one below which there is no decrease to find."""


class Sum(NamedTuple):
    """Weights of a linear and a boosted model, and the quality of their sum.

    Attributes
    ----------
    weights : tuple of float
    trial : Trial
        On the rows held out.
    gain : float
        Decrease of the log loss compared with the better model, in standard errors of the
        difference.
    """

    weights: tuple[float, ...]
    trial: Trial
    gain: float

    @property
    def is_worth_it(self) -> bool:
        """Whether two models are better than one; a weight of 0 leaves one."""
        return all(self.weights) and self.gain > SURE


def add_up(search: Search, linear: Trial, boosting: Boosting, file: Path) -> Sum | None:
    """Return the best sum of a linear and a boosted model; None if there is no time for it.

    Models trained without the held-out rows score them again. The linear ones are trained again; the
    boosted ones are in memory, unless the run was killed since.

    Parameters
    ----------
    file : Path
        File for the result.
    """
    if not file.exists() and not search.has_time(linear.seconds):
        return None
    fields = made_once(file, lambda: _added_up(search, linear, boosting), file.parent)
    return Sum(tuple(fields["weights"]), Trial.from_dict(fields["trial"]), fields["gain"])


def _added_up(search: Search, linear: Trial, boosting: Boosting) -> Mapping[str, Any]:
    """Return the fields of a sum for JSON."""
    rows, boosted = search.validation, boosting.trial
    scores = [rows.scores(linear.candidate), boosting.scores()]
    weights = choose_weights(scores, rows.codes)
    total = np.sum([weight * own for weight, own in zip(weights, scores, strict=True)], axis=0)
    seconds, n_features = linear.seconds + boosted.seconds, max(linear.n_features, boosted.n_features)
    trial = Trial.of(Candidate(None, "sum"), rows.verdict(total), n_features, seconds)
    alone = search.better(linear, boosted)
    of_it = scores[0 if alone is linear else 1]
    before = log_losses(alone.calibration, of_it, rows.codes)
    less = before - log_losses(trial.calibration, total, rows.codes)
    error = max(float(less.std()) / math.sqrt(len(less)), 1e-12)
    return {"weights": weights, "trial": trial.to_dict(), "gain": float(less.mean()) / error}


def choose_weights(
    scores: Sequence[NDArray[np.float64]], codes: NDArray[np.integer[Any]]
) -> tuple[float, ...]:
    """Return non-negative weights that minimise the log loss of the softmax of the sum.

    The loss is a convex function of the weights, minimised by Newton steps in those that are not held at 0
    (Bertsekas, "Projected Newton methods for optimization problems with simple constraints", 1982). Many rows
    are thinned out evenly.

    Parameters
    ----------
    scores : sequence of float64 array of shape (n_rows, n_classes)
        Scores of each model on rows it was not trained on.
    codes : integer array of shape (n_rows,)
        Their classes.
    """
    some = slice(None, None, -(-scores[0].size // _FITTED_ENTRIES))
    codes = codes[some]
    spread = [float(own.std()) or 1.0 for own in scores]  # in units of it the weights are of similar size
    parts = np.array([own[some] / unit for own, unit in zip(scores, spread, strict=True)])
    weights = np.ones(len(parts))
    loss, gradient, curvature = _derivatives(weights, parts, codes)
    for _ in range(_MOST_STEPS):
        free = np.flatnonzero((weights > 0.0) | (gradient < 0.0))
        if not len(free):
            break
        step = np.zeros(len(parts))
        damped = curvature[np.ix_(free, free)] + _DAMPING * np.eye(len(free))
        step[free] = -np.linalg.solve(damped, gradient[free])
        length = 1.0
        while length > _SHORTEST:
            new = np.maximum(weights + length * step, 0.0)
            derivatives = _derivatives(new, parts, codes)
            if derivatives[0] < loss:
                break
            length /= 2.0
        if length <= _SHORTEST:
            break
        gained = loss - derivatives[0]
        weights, (loss, gradient, curvature) = new, derivatives
        if gained < _TOL:
            break
    return tuple(float(weight / unit) for weight, unit in zip(weights, spread, strict=True))


def _derivatives(
    weights: NDArray[np.float64], parts: NDArray[np.float64], codes: NDArray[np.integer[Any]]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean log loss of a sum of parts, (n_parts, n_rows, n_classes), its gradient and Hessian."""
    rows = np.arange(len(codes))
    logits = np.tensordot(weights, parts, 1)
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    total = chances.sum(axis=1)
    chances /= total[:, None]
    expected = np.einsum("pij,ij->pi", parts, chances)
    products = np.einsum("pij,qij,ij->pq", parts, parts, chances)
    curvature = (products - expected @ expected.T) / len(codes)
    loss = float((np.log(total) - logits[rows, codes]).mean())
    return loss, (expected - parts[:, rows, codes]).mean(axis=1), curvature
