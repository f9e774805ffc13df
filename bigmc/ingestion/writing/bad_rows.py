"""Remove invalid rows from batches."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.features import Bad
from bigmc.ingestion.parts.scan import Batch, Part
from bigmc.ingestion.readers import TEXT_FORMATS
from bigmc.ingestion.readers.matrices import keep_matrix
from bigmc.ingestion.readers.rejects import RAW_LIMIT, Reject, settle
from bigmc.options.raw import OnBadRow


def set_aside(batch: Batch, bad: Bad, part: Part, on_bad_row: OnBadRow) -> tuple[Batch, list[Reject]]:
    """Return the batch without its bad rows, and these with their reasons.

    Raises
    ------
    DataError
        At the first bad row, if it stops the run.
    """
    if not bad:
        return batch, []
    good = np.ones(batch.n_rows, dtype=bool)
    good[list(bad)] = False
    rejects = [_reject(batch, part, position, reason) for position, reason in bad.items()]
    return _select(batch, good), settle(rejects, on_bad_row)


def _reject(batch: Batch, part: Part, position: int, reason: str) -> Reject:
    shown = None
    if batch.table is not None:
        shown = json.dumps(batch.table.slice(position, 1).to_pylist()[0], default=str)[:RAW_LIMIT]
    return Reject(
        batch.path,
        int(batch.line[position]),
        int(batch.row[position]),
        reason,
        shown,
        "line" if part.format in TEXT_FORMATS else "row",
    )


def _select(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    """Return the marked rows of a batch; its rejects and bytes stay with the original."""
    mask = pa.array(rows)
    return Batch(
        table=None if batch.table is None else batch.table.filter(mask),
        matrix=None if batch.matrix is None else keep_matrix(batch.matrix, rows),
        labels=None if batch.labels is None else batch.labels.filter(mask),
        row=batch.row[rows],
        line=batch.line[rows],
        path=batch.path,
        n_bytes=0,
        rejects=[],
        pieces=batch.pieces,
    )
