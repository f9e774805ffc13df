"""A weighted sum of the best linear and the best boosted model, fitted and judged on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from bigmc.store.files.work_file import read_work_file, write_work_file
from bigmc.training.boosting import Boosting
from bigmc.training.search import Search
from bigmc.training.trials import Candidate, Course, Trial

_FITTED_ENTRIES = 500_000
"""Maximum number of scores per model for fitting the weights."""
SURE = 1.0
"""Standard errors of the difference by which the log loss of a sum must be below that of the better model:
a single model is preferred."""
_FILE = "sum.json"


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


def add_up(search: Search, course: Course, boosting: Boosting, folder: Path) -> Sum | None:
    """Return the best sum of the best models of a search; None if there is no time for it.

    Models trained without the held-out rows score them again. The linear ones are trained again; the
    boosted ones are in memory, unless the run was killed since.

    Parameters
    ----------
    search : Search
    course : Course
        Result of the search.
    boosting : Boosting
    folder : Path
        Folder for the result.
    """
    file = folder / _FILE
    if not file.exists():
        if not search.has_time(course.best.seconds):
            return None
        write_work_file(file, _added_up(search, course.best, boosting))
    fields = read_work_file(file, folder)
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
    less = _losses(alone, of_it, rows.codes) - _losses(trial, total, rows.codes)
    error = max(float(less.std()) / math.sqrt(len(less)), 1e-12)
    return {"weights": weights, "trial": asdict(trial), "gain": float(less.mean()) / error}


def _losses(
    trial: Trial, scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return the log loss of every row."""
    chances = trial.calibration.probabilities(scores)[np.arange(len(codes)), codes]
    losses: NDArray[np.float64] = -np.log(np.maximum(chances, 1e-300))
    return losses


def choose_weights(
    scores: Sequence[NDArray[np.float64]], codes: NDArray[np.integer[Any]]
) -> tuple[float, ...]:
    """Return non-negative weights that minimise the log loss of the softmax of the sum.

    The loss is a convex function of the weights. Many rows are thinned out evenly.

    Parameters
    ----------
    scores : sequence of float64 array of shape (n_rows, n_classes)
        Scores of each model on rows it was not trained on.
    codes : integer array of shape (n_rows,)
        Their classes.
    """
    from scipy.optimize import minimize  # 13 MB, needed only for tables

    some = slice(None, None, -(-scores[0].size // _FITTED_ENTRIES))
    codes = codes[some]
    spread = [float(own.std()) or 1.0 for own in scores]  # in units of it the weights are of similar size
    parts = np.array([own[some] / unit for own, unit in zip(scores, spread, strict=True)])
    right = parts[:, np.arange(len(codes)), codes]

    def log_loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        total = np.tensordot(weights, parts, 1)
        value = scipy.special.logsumexp(total, axis=1) - weights @ right
        expected = (scipy.special.softmax(total, axis=1) * parts).sum(axis=2)
        return float(value.mean()), np.asarray((expected - right).mean(axis=1))

    bounds = [(0.0, None)] * len(parts)
    minimum = minimize(log_loss, np.ones(len(parts)), jac=True, method="L-BFGS-B", bounds=bounds)
    return tuple(float(weight / unit) for weight, unit in zip(minimum.x, spread, strict=True))
