"""Predict raw files and arrays, in parts that fit the memory limit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from bigmc.budget import MemoryLimitError
from bigmc.engine import Resources
from bigmc.errors import DataError
from bigmc.inference.memory import SMALLEST_SCRATCH, divide_limit, own_copy, smallest_limit
from bigmc.inference.part_predictor import PartPredictor, Predicted
from bigmc.inference.prediction_plan import TASK, PredictionPlan, row_cost
from bigmc.inference.samples import feature_spec_of
from bigmc.ingestion.memory import BATCH_COST, COLUMN_BYTES, DENSE_BATCH_COST, READER_BYTES, bytes_held
from bigmc.ingestion.parts.scan import (
    Part,
    ReadHints,
    ReadRequest,
    bytes_per_row,
    read,
    refuse_changed,
    scan,
    schema,
)
from bigmc.ingestion.readers import MATRICES, TEXT_FORMATS
from bigmc.ingestion.readers.parquet import longest_text
from bigmc.ingestion.readers.record_limit import RecordLimit, bytes_of_record
from bigmc.ingestion.sources.source import Source
from bigmc.model import ModelOutline, ModelSource
from bigmc.options.inference import PredictOptions
from bigmc.printable import listed

SMALLEST_PART, LARGEST_PART = 1 << 16, 1 << 20
"""Bounds on the source bytes of a part, small enough that workers share a file of a few MB."""

MOST_SHARE, BATCH_SHARE = 4, 4
"""Memory allows at least this number of workers, and more if parts are smaller than the largest. A batch
may take a worker's bytes divided by the second."""

SMALLEST_BATCH, LARGEST_BATCH = 1 << 15, 4 << 20
"""Bounds on the source bytes of a batch."""


@dataclass(frozen=True)
class RawInput:
    """The rows of raw files or arrays.

    `sources` are of one format, from `bigmc.ingestion.parts.scan.expand_sources`. `types` are those of copied
    columns, for formats without types. `base` is the folder of relative paths, since workers may run in
    another one.
    """

    sources: list[Source]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    base: str = field(default_factory=os.getcwd)

    @cached_property
    def identity(self) -> Sequence[Mapping[str, Any]]:
        """Identity of the sources when it was first used."""
        return [source.identity() for source in self.sources]

    def plan(
        self, model: ModelSource, options: PredictOptions, resources: Resources, part_bytes: int | None
    ) -> tuple[PredictionPlan, PartPredictor]:
        """Return the plan and its predictor; the plan has already checked the columns.

        `DataError` if a file is no longer the one of the identity, which a receipt tells.
        """
        identity = None if self.sources[0].in_memory else self.identity
        plan = self.parts_within(model.outline, options, resources, part_bytes)
        if identity is not None:
            refuse_changed(plan.parts, identity)
        return plan, PartPredictor.of(model, options, plan)

    def parts_within(
        self, model: ModelOutline, options: PredictOptions, resources: Resources, part_bytes: int | None
    ) -> PredictionPlan:
        """Return the plan, with parts small enough that results fit besides the model."""
        sources = self.sources
        if sources[0].in_memory:
            resources = replace(resources, engine=resources.engine.local())
        hints = _hints(model, self, options, resources)
        kept = _check_sources(model, sources, options, hints)
        engine = resources.engine
        try:
            free = divide_limit(model, replace(resources, engine=engine.at_most(1)), 0, TASK)[1]
        except MemoryLimitError:
            # Raises an error with a larger limit if long records need it.
            _most_held(scan(sources, LARGEST_PART, hints), hints)
            raise
        row_bytes = max(bytes_per_row(sources[0]), 1e-9)
        cost = row_cost(model, options) + (3 * row_bytes if options.keep else 0)
        growth = 8 * cost / row_bytes
        share = _share(model, free, int(growth * LARGEST_PART) + 1)
        # the scores of few bytes may be large: many values of Parquet take less than a byte
        smallest = 1 if sources[0].format == "parquet" else SMALLEST_PART
        most = int(np.clip(share / growth, smallest, LARGEST_PART))
        part_bytes = most if part_bytes is None or part_bytes > most else part_bytes
        parts = scan(sources, part_bytes, replace(hints, most_rows=int(part_bytes / row_bytes) + 1))
        held = _most_held(parts, hints)
        engine = engine.at_most(max(1, free // max(share, SMALLEST_SCRATCH + held)))
        scratch = free // engine.n_threads - held
        for_batch = _batch_bytes(model, sources[0], share, scratch)
        reading = ReadRequest(
            columns=hints.columns,
            batch_bytes=int(np.clip(for_batch, SMALLEST_BATCH, LARGEST_BATCH)),
            on_bad_row=options.on_bad_row,
            reader_bytes=READER_BYTES + max((bytes_held(part) for part in parts), default=0),
            record_limit=hints.record_limit,
        )
        n_rows = sum(part.n_rows for part in parts)
        # as many as a worker's bytes hold: the footer has some hundred bytes for each column of a group
        per_group = max(1, int(share * row_bytes / (cost * part_bytes)))
        return PredictionPlan(engine, scratch, parts, n_rows, kept, reading, part_bytes, per_group)

    def predict(self, part: Part, predictor: PartPredictor) -> Predicted:
        """Return the predictions of a part, and the rows set aside."""
        batches = read(part, predictor.reading, sources=self.sources, base=self.base)
        return predictor.raw(part, batches)


def _hints(model: ModelOutline, rows: RawInput, options: PredictOptions, resources: Resources) -> ReadHints:
    """Return the requirements of the model on its sources."""
    spec = feature_spec_of(model)
    least = smallest_limit(model) + own_copy(model, resources.engine)
    return ReadHints(
        types=dict(spec.json_types) | dict(rows.types),
        numbers=tuple(name for name in spec.number_columns if name not in options.keep),
        any_width=(*spec.category_columns, *options.keep),
        known=spec.columns,
        zero_based=None if spec.first_index is None else spec.first_index == 0,
        n_features=model.n_features if rows.sources[0].format == "svmlight" else None,
        missing=spec.takes_missing,
        columns=_columns(model, options) or None,
        record_limit=RecordLimit(resources.memory_limit, least),
    )


def _most_held(parts: Sequence[Part], hints: ReadHints) -> int:
    """Return the maximum bytes for reading a part: its longest record, the footer of its file.

    `MemoryLimitError` if the memory limit does not allow them.
    """
    held = [bytes_held(part) + part.footer_bytes for part in parts]
    largest = int(np.argmax(held)) if held else 0
    limit = hints.record_limit
    if held and limit is not None:
        try:
            limit.check_held(parts[largest].path, held[largest], parts[largest].footer_bytes)
        except MemoryLimitError:
            # Footers only have the sizes of columns; too long texts in them would fail later.
            if parts[largest].format == "parquet" and hints.columns:
                row, n_bytes = longest_text(parts[largest].path, hints.columns)
                if bytes_of_record(n_bytes) > held[largest]:
                    raise limit.refusal(parts[largest].path, row, n_bytes) from None
            raise
    return held[largest] if held else 0


def _batch_bytes(model: ModelOutline, source: Source, share: int, scratch: int) -> int:
    """Return the source bytes of a batch, for a worker with `scratch` bytes.

    In text files of many columns a batch takes time and memory for a column however few rows it has. A batch
    of these may therefore take all bytes of a worker: 9 rows of 1,000 columns at a time took 5 ms each.
    """
    n_bytes = (share if _has_fourier(model) else scratch) // _batch_cost(model)
    n_columns = len(feature_spec_of(model).columns) if source.format in TEXT_FORMATS else 0
    return max(n_bytes // BATCH_SHARE, min(n_bytes, COLUMN_BYTES * n_columns))


def _batch_cost(model: ModelOutline) -> int:
    """Return the bytes in memory per source byte of a batch, including Fourier features."""
    spec = feature_spec_of(model)
    return DENSE_BATCH_COST if spec.only_dense and not _has_fourier(model) else BATCH_COST


def _has_fourier(model: ModelOutline) -> bool:
    """Return whether dense features become random Fourier features, and not standardised ones at most."""
    feature_map = feature_spec_of(model).map
    return feature_map is not None and feature_map.fourier > 0


def _share(model: ModelOutline, free: int, largest: int) -> int:
    """Return the bytes of a worker, which do not depend on the number of workers, as results must not.

    `largest` are those of a part of the largest size: each is a row group of the result. The products of
    Fourier features with a batch depend on the rows of the batch, in the last bits.
    """
    if _has_fourier(model):
        largest = max(largest, BATCH_SHARE * _batch_cost(model) * LARGEST_PART)
    return max(SMALLEST_SCRATCH, min(largest, free // MOST_SHARE))


def _check_sources(
    model: ModelOutline, sources: Sequence[Source], options: PredictOptions, hints: ReadHints
) -> pa.Schema:
    """Return the columns to copy; raise an error if sources lack columns, before reading them."""
    spec = feature_spec_of(model)
    format, path = sources[0].format, sources[0].path
    if format in MATRICES:
        unnamed = f"{path}: {format} data has no named columns"
        if spec.columns:
            raise DataError(
                f"{unnamed}, but the model needs {listed(spec.columns)}",
                "give data in the format of the training data",
            )
        if options.keep:
            raise DataError(f"{unnamed} to keep", f"leave out --keep {options.keep[0]}")
        return pa.schema([])
    if not spec.columns:
        raise DataError(
            f"{path}: the model was trained on a matrix of {model.n_features} features, "
            f"not on columns of {format} files",
            "give svmlight files or arrays",
        )
    columns = schema(sources, _columns(model, options), hints)
    spec.check_types(columns)
    return pa.schema([columns.field(name).remove_metadata() for name in options.keep])


def _columns(model: ModelOutline, options: PredictOptions) -> tuple[str, ...]:
    """Return the columns to read, without duplicates."""
    return tuple(dict.fromkeys((*feature_spec_of(model).columns, *options.keep)))
