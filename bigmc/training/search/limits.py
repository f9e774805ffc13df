"""Limits of a search and of the trainings after it."""

from __future__ import annotations

import math
from typing import NamedTuple

from bigmc.engine import Engine
from bigmc.engine.processes import tidy
from bigmc.store.dataset import Dataset
from bigmc.training.search.folds import FEW_ROWS, FEW_ROWS_OF_TABLES
from bigmc.training.search.trials import is_table

SAMPLE_WORK = 200_000_000
"""Maximum product of non-zeros of these rows and classes."""
SCORE_ENTRIES = 16_000_000
"""Maximum number of scores of the validation rows."""
FEWEST_SECONDS = 10.0
"""Seconds that a trial may take however little time is left, so that few trials depend on the machine."""
FEW_VALUES = 500_000
"""Values of the sample up to which one thread does everything: two took a fifth more processor time for a
thousand rows of a table, and hardly less time."""

MANY_VALUES = 10_000_000
"""Values of a dataset from which on all that a fit frees is returned to the system at once. With fewer, some
is kept: to get it again took up to a sixth of the processor time of a fit, and the peak was 1 to 6 % lower;
with 21 million it was 14 % lower, and took no time."""


class Limits(NamedTuple):
    """Limits of a search.

    Attributes
    ----------
    memory : int
        Bytes.
    seconds : float
        No trial starts later; infinite means until validation gets worse.
    max_features : int or None
        Maximum number of features.
    work : int
        Maximum product of non-zeros of its rows and classes, the cost of a trial.
    few_rows : int or None
        Up to so many rows are cross-validated; by default `FEW_ROWS`, or `FEW_ROWS_OF_TABLES`.
    trainings : int
        Trainings on all rows that come after the search, and for which some of the time is kept.
    asked_seconds : float
        Time for everything, of which `seconds` are left.
    """

    memory: int
    seconds: float = math.inf
    max_features: int | None = None
    work: int = SAMPLE_WORK
    few_rows: int | None = None
    trainings: int = 0
    asked_seconds: float = math.inf

    def cross_validates(self, dataset: Dataset, n_rows: int) -> bool:
        """Return whether a search on this number of rows of a dataset cross-validates."""
        by_default = FEW_ROWS_OF_TABLES if is_table(dataset) else FEW_ROWS
        few_rows = by_default if self.few_rows is None else self.few_rows
        return n_rows <= min(few_rows, SCORE_ENTRIES // max(dataset.n_classes, 1))


def engine_for(dataset: Dataset, engine: Engine) -> Engine:
    """Return the engine to train with: one thread for little data, where more cost more than they save."""
    own = dataset.seen_by(engine)
    return own.at_most(1) if dataset.nnz <= FEW_VALUES and own.shares_memory else own


def tidy_after(dataset: Dataset) -> None:
    """Free what a step left, unless it is too little to be worth .07 s for a pass over all objects."""
    if dataset.nnz > FEW_VALUES:
        tidy()


def kept_after_freeing(dataset: Dataset, memory: int) -> int:
    """Return the memory limit for `prompt_release`, of which a part is kept; 0 with many values."""
    return memory if dataset.nnz < MANY_VALUES else 0
