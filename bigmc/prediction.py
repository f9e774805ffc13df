"""Labels for raw files or stored samples, written to Parquet as they come, in memory for a few parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import DataError
from bigmc.ingestion.features import FeatureSpec, Samples
from bigmc.ingestion.memory import BATCH_COST
from bigmc.ingestion.part import set_aside
from bigmc.ingestion.prepare import MATRICES
from bigmc.ingestion.rejects import REJECT_SCHEMA, OnBadRow, Reject, rejects_table
from bigmc.ingestion.source import Batch, Part, Source, bytes_per_row, expand_sources, read, scan, schema
from bigmc.model import Model, divide
from bigmc.progress import Progress, ProgressCallback
from bigmc.store.commit import replacing
from bigmc.store.dataset import Dataset
from bigmc.store.feature_map import FeatureMap
from bigmc.store.rows import Rows

ROW_COST = 64
"""Bytes of a row beside its scores: id, label, place of the best score, their copies as a table."""

SMALLEST_PART, LARGEST_PART = 1 << 16, 16 << 20
"""Bounds on the source bytes of a part."""

Predicted = tuple[pa.Table, list[Reject]]
Scored = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]  # ids, codes, scores if wanted


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
        self._spec = _feature_spec(model)
        self._room = self._batch_bytes = 0

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
        # Scores exist three times for a moment: as computed, as columns, and encoded for the file.
        result = rows * (ROW_COST + (3 * 8 * self._model.n_classes if self._scores else 0))
        engine = self._divide(result)
        results = engine.map(self._predict_shard, range(dataset.n_shards), dataset)
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
        types = {name: pa.string() for name in self._spec.text}
        self._check_sources(sources, types)
        engine = self._divide(0)
        self._batch_bytes = int(np.clip(self._room // (4 * BATCH_COST), 1 << 15, 4 << 20))
        row_result = ROW_COST + (3 * 8 * self._model.n_classes if self._scores else 0)
        rows = self._room / 8 / row_result
        part_bytes = int(np.clip(rows * bytes_per_row(sources[0]), SMALLEST_PART, LARGEST_PART))
        first = self._spec.first_index
        parts = scan(
            sources,
            part_bytes,
            types=types,
            zero_based=None if first is None else first == 0,
            n_features=self._model.n_features if sources[0].format == "svmlight" else None,
            missing=self._spec.missing,
        )
        results = engine.map(self._predict_part, parts, sources, on_bad_row)
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
            self._spec.check_types(schema(sources, needed, types=types))

    def _divide(self, result: int) -> Engine:
        """Find how many workers the limit allows, if one result has so many bytes, and the room of each."""
        wanted = self._engine.n_workers
        n_workers, self._room = divide(self._model, self._limit, wanted, result, "prediction")
        return self._engine if n_workers == wanted else ThreadEngine(n_workers)

    def _predict_shard(self, shard: int, dataset: Dataset) -> Predicted:
        ids = dataset.shards[shard].table(["row_id"]).column("row_id").to_numpy()
        if self._scores:
            scores = self._model.shard_scores(dataset, shard, self._room)
            return self._table(ids, np.argmax(scores, axis=1), scores), []
        return self._table(ids, self._model.shard_codes(dataset, shard, self._room), self._no_scores), []

    def _predict_part(self, part: Part, sources: list[Source], on_bad_row: OnBadRow) -> Predicted:
        # Arrays: a batch may have a dozen rows, and a table costs some KB whatever it holds.
        done: list[Scored] = [(np.empty(0, np.int64), np.empty(0, np.int64), self._no_scores)]
        rejects: list[Reject] = []
        columns, size = self._spec.columns or None, self._batch_bytes
        for batch in read(part, columns, sources=sources, batch_bytes=size, on_bad_row=on_bad_row):
            bad = {} if batch.table is None else self._spec.find_bad(batch.table)
            good, found = set_aside(batch, bad, part, on_bad_row)
            rejects += [*batch.rejects, *found]
            if good.n_rows:
                done += self._predict_rows(good.row, self._rows(good))
        ids, codes, scores = zip(*done, strict=True)
        return self._table(np.concatenate(ids), np.concatenate(codes), np.concatenate(scores)), rejects

    def _predict_rows(self, ids: NDArray[np.int64], rows: Rows) -> Iterable[Scored]:
        """Predict some rows at a time, so that scores of many classes fit as well."""
        step = max(1, self._room // 8 // (8 * self._model.n_classes))
        for lo in range(0, len(ids), step):
            indptr = rows.indptr[lo : lo + step + 1]
            here = slice(int(indptr[0]), int(indptr[-1]))
            some = rows._replace(indptr=indptr - indptr[0], indices=rows.indices[here], data=rows.data[here])
            scores = self._model.scores(some)
            codes = np.argmax(scores, axis=1)
            yield ids[lo : lo + step], codes, scores if self._scores else self._no_scores

    def _rows(self, batch: Batch) -> Rows:
        if batch.matrix is not None:
            return _as_rows(self._spec.mapped(batch.matrix), self._model.n_features)
        return _as_rows(self._spec.transform(batch.table), self._model.n_features)

    @property
    def _no_scores(self) -> NDArray[np.float64]:
        return np.empty((0, self._model.n_classes))

    def _table(self, ids: NDArray[np.int64], codes: NDArray[Any], scores: NDArray[np.float64]) -> pa.Table:
        labels = self._model.classes.tolist()
        table = {
            "row_id": pa.array(ids, pa.int64()),
            "predicted_label": pa.array(labels).take(pa.array(codes)),
        }
        if self._scores:
            table |= {f"score_{label}": pa.array(scores[:, c]) for c, label in enumerate(labels)}
        return pa.table(table)

    def _write(self, results: Iterable[Predicted], n_rows: int) -> dict[str, int]:
        n_rejects = done = 0
        aside = self._to.with_name(self._to.name + ".rejects.parquet")
        empty = self._table(np.empty(0, np.int64), np.empty(0, np.int64), self._no_scores)
        with ExitStack() as files:
            file = files.enter_context(replacing(self._to))
            writer = files.enter_context(pq.ParquetWriter(file, empty.schema))
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
            aside.unlink(missing_ok=True)  # of an earlier run
        return {"n_samples": done, "n_quarantined": n_rejects}


def _feature_spec(model: Model) -> FeatureSpec:
    if "hasher" in model.feature_spec:
        return FeatureSpec.from_dict(model.feature_spec)
    if "map" in model.feature_spec:  # trained on arrays in memory, like the following
        map = FeatureMap.from_dict(model.feature_spec["map"])
        return FeatureSpec(n_own=len(map.mean), map=map)
    return FeatureSpec(n_own=model.n_features, missing=model.takes_missing)


def _as_rows(samples: Samples, n_features: int) -> Rows:
    """Return samples as rows of the model's width."""
    if isinstance(samples, Rows):
        if samples.n_features > n_features:
            raise DataError(
                f"the samples have {samples.n_features} features, the model {n_features}",
                "give data of the width the model was trained on",
            )
        return samples._replace(n_features=n_features)
    if samples.shape[1] != n_features:
        raise DataError(f"the samples have {samples.shape[1]} features, the model {n_features}")
    stored = samples != 0
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1, dtype=np.int64))])
    return Rows(indptr, np.nonzero(stored)[1].astype(np.int32), samples[stored], n_features)
