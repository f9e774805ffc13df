"""Predict a source part by part, and write the predictions to one file or stream.

The folder ``RESULT.wip`` beside the result holds finished parts (`journal`), so that a
killed run resumes. When all are finished, the result is put in place atomically, with a receipt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from bigmc.engine import Resources
from bigmc.errors import DataError
from bigmc.inference.journal import PARTS, POSITION, Journal
from bigmc.inference.part_predictor import N_ODD, PartPredictor, Predicted
from bigmc.inference.prediction_plan import PredictionPlan
from bigmc.inference.writers import open_writer
from bigmc.ingestion.readers.rejects import REJECT_SCHEMA
from bigmc.lazy import LazyModule
from bigmc.model import ModelSource
from bigmc.options.inference import PredictOptions
from bigmc.progress import Progress
from bigmc.store.files import disk
from bigmc.store.files.layout import sha256
from bigmc.store.files.outputs import IfExists, Output, OutputKind
from bigmc.store.files.receipt import Receipt
from bigmc.store.files.work_folder import WorkFolder

pq = LazyModule("pyarrow.parquet")

RESULT, REJECTS = "result", "rejects.parquet"

_WORK_FILES = (RESULT, REJECTS, PARTS, POSITION, "position.json", "job.json")
"""All files of unfinished work; the last two are of earlier versions, which cut parts at other rows."""


@dataclass(frozen=True)
class PredictionCounts:
    """Numbers of predicted and of rejected rows, and of odd values that counted as missing."""

    n_samples: int
    n_quarantined: int
    n_odd_values: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the numbers for JSON, that of odd values only where there are some."""
        return {name: n for name, n in vars(self).items() if n or name != "n_odd_values"}


class PredictionInput(Protocol):
    """Rows to predict: of a dataset, or of raw files and arrays."""

    @property
    def identity(self) -> Any | None:
        """Identity of the rows, as JSON data; None if they are only in memory."""

    def plan(
        self, model: ModelSource, options: PredictOptions, resources: Resources, part_bytes: int | None
    ) -> tuple[PredictionPlan, PartPredictor]:
        """Return how to predict every row; `part_bytes`, of an interrupted run, is kept if memory allows.

        `DataError` if the rows lack a column that the model needs, or one to copy; `ModelError` if they
        have other features; `MemoryLimitError` if the memory limit does not allow one worker.
        """

    def predict(self, part: Any, predictor: PartPredictor) -> Predicted:
        """Return the predictions of a part and the rows set aside, on any worker."""


@dataclass(frozen=True)
class PredictionJob:
    """Prediction of one source by one model, to one output.

    The model is read after planning memory; predictions of a model without a file are never resumed.
    """

    model: ModelSource
    output: Output
    options: PredictOptions
    resources: Resources

    def run(self, source: PredictionInput, if_exists: IfExists = IfExists.REFUSE) -> PredictionCounts:
        """Predict all rows that are not predicted yet.

        `DataError` if the source is invalid, or another file is in place of the result; `ModelError`
        if the source has other features than the model; `BusyError` if another process writes the
        same result; `MemoryLimitError` if the memory limit does not allow one worker.
        """
        quarantine = self.options.on_bad_row == "quarantine"
        if self.output.kind is OutputKind.STREAM:
            if quarantine:
                raise DataError("rows can only be set aside if predictions go to a file", "give --to a file")
            return self._stream(source)
        made = self._made(source)
        done = self._done(made)
        if done is None:
            with self._folder.locked():
                # another process may just have written the same result
                done = self._done(made) or self._write_new(source, made, if_exists)
        self._folder.clear()
        return done

    @property
    def _folder(self) -> WorkFolder:
        return WorkFolder.of(self.output.path, _WORK_FILES)

    def _made(self, source: PredictionInput) -> Mapping[str, Any] | None:
        """Return the inputs of the result; None if one is only in memory."""
        data = source.identity
        if self.model.sha256 is None or data is None:
            return None
        options = self.options.fingerprint()
        return {"command": "predict", "model": self.model.sha256, "source": data, "options": options}

    def _done(self, made: Mapping[str, Any] | None) -> PredictionCounts | None:
        receipt = None if made is None else self.output.receipt()
        if receipt is None or made is None or not receipt.is_of(made):
            return None
        return PredictionCounts(**receipt.result)

    def _write_new(
        self, source: PredictionInput, made: Mapping[str, Any] | None, if_exists: IfExists
    ) -> PredictionCounts:
        """Predict missing parts and put the result in place, unless another file is there."""
        self.output.refuse_existing(if_exists)
        if self.options.on_bad_row == "quarantine":
            self.output.refuse_existing_rejects(if_exists)
        work = self._folder.path
        result, rejects = work / RESULT, work / REJECTS
        with Journal(work, made) as journal:
            plan, predictor = source.plan(self.model, self.options, self.resources, journal.part_bytes)
            journal.keep_only(plan.part_bytes)
            with disk.output(result) as file:
                missing = plan.engine.map(source.predict, plan.parts[journal.n_parts :], predictor)
                tables = journal.followed_by((tables for _, tables in missing), len(plan.parts))
                counts = self._write_tables(predictor.schema, plan, tables, file, rejects)
            disk.sync(result)
        aside = rejects if counts.n_quarantined else None
        receipt = Receipt(
            made or {}, sha256(result), counts.to_dict(), None if aside is None else sha256(aside)
        )
        self.output.deliver(result, receipt, aside)
        return counts

    def _write_tables(
        self,
        schema: pa.Schema,
        plan: PredictionPlan,
        tables: Iterator[Predicted],
        file: IO[bytes],
        rejects: Path,
    ) -> PredictionCounts:
        n_samples = n_rejects = n_odd = 0
        with ExitStack() as files:
            writer = open_writer(self.output, file, schema, plan.parts_per_group)
            files.enter_context(writer)
            aside: Any = None
            for predicted, bad in tables:
                writer.write(predicted)
                if bad.num_rows:
                    if aside is None:
                        target = files.enter_context(disk.output(rejects))
                        aside = files.enter_context(pq.ParquetWriter(target, REJECT_SCHEMA))
                    aside.write_table(bad)
                n_samples += predicted.num_rows
                n_odd += int((predicted.schema.metadata or {}).get(N_ODD.encode(), 0))
                n_rejects += bad.num_rows
                done = n_samples + n_rejects
                self.resources.progress(Progress("predict", done, plan.n_rows, "rows"))
        return PredictionCounts(n_samples, n_rejects, n_odd)

    def _stream(self, source: PredictionInput) -> PredictionCounts:
        plan, predictor = source.plan(self.model, self.options, self.resources, None)
        parts = plan.engine.map(source.predict, plan.parts, predictor)
        tables = (tables for _, tables in parts)
        with closing(self.output.open_stream()) as file:
            return self._write_tables(predictor.schema, plan, tables, file, Path(os.devnull))
