"""Remove invalid rows from batches."""

from __future__ import annotations

import json

from bigmc.ingestion.columns.features import Bad
from bigmc.ingestion.parts.scan import Batch, Part
from bigmc.ingestion.readers import TEXT_FORMATS
from bigmc.ingestion.readers.base import all_but
from bigmc.ingestion.readers.rejects import RAW_LIMIT, Reject, settle
from bigmc.options.raw import OnBadRow


def set_aside(batch: Batch, bad: Bad, part: Part, on_bad_row: OnBadRow) -> tuple[Batch, list[Reject]]:
    """Return the batch without its bad rows, and these with their reasons.

    `DataError` at the first bad row, if it stops the run.
    """
    if not bad:
        return batch, []
    rejects = [_reject(batch, part, position, reason) for position, reason in bad.items()]
    return batch.where(all_but(batch.n_rows, bad)), settle(rejects, on_bad_row)


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
