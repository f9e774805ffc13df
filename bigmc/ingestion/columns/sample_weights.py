"""Read the column of sample weights."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import Bad
from bigmc.ingestion.columns.number_columns import as_float, is_number


def check_weight_type(schema: pa.Schema, column: str | None) -> None:
    """Raise an error if the type of the weight column is not numeric."""
    if column is not None and not is_number(schema.field(column).type):
        raise DataError(
            f"the weights are of type {schema.field(column).type}", "name a column of numbers with --weight"
        )


def weights_of(column: pa.Array) -> NDArray[np.float64]:
    """Return weights as numbers, NaN if missing."""
    return as_float(column)[0]


def bad_weights(table: pa.RecordBatch, column: str) -> Bad:
    """Return the rows whose weight is missing, negative, infinite or not a number, with the reason."""
    values = weights_of(table.column(column))
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    shown = {int(i): table.column(column)[int(i)].as_py() for i in wrong}
    return {i: f"the weight {value!r} is not a number of at least 0" for i, value in shown.items()}
