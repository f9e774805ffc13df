"""Choose held-out rows: a part of many rows, or cross-validation folds of few."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.store.dataset import Dataset
from bigmc.store.sample import hashed_shares, holdout_keys
from bigmc.training.search.ridges import Ridges

FEW_ROWS, FEW_ROWS_OF_TABLES, FOLDS = 3_000, 8_000, 5
"""Maximum rows for cross-validation. A fifth of so few rows can hardly distinguish models, and
calibrations fitted to it are overconfident. Tables, whose rows cost less than texts, need more rows, since
their labels are often noisier."""


class Fold(NamedTuple):
    """Rows that are held out together, and the training on the others.

    Attributes
    ----------
    places : int64 array
    learns, weights : float64 arrays of shape (n_samples,)
        0 for these rows; else 1, or the weight of the sample.
    """

    places: NDArray[np.int64]
    learns: NDArray[np.float64]
    weights: NDArray[np.float64]
    ridges: Ridges

    @classmethod
    def of(cls, sample: Dataset, places: NDArray[np.int64], engine: Engine) -> Fold:
        """Return the fold of these rows."""
        learns = np.ones(sample.n_samples)
        learns[places] = 0.0
        own = sample.sample_weights()
        weights = learns if own is None else learns * own
        return cls(places, learns, weights, Ridges(sample, weights, engine))

    def can_learn(self, sample: Dataset) -> bool:
        """Return whether the training rows have at least two classes, if labels are single."""
        return sample.has_sets or len(np.unique(sample.labels()[self.weights > 0.0])) > 1


def cross_validated(sample: Dataset, engine: Engine, seed: int) -> list[Fold]:
    """Return folds of whole groups that partition the rows; none if there is only one group."""
    shares = hashed_shares(holdout_keys(sample), seed)
    groups, first, group_of = np.unique(shares, return_index=True, return_inverse=True)
    if len(groups) < 2:
        return []
    folds = _folds_of(sample, engine, (shares * FOLDS).astype(int))
    if len(folds) == FOLDS and all(fold.can_learn(sample) for fold in folds):
        return folds
    # With few rows, random folds would be too uneven: assign the rows of each class in turn.
    order = np.arange(len(groups)) if sample.has_sets else np.argsort(sample.labels()[first], kind="stable")
    turns = np.empty(len(groups), int)
    turns[order] = np.arange(len(groups)) % FOLDS
    return _folds_of(sample, engine, turns[group_of])


def _folds_of(sample: Dataset, engine: Engine, fold_of: NDArray[np.int_]) -> list[Fold]:
    return [Fold.of(sample, np.flatnonzero(fold_of == number), engine) for number in np.unique(fold_of)]


def nothing_to_learn(sample: Dataset) -> DataError:
    """Return the error where all rows that are not held out, and have a weight, are of one class."""
    n, weights = sample.n_samples, sample.sample_weights()
    if weights is not None and not weights.any():
        return DataError(f"all {n:,} rows to learn from have a weight of 0", "give rows a weight above 0")
    n_groups = len(np.unique(holdout_keys(sample)))
    if n_groups < n:
        return DataError(
            f"{n:,} rows in {n_groups:,} groups: without the groups held out, all are of one class",
            "leave --group out, or name a column whose groups have rows of several classes",
        )
    return DataError(
        f"{n:,} rows with their labels are too few: without those held out, all are of one class",
        "give more rows of the rare classes; bigmc train holds none out",
    )
