"""Arrays in memory and dask arrays: any parts give the rows of the array."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import ReadRequest, expand_sources, read, scan
from bigmc.store.shards.csr import Rows

SPARSE_TYPES = ("?", "u1", "i1", "u2", "i8", "u8")


def everything(source, part_bytes=1 << 20, batch_bytes=1 << 16, on_bad_row="fail", labels=None):
    sources = expand_sources(source, labels=labels)
    parts = scan(sources, part_bytes)
    batches = []
    for part in parts:
        here = list(read(part, ReadRequest(None, batch_bytes, on_bad_row), sources=sources))
        assert sum(b.n_rows + len(b.rejects) for b in here) == part.n_rows
        assert sum(b.n_bytes for b in here) == part.n_bytes
        batches += here
    return parts, batches


def dense(batches):
    found = []
    for batch in batches:
        m = batch.matrix
        if isinstance(m, Rows):
            assert m.indices.dtype == np.int32
            assert m.indptr.dtype == np.int64
            m = sp.csr_array((m.data, m.indices, m.indptr), shape=(m.n_rows, m.n_features)).toarray()
        found.append(m)
    return np.concatenate(found)


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    return rng.normal(size=(53, 7)) * (rng.random((53, 7)) < 0.5)


@pytest.mark.parametrize("part_bytes", [1, 500, 1 << 20])
@pytest.mark.parametrize("batch_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize(
    "kind", ["dense", "fortran", "csr", "csc", "coo", "csr_matrix", "dask", "dask_sparse"]
)
def test_any_parts_give_the_array(values, kind, part_bytes, batch_bytes):
    make = {
        "dense": np.asarray,
        "fortran": np.asfortranarray,
        "csr": sp.csr_array,
        "csc": sp.csc_array,
        "coo": sp.coo_array,
        "csr_matrix": sp.csr_matrix,
        "dask": lambda v: da.from_array(v, chunks=(10, 3)),
        "dask_sparse": lambda v: da.from_array(v, chunks=(10, 7)).map_blocks(sp.csr_matrix),
    }[kind]
    labels = np.array([f"c{i % 3}" for i in range(53)])
    parts, batches = everything(make(values), part_bytes, batch_bytes, labels=labels)
    assert np.array_equal(dense(batches), values)
    assert np.concatenate([b.row for b in batches]).tolist() == list(range(53))
    assert [y for b in batches for y in b.labels.to_pylist()] == labels.tolist()
    if kind.startswith("dask"):
        assert [part.n_rows for part in parts] == [10, 10, 10, 10, 10, 3]
    _, batches = everything([make(values), make(values)], part_bytes, batch_bytes)
    assert dense(batches).shape == (106, 7)
    assert np.concatenate([b.line for b in batches]).tolist() == [*range(53), *range(53)]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, lambda v: da.from_array(v, chunks=(10, 7))])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_make_a_bad_row(values, make, bad):
    values[17, 4] = bad
    with pytest.raises(DataError, match=rf": row 17: feature 4 is {bad}"):
        everything(make(values))
    _, batches = everything(make(values), 500, 200, "quarantine")
    assert np.array_equal(dense(batches), np.delete(values, 17, axis=0))
    assert [(r.row, r.line) for b in batches for r in b.rejects] == [(17, 17)]
    assert 17 not in np.concatenate([b.row for b in batches])


def test_duplicates_are_summed_and_the_matrix_left_alone():
    matrix = sp.csr_array((np.array([1.0, 2.0, 5.0]), np.array([3, 1, 3]), np.array([0, 3])), shape=(1, 4))
    _, batches = everything(matrix)
    assert batches[0].matrix.indices.tolist() == [1, 3]
    assert batches[0].matrix.data.tolist() == [2.0, 6.0]
    assert matrix.indices.tolist() == [3, 1, 3]
    coordinates = sp.coo_array((np.array([1, 1]), (np.array([0, 0]), np.array([2, 2]))), shape=(1, 3))
    assert dense(everything(coordinates)[1]).tolist() == [[0, 0, 2]]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (np.array([[True, False]]), np.int8),
        (np.array([[200]], dtype=np.uint8), np.int16),
        (np.array([[60_000]], dtype=np.uint16), np.int32),
        (np.array([[2**40]], dtype=np.int64), np.float64),
        (np.array([[70_000]], dtype=np.uint64), np.int32),
        (np.array([[0.5]], dtype=np.float16), np.float32),
        (np.array([[3]], dtype=np.int8), np.int8),
        (np.array([[1.5]], dtype=">f8"), np.float64),
    ],
)
def test_values_are_kept_exactly_in_a_stored_dtype(given, stored):
    for array in (given, sp.csr_array(given)) if given.dtype in SPARSE_TYPES else (given,):
        _, (batch,) = everything(array)
        matrix = batch.matrix.data if isinstance(batch.matrix, Rows) else batch.matrix
        assert matrix.dtype == stored
        assert np.array_equal(dense([batch]), given)


def test_arrays_that_cannot_be_used(values):
    chunked = da.from_array(values, chunks=(10, 7))
    for array, labels, message in [
        (values[0], None, "1 dimensions"),
        (np.zeros(3, [("x", float), ("y", float)]), None, r"pandas.DataFrame\(rows\) makes a table"),
        (np.ma.masked_less(values, 0), None, "masked arrays are not supported"),
        ([values, values], [np.zeros(53)], "2 arrays but 1 arrays of labels"),
        (values, np.array([1, "a", *[None] * 51], dtype=object), "several types"),
        ([{"text": "a", "label": "b"}], None, r"iter\(rows\)"),
        (values.astype(complex), None, "complex128"),
        (values.astype(object), None, "object"),
        (values, np.zeros(3), r"53 rows but labels of shape \(3,\)"),
        (chunked[chunked[:, 0] > 0], None, "compute_chunk_sizes"),
    ]:
        with pytest.raises(DataError, match=message):
            expand_sources(array, labels=labels)
    with pytest.raises(DataError, match=r"ndarray\[1\] has 3 features, ndarray\[0\] has 7"):
        everything([values, values[:, :3]])
    with pytest.raises(DataError, match=r"2\*\*53"):
        everything(np.array([[2**60 + 1]]))


def test_dask_computes_a_chunk_at_a_time(values):
    seen = []

    def counted(block):
        seen.append(block.shape)
        return block

    array = da.from_array(values, chunks=(10, 7)).map_blocks(counted, dtype=float, meta=np.empty((0, 0)))
    sources = expand_sources(array, labels=da.arange(53, chunks=53))
    parts = scan(sources)
    seen.clear()
    (batch,) = read(parts[2], sources=sources)
    assert seen == [(10, 7)]
    assert batch.labels.to_pylist() == list(range(20, 30))
