"""Labels for raw files or stored samples, written to Parquet as they come, in memory for a few parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.ingestion.features import FeatureSpec, Samples
from bigmc.ingestion.part import set_aside
from bigmc.ingestion.rejects import OnBadRow, Reject, rejects_table
from bigmc.ingestion.source import Batch, Part, Source, expand_sources, read, scan
from bigmc.model import Model
from bigmc.progress import Progress, ProgressCallback
from bigmc.store.commit import replacing
from bigmc.store.dataset import Dataset
from bigmc.store.rows import Rows

PART_COST = 40
"""Bytes in memory per source byte of a part: its batches, their n-grams, its predictions."""

Predicted = tuple[pa.Table, list[Reject]]


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
        self._model, self._to, self._scores = model, to, scores
        self._engine, self._limit, self._progress = engine, limit, progress
        self._spec = _feature_spec(model)

    def predict_dataset(self, dataset: Dataset) -> dict[str, int]:
        """Predict every sample of a dataset; return the counts."""
        self._model.check_features(dataset)
        results = self._engine.map(self._predict_shard, range(dataset.n_shards), dataset)
        return self._write((result for _, result in results), dataset.n_samples)

    def predict_raw(self, source: Any, format: str | None, on_bad_row: OnBadRow) -> dict[str, int]:
        """Predict every row of raw files or arrays; return the counts.

        Raises
        ------
        DataError
            If the rows lack a column that the model needs, or hold a bad row that shall stop the run.
        """
        sources = expand_sources(source, format)
        part_bytes = int(
            np.clip(self._limit // (PART_COST * (self._engine.n_workers + 1)), 1 << 16, 16 << 20)
        )
        types = {name: pa.string() for name in self._spec.text}
        parts = scan(sources, part_bytes, types=types, n_features=self._model.n_features)
        results = self._engine.map(self._predict_part, parts, sources, on_bad_row)
        return self._write((result for _, result in results), sum(part.n_rows for part in parts))

    def _predict_shard(self, shard: int, dataset: Dataset) -> Predicted:
        ids = dataset.shards[shard].table(["row_id"]).column("row_id").to_numpy()
        return self._table(ids, self._model.shard_scores(dataset, shard)), []

    def _predict_part(self, part: Part, sources: list[Source], on_bad_row: OnBadRow) -> Predicted:
        tables: list[pa.Table] = []
        rejects: list[Reject] = []
        for batch in read(part, self._spec.columns, sources=sources, on_bad_row=on_bad_row):
            bad = {} if batch.table is None else self._spec.find_bad(batch.table)
            good, found = set_aside(batch, bad, part, on_bad_row)
            rejects += [*batch.rejects, *found]
            if good.n_rows:
                tables.append(self._table(good.row, self._model.scores(self._rows(good))))
        return pa.concat_tables(tables) if tables else self._table(np.empty(0, np.int64), None), rejects

    def _rows(self, batch: Batch) -> Rows:
        if batch.matrix is not None:
            return _as_rows(batch.matrix, self._model.n_features)
        return _as_rows(self._spec.transform(batch.table), self._model.n_features)

    def _table(self, ids: NDArray[np.int64], scores: NDArray[Any] | None) -> pa.Table:
        model = self._model
        if scores is None:
            scores = np.empty((0, model.n_classes))
        labels = model.predict(scores).tolist()
        kind = pa.array(model.classes.tolist()).type
        columns = {"row_id": pa.array(ids, pa.int64()), "predicted_label": pa.array(labels, kind)}
        if self._scores:
            columns |= {f"score_{label}": scores[:, c] for c, label in enumerate(model.classes.tolist())}
        return pa.table(columns)

    def _write(self, results: Iterable[Predicted], n_rows: int) -> dict[str, int]:
        rejects: list[Reject] = []
        done = 0
        schema = self._table(np.empty(0, np.int64), None).schema
        with replacing(self._to) as file, pq.ParquetWriter(file, schema) as writer:
            for table, found in results:
                writer.write_table(table)
                rejects += found
                done += table.num_rows
                self._progress(Progress("predict", done + len(rejects), n_rows, "rows"))
        if rejects:
            with replacing(self._to.with_name(self._to.name + ".rejects.parquet")) as file:
                pq.write_table(rejects_table(rejects), file)
        return {"n_samples": done, "n_quarantined": len(rejects)}


def _feature_spec(model: Model) -> FeatureSpec:
    if "hasher" in model.feature_spec:
        return FeatureSpec.from_dict(model.feature_spec)
    return FeatureSpec(n_own=model.n_features)  # trained on arrays in memory


def _as_rows(samples: Samples, n_features: int) -> Rows:
    """Return samples as rows of the model's width."""
    if isinstance(samples, Rows):
        return samples._replace(n_features=n_features)
    if samples.shape[1] != n_features:
        raise DataError(f"the samples have {samples.shape[1]} features, the model {n_features}")
    stored = samples != 0
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1, dtype=np.int64))])
    return Rows(indptr, np.nonzero(stored)[1].astype(np.int32), samples[stored], n_features)
