"""Plan a prediction: split the input into parts that fit the memory limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from bigmc.engine import Engine, Resources
from bigmc.inference.part_predictor import PartPredictor, Predicted
from bigmc.ingestion.parts.scan import EVERYTHING, ReadRequest
from bigmc.model import Model, ModelOutline
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
    columns of the input, with their types; `reading` says how raw sources are read.
    """

    engine: Engine
    scratch_bytes: int
    parts: Sequence[Any]
    n_rows: int
    kept: pa.Schema
    reading: ReadRequest = EVERYTHING
    part_bytes: int = 0


class PredictionInput(Protocol):
    """Rows to predict: of a dataset, or of raw files and arrays."""

    @property
    def identity(self) -> Any | None:
        """Identity of the rows, as JSON data; None if they are only in memory."""
        ...

    def plan(
        self, model: ModelOutline, options: PredictOptions, resources: Resources, part_bytes: int | None
    ) -> PredictionPlan:
        """Return how to predict every row; `part_bytes`, of an interrupted run, is kept if memory allows.

        `DataError` if the rows lack a column that the model needs, or one to copy; `MemoryLimitError`
        if the memory limit does not allow one worker.
        """
        ...

    def check(self, model: Model) -> None:
        """Check the features of the model that its outline does not show."""
        ...

    def predict(self, part: Any, predictor: PartPredictor) -> Predicted:
        """Return the predictions of a part and the rows set aside, on any worker."""
        ...


def predictions(
    source: PredictionInput, plan: PredictionPlan, predictor: PartPredictor, first: int
) -> Iterator[Predicted]:
    """Yield the predictions of the parts from number `first` on, in their order."""
    return (predicted for _, predicted in plan.engine.map(_predict, plan.parts[first:], source, predictor))


def _predict(part: Any, source: PredictionInput, predictor: PartPredictor) -> Predicted:
    return source.predict(part, predictor)


def row_cost(model: ModelOutline, options: PredictOptions) -> int:
    """Return the bytes of the result of a row."""
    labels = LABEL_COST * min(model.n_classes, MOST_LABELS) if model.has_sets else 0
    # Scores briefly exist three times: as computed, as columns, and encoded for the file.
    scores = 3 * 8 * model.n_classes if options.per_class else 0
    return ROW_COST + labels + scores + KEPT_COST * len(options.keep)
