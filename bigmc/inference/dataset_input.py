"""Predict a dataset or one of its splits, shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bigmc.engine import Resources
from bigmc.errors import DataError
from bigmc.inference.memory import divide_limit
from bigmc.inference.part_predictor import PartPredictor, Predicted
from bigmc.inference.prediction_plan import TASK, PredictionPlan, row_cost
from bigmc.ingestion.readers.rejects import REJECT_SCHEMA
from bigmc.ingestion.sources.mixed_values import as_texts
from bigmc.model import ModelSource
from bigmc.options.inference import PredictOptions
from bigmc.printable import listed
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import ROW_COLUMNS
from bigmc.store.shards.disk_shard import StoredShard
from bigmc.store.shards.label_sets import is_sets, labels_of


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
            self._check_kept(options.keep)
            kept = self._kept_types(options.keep)
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
        kept = _as_types(self._kept(part, predictor.kept.names), predictor.kept)
        row_ids = shard.table(["row_id"]).column("row_id").to_numpy()
        return predictor.table(row_ids, predicted, scores, kept), REJECT_SCHEMA.empty_table()

    @property
    def _label(self) -> str:
        """Name of the label column."""
        source = self.dataset.label_source
        return "label" if source is None else source.column

    def _check_kept(self, names: Sequence[str]) -> None:
        """Raise `DataError` if the dataset lacks one of these columns."""
        stored = set(self.dataset.shards[0].table().column_names) - ROW_COLUMNS
        known = [*sorted(stored - {self._label}), self._label]
        for name in names:
            if name not in known:
                where = "the dataset" if self.dataset.path is None else self.dataset.path
                raise DataError(
                    f"{where}: no column {name!r} to copy; the columns are: {listed(known)}",
                    "ingest copies columns that are named with --keep",
                )

    def _kept_types(self, names: Sequence[str]) -> pa.Schema:
        """Return the types of the columns to copy, which may differ from append to append: then texts."""
        shards = list(enumerate(self.dataset.shards))
        of_ingests = {s.folder.parent if isinstance(s, StoredShard) else None: part for part, s in shards}
        schemas = [self._kept(part, names).schema for part in of_ingests.values()]
        types = ({schema.field(name).type for schema in schemas} - {pa.null()} for name in names)
        return pa.schema(
            (name, pa.string() if len(own) > 1 else next(iter(own), pa.null()))
            for name, own in zip(names, types, strict=True)
        )

    def _kept(self, part: int, names: Sequence[str]) -> pa.Table:
        """Return the columns of a shard to copy; of the labels not the codes."""
        stored = ["label" if name == self._label else name for name in names]
        table = self.dataset.shards[part].table(stored).rename_columns(list(names))
        if self._label not in names:
            return table
        place = list(names).index(self._label)
        return table.set_column(place, self._label, self._labels(table.column(place)))

    def _labels(self, column: pa.ChunkedArray) -> pa.Array:
        """Return the labels, or sets of them, of a column of codes."""
        labels = pa.array(self.dataset.classes.tolist())
        if is_sets(column.type):
            return labels_of(column, labels)
        codes = column.to_numpy()
        return labels.take(pa.array(codes, mask=codes < 0))


def _as_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return columns with the given types; others than texts become texts like Python's ``str``."""
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        if column.type == field.type or pa.types.is_null(column.type):
            columns.append(column.cast(field.type))
            continue
        try:
            columns.append(as_texts(column.to_pylist()))
        except TypeError:
            raise DataError(
                f"the column {field.name!r} is {column.type} in one append, but not in another",
                "leave it out of --keep",
            ) from None
    return pa.table(columns, schema=schema)
