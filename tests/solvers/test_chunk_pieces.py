"""How many pieces of shards a chunk of samples has: each takes offsets of all candidates."""

import numpy as np
import pytest

from bigmc.solvers.sparse.scratch.row_scales import exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.store.dataset import Dataset


@pytest.mark.parametrize(("n_shards", "n_chunks"), [(4, 3), (20, 6), (120, 5), (120, 20), (300, 60)])
def test_offsets_of_a_chunk_do_not_grow_with_the_shards(n_shards, n_chunks):
    """With 424 shards and 76 chunks each chunk had a piece of every shard, and 80 MB of offsets."""
    generator = np.random.default_rng(5)
    X = generator.normal(0, 1, (n_shards * 200, 2))
    dataset = Dataset.from_arrays(X, generator.integers(0, 3, len(X)), shard_rows=200)
    assert dataset.n_shards == n_shards
    spill = Spill(dataset, None, n_chunks, 0, None, exact_rows(dataset))
    pieces = [spill.pieces_of_chunk(number) for number in range(n_chunks)]
    assert max(map(len, pieces)) <= 32
    rows = [sum(piece.n_rows for piece in some) for some in pieces]
    assert sum(rows) == len(X)
    assert max(rows) < 2 * len(X) / n_chunks
