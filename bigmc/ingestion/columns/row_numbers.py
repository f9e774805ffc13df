"""Columns that only number the rows, such as an index written to CSV.

Where rows are sorted by class, the number of a row tells its class, and nothing of a new row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.number_columns import as_float, is_number

FEWEST_ROWS = 10
"""Fewer rows may be numbered by chance, as the days of a week are."""
_STARTS = (0, 1)


class RowNumbers:
    """Finds out whether a column numbers the rows from 0 or 1 on, in every file or through all of them."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._numbered = True
        self._lead: int | None = None  # of the value before the number of the row among all

    @property
    def found(self) -> bool:
        """Whether the rows so far are numbered, and enough to tell."""
        return self._numbered and self.n_rows >= FEWEST_ROWS

    def add(self, column: pa.Array, rows: NDArray[np.int64], first_row: int) -> None:
        """Look at the next rows of the file that begins at `first_row`; `rows` leave bad ones out."""
        self.n_rows += len(column)
        if not (self._numbered and len(column)):
            return
        few = min(len(column), 2)  # which decide about nearly all columns, so that no other is parsed here
        self._numbered = self._agrees(column.slice(0, few), rows[:few], first_row)
        self._numbered = self._numbered and self._agrees(column, rows, first_row)

    def _agrees(self, column: pa.Array, rows: NDArray[np.int64], first_row: int) -> bool:
        if not is_number(column.type) or pa.types.is_boolean(column.type):
            return False
        values = as_float(column).values
        if not np.isfinite(values[0]):
            return False
        lead = int(values[0]) - int(rows[0])
        if lead != self._lead and lead + first_row not in _STARTS:
            return False
        self._lead = lead
        return bool(np.array_equal(values, (rows + lead).astype(np.float64)))
