from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bigmc.store.files.layout import SHARDS
from bigmc.store.publish import finish_dataset
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.write import write_shard
from bigmc.store.weighting import Weighting


def rows_of(matrix) -> Rows:
    """A matrix as `Rows`, explicit zeros kept."""
    m = sp.csr_array(matrix)
    return Rows(m.indptr.astype(np.int64), m.indices.astype(np.int32), m.data, m.shape[1])


def table_of(labels, first_id=0) -> pa.Table:
    ids = np.arange(first_id, first_id + len(labels))
    text = [f"row {i}" for i in ids]
    return pa.table(
        {"label": pa.array(labels, pa.int32()), "row_id": pa.array(ids, pa.int64()), "text": text}
    )


def store_dataset(path, parts, labels, classes, weighting=None, **options):
    """Write `parts`, a list of (split, matrix), as a dataset; sparse matrices stay sparse."""
    entries, first = [], 0
    for s, (split, matrix) in enumerate(parts):
        n = matrix.shape[0]
        rows = rows_of(matrix) if sp.issparse(matrix) else matrix
        table = table_of(labels[first : first + n], first)
        entries.append(write_shard(path / SHARDS / f"{s:06d}", rows, table, split=split))
        first += n
    given = {"features": {"hash_bits": 4}, "provenance": {"seed": 0}, "rows_in": first, **options}
    return finish_dataset(
        path,
        entries,
        classes=np.asarray(classes),
        n_features=parts[0][1].shape[1],
        weighting=weighting or Weighting(),
        **given,
    )


@pytest.fixture
def counts():
    """A matrix of hashed counts: explicit zeros, an empty row, an empty column."""
    X = sp.csr_array(np.random.default_rng(3).poisson(0.5, (60, 16)).astype(float))
    X.data[::7] = 0.0
    X.data[1::5] *= -1
    X = X.tolil()
    X[:, [5]] = 0
    X[[7]] = 0
    X = X.tocsr()
    X.data[3] = 0.0
    return X
