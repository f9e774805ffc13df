"""How the prediction of a source is cut into parts that fit the memory limit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bigmc.budget import MemoryLimitError, plan_within
from bigmc.engine import Engine, Resources
from bigmc.errors import DataError
from bigmc.inference.part_predictor import PartPredictor, Predicted
from bigmc.inference.samples import feature_spec_of
from bigmc.ingestion.memory import BATCH_COST, DENSE_BATCH_COST, READER_BYTES, RECORD_COST, bytes_held
from bigmc.ingestion.processes import at_the_data
from bigmc.ingestion.readers import MATRICES
from bigmc.ingestion.readers.parquet import longest_text
from bigmc.ingestion.readers.record_limit import SHORT_RECORD, RecordLimit
from bigmc.ingestion.sources import (
    EVERYTHING,
    Part,
    ReadHints,
    ReadRequest,
    Source,
    bytes_per_row,
    scan,
    schema,
)
from bigmc.model import Model, ModelOutline, divide
from bigmc.model.memory import SMALLEST_SCRATCH, smallest_limit
from bigmc.options.inference import PredictOptions
from bigmc.store.dataset import Dataset

ROW_COST = 64
"""Bytes of a row beside its scores: id, label, place of the best score, their copies as a table."""

LABEL_COST, MOST_LABELS = 32, 4
"""Bytes of a label of a set: as a pair, sorted, as a code, as a text; and how many a row has on average, if
the classes are as many."""

KEPT_COST = 64
"""Bytes of a column that is copied, a row, beside the bytes it has in the source."""

SMALLEST_PART, LARGEST_PART = 1 << 16, 1 << 20
"""Bounds on the source bytes of a part: small enough that the workers share one file of a few MB."""


@dataclass(frozen=True)
class PredictionPlan:
    """The parts of a source, who predicts them, and in how much memory.

    Attributes
    ----------
    engine : Engine
        With as many workers as the memory limit allows.
    scratch_bytes : int
        Bytes that a worker may take beside the model.
    source : Dataset or list of Source
    parts : sequence
        Numbers of shards, or parts of raw sources.
    n_rows : int
        Rows of all parts.
    kept : pyarrow.Schema
        The columns of the source that are copied, with their types.
    reading : ReadRequest
        How raw sources are read.
    part_bytes : int
        About the source bytes of a part; 0 for datasets, whose parts do not depend on the memory limit.
    """

    engine: Engine
    scratch_bytes: int
    source: Dataset | list[Source]
    parts: Sequence[Any]
    n_rows: int
    kept: pa.Schema
    reading: ReadRequest = EVERYTHING
    part_bytes: int = 0

    def with_model(self, model: Model, options: PredictOptions) -> PlannedPrediction:
        """Return the prediction that this is the plan of."""
        return PlannedPrediction(
            self, PartPredictor(model, options, self.scratch_bytes, self.kept, self.reading)
        )


@dataclass(frozen=True)
class PlannedPrediction:
    """A plan, and a model in memory that carries it out.

    Attributes
    ----------
    plan : PredictionPlan
    task : PartPredictor
    """

    plan: PredictionPlan
    task: PartPredictor

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self.task.empty().schema

    def results(self, first: int) -> Iterator[Predicted]:
        """Yield the predictions of the parts from number `first` on, in their order."""
        engine, parts, source = self.plan.engine, self.plan.parts[first:], self.plan.source
        if isinstance(source, Dataset):
            found = engine.map(_predict_shard, parts, self.task, source)
        else:
            found = engine.map(_predict_part, parts, self.task, source, os.getcwd())
        return (result for _, result in found)


def plan_dataset(
    model: ModelOutline, dataset: Dataset, options: PredictOptions, resources: Resources
) -> PredictionPlan:
    """Return the plan to predict every sample of a dataset, a shard at a time.

    Raises
    ------
    MemoryLimitError
        If the results of a shard do not fit.
    """
    rows = max((shard.n_rows for shard in dataset.shards), default=0)
    engine, scratch = _divide(model, resources, rows * row_cost(model, options))
    kept = pa.schema([])
    if options.keep and dataset.n_shards:
        kept = dataset.shards[0].table(list(options.keep)).schema.remove_metadata()
    return PredictionPlan(engine, scratch, dataset, range(dataset.n_shards), dataset.n_samples, kept)


def plan_sources(
    model: ModelOutline,
    sources: list[Source],
    options: PredictOptions,
    resources: Resources,
    part_bytes: int | None,
) -> PredictionPlan:
    """Return the plan to predict every row of raw files or arrays.

    Parameters
    ----------
    part_bytes : int or None
        Size of the parts of an interrupted run, which is kept where the memory limit allows.

    Raises
    ------
    DataError
        If the rows lack a column that the model needs, or one that shall be copied.
    MemoryLimitError
        If the memory limit does not allow one worker.
    """
    resources = replace(resources, engine=at_the_data(resources.engine, sources))
    hints = _hints(model, sources, options, resources)
    kept = _check_sources(model, sources, options, hints)
    try:
        engine, scratch = _divide(model, resources, 0)
    except MemoryLimitError:
        _held_by(scan(sources, LARGEST_PART, hints), hints)  # names a larger limit if long records need it
        raise
    row_bytes = bytes_per_row(sources[0])
    cost = row_cost(model, options) + (3 * row_bytes if options.keep else 0)
    most = int(np.clip(scratch / 8 / cost * row_bytes, SMALLEST_PART, LARGEST_PART))
    part_bytes = most if part_bytes is None or part_bytes > most else part_bytes
    parts = scan(sources, part_bytes, hints)
    engine, scratch = _hold_records(engine, scratch, _held_by(parts, hints))
    reading = ReadRequest(
        columns=hints.columns,
        batch_bytes=int(np.clip(scratch // (4 * _batch_cost(model)), 1 << 15, 4 << 20)),
        on_bad_row=options.on_bad_row,
        reader_bytes=READER_BYTES + max((bytes_held(part) for part in parts), default=0),
        record_limit=hints.record_limit,
    )
    n_rows = sum(part.n_rows for part in parts)
    return PredictionPlan(engine, scratch, sources, parts, n_rows, kept, reading, part_bytes)


def _hints(
    model: ModelOutline, sources: Sequence[Source], options: PredictOptions, resources: Resources
) -> ReadHints:
    """Return what the model tells about the sources it can predict."""
    spec = feature_spec_of(model)
    least = smallest_limit(model) + _own_copy(model, resources.engine)
    return ReadHints(
        types={name: pa.string() for name in spec.text},
        zero_based=None if spec.first_index is None else spec.first_index == 0,
        n_features=model.n_features if sources[0].format == "svmlight" else None,
        missing=spec.takes_missing,
        columns=_columns(model, options) or None,
        record_limit=RecordLimit(resources.memory_limit, least, RECORD_COST),
    )


def _held_by(parts: Sequence[Part], hints: ReadHints) -> int:
    """Return the most bytes that reading a part holds: its longest record, the footer of its file.

    Raises
    ------
    MemoryLimitError
        If the memory limit does not allow them.
    """
    held = [bytes_held(part) + part.footer_bytes for part in parts]
    largest = int(np.argmax(held)) if held else 0
    limit = hints.record_limit
    if held and limit is not None:
        try:
            limit.check_held(parts[largest].path, held[largest])
        except MemoryLimitError:
            # Footers tell the size of columns only: reading would refuse a longer text in them later.
            if parts[largest].format == "parquet" and hints.columns:
                row, n_bytes = longest_text(parts[largest].path, hints.columns)
                if limit.cost * (n_bytes - SHORT_RECORD) > held[largest]:
                    raise limit.refusal(parts[largest].path, row, n_bytes) from None
            raise
    return held[largest] if held else 0


def _batch_cost(model: ModelOutline) -> int:
    """Return the bytes in memory per source byte of a batch; Fourier features are more than their columns."""
    spec = feature_spec_of(model)
    return DENSE_BATCH_COST if spec.only_dense and spec.map is None else BATCH_COST


def _hold_records(engine: Engine, scratch: int, held: int) -> tuple[Engine, int]:
    """Return fewer workers with more memory where records are long, and the bytes beside such a record."""
    whole = scratch * engine.n_threads
    n_workers = max(1, min(engine.n_threads, whole // (SMALLEST_SCRATCH + held)))
    return engine.at_most(n_workers), whole // n_workers - held if held else scratch


def row_cost(model: ModelOutline, options: PredictOptions) -> int:
    """Return the bytes of the result of a row."""
    labels = LABEL_COST * min(model.n_classes, MOST_LABELS) if model.has_sets else 0
    # Scores exist three times for a moment: as computed, as columns, and encoded for the file.
    scores = 3 * 8 * model.n_classes if options.per_class else 0
    return ROW_COST + labels + scores + KEPT_COST * len(options.keep)


def _check_sources(
    model: ModelOutline, sources: Sequence[Source], options: PredictOptions, hints: ReadHints
) -> pa.Schema:
    """Return the columns to copy; refuse sources that lack columns, before anything is read."""
    spec = feature_spec_of(model)
    format, path = sources[0].format, sources[0].path
    if format in MATRICES:
        missing = spec.columns or options.keep
        if missing:
            raise DataError(
                f"{path}: {format} data has no named columns, and prediction needs {', '.join(missing)}",
                "give data in the form the model was trained on",
            )
        return pa.schema([])
    if not spec.columns:
        raise DataError(
            f"{path}: the model was trained on a matrix of {model.n_features} features, "
            f"not on columns of {format} files",
            "give svmlight files or arrays",
        )
    found = schema(sources, _columns(model, options), hints)
    spec.check_types(found)
    return pa.schema([found.field(name).remove_metadata() for name in options.keep])


def _columns(model: ModelOutline, options: PredictOptions) -> tuple[str, ...]:
    """Return the columns to read, without repetition."""
    return tuple(dict.fromkeys((*feature_spec_of(model).columns, *options.keep)))


def _divide(model: ModelOutline, resources: Resources, result: int) -> tuple[Engine, int]:
    """Return the engine the limit allows, if one result has so many bytes, and the bytes for each part."""
    engine, own = resources.engine, _own_copy(model, resources.engine)
    n_threads, scratch = plan_within(
        resources.memory_limit,
        lambda limit: divide(model, limit - own, engine.n_threads, result, "prediction"),
    )
    return engine.at_most(n_threads), scratch


def _own_copy(model: ModelOutline, engine: Engine) -> int:
    """Return the bytes of the model as it came, which a process of its own keeps beside the model."""
    return 0 if engine.shares_memory else model.nbytes


def _predict_shard(shard: int, task: PartPredictor, dataset: Dataset) -> Predicted:
    return task.shard(shard, dataset), []


def _predict_part(part: Part, task: PartPredictor, sources: list[Source], base: str) -> Predicted:
    return task.raw(part, sources, base)
