"""Training rows that are the only one of their label: nothing can be learned from them."""

from __future__ import annotations

import numpy as np

from bigmc.errors import DataError
from bigmc.store.dataset import Dataset

_CURE = "if the label is a number to be estimated, make classes of its ranges first"


def refuse_numbers(rows: Dataset) -> None:
    """Raise a `DataError` if no training row shares its label with another: no answer could be right."""
    if _n_alone(rows) == rows.n_samples:
        raise DataError(f"each of the {rows.n_samples:,} training rows has a label of its own", _CURE)


def doubts(rows: Dataset) -> list[str]:
    """Return that most training rows are the only one of their label, if they are."""
    alone = _n_alone(rows)
    if 2 * alone <= rows.n_samples:
        return []
    return [
        f"{alone:,} of {rows.n_samples:,} training rows are the only one of their label, which nothing "
        f"can be learned of; {_CURE}"
    ]


def _n_alone(rows: Dataset) -> int:
    """Return how many rows are the only one of their label."""
    return 0 if rows.has_sets else int(np.count_nonzero(rows.class_counts() == 1))
