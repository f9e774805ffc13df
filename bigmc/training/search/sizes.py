"""Ridge models with few features: choose their number, and train with these only.

The features are ordered by the norm of their weights in the model of all features, and the model is trained
again with the first of them (Guyon, Weston, Barnhill and Vapnik, "Gene selection for cancer classification
using support vector machines", Machine Learning 46, 2002, which removes a few at a time). All other
features share one idf, for the norm of a row, since storing each would make the model large.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.learners import learner_of
from bigmc.model import LinearModel
from bigmc.model.rounding import multiples_of, steps_of, weights_of
from bigmc.options.learners import SparseOptions
from bigmc.solvers.sparse import DualDescent
from bigmc.store.dataset import Dataset
from bigmc.training.search.ridges import TOL
from bigmc.training.search.trials import Candidate, Size, Verdict
from bigmc.training.search.winner import Winner

STEP = 10**0.5
"""Factor from one number of features to the next smaller one."""
FEWEST = 16
"""Features of the smallest model tried by default."""
LOST, LOST_LOSS = 0.002, 0.01
"""Maximum loss of quality of a smaller model, and relative increase of its log loss."""
JUDGES, CHANCE = 8_000, 0.2
"""Held-out rows for which these differences exceed chance; with fewer rows, standard errors of the quality
that do."""
HOPELESS = 0.02
"""Loss of quality after which no smaller model is tried."""
_EPOCHS = 60
_CHEAP_SECONDS = 1.0
"""Seconds for which a certificate is made even if time is over. It takes about as long as an epoch."""


class HeldOutRows(NamedTuple):
    """Samples, some of them held out.

    Attributes
    ----------
    samples : Dataset
        Weighted for the candidate.
    weights : float64 array of shape (n_samples,)
        0 for the rows held out.
    places : int64 array
        Positions of the held-out rows.
    start : Duals or None
        Start of the model of all features.
    """

    samples: Dataset
    weights: NDArray[np.float64]
    places: NDArray[np.int64]
    start: Duals | None = None


Judge = Callable[[Sequence[NDArray[np.float64]]], Verdict]
"""Function from the scores of the held-out rows of each fold to the verdict on all of them."""


class DualsAfter(Enum):
    """Whether to keep the dual variables of a training: with many classes they are large."""

    DROPPED = auto()
    KEPT = auto()


@dataclass
class Duals:
    """Dual variables of a ridge model, for a similar one to start from.

    Attributes
    ----------
    values : float32 array of shape (n_given, width) or None
        None once they have been forgotten.
    places : int64 array of shape (n_given,) or None
        Their samples; None means all.
    used_once : bool
        Whether they are freed once a model has started from them: with many classes they are large.
    """

    values: NDArray[np.float32] | None
    places: NDArray[np.int64] | None = None
    used_once: bool = False

    def put_into(self, problem: DualDescent) -> None:
        """Start a problem from them."""
        assert self.values is not None
        problem.start_from(self.values, self.places)
        if self.used_once:
            self.values = None


def size_curve(
    folds: Sequence[HeldOutRows],
    judge: Judge,
    candidate: Candidate,
    most: int | None,
    engine: Engine,
    ends: float = math.inf,
) -> tuple[Size, ...]:
    """Return the quality of models with fewer and fewer features, starting with all.

    Parameters
    ----------
    folds : sequence of HeldOutRows
        Each has models of its own; all their held-out rows together judge.
    judge : callable
    candidate : Candidate
        A candidate with a ridge only.
    most : int or None
        Maximum number of features: larger numbers are skipped, and this one is tried.
    ends : float, optional
        Time of `time.monotonic` after which no number is tried but `most`, and a training ends.
    """
    shrinking = [_Shrinking(rows, candidate, engine, ends) for rows in folds]
    n_used = shrinking[0].n_used
    sizes = [Size.of(n_used, n_used, judge([fold.whole_scores() for fold in shrinking]))]
    for n in _numbers(n_used, most):
        if sizes[-1].quality < sizes[0].quality - HOPELESS and len(sizes) > 1:
            break
        if time.monotonic() >= ends and n != most:
            break
        sizes.append(Size.of(n, n_used, judge([fold.scores(n) for fold in shrinking])))
    return tuple(sizes)


def scores_of_size(
    folds: Sequence[HeldOutRows], candidate: Candidate, size: Size, most: int | None, engine: Engine
) -> list[NDArray[np.float64]]:
    """Return the scores of the rows of each fold by models of a size, with at most `most` features."""
    scores = []
    for rows in folds:
        shrinking = _Shrinking(rows, candidate, engine, math.inf)
        n = size.count(shrinking.n_used, most)
        scores.append(shrinking.whole_scores() if n >= shrinking.n_used else shrinking.scores(n))
    return scores


class _Shrinking:
    """Models of one fold with fewer and fewer features; each starts from the one before."""

    def __init__(self, rows: HeldOutRows, candidate: Candidate, engine: Engine, ends: float) -> None:
        self._rows, self._engine, self._ends = rows, engine, ends
        self._ridge = candidate.ridge / float(rows.weights.sum())
        whole = _descended(rows.samples, rows.weights, self._ridge, engine, start=rows.start, ends=ends)
        self._ordered, self._start = by_norm(whole), Duals(whole.duals())
        self._scores: NDArray[np.float64] | None = _rounded_scores(whole, rows)

    @property
    def n_used(self) -> int:
        """Features that occur."""
        return len(self._ordered)

    def whole_scores(self) -> NDArray[np.float64]:
        """Return the scores of the model of all features; they are forgotten afterwards."""
        scores, self._scores = self._scores, None
        assert scores is not None
        return scores

    def scores(self, n_features: int) -> NDArray[np.float64]:
        """Return the scores of the model of so many features, fewer than before."""
        rows, features = self._rows, np.sort(self._ordered[:n_features])
        samples = with_shared_scale(rows.samples, features)
        start, ends = self._start, self._ends
        smaller = _descended(samples, rows.weights, self._ridge, self._engine, features, start, ends)
        self._start = Duals(smaller.duals())
        return _rounded_scores(smaller, rows)


def _numbers(n_used: int, most: int | None) -> list[int]:
    """Return the decreasing numbers of features to try after all of them, from `most` if given."""
    if most is not None and most >= n_used:
        most = None
    first = n_used / STEP if most is None else float(most)
    fewest = min(FEWEST, first)
    return [int(n) for k in range(20) if (n := first / STEP**k) >= fewest]


def smallest_good(curve: Sequence[Size], most: int | None, n_held_out: int) -> Size:
    """Return the smallest size about as good as the best one, with at most `most` features.

    On few rows the quality may be lower by chance. The more reliable log loss may then increase by less than
    `LOST_LOSS`, in proportion to the square root of the number of rows.
    """
    fitting = [size for size in curve if most is None or size.n_features <= most] or list(curve[-1:])
    best = max(size.quality for size in fitting)
    chance = CHANCE * math.sqrt(best * (1.0 - best) / n_held_out)
    good = [size for size in fitting if size.quality >= best - max(LOST, chance)]
    trust = min(1.0, math.sqrt(n_held_out / JUDGES))
    loss = min(size.log_loss for size in good) * (1.0 + trust * LOST_LOSS)
    return min((size for size in good if size.log_loss <= loss), key=lambda size: size.n_features)


class Trained(NamedTuple):
    """A model; if requested, the dual variables of the model of all features, which selected its features."""

    model: LinearModel
    duals: Duals | None


def train_with_size(
    dataset: Dataset,
    winner: Winner,
    engine: Engine,
    start: Duals | None = None,
    ends: float = math.inf,
    after: DualsAfter = DualsAfter.DROPPED,
) -> Trained:
    """Train a ridge model with the most important features, rounded weights and a certificate.

    Parameters
    ----------
    dataset : Dataset
        All rows; they must fit into memory (`DualDescent.memory`).
    winner : Winner
        A candidate with a ridge only, the share of the occurring features to keep, and their maximum.
    start : Duals, optional
        Of a similar model.
    ends : float, optional
        Time of `time.monotonic` at which training ends with the best model so far.
    after : DualsAfter, optional
        Whether to return the dual variables.

    Returns
    -------
    Trained
        The certificate is for the problem with only the kept features, the objective that of the rounded
        weights.
    """
    candidate, size = winner.candidate, winner.size
    assert candidate is not None
    assert size is not None
    dataset = winner.samples(dataset)
    ridge = candidate.ridge / dataset.weight_sum
    duals = descend_all(dataset, candidate, engine, start, ends)
    whole = None
    n = size.count(len(duals.features), winner.max_features)
    if n < len(duals.features):
        features = np.sort(by_norm(duals)[:n])
        whole = Duals(duals.take_duals(), used_once=after is DualsAfter.DROPPED)
        del duals  # free the memory before allocating the next
        dataset = with_shared_scale(dataset, features)
        duals = _descended(dataset, dataset.sample_weights(), ridge, engine, features, whole, ends)
    elif after is DualsAfter.KEPT:
        whole = Duals(duals.duals())
    step = _round(duals)
    multiples, intercept = _multiples(duals, step), duals.intercept.astype(np.float64)
    used = multiples.any(axis=1)
    bounds = _bounds(duals, ridge, ends)
    features, n_epochs = duals.features[used], duals.n_epochs
    n_rows = {} if duals.is_whole else {"n_rows": duals.n_visited}
    del duals  # one-byte weights are small compared with those freed after the bound
    multiples = multiples[used]
    coef = weights_of(multiples, step)
    del multiples
    model = LinearModel(
        kind=SparseOptions.learner,
        classes=dataset.classes,
        n_features=dataset.n_features,
        weighting=dataset.weighting,
        feature_spec=dataset.features,
        params={**learner_of(candidate.options(dataset.weight_sum)).recorded(), **n_rows},
        features=features,
        coef=coef,
        intercept=intercept,
        column_scale=dataset.column_scale(),
        certificate=bounds,
        objective=bounds["upper"],
        n_iter=n_epochs,
        n_passes=1,
        step=step,
    )
    return Trained(model, whole if after is DualsAfter.KEPT else None)


def _bounds(duals: DualDescent, ridge: float, ends: float) -> dict[str, float]:
    """Return the certificate of a model; where there is no time for one, bounds that always hold.

    The objective is at least 0, and not known then.
    """
    if not duals.has_time(max(ends, time.monotonic() + _CHEAP_SECONDS)):
        return {"lower": 0.0, "upper": math.inf, "gap": 1.0}
    upper, lower = duals.objective(ridge), duals.lower_bound(ridge)
    return {"lower": lower, "upper": upper, "gap": (upper - lower) / upper if upper > 0 else 0.0}


def descend_all(
    dataset: Dataset, candidate: Candidate, engine: Engine, start: Duals | None = None, ends: float = math.inf
) -> DualDescent:
    """Return the ridge model of all features, of weighted rows; arguments as of `train_with_size`."""
    ridge = candidate.ridge / dataset.weight_sum
    return _descended(dataset, dataset.sample_weights(), ridge, engine, start=start, ends=ends)


def by_norm(duals: DualDescent) -> NDArray[np.int64]:
    """Return the features by decreasing norm of their weights."""
    squares = [np.einsum("jr,jr->j", weights, weights, dtype=np.float64) for weights in duals.weights()]
    return duals.features[np.argsort(-np.concatenate([np.empty(0), *squares]), kind="stable")]


def with_shared_scale(dataset: Dataset, features: NDArray[np.int64]) -> Dataset:
    """Return the samples with one idf for all other features: the root mean square over their entries."""
    scale = dataset.column_scale()
    if scale is None:
        return dataset
    entries = dataset.column_nnz().astype(np.float64)
    entries[features] = 0.0
    total = float(entries.sum())
    shared = math.sqrt(float(entries @ scale.astype(np.float64) ** 2) / total) if total else 1.0
    changed = np.full(len(scale), shared, np.float32)
    changed[features] = scale[features]
    return dataset.with_column_scale(changed)


def _descended(
    dataset: Dataset,
    weights: NDArray[np.float64] | None,
    ridge: float,
    engine: Engine,
    features: NDArray[np.int64] | None = None,
    start: Duals | None = None,
    ends: float = math.inf,
) -> DualDescent:
    began = time.monotonic()
    duals = DualDescent(dataset, engine, sample_weight=weights, features=features)
    if start is not None:
        start.put_into(duals)
    made_ready = time.monotonic() - began  # without which there is no training, however little time is left
    duals.descend(ridge, TOL, _EPOCHS, ends + made_ready)
    return duals


def _rounded_scores(duals: DualDescent, rows: HeldOutRows) -> NDArray[np.float64]:
    """Round the weights, and return the scores of the held-out rows."""
    _round(duals)
    return duals.scores(rows.places)


def _round(duals: DualDescent) -> NDArray[np.float32]:
    """Round the weights, and return the steps of the classes."""
    largest = np.zeros(duals.n_classes, np.float32)
    for weights in duals.weights():
        np.maximum(largest, np.maximum(weights.max(axis=0), -weights.min(axis=0)), out=largest)
    step = steps_of(largest)
    duals.change_weights(lambda weights: weights_of(multiples_of(weights, step), step))
    return step


def _multiples(duals: DualDescent, step: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return rounded weights as integer multiples of their steps."""
    multiples, lo = np.empty((len(duals.features), duals.n_classes), np.int8), 0
    for weights in duals.weights():
        multiples[lo : lo + len(weights)] = multiples_of(weights, step)
        lo += len(weights)
    return multiples
