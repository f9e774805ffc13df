"""Predict a dataset or one of its splits, shard by shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bigmc.engine import Resources
from bigmc.inference.memory import divide_limit
from bigmc.inference.part_predictor import PartPredictor, Predicted
from bigmc.inference.prediction_plan import TASK, PredictionPlan, row_cost
from bigmc.model import Model, ModelOutline
from bigmc.options.inference import PredictOptions
from bigmc.store.dataset import Dataset


@dataclass(frozen=True)
class DatasetInput:
    """The rows of a dataset."""

    dataset: Dataset

    @property
    def identity(self) -> Any | None:
        """Identity of the dataset; None if it is only in memory."""
        return self.dataset.identity if self.dataset.path else None

    def plan(
        self, model: ModelOutline, options: PredictOptions, resources: Resources, part_bytes: int | None
    ) -> PredictionPlan:
        """Return the plan; parts are shards for any memory limit."""
        shards = self.dataset.shards
        rows = max((shard.n_rows for shard in shards), default=0)
        engine, scratch = divide_limit(model, resources, rows * row_cost(model, options), TASK)
        kept = pa.schema([])
        if options.keep and shards:
            kept = shards[0].table(list(options.keep)).schema.remove_metadata()
        return PredictionPlan(engine, scratch, range(len(shards)), self.dataset.n_samples, kept)

    def check(self, model: Model) -> None:
        """Raise an error if the model has other features."""
        model.check_features(self.dataset)

    def predict(self, part: int, predictor: PartPredictor) -> Predicted:
        """Return the predictions of a shard."""
        return predictor.shard(part, self.dataset), []
