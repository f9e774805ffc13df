"""A dataset read back through other libraries: anndata for the matrix, pyarrow for the rows."""

import hashlib
from pathlib import Path

import anndata
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr

from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import read_manifest, shard_folder


def read_back(dataset: Dataset, split: str | None = None) -> tuple[sp.csr_array, pa.Table]:
    """Return the raw matrix and the table of a split, or of all rows, ordered by row id."""
    matrices, tables = [], []
    for entry in read_manifest(dataset.path).shards:
        if split is None or entry.split == split:
            folder = shard_folder(dataset.path, entry.name)
            opened = zarr.open(folder / "x", mode="r")
            values = anndata.io.read_elem(opened) if entry.kind == "sparse" else opened[:]
            matrices.append(sp.csr_array(values))
            table = pq.read_table(folder / "rows.parquet")
            tables.append(table.append_column("split", pa.array([entry.split] * entry.rows)))
    matrix, table = sp.vstack(matrices).tocsr(), pa.concat_tables(tables, promote_options="permissive")
    ids = table.column("row_id").to_numpy()
    for name in set(table.column("split").to_pylist()):
        mine = ids[np.array(table.column("split").to_pylist()) == name]
        assert (np.diff(mine) > 0).all(), "rows of a split are not in the order of the source"
    order = np.argsort(ids)
    return matrix[order], table.take(order)


def assert_same_matrix(got: sp.csr_array, expected: sp.csr_array) -> None:
    """Compare values and stored pattern, explicit zeros included."""
    expected = sp.csr_array(expected)
    expected.sort_indices()
    got.sort_indices()
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got.indptr, expected.indptr)
    np.testing.assert_array_equal(got.indices, expected.indices)
    np.testing.assert_array_equal(got.data.astype(np.float64), expected.data.astype(np.float64))


def stored(folder: Path) -> dict[str, str]:
    """Return the digests of the files of a dataset, but for those that name the sources."""
    named = {"manifest.json", "zarr.json"}
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in named]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
