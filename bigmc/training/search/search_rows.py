"""The rows of a search: a sample that is small enough to train on many times, in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.solvers.sparse import DualDescent
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows
from bigmc.training.search.folds import FOLDS
from bigmc.training.search.limits import Limits
from bigmc.training.search.trials import first_candidate, is_table, weighted

SAMPLE_ROWS = 40_000
"""Maximum rows of the search: a fifth of them can distinguish models that differ by half a point."""
FEWEST_ROWS = 5_000
"""Minimum rows of the search."""
SAMPLE_SHARE, TRIAL_SHARE, SMALLER, FEWEST_IN_LITTLE_MEMORY = 0.25, 0.8, 0.7, 2_000
"""Shares of the memory limit for these rows, and for rows and trials by dual coordinate descent together;
factor on the number of rows while that does not fit, and minimum rows."""
_MANY_FEATURES = 1000
"""Features above which only dual coordinate descent is tried: logistic regression and a
penalty cost ten to forty times as much there, and gained nothing on packages, strings and questions."""
_MOST_VALUES = 5_000_000
"""Values of a table, zeros included, up to which penalties are tried although it has more columns than that:
a ridge gives weight to all of them. Where two of 10,000 columns decide, 51 % of 199 rows held out were right
with a ridge, and 89 % with the best penalty."""
_SEED = 0x5EA2C4


def draw_search_rows(dataset: Dataset, engine: Engine, limits: Limits) -> tuple[Dataset, NDArray[np.int64]]:
    """Return as many training rows as the limits of a search allow, in memory, and their positions."""
    base = weighted(dataset, first_candidate(dataset))
    work = max(dataset.nnz, 1) * max(dataset.n_classes, 1)
    share = min(1.0, SAMPLE_ROWS / dataset.n_samples, limits.work / work)
    share = min(1.0, max(share, FEWEST_ROWS / dataset.n_samples))
    fewest = FEWEST_IN_LITTLE_MEMORY / dataset.n_samples
    share = min(share, max(SAMPLE_SHARE * limits.memory / max(dataset.decoded_bytes, 1), fewest))
    rows, positions = draw_rows(base, share, _SEED, engine)
    while _is_too_large(rows, limits):
        share *= SMALLER
        del rows, positions  # frees them before the next are allocated
        rows, positions = draw_rows(base, share, _SEED, engine)
    return rows, positions


def has_many_features(rows: Dataset) -> bool:
    """Return whether so many features occur in rows that only dual coordinate descent is tried."""
    return int(np.count_nonzero(rows.column_nnz())) >= _MANY_FEATURES and not is_small_and_wide(rows)


def is_small_and_wide(rows: Dataset) -> bool:
    """Return whether rows are of a small table with more columns than rows, of which few may matter."""
    few_values = rows.n_samples * rows.n_features <= _MOST_VALUES
    return is_table(rows) and rows.n_features > rows.n_samples and few_values


def keeps_problems(rows: Dataset, limits: Limits, n_folds: int) -> bool:
    """Return whether there is memory for a problem of dual coordinates for each fold at once."""
    if n_folds == 1:
        return True
    problems = n_folds * DualDescent.memory(rows) + _bytes_of_trials(rows, limits)
    return problems <= TRIAL_SHARE * limits.memory


def _is_too_large(rows: Dataset, limits: Limits) -> bool:
    """Return whether fewer rows would make dual coordinates fit into memory."""
    if not has_many_features(rows) or rows.n_samples * SMALLER < FEWEST_IN_LITTLE_MEMORY:
        return False
    return DualDescent.memory(rows) + _bytes_of_trials(rows, limits) > TRIAL_SHARE * limits.memory


def _bytes_of_trials(rows: Dataset, limits: Limits) -> int:
    """Return the bytes of rows, and of the dual variables that trials by dual coordinates keep."""
    n_folds = FOLDS if limits.cross_validates(rows, rows.n_samples) else 1
    return rows.decoded_bytes + 2 * n_folds * DualDescent.memory_of_duals(rows)
