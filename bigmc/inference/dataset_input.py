"""Predict a dataset or one of its splits, shard by shard."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bigmc.engine import Resources
from bigmc.inference.memory import divide_limit
from bigmc.inference.part_predictor import PartPredictor, Predicted
from bigmc.inference.prediction_plan import TASK, PredictionPlan, row_cost
from bigmc.ingestion.readers.rejects import REJECT_SCHEMA
from bigmc.model import ModelSource
from bigmc.options.inference import PredictOptions
from bigmc.store.dataset import Dataset


@dataclass(frozen=True)
class DatasetInput:
    """The rows of a dataset, and its identity; None if it is only in memory."""

    dataset: Dataset
    identity: str | None = None

    @property
    def sources(self) -> list[Dataset]:
        """The dataset."""
        return [self.dataset]

    def plan(
        self, model: ModelSource, options: PredictOptions, resources: Resources, part_bytes: int | None
    ) -> tuple[PredictionPlan, PartPredictor]:
        """Return the plan; parts are shards for any memory limit."""
        shards, outline = self.dataset.shards, model.outline
        rows = max((shard.n_rows for shard in shards), default=0)
        engine, scratch = divide_limit(outline, resources, rows * row_cost(outline, options), TASK)
        kept = pa.schema([])
        if options.keep and shards:
            kept = shards[0].table(list(options.keep)).schema.remove_metadata()
        plan = PredictionPlan(engine, scratch, range(len(shards)), self.dataset.n_samples, kept)
        predictor = PartPredictor.of(model, options, plan)
        predictor.model.check_features(self.dataset)
        return plan, predictor

    def predict(self, part: int, predictor: PartPredictor) -> Predicted:
        """Return the predictions of a shard."""
        model, scratch_bytes = predictor.model, predictor.scratch_bytes
        shard, scores = self.dataset.shards[part], predictor.no_scores
        if predictor.options.per_class:
            scores = model.scorer.shard(shard, scratch_bytes)
            predicted = predictor.predicted(scores)
        elif model.label_threshold is not None:
            predicted = model.shard_sets(self.dataset, part, scratch_bytes)
        else:
            predicted = pa.array(model.scorer.shard_codes(shard, scratch_bytes))
        rows = shard.table(["row_id", *predictor.kept.names])
        kept = rows.select(predictor.kept.names).cast(predictor.kept)
        row_ids = rows.column("row_id").to_numpy()
        return predictor.table(row_ids, predicted, scores, kept), REJECT_SCHEMA.empty_table()
