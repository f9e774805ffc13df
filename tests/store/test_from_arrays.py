from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.errors import DataError
from bigmc.store.block import read_block
from bigmc.store.dataset import Dataset

from .test_dataset import block_matrix

INPUTS = [
    np.asarray,
    np.asfortranarray,
    np.ndarray.tolist,
    sp.csr_array,
    sp.csc_matrix,
    sp.coo_array,
    sp.lil_matrix,
]


@pytest.mark.parametrize("make", INPUTS, ids=lambda f: f.__name__)
def test_every_kind_of_matrix(make):
    X = np.random.default_rng(0).poisson(0.4, (23, 9))
    dataset = Dataset.from_arrays(make(X), np.arange(23) % 3, shard_rows=7)
    assert (dataset.n_shards, dataset.n_classes, dataset.dtype) == (4, 3, np.int8)
    assert np.array_equal(block_matrix(read_block(dataset, 2, 8), 23), X[:, 2:8])
    assert dataset.nnz == np.count_nonzero(X)
    assert np.array_equal(dataset.labels(), np.arange(23) % 3)
    assert dataset.info()["splits"] == {"all": 23}


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (np.array([True, False]), "int8"),
        (np.array([1.0, -128.0]), "int8"),
        (np.array([128.0, 0.0]), "int16"),
        (np.array([255], np.uint8), "int16"),
        (np.array([32768]), "int32"),
        (np.array([2**31 - 1], np.float64), "int32"),
        (np.array([2.0**31]), "float32"),
        (np.array([2**40]), "float32"),
        (np.array([2**40 + 1]), "float64"),
        (np.array([2**40 + 1], np.float64), "float64"),
        (np.array([0.5, np.nan, np.inf, -np.inf]), "float32"),
        (np.array([0.5], np.float16), "float32"),
        (np.array([1, 300], ">i4"), "int16"),
        (np.array([0.1], ">f8"), "float64"),
        (np.array([0.1]), "float64"),
        (np.array([np.float32(0.1)], np.float64), "float32"),
        (np.array([1e300]), "float64"),
        (np.array([2**63], np.uint64), "float32"),
    ],
)
def test_values_are_kept_exactly_in_the_smallest_dtype(values, stored):
    dataset = Dataset.from_arrays(values[:, None])
    assert dataset.dtype == stored
    read = block_matrix(read_block(dataset, 0, 1), len(values))[:, 0]
    assert np.array_equal(read, values.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("values", [np.array(["a"]), np.array([1j]), np.array([2**53 + 1]), np.array([None])])
def test_values_that_cannot_be_kept_are_refused(values):
    with pytest.raises(DataError, match=r"cannot be stored|cannot represent"):
        Dataset.from_arrays(values[:, None])


def test_duplicates_add_up_zeros_stay_and_the_input_is_left_alone():
    X = sp.csr_matrix(([1.0, 2.0, 0.0, 5.0], [1, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    dataset = Dataset.from_arrays(X)
    assert X.nnz == 4
    assert dataset.nnz == 3
    assert np.array_equal(block_matrix(read_block(dataset, 0, 3), 2), [[0, 3, 0], [5, 0, 0]])
    assert np.array_equal(dataset.labels(), [-1, -1])
    assert dataset.n_classes == 0


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="1 dimensions"):
        Dataset.from_arrays(np.ones(3))
    with pytest.raises(DataError, match="y has the shape"):
        Dataset.from_arrays(np.ones((3, 1)), [1, 2])
    with pytest.raises(DataError, match="row_ids has the shape"):
        Dataset.from_arrays(np.ones((3, 1)), row_ids=[1])
    empty = Dataset.from_arrays(np.ones((0, 3)), [])
    assert (empty.n_samples, empty.n_shards, empty.nnz) == (0, 0, 0)
    assert read_block(empty, 0, 3).indptr.shape == (0, 4)


def test_the_bytes_of_a_shard_in_memory_are_those_of_its_arrays():
    X = np.random.default_rng(0).poisson(0.4, (23, 9))
    (shard,) = Dataset.from_arrays(X, np.arange(23) % 3).shards
    nnz = np.count_nonzero(X)
    assert shard.nbytes == 8 * 10 + 2 * nnz + nnz + shard.table().nbytes  # offsets, row ids, int8 values


def test_rows_that_become_one_shard_are_not_copied():
    """An entry has 6 bytes in the matrix, 3 in the shard, and 1 more while it is made."""
    X = sp.random_array((2000, 500), density=0.2, rng=np.random.default_rng(0), format="csr")
    X.data[:] = 1
    X = X.astype(np.int16)
    Dataset.from_arrays(X, np.arange(2000) % 3)  # whatever is made once
    tracemalloc.start()
    Dataset.from_arrays(X, np.arange(2000) % 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * X.nnz
