"""Predict one part of a source, on any worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.inference.prediction_plan import PredictionPlan
from bigmc.inference.samples import feature_spec_of, usable_rows
from bigmc.ingestion.parts.scan import EVERYTHING, Batch, Part, ReadRequest
from bigmc.ingestion.readers.rejects import Reject, rejects_table
from bigmc.model import Model, ModelSource
from bigmc.options.inference import PredictOptions
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.label_sets import labels_of

N_ODD = "n_odd_values"
"""Metadata of a table of predictions: how many values were no numbers or dates and counted as missing."""

Predicted = tuple[pa.Table, pa.Table]
"""Predictions of a part, and its rejected rows."""
Scored = tuple[NDArray[np.int64], pa.Array, NDArray[np.float64]]  # ids, codes or sets, scores if wanted


@dataclass(frozen=True)
class PartPredictor:
    """Predicts the samples of a part, on any worker, using at most `scratch_bytes` besides the model.

    `kept` has the copied columns of the source, with their types; `reading` says how raw sources are
    read.
    """

    model: Model
    options: PredictOptions
    scratch_bytes: int
    kept: pa.Schema
    reading: ReadRequest = EVERYTHING

    @classmethod
    def of(cls, source: ModelSource, options: PredictOptions, plan: PredictionPlan) -> PartPredictor:
        """Return the predictor of a plan; the model is read here, after planning memory."""
        model = source.load()
        if options.proba:
            model.check_probabilities()
        return cls(model, options, plan.scratch_bytes, plan.kept, plan.reading)

    def raw(self, part: Part, batches: Iterable[Batch]) -> Predicted:
        """Return the predictions of a part of raw files or arrays, and the rows set aside."""
        # Batches of arrays may have only a dozen rows, and every table costs some KB.
        done: list[Scored] = [(np.empty(0, np.int64), self.predicted(self.no_scores), self.no_scores)]
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
        table = self._joined(done, pa.concat_tables(kept))
        return table.replace_schema_metadata({N_ODD: str(n_odd)} if n_odd else None), rejects_table(rejects)

    def of_rows(self, first: int, rows: Rows, kept: pa.Table) -> pa.Table:
        """Return the predictions of rows, with ids from `first` on; `kept` has the columns to copy."""
        row_ids = np.arange(first, first + len(rows.indptr) - 1)
        return self._joined(self._predict_rows(row_ids, rows), kept)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        none = self.no_scores
        empty = self.table(np.empty(0, np.int64), self.predicted(none), none, self.kept.empty_table())
        return empty.schema

    def _joined(self, scored: Iterable[Scored], kept: pa.Table) -> pa.Table:
        ids, predicted, scores = zip(*scored, strict=True)
        return self.table(np.concatenate(ids), pa.concat_arrays(predicted), np.concatenate(scores), kept)

    def _predict_rows(self, ids: NDArray[np.int64], rows: Rows) -> Iterable[Scored]:
        """Predict in chunks of rows, so that the scores of many classes fit."""
        step = max(1, self.scratch_bytes // 8 // (8 * self.model.n_classes))
        for lo in range(0, len(ids), step):
            scores = self.model.scores(rows.between(lo, min(lo + step, len(ids))))
            predicted = self.predicted(scores)
            yield ids[lo : lo + step], predicted, scores if self.options.per_class else self.no_scores

    def predicted(self, scores: NDArray[np.float64]) -> pa.Array:
        """Return the code of the largest score of each row, or the set of codes above the threshold."""
        if self.model.label_threshold is not None:
            return self.model.sets(scores)
        return pa.array(np.argmax(scores, axis=1).astype(np.int32))

    @property
    def no_scores(self) -> NDArray[np.float64]:
        """Scores of no rows."""
        return np.empty((0, self.model.n_classes))

    def table(
        self, ids: NDArray[np.int64], predicted: pa.Array, scores: NDArray[np.float64], kept: pa.Table
    ) -> pa.Table:
        """Return the table of some rows; `scores` are used only if they are written."""
        labels = self.model.classes.tolist()
        table = {"row_id": pa.array(ids, pa.int64())}
        table |= {name: kept.column(name).combine_chunks() for name in kept.column_names}
        if self.model.label_threshold is None:
            # Keep codes up to the file, which also has a dictionary: small, without lookups.
            small = predicted.to_numpy().astype(np.min_scalar_type(-max(len(labels), 1)))
            table["predicted_label"] = pa.DictionaryArray.from_arrays(pa.array(small), pa.array(labels))
        else:
            table["predicted_labels"] = labels_of(predicted, pa.array(labels))
        if self.options.per_class:
            name = "probability" if self.options.proba else "score"
            values = self.model.probabilities(scores) if self.options.proba else scores
            table |= {f"{name}_{label}": pa.array(values[:, c]) for c, label in enumerate(labels)}
        return pa.table(table)
