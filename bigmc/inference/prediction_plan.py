"""Plan a prediction: split the input into parts that fit the memory limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bigmc.engine import Engine
from bigmc.ingestion.parts.scan import EVERYTHING, ReadRequest
from bigmc.model import ModelOutline
from bigmc.options.inference import PredictOptions

TASK = "prediction"
"""Name of prediction in messages about memory."""

ROW_COST = 64
"""Bytes of a row besides its scores: id, label, position of the best score, and copies in a table."""

LABEL_COST, MOST_LABELS = 32, 4
"""Bytes of a label of a set: as a pair, sorted, as a code, as a text; and the assumed average number of
labels per row, if there are as many classes."""

KEPT_COST = 64
"""Bytes per row of a copied column, besides its bytes in the source."""


@dataclass(frozen=True)
class PredictionPlan:
    """The parts of an input, their workers, and the bytes of each besides the model.

    Parts are numbers of shards, or parts of raw sources of about `part_bytes`, which is 0 for datasets:
    their parts do not depend on the memory limit. `n_rows` is that of all parts; `kept` has the copied
    columns of the input, with their types; `reading` says how raw sources are read. The results of
    `parts_per_group` parts are a row group of a Parquet file.
    """

    engine: Engine
    scratch_bytes: int
    parts: Sequence[Any]
    n_rows: int
    kept: pa.Schema
    reading: ReadRequest = EVERYTHING
    part_bytes: int = 0
    parts_per_group: int = 1


def row_cost(model: ModelOutline, options: PredictOptions) -> int:
    """Return the bytes of the result of a row."""
    labels = LABEL_COST * min(model.n_classes, MOST_LABELS) if model.has_sets else 0
    # Scores briefly exist three times: as computed, as columns, and encoded for the file.
    scores = 3 * 8 * model.n_classes if options.per_class else 0
    return ROW_COST + labels + scores + KEPT_COST * len(options.keep)
