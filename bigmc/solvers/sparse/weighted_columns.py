"""Columns with the weights of some of them, as they are added up to scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.coefficients import Coefficients, slabs_of_weights
from bigmc.solvers.sparse.columns import Columns


class WeightedColumns(NamedTuple):
    """Weights of some columns; those of the others are zero.

    Attributes
    ----------
    places : int64 array of shape (n_some,)
        Of these among the columns.
    rows : float64 array of shape (n_some, width)
    """

    columns: Columns
    places: NDArray[np.int64]
    rows: NDArray[np.float64]

    @classmethod
    def of_rows(cls, columns: Columns, rows: NDArray[np.float64]) -> WeightedColumns:
        """Return columns with a row of weights each, zeros included."""
        places = np.flatnonzero(rows.any(axis=1))
        return cls(columns, places, rows[places])

    @classmethod
    def of(cls, coef: Coefficients, holding: Iterable[Columns]) -> Iterator[WeightedColumns]:
        """Go through columns, some at a time: with many classes a copy of all weights would be large."""
        for columns in holding:
            slots = coef.slots(columns.features)
            used = np.flatnonzero(slots >= 0)
            for slab in slabs_of_weights(len(used), coef.rows.shape[1]):
                some = used[slab]
                yield cls(columns, some, coef.rows[slots[some]].astype(np.float64, copy=False))
