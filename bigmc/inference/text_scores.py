"""Score texts directly from their n-grams, for models with rounded weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.inference.samples import SampleReader
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.categories import plain_text
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.ingestion.hashing.row_builder import RowBuilder
from bigmc.ingestion.hashing.scratch import scratch
from bigmc.kernels.hashing.arguments import HashedRows
from bigmc.kernels.linear.scoring.hashed_scoring import (
    FOUR,
    GROUP_DOCUMENTS,
    GROUP_NGRAMS,
    CountScratch,
    score_hashes,
    slots_for,
)
from bigmc.model import Model
from bigmc.model.linear_scoring import LinearScorer


def score_batches(model: Model, reader: SampleReader, data: Any) -> Iterator[NDArray[np.float64]]:
    """Yield the scores of samples, as for `SampleReader.batches`, in arrays of shape (n_rows, n_classes)."""
    scorer, hasher = model.scorer, reader.spec.hasher
    rounded = isinstance(scorer, LinearScorer) and scorer.rounded is not None
    if hasher is None or not is_one_text(reader.spec) or not rounded:
        for rows in reader.batches(data):
            yield model.scores(rows)
        return
    assert isinstance(scorer, LinearScorer)
    for table in reader.tables(data):
        yield TextScores(scorer, hasher).of(plain_text(table.column(reader.spec.text[0])))


def is_one_text(spec: FeatureSpec) -> bool:
    """Return whether samples are one text each and nothing else."""
    return len(spec.text) == 1 and spec.columns == spec.text and spec.map is None and spec.n_own == 0


class TextScores:
    """Receives the hashes of a batch of texts and computes their scores with rounded weights."""

    def __init__(self, scorer: LinearScorer, hasher: TextHasher) -> None:
        assert scorer.rounded is not None
        self._scorer = scorer
        self._hasher = hasher
        self._weights = scorer.rounded
        self._scores = np.empty((0, len(scorer.intercept)))
        self._n_done = 0
        self._work = self._scratch(GROUP_NGRAMS)
        self._long: RowBuilder | None = None  # of a document too long for its hashes to be listed at once

    def of(self, texts: pa.Array) -> NDArray[np.float64]:
        """Return the scores of texts, shape (n_texts, n_classes); `DataError` if one is null or not UTF-8."""
        self._scores = np.empty((len(texts), self._scores.shape[1]))
        self._n_done = 0
        self._hasher.hash_into(self, texts)
        scratch.trim()
        return self._scores

    def add(self, offsets: NDArray[np.int64], hashes: NDArray[np.uint32], times: NDArray[np.uint16]) -> None:
        """Score documents; parameters as for `RowBuilder.add`."""
        n_documents = len(offsets) - 1
        if n_documents == 0:
            return
        longest = int(np.diff(offsets).max())
        if longest > len(self._work.features):
            self._work = self._scratch(longest)
        scores = self._scores[self._n_done : self._n_done + n_documents]
        documents = HashedRows(offsets, hashes, times, self._hasher.hash_bits)
        weighting = self._scorer.weighting
        score_hashes(documents, self._weights, weighting.binary, weighting.l2, self._work, scores)
        self._n_done += n_documents

    def count(self, hashes: NDArray[np.uint32]) -> None:
        """Count some n-grams of one long document."""
        if self._long is None:
            self._long = RowBuilder(1, self._hasher.hash_bits)
        self._long.count(hashes)

    def end_counting(self) -> None:
        """Score the long document."""
        assert self._long is not None
        self._long.end_counting()
        self._scores[self._n_done] = self._scorer.rows(self._long.finish())[0]
        self._long = None
        self._n_done += 1

    def _scratch(self, n_ngrams: int) -> CountScratch:
        entries = np.empty(n_ngrams, np.int32)
        return CountScratch(
            slots=np.empty(slots_for(n_ngrams), np.int32),
            features=np.empty(n_ngrams, np.int32),
            counts=np.empty(n_ngrams, np.int32),
            ends=np.empty(GROUP_DOCUMENTS, np.int64),
            entries=entries,
            entry_floats=entries.view(np.float32),
            rows=np.empty(n_ngrams + FOUR, np.int64),
            values=np.empty(n_ngrams + FOUR, np.float64),
            sums=np.empty(len(self._weights.step), np.float64),
        )
