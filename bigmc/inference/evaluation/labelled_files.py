"""Labelled raw files and arrays for evaluation, hashed while they are read, without writing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.engine import Engine, Resources
from bigmc.errors import DataError
from bigmc.inference.evaluation.labelled import LabelledPart, Workers
from bigmc.inference.raw_input import RawInput
from bigmc.inference.samples import feature_spec_of, usable_rows
from bigmc.ingestion.columns.known_labels import KnownLabels
from bigmc.ingestion.columns.labels import LabelCoder, agree_on_sets, find_missing, split_labels
from bigmc.ingestion.parts.scan import Batch, Part, ReadRequest, read
from bigmc.ingestion.readers import DELIMITED, MATRICES
from bigmc.model import Model, ModelOutline
from bigmc.options.inference import EvaluateOptions, PredictOptions
from bigmc.store.shards.label_sets import is_sets, pairs_of, set_column


@dataclass(frozen=True)
class LabelColumn:
    """Where the labels of raw data are: a column, or None if the labels are separate from a matrix.

    `separator` separates several labels of a row.
    """

    name: str | None
    separator: str | None = None

    @classmethod
    def of(cls, options: EvaluateOptions, format: str) -> LabelColumn:
        """Return the label column in the options, for sources of a format.

        `DataError` if it is not given, or the sources have no columns.
        """
        if format in MATRICES:
            if options.label is not None or options.label_separator is not None:
                raise DataError(f"{format} data has no named columns", "leave --label out")
            return cls(None)
        if options.label is None:
            raise DataError("the label column of the raw data is not given", "name it with --label")
        return cls(options.label, options.label_separator)

    @property
    def names(self) -> tuple[str, ...]:
        """The column to read, if there is one."""
        return () if self.name is None else (self.name,)

    def values(self, batch: Batch) -> pa.Array:
        """Return the label, or list of labels, of each row of a batch; `DataError` if one is missing."""
        labels = batch.labels if self.name is None or batch.table is None else batch.table.column(self.name)
        if labels is None:
            raise DataError(f"{batch.path}: no labels", "give data with its labels")
        if self.separator is not None:
            labels = split_labels(labels, self.separator)
        missing = np.flatnonzero(find_missing(labels))
        if len(missing):
            line = int(batch.line[missing[0]])
            raise DataError(f"{batch.path}: {line}: the label is missing", "remove the row, or add its label")
        return labels


@dataclass(frozen=True)
class LabelledFiles:
    """Labelled rows of raw files or arrays, in parts that fit the memory limit.

    `scratch_bytes` is the memory of each of the `n_workers` that fit. `with_classes` sets `classes`, the
    sorted labels that occur, written like those of the model, `codes`, the position of each label of the
    source among them, and `has_sets`.
    """

    rows: RawInput
    column: LabelColumn
    parts: Sequence[Part]
    reading: ReadRequest
    n_workers: int
    scratch_bytes: int
    classes: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    codes: Mapping[object, int] = field(default_factory=dict)
    has_sets: bool = False

    @classmethod
    def plan(
        cls, rows: RawInput, column: LabelColumn, model: ModelOutline, resources: Resources
    ) -> LabelledFiles:
        """Return the parts of the rows, before the model is read.

        `DataError` if the rows lack a column that the model needs, or the labels; `MemoryLimitError`
        if the memory limit does not allow one worker.
        """
        if column.name is not None and rows.sources[0].format in DELIMITED:  # the classes tell the type
            rows = replace(rows, types={column.name: pa.string()})
        plan = rows.parts_within(model, PredictOptions(keep=column.names, scores=True), resources, None)
        workers = plan.engine.n_threads, plan.scratch_bytes
        return cls(rows, column, plan.parts, plan.reading, *workers)

    def with_classes(self, model: Model, resources: Resources) -> LabelledFiles:
        """Return the same rows with the classes of their labels, which takes a pass over the labels.

        `DataError` if a label is missing, or has another type than the classes of the model.
        """
        known = KnownLabels(model.classes.tolist(), "model's classes")
        meant: dict[object, object] = {}
        sets: list[bool | None] = []
        for _, (values, are_sets) in self._engine(resources).map(_labels_of, self.parts, self):
            meant |= {value: known.label(value) for value in values if value not in meant}
            sets.append(are_sets)
        classes = sorted(set(meant.values()))  # type: ignore[type-var]
        place = {label: code for code, label in enumerate(classes)}
        codes = {value: place[label] for value, label in meant.items()}
        return replace(self, classes=np.array(classes), codes=codes, has_sets=agree_on_sets(sets))

    @property
    def ends(self) -> NDArray[np.int64]:
        """Number of rows up to the end of each part."""
        return np.cumsum([part.n_rows for part in self.parts], dtype=np.int64)

    def check(self, model: Model) -> None:
        """Do nothing: the plan has already checked the columns."""

    def workers(self, model: ModelOutline, resources: Resources) -> Workers:
        """Return the workers of the plan."""
        return self._engine(resources), self.scratch_bytes

    def scoring_workers(self, model: ModelOutline, resources: Resources) -> Workers:
        """Return the same workers, since the plan includes the scores."""
        return self.workers(model, resources)

    def part(self, number: int, model: Model, scratch_bytes: int) -> LabelledPart:
        """Return a part, its rows scored."""
        coder, spec = LabelCoder(), feature_spec_of(model)
        part = self.parts[number]
        labels: list[pa.Array] = []
        scores = [np.empty((0, model.n_classes))]
        for batch in self.batches(part, self.reading):
            good, _, rows = usable_rows(batch, part, spec, model.n_features, "fail")
            labels.append(coder.encode(self.column.values(good)))
            scores.append(model.scores(rows))
        of_coder = np.array([self.codes[value] for value in coder.values], np.int32)
        return _ScoredRows(
            pa.chunked_array([_recoded(a, of_coder) for a in labels]), np.concatenate(scores), model
        )

    def batches(self, part: Part, reading: ReadRequest) -> Iterator[Batch]:
        """Yield the batches of a part."""
        return read(part, reading, sources=self.rows.sources, base=self.rows.base)

    def _engine(self, resources: Resources) -> Engine:
        engine = resources.engine.local() if self.rows.sources[0].in_memory else resources.engine
        return engine.at_most(self.n_workers)


def _labels_of(part: Part, files: LabelledFiles) -> tuple[list[object], bool | None]:
    """Return the labels of a part, with the type of the source, and whether they are sets."""
    coder = LabelCoder()
    for batch in files.batches(part, replace(files.reading, columns=files.column.names or None)):
        coder.encode(files.column.values(batch))
    return coder.values, coder.sets


def _recoded(codes: pa.Array, of_coder: NDArray[np.int32]) -> pa.Array:
    """Return the coded labels of a coder, mapped to other codes by `of_coder`."""
    if not is_sets(codes.type):
        return pa.array(of_coder[np.asarray(codes)])
    rows, own = pairs_of(codes)
    return set_column(rows, of_coder[own], len(codes))


@dataclass(frozen=True)
class _ScoredRows:
    labels: pa.ChunkedArray
    all_scores: NDArray[np.float64]
    model: Model

    def codes(self) -> NDArray[np.int32]:
        codes: NDArray[np.int32] = np.argmax(self.all_scores, axis=1).astype(np.int32)
        return codes

    def scores(self) -> NDArray[np.float64]:
        return self.all_scores

    def groups(self) -> NDArray[np.int64] | None:
        return None

    def sets(self) -> pa.ListArray:
        return self.model.sets(self.all_scores)

    def tiles(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        yield 0, self.all_scores
