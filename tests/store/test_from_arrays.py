from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.store.block import plan_blocks, read_block, stream_blocks
from bigmc.store.dataset import Dataset


def block_matrix(block, n_samples):
    """The block as a scipy matrix, built entry by entry from the documented meaning."""
    rows, cols = [], []
    for s in range(block.indptr.shape[0]):
        for j in range(block.hi - block.lo):
            entries = range(block.indptr[s, j], block.indptr[s, j + 1])
            rows += [block.base[s] + int(block.indices[e]) for e in entries]
            cols += [j] * len(entries)
    shape = (n_samples, block.hi - block.lo)
    return sp.coo_array((block.data.astype(float), (rows, cols)), shape=shape).toarray()


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix])
def test_every_block_equals_the_slice_of_the_matrix(make):
    X = np.random.default_rng(0).poisson(0.4, (23, 9))
    dataset = Dataset.from_arrays(make(X), np.arange(23) % 3, shard_rows=7)
    assert dataset.n_shards == 4
    assert dataset.dtype == np.int8
    for lo in range(10):
        for hi in range(lo, 10):
            assert np.array_equal(block_matrix(read_block(dataset, lo, hi), 23), X[:, lo:hi])
    ranges = plan_blocks(dataset.column_nnz(), 4, 1, 150)
    assert len(ranges) > 2
    parts = [block_matrix(b, 23) for b in stream_blocks(dataset, ranges)]
    assert np.array_equal(np.hstack(parts), X)
