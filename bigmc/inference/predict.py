"""Labels for raw files or stored samples, written to Parquet as they come, in memory for a few parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.inference.samples import feature_spec_of, rows_of
from bigmc.ingestion.memory import BATCH_COST
from bigmc.ingestion.part import set_aside
from bigmc.ingestion.prepare import MATRICES
from bigmc.ingestion.rejects import REJECT_SCHEMA, OnBadRow, Reject, rejects_table
from bigmc.ingestion.sources import (
    Part,
    ReadHints,
    ReadRequest,
    Source,
    bytes_per_row,
    expand_sources,
    read,
    scan,
    schema,
)
from bigmc.ingestion.workers import at_the_data
from bigmc.model import Model, divide
from bigmc.progress import Progress, ProgressCallback
from bigmc.store import disk
from bigmc.store.atomic import replacing
from bigmc.store.csr import Rows
from bigmc.store.dataset import Dataset

ROW_COST = 64
"""Bytes of a row beside its scores: id, label, place of the best score, their copies as a table."""

LABEL_COST, MOST_LABELS = 32, 4
"""Bytes of a label of a set: as a pair, sorted, as a code, as a text; and how many a row has on average, if
the classes are as many."""

SMALLEST_PART, LARGEST_PART = 1 << 16, 16 << 20
"""Bounds on the source bytes of a part."""

Predicted = tuple[pa.Table, list[Reject]]
Scored = tuple[NDArray[np.int64], pa.Array, NDArray[np.float64]]  # ids, codes or sets, scores if wanted


@dataclass(frozen=True)
class PartPredictor:
    """Predicts the samples of a part, for whichever worker has it.

    Attributes
    ----------
    model : Model
    scores : bool
        Whether to give the score of every class.
    room : int
        Bytes it may take beside the model.
    """

    model: Model
    scores: bool
    room: int

    def shard(self, shard: int, dataset: Dataset) -> pa.Table:
        """Return the predictions of a shard of a dataset."""
        ids = dataset.shards[shard].table(["row_id"]).column("row_id").to_numpy()
        if self.scores:
            scores = self.model.shard_scores(dataset, shard, self.room)
            return self._table(ids, self._predicted(scores), scores)
        if self.model.label_threshold is not None:
            predicted = self.model.shard_sets(dataset, shard, self.room)
        else:
            predicted = pa.array(self.model.shard_codes(dataset, shard, self.room))
        return self._table(ids, predicted, self._no_scores)

    def raw(self, part: Part, sources: list[Source], on_bad_row: OnBadRow, base: str) -> Predicted:
        """Return the predictions of a part of raw files or arrays, and the rows set aside."""
        # Arrays: a batch may have a dozen rows, and a table costs some KB whatever it holds.
        done: list[Scored] = [(np.empty(0, np.int64), self._predicted(self._no_scores), self._no_scores)]
        rejects: list[Reject] = []
        spec = feature_spec_of(self.model)
        size = int(np.clip(self.room // (4 * BATCH_COST), 1 << 15, 4 << 20))
        request = ReadRequest(columns=spec.columns or None, batch_bytes=size, on_bad_row=on_bad_row)
        for batch in read(part, request, sources=sources, base=base):
            bad = {} if batch.table is None else spec.find_bad(batch.table)
            good, found = set_aside(batch, bad, part, on_bad_row)
            rejects += [*batch.rejects, *found]
            if good.n_rows:
                samples = spec.transform(good.table) if good.matrix is None else spec.mapped(good.matrix)
                done += self._predict_rows(good.row, rows_of(samples, self.model.n_features))
        ids, predicted, scores = zip(*done, strict=True)
        table = self._table(np.concatenate(ids), pa.concat_arrays(predicted), np.concatenate(scores))
        return table, rejects

    def empty(self) -> pa.Table:
        """Return the predictions of no samples."""
        return self._table(np.empty(0, np.int64), self._predicted(self._no_scores), self._no_scores)

    def _predict_rows(self, ids: NDArray[np.int64], rows: Rows) -> Iterable[Scored]:
        """Predict some rows at a time, so that scores of many classes fit as well."""
        step = max(1, self.room // 8 // (8 * self.model.n_classes))
        for lo in range(0, len(ids), step):
            indptr = rows.indptr[lo : lo + step + 1]
            here = slice(int(indptr[0]), int(indptr[-1]))
            some = rows._replace(indptr=indptr - indptr[0], indices=rows.indices[here], data=rows.data[here])
            scores = self.model.scores(some)
            predicted = self._predicted(scores)
            yield ids[lo : lo + step], predicted, scores if self.scores else self._no_scores

    def _predicted(self, scores: NDArray[np.float64]) -> pa.Array:
        """Return the code of the largest score of each row, or the set of codes above the threshold."""
        if self.model.label_threshold is not None:
            return self.model.sets(scores)
        return pa.array(np.argmax(scores, axis=1).astype(np.int32))

    @property
    def _no_scores(self) -> NDArray[np.float64]:
        return np.empty((0, self.model.n_classes))

    def _table(self, ids: NDArray[np.int64], predicted: pa.Array, scores: NDArray[np.float64]) -> pa.Table:
        labels = self.model.classes.tolist()
        table = {"row_id": pa.array(ids, pa.int64())}
        if self.model.label_threshold is None:
            # Codes until it is in the file, which has a dictionary too: small, and nothing is looked up.
            small = predicted.cast(pa.from_numpy_dtype(np.min_scalar_type(-max(len(labels), 1))))
            table["predicted_label"] = pa.DictionaryArray.from_arrays(small, pa.array(labels))
        else:
            of_sets = pa.array(labels).take(predicted.flatten())
            starts = np.concatenate([[0], np.cumsum(predicted.value_lengths())]).astype(np.int32)
            table["predicted_labels"] = pa.ListArray.from_arrays(pa.array(starts), of_sets)
        if self.scores:
            table |= {f"score_{label}": pa.array(scores[:, c]) for c, label in enumerate(labels)}
        return pa.table(table)


class Predictor:
    """Writes predictions of one model to one file.

    Parameters
    ----------
    model : Model
        Model.
    to : Path
        Parquet file to write; it appears when it is complete.
    scores : bool
        Whether to write the score of every class.
    engine : Engine
        Runs the parts.
    limit : int
        Memory limit in bytes.
    progress : callable
        Called with the rows done.
    """

    def __init__(
        self, model: Model, to: Path, scores: bool, engine: Engine, limit: int, progress: ProgressCallback
    ) -> None:
        if not to.parent.is_dir():
            raise DataError(f"there is no folder {to.parent}", "make it, or give another --to")
        if to.is_dir():
            raise DataError(f"{to} is a folder", "give the path of a file with --to")
        self._model, self._to, self._scores = model, to, scores
        self._engine, self._limit, self._progress = engine, limit, progress
        self._spec = feature_spec_of(model)

    def predict_dataset(self, dataset: Dataset) -> dict[str, int]:
        """Predict every sample of a dataset; return the counts.

        Raises
        ------
        ModelError
            If the features of the dataset are not those of the model.
        MemoryLimitError
            If the results of a shard do not fit.
        """
        self._model.check_features(dataset)
        rows = max((shard.n_rows for shard in dataset.shards), default=0)
        result = rows * self._row_cost
        engine, room = self._divide(result)
        task = PartPredictor(self._model, self._scores, room)
        results = engine.map(_predict_shard, range(dataset.n_shards), task, dataset)
        return self._write((result for _, result in results), dataset.n_samples)

    def predict_raw(self, source: Any, format: str | None, on_bad_row: OnBadRow) -> dict[str, int]:
        """Predict every row of raw files or arrays; return the counts.

        Raises
        ------
        DataError
            If the rows lack a column that the model needs, or hold a bad row that shall stop the run.
        MemoryLimitError
            If the memory limit does not allow one worker.
        """
        sources = expand_sources(source, format)
        self._engine = at_the_data(self._engine, sources)
        types = {name: pa.string() for name in self._spec.text}
        self._check_sources(sources, types)
        engine, room = self._divide(0)
        rows = room / 8 / self._row_cost
        part_bytes = int(np.clip(rows * bytes_per_row(sources[0]), SMALLEST_PART, LARGEST_PART))
        first = self._spec.first_index
        hints = ReadHints(
            types=types,
            zero_based=None if first is None else first == 0,
            n_features=self._model.n_features if sources[0].format == "svmlight" else None,
            missing=self._spec.missing,
            columns=self._spec.columns or None,
        )
        parts = scan(sources, part_bytes, hints)
        task = PartPredictor(self._model, self._scores, room)
        results = engine.map(_predict_part, parts, task, sources, on_bad_row, os.getcwd())
        return self._write((result for _, result in results), sum(part.n_rows for part in parts))

    def _check_sources(self, sources: Sequence[Source], types: dict[str, Any]) -> None:
        """Refuse sources without the model's columns, before anything is read."""
        format, path = sources[0].format, sources[0].path
        needed = self._spec.columns
        if format in MATRICES and needed:
            raise DataError(
                f"{path}: {format} data has no named columns, and the model needs {', '.join(needed)}",
                "give data in the form the model was trained on",
            )
        if format not in MATRICES:
            if not needed:
                raise DataError(
                    f"{path}: the model was trained on a matrix of {self._model.n_features} features, "
                    f"not on columns of {format} files",
                    "give svmlight files or arrays",
                )
            self._spec.check_types(schema(sources, needed, ReadHints(types=types)))

    @property
    def _row_cost(self) -> int:
        """Bytes of the result of a row."""
        model = self._model
        labels = 0 if model.label_threshold is None else LABEL_COST * min(model.n_classes, MOST_LABELS)
        # Scores exist three times for a moment: as computed, as columns, and encoded for the file.
        return ROW_COST + labels + (3 * 8 * model.n_classes if self._scores else 0)

    def _divide(self, result: int) -> tuple[Engine, int]:
        """Return the engine the limit allows, if one result has so many bytes, and the room of each part."""
        # A process of its own keeps the model as it came beside the model.
        limit = self._limit - (0 if self._engine.shares_memory else self._model.nbytes)
        n_threads, room = divide(self._model, limit, self._engine.n_threads, result, "prediction")
        return self._engine.at_most(n_threads), room

    def _write(self, results: Iterable[Predicted], n_rows: int) -> dict[str, int]:
        n_rejects = done = 0
        aside = self._to.with_name(self._to.name + ".rejects.parquet")
        empty = PartPredictor(self._model, self._scores, 0).empty()
        with ExitStack() as files:
            file = files.enter_context(replacing(self._to))
            writer = files.enter_context(pq.ParquetWriter(file, empty.schema, store_schema=False))
            rejects: pq.ParquetWriter | None = None
            for table, found in results:
                writer.write_table(table)
                if found:
                    if rejects is None:
                        target = files.enter_context(replacing(aside))
                        rejects = files.enter_context(pq.ParquetWriter(target, REJECT_SCHEMA))
                    rejects.write_table(rejects_table(found))
                n_rejects += len(found)
                done += table.num_rows
                self._progress(Progress("predict", done + n_rejects, n_rows, "rows"))
        if not n_rejects:
            disk.unlink(aside)  # of an earlier run
        return {"n_samples": done, "n_quarantined": n_rejects}


def _predict_shard(shard: int, task: PartPredictor, dataset: Dataset) -> Predicted:
    return task.shard(shard, dataset), []


def _predict_part(
    part: Part, task: PartPredictor, sources: list[Source], on_bad_row: OnBadRow, base: str
) -> Predicted:
    return task.raw(part, sources, on_bad_row, base)
