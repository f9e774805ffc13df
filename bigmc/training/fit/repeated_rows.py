"""Test rows that repeat a training row: figures on them say little about new rows."""

from __future__ import annotations

import numpy as np

from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import row_digests
from bigmc.store.weighting import Weighting

TELLING_SHARE, FEWEST = 0.05, 10
"""Share of the test rows, and number, from which it is said that they repeat training rows."""
_MEMORY_SHARE = 0.25


def repeated_rows(train: Dataset, test: Dataset | None, memory: int) -> list[str]:
    """Return that test rows have the features of a training row, if many do; nothing if memory is too small.

    Parameters
    ----------
    memory : int
        Bytes of the limit, of which a quarter may be taken.
    """
    if test is None or _bytes(train, test) > _MEMORY_SHARE * memory:
        return []
    known, asked = (row_digests(rows.with_weighting(Weighting())) for rows in (train, test))
    known.sort()
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    n_repeated = int(np.count_nonzero(known[place] == asked))
    if n_repeated < max(TELLING_SHARE * test.n_samples, FEWEST):
        return []
    return [
        f"{n_repeated:,} of {test.n_samples:,} test rows have the features of a training row; if they are "
        "copies, the figures are better than those of new rows: leave copies out, or keep the rows of a "
        "person or document together with --group"
    ]


def _bytes(train: Dataset, test: Dataset) -> int:
    return 8 * (train.n_samples + train.n_features) + 24 * test.n_samples
