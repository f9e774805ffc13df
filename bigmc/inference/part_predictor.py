"""Predict one part of a source, on any worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.inference.samples import feature_spec_of, usable_rows
from bigmc.ingestion.parts.scan import EVERYTHING, Batch, Part, ReadRequest
from bigmc.ingestion.readers.rejects import Reject
from bigmc.model import Model
from bigmc.options.inference import PredictOptions
from bigmc.store.dataset import Dataset
from bigmc.store.shards.csr import Rows

N_ODD = "n_odd_values"
"""Metadata of a table of predictions: how many values were no numbers or dates and counted as missing."""

Predicted = tuple[pa.Table, list[Reject]]
Scored = tuple[NDArray[np.int64], pa.Array, NDArray[np.float64]]  # ids, codes or sets, scores if wanted


@dataclass(frozen=True)
class PartPredictor:
    """Predicts the samples of a part, on any worker.

    Attributes
    ----------
    scratch_bytes : int
        Bytes that it may use besides the model.
    kept : pyarrow.Schema
        The copied columns of the source, with their types.
    reading : ReadRequest
        How raw sources are read.
    """

    model: Model
    options: PredictOptions
    scratch_bytes: int
    kept: pa.Schema
    reading: ReadRequest = EVERYTHING

    def shard(self, shard: int, dataset: Dataset) -> pa.Table:
        """Return the predictions of a shard of a dataset."""
        rows = dataset.shards[shard].table(["row_id", *self.kept.names])
        ids, kept = rows.column("row_id").to_numpy(), rows.select(self.kept.names).cast(self.kept)
        if self.options.per_class:
            scores = self.model.shard_scores(dataset, shard, self.scratch_bytes)
            return self._table(ids, self._predicted(scores), scores, kept)
        if self.model.label_threshold is not None:
            predicted = self.model.shard_sets(dataset, shard, self.scratch_bytes)
        else:
            predicted = pa.array(self.model.shard_codes(dataset, shard, self.scratch_bytes))
        return self._table(ids, predicted, self._no_scores, kept)

    def raw(self, part: Part, batches: Iterable[Batch]) -> Predicted:
        """Return the predictions of a part of raw files or arrays, and the rows set aside."""
        # Batches of arrays may have only a dozen rows, and every table costs some KB.
        done: list[Scored] = [(np.empty(0, np.int64), self._predicted(self._no_scores), self._no_scores)]
        rejects: list[Reject] = []
        n_odd = 0
        kept = [self.kept.empty_table()]
        spec, on_bad_row = feature_spec_of(self.model), self.options.on_bad_row
        for batch in batches:
            good, rejected, rows = usable_rows(batch, part, spec, self.model.n_features, on_bad_row)
            rejects += [*batch.rejects, *rejected]
            if good.n_rows:
                n_odd += 0 if good.table is None else spec.count_odd(good.table)
                if self.kept.names:
                    kept.append(pa.Table.from_batches([good.table]).select(self.kept.names).cast(self.kept))
                done += self._predict_rows(good.row, rows)
        ids, predicted, scores = zip(*done, strict=True)
        values = np.concatenate(ids), pa.concat_arrays(predicted), np.concatenate(scores)
        table = self._table(*values, pa.concat_tables(kept))
        return table.replace_schema_metadata({N_ODD: str(n_odd)} if n_odd else None), rejects

    def of_rows(self, first: int, rows: Rows, kept: pa.Table) -> pa.Table:
        """Return the predictions of rows, with ids from `first` on; `kept` has the columns to copy."""
        row_ids = np.arange(first, first + len(rows.indptr) - 1)
        ids, predicted, scores = zip(*self._predict_rows(row_ids, rows), strict=True)
        values = np.concatenate(ids), pa.concat_arrays(predicted), np.concatenate(scores)
        return self._table(*values, kept)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        none = self._no_scores
        empty = self._table(np.empty(0, np.int64), self._predicted(none), none, self.kept.empty_table())
        return empty.schema

    def _predict_rows(self, ids: NDArray[np.int64], rows: Rows) -> Iterable[Scored]:
        """Predict in chunks of rows, so that the scores of many classes fit."""
        step = max(1, self.scratch_bytes // 8 // (8 * self.model.n_classes))
        for lo in range(0, len(ids), step):
            indptr = rows.indptr[lo : lo + step + 1]
            entries = slice(int(indptr[0]), int(indptr[-1]))
            some = rows._replace(
                indptr=indptr - indptr[0], indices=rows.indices[entries], data=rows.data[entries]
            )
            scores = self.model.scores(some)
            predicted = self._predicted(scores)
            yield ids[lo : lo + step], predicted, scores if self.options.per_class else self._no_scores

    def _predicted(self, scores: NDArray[np.float64]) -> pa.Array:
        """Return the code of the largest score of each row, or the set of codes above the threshold."""
        if self.model.label_threshold is not None:
            return self.model.sets(scores)
        return pa.array(np.argmax(scores, axis=1).astype(np.int32))

    @property
    def _no_scores(self) -> NDArray[np.float64]:
        return np.empty((0, self.model.n_classes))

    def _table(
        self, ids: NDArray[np.int64], predicted: pa.Array, scores: NDArray[np.float64], kept: pa.Table
    ) -> pa.Table:
        labels = self.model.classes.tolist()
        table = {"row_id": pa.array(ids, pa.int64())}
        table |= {name: kept.column(name).combine_chunks() for name in kept.column_names}
        if self.model.label_threshold is None:
            # Keep codes up to the file, which also has a dictionary: small, without lookups.
            small = predicted.to_numpy().astype(np.min_scalar_type(-max(len(labels), 1)))
            table["predicted_label"] = pa.DictionaryArray.from_arrays(pa.array(small), pa.array(labels))
        else:
            of_sets = pa.array(labels).take(predicted.flatten())
            starts = np.concatenate([[0], np.cumsum(predicted.value_lengths())]).astype(np.int32)
            table["predicted_labels"] = pa.ListArray.from_arrays(pa.array(starts), of_sets)
        if self.options.per_class:
            name = "probability" if self.options.proba else "score"
            values = self.model.probabilities(scores) if self.options.proba else scores
            table |= {f"{name}_{label}": pa.array(values[:, c]) for c, label in enumerate(labels)}
        return pa.table(table)
