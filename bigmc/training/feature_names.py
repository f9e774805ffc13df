"""The names of a model's features, from its dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.lazy import LazyModule
from bigmc.store.dataset import Dataset
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.layout import damaged

pq = LazyModule("pyarrow.parquet")

NAMES_PER_FEATURE = 8
"""Maximum number of names per feature in a model; fewer if memory is short."""

NAMES_PER_BATCH = 1 << 14
"""Names processed at a time."""


def feature_names(dataset: Dataset, features: NDArray[np.int64], most_bytes: int) -> pa.Table | None:
    """Return the known names of features of a dataset on disk, as many per feature as fit into memory."""
    files = dataset.files("names.parquet")
    if not files:
        return None
    pieces, most = [], NAMES_PER_FEATURE
    for path in files:
        for batch in _name_batches(path):
            schema = batch.schema
            pieces.append(batch.filter(pa.array(np.isin(batch.column("bucket").to_numpy(), features))))
            while sum(piece.nbytes for piece in pieces) > most_bytes and most:
                most -= 1
                pieces = [_fewer_names(pieces, most)] if most else []
    if not most:
        return None
    table = pa.Table.from_batches(pieces, schema)
    if len(files) == 1:
        return table
    from bigmc.ingestion.hashing.feature_names import add_up  # imports the kernels of hashing

    return add_up(table)


def _name_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield a table of names piece by piece, at least one piece.

    `StoreError` if the file does not hold names.
    """
    try:
        with pq.ParquetFile(arrow_file(path)) as file:
            schema = file.schema_arrow
            if not {"bucket", "name", "sign", "count"} <= set(schema.names):
                raise damaged(path, "does not hold names of features")
            yield pa.RecordBatch.from_pylist([], schema)
            yield from file.iter_batches(NAMES_PER_BATCH)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, f"cannot be read ({error})") from None


def _fewer_names(pieces: Sequence[pa.RecordBatch], most: int) -> pa.RecordBatch:
    """Return up to this number of names per feature, the most frequent."""
    table = pa.Table.from_batches(pieces).sort_by([("bucket", "ascending"), ("count", "descending")])
    buckets = table.column("bucket").to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    return table.filter(pa.array(rank < most)).combine_chunks().to_batches()[0]
