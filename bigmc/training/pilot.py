"""How a text is best cut into features: tried on some thousand rows before everything is hashed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse
from numpy.typing import NDArray

from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.ingestion.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import Analyzer, TextHasher
from bigmc.ingestion.sources import ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.splits import row_fractions
from bigmc.options.raw import FileOptions
from bigmc.store.csr import Rows
from bigmc.store.dataset import Dataset
from bigmc.training.search import HELD_OUT, Limits, Search
from bigmc.training.trials import WEIGHTINGS, Candidate, Trial

PILOT_ROWS = 8_000
"""Rows that decide."""
LONG_TEXT = 200
"""Characters of a text, on average, from which on its characters say no more than its words and cost more."""
MANY_ROWS, MANY_CLASSES = 20_000, 64
"""With more rows, and fewer classes, features are hashed into more buckets."""
_SEED = 0x9170


class Hashing(NamedTuple):
    """Parameters of `bigmc.ingest` for text."""

    analyzer: Analyzer
    ngrams: tuple[int, int]


CHOICES = (Hashing("word", (1, 1)), Hashing("word", (1, 2)))
CHARACTER_CHOICES = (Hashing("char_wb", (1, 4)), Hashing("char_wb", (2, 5)))


class Pilot(NamedTuple):
    """What a pilot found.

    Attributes
    ----------
    hashing : Hashing
    hash_bits : int
    trials : tuple of (Hashing, Trial)
    """

    hashing: Hashing
    hash_bits: int
    trials: tuple[tuple[Hashing, Trial], ...]


def choose_hashing(
    source: Any, text: tuple[str, ...], label: str, files: FileOptions, memory: int, bits: int | None
) -> Pilot | None:
    """Return the hashing of text columns that learns best from a sample of the rows.

    The rows are drawn by a hash of their numbers, in one pass over the source. Of choices that do as well the
    first one wins. None where labels are sets, or too few rows have what is needed.

    Raises
    ------
    DataError
        If a column is missing.
    """
    sources = expand_sources(source, files)
    columns = (*text, label)
    parts = scan(sources, hints=ReadHints(types={name: pa.string() for name in text}, columns=columns))
    n_rows = sum(part.n_rows for part in parts)
    share = min(1.0, PILOT_ROWS / max(n_rows, 1))
    tables = []
    for part in parts:
        for batch in read(part, ReadRequest(columns, on_bad_row="quarantine"), sources=sources):
            if batch.table is not None and batch.n_rows:
                chosen = pa.array(row_fractions(batch.row, _SEED) < share)
                tables.append(batch.table.filter(chosen))
    if not tables:
        raise DataError("the source has no rows", "check the path")
    table = pa.Table.from_batches(tables).drop_null().combine_chunks()
    if pa.types.is_nested(table.schema.field(label).type) or table.num_rows < 50:
        return None
    labels = np.asarray(table.column(label).to_pylist(), object).astype(str)
    return choose_for_texts(table.select(list(text)), labels, n_rows, memory, bits)


def choose_for_texts(
    texts: pa.Table, labels: NDArray[Any], n_rows: int, memory: int, bits: int | None = None
) -> Pilot | None:
    """Return the hashing that learns best from these rows, of `n_rows` in all; None with one class only."""
    n_classes = len(np.unique(labels))
    if n_classes < 2:
        return None
    if bits is None:
        bits = 20 if n_rows > MANY_ROWS and n_classes <= MANY_CLASSES else 18
    length = sum(pc.mean(pc.utf8_length(column)).as_py() for column in texts.columns)
    choices = CHOICES if length > LONG_TEXT else CHOICES + CHARACTER_CHOICES
    batch = texts.combine_chunks().to_batches()[0]
    trials = []
    for choice in choices:
        hasher = TextHasher(choice.analyzer, choice.ngrams, min(bits, 18))
        rows = FeatureSpec(text=tuple(texts.column_names), hasher=hasher).transform(batch)
        assert isinstance(rows, Rows)
        trials.append((choice, _trial(rows, labels, memory)))
    best = trials[0]
    for other in trials[1:]:
        margin = 0.5 * np.sqrt(best[1].quality * (1 - best[1].quality) / (HELD_OUT * len(labels)))
        if other[1].quality > best[1].quality + margin:
            best = other
    return Pilot(best[0], bits, tuple(trials))


def _trial(rows: Rows, labels: NDArray[Any], memory: int) -> Trial:
    matrix = scipy.sparse.csr_array((rows.data, rows.indices, rows.indptr), (rows.n_rows, rows.n_features))
    data = Dataset.from_arrays(matrix, labels, weighting=WEIGHTINGS["tfidf"])
    return Search(data, ThreadEngine(), Limits(memory)).attempt(Candidate(None))
