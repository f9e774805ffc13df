"""Ridge models of few features: how many are needed, and the training with these alone.

The features are ordered by the norm of their weights in the model of all features, and the model is trained
anew with the first of them (Guyon, Weston, Barnhill and Vapnik, "Gene selection for cancer classification
using support vector machines", Machine Learning 46, 2002, where features leave a few at a time). All other
features share one idf, for the norm of a row: a model that needs each of these would not be small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from bigmc.training.trials import Candidate, Size, Truth, Verdict

STEP = 10**0.5
"""From one number of features to the next smaller one."""
FEWEST = 16
"""Features of the smallest model that is tried unasked."""
LOST, LOST_LOSS = 0.002, 0.01
"""Quality that a smaller model may lose, and share of its log loss."""
JUDGES, CHANCE = 8_000, 0.2
"""Rows held out by which as much as that is more than chance; of fewer, standard errors of the quality that
are."""
HOPELESS = 0.02
"""Loss of quality after which no smaller model is tried."""
_TOL, _EPOCHS = 0.05, 60


class HeldOutRows(NamedTuple):
    """Samples of which some validate.

    Attributes
    ----------
    samples : Dataset
        Weighted as the candidate says.
    weights : float64 array of shape (n_samples,)
        0 for the rows held out.
    places : int64 array
        The rows held out.
    truth : Truth
        Their labels.
    """

    samples: Dataset
    weights: NDArray[np.float64]
    places: NDArray[np.int64]
    truth: Truth


class Duals(NamedTuple):
    """Dual variables of a ridge model, for a similar one to start from.

    Attributes
    ----------
    values : float32 array of shape (n_given, width)
    places : int64 array of shape (n_given,) or None
        The samples they are of; None: all.
    """

    values: NDArray[np.float32]
    places: NDArray[np.int64] | None = None


def size_curve(
    rows: HeldOutRows, candidate: Candidate, most: int | None, engine: Engine, start: Duals | None = None
) -> tuple[Size, ...]:
    """Return what models of fewer and fewer features reach, that of all features first.

    Parameters
    ----------
    rows : HeldOutRows
    candidate : Candidate
        A ridge alone.
    most : int or None
        Features that the model may have: only such numbers count, and this one is tried.
    engine : Engine
    start : Duals, optional
        Each model starts from the one before, the first one from these.
    """
    ridge = candidate.ridge / float(rows.weights.sum())
    whole = _descended(rows.samples, rows.weights, ridge, engine, start=start)
    n_used = len(whole.features)
    ordered, start = by_norm(whole), Duals(whole.duals())
    sizes = [Size.of(n_used, n_used, _verdict(whole, rows))]
    del whole  # before the memory for the next one is taken
    for n in _numbers(n_used, most):
        if sizes[-1].quality < sizes[0].quality - HOPELESS and len(sizes) > 1:
            break
        features = np.sort(ordered[:n])
        samples = with_shared_scale(rows.samples, features)
        smaller = _descended(samples, rows.weights, ridge, engine, features, start)
        start = Duals(smaller.duals())
        sizes.append(Size.of(n, n_used, _verdict(smaller, rows)))
    return tuple(sizes)


def _numbers(n_used: int, most: int | None) -> list[int]:
    """Return the numbers of features to try after all of them, decreasing: from `most`, if that is given."""
    if most is not None and most >= n_used:
        most = None
    first = n_used / STEP if most is None else float(most)
    fewest = min(FEWEST, first)
    return [int(n) for k in range(20) if (n := first / STEP**k) >= fewest]


def smallest_good(curve: Sequence[Size], most: int | None, n_held_out: int) -> Size:
    """Return the smallest size about as good as the best one, of at most `most` features.

    Of few rows a quality says little: it may be lower by chance, while the log loss, which says more, may
    then rise less than by `LOST_LOSS`, as much less as the root of their number says.
    """
    fitting = [size for size in curve if most is None or size.n_features <= most] or list(curve[-1:])
    best = max(size.quality for size in fitting)
    chance = CHANCE * math.sqrt(best * (1.0 - best) / n_held_out)
    good = [size for size in fitting if size.quality >= best - max(LOST, chance)]
    trust = min(1.0, math.sqrt(n_held_out / JUDGES))
    loss = min(size.log_loss for size in good) * (1.0 + trust * LOST_LOSS)
    return min((size for size in good if size.log_loss <= loss), key=lambda size: size.n_features)


class Trained(NamedTuple):
    """A model, and the dual variables of the one of all features that its features were chosen by."""

    model: LinearModel
    duals: Duals


def train_with_size(
    dataset: Dataset,
    candidate: Candidate,
    size: Size,
    most: int | None,
    engine: Engine,
    start: Duals | None = None,
    ends: float = math.inf,
) -> Trained:
    """Train a ridge model of the features that matter, with rounded weights and a certificate.

    Parameters
    ----------
    dataset : Dataset
        All rows, weighted as the candidate says; they must fit into memory (`DualDescent.memory`).
    candidate : Candidate
        A ridge alone.
    size : Size
        Says which share of the features that occur is kept.
    most : int or None
        Features that the model may have.
    engine : Engine
    start : Duals, optional
        Of a similar model.
    ends : float, optional
        Time by `time.monotonic` at which to end with what there is.

    Returns
    -------
    Trained
        The certificate is of the problem with the kept features alone, the objective that of the rounded
        weights.
    """
    ridge = _ridge_of(dataset, candidate)
    duals = descend_all(dataset, candidate, engine, start, ends)
    whole = Duals(duals.duals())
    n = size.count(len(duals.features), most)
    if n < len(duals.features):
        features = np.sort(by_norm(duals)[:n])
        del duals  # before the memory for the next one is taken
        dataset = with_shared_scale(dataset, features)
        duals = _descended(dataset, dataset.sample_weights(), ridge, engine, features, whole, ends)
    step = _round(duals)
    multiples, intercept = _multiples(duals, step), duals.intercept.astype(np.float64)
    used = multiples.any(axis=1)
    upper, lower = duals.objective(ridge), duals.lower_bound(ridge)
    features, n_epochs = duals.features[used], duals.n_epochs
    del duals  # of a byte each, the weights are few beside those that the bound took the place of
    multiples = multiples[used]
    coef = weights_of(multiples, step)
    del multiples
    bounds = {"lower": lower, "upper": upper, "gap": (upper - lower) / upper if upper > 0 else 0.0}
    model = LinearModel(
        kind=SparseOptions.learner,
        classes=dataset.classes,
        n_features=dataset.n_features,
        weighting=dataset.weighting,
        feature_spec=dataset.features,
        params=learner_of(SparseOptions(**candidate.options(_total(dataset)))).recorded(),
        features=features,
        coef=coef,
        intercept=intercept,
        column_scale=dataset.column_scale(),
        certificate=bounds,
        objective=upper,
        n_iter=n_epochs,
        n_passes=1,
        step=step,
    )
    return Trained(model, whole)


def descend_all(
    dataset: Dataset,
    candidate: Candidate,
    engine: Engine,
    start: Duals | None = None,
    ends: float = math.inf,
) -> DualDescent:
    """Return the ridge model of all features; arguments as of `train_with_size`."""
    ridge = _ridge_of(dataset, candidate)
    return _descended(dataset, dataset.sample_weights(), ridge, engine, start=start, ends=ends)


def _ridge_of(dataset: Dataset, candidate: Candidate) -> float:
    return candidate.ridge / _total(dataset)


def _total(dataset: Dataset) -> float:
    """Return the sum of the weights of the samples."""
    weights = dataset.sample_weights()
    return float(dataset.n_samples if weights is None else weights.sum())


def by_norm(duals: DualDescent) -> NDArray[np.int64]:
    """Return the features in the order of the norms of their weights, the largest first."""
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
    duals = DualDescent(dataset, engine, sample_weight=weights, features=features)
    if start is not None:
        duals.start_from(*start)
    duals.descend(ridge, _TOL, _EPOCHS, ends)
    return duals


def _verdict(duals: DualDescent, rows: HeldOutRows) -> Verdict:
    """Judge rounded weights."""
    _round(duals)
    return rows.truth.judge(duals.scores(rows.places))


def _round(duals: DualDescent) -> NDArray[np.float32]:
    """Round the weights, and return the steps of the classes."""
    largest = np.zeros(duals.n_classes, np.float32)
    for weights in duals.weights():
        np.maximum(largest, np.maximum(weights.max(axis=0), -weights.min(axis=0)), out=largest)
    step = steps_of(largest)
    duals.change_weights(lambda weights: weights_of(multiples_of(weights, step), step))
    return step


def _multiples(duals: DualDescent, step: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return the multiples that rounded weights are."""
    multiples, lo = np.empty((len(duals.features), duals.n_classes), np.int8), 0
    for weights in duals.weights():
        multiples[lo : lo + len(weights)] = multiples_of(weights, step)
        lo += len(weights)
    return multiples
