"""Data that go through memory in pieces: the size of the pieces changes nothing."""

import numpy as np
import pytest
import scipy.sparse
from test_chunk_rounds import PARTLY_HELD, PLAN, made, run

from bigmc.engine import ThreadEngine
from bigmc.solvers.sparse.chunks import certifying_pass
from bigmc.solvers.sparse.scratch import layer_reader, layer_writer, spill
from bigmc.store import row_norms, sample
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

SMALL = {
    "PIECE_ENTRIES": [spill, layer_reader, layer_writer],
    "PIECE_FEATURES": [spill, layer_reader, certifying_pass],
}


def bits(data, plan):
    state = run(data, plan, threads=1, alpha=2e-3, fit_intercept=True, tol=1e-2)[0]
    norms = np.nan_to_num(state.norms)
    return [array.tobytes() for array in (state.coef.features, state.coef.rows, state.intercept, norms)]


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("plan", [PLAN, PARTLY_HELD], ids=["in a file", "partly held"])
def test_runs_over_chunks(plan, monkeypatch):
    _, data = made(n=900, weighting=Weighting(l2=True, idf=True))
    whole = bits(data, plan)
    most = max(shard.n_rows for shard in data.shards)  # a column is one piece at least
    for name, modules in SMALL.items():
        with monkeypatch.context() as patch:
            for module in modules:
                patch.setattr(module, name, most + 1 if name == "PIECE_ENTRIES" else 5)
            assert bits(data, plan) == whole, name


@pytest.mark.parametrize(("entries", "features"), [(200, 100), (517, 100), (10**6, 7), (10**6, 1)])
def test_norms_of_rows_and_samples(entries, features, monkeypatch):
    random = np.random.default_rng(0)
    X = scipy.sparse.random_array((500, 60), density=0.3, rng=random, format="csr")
    data = Dataset.from_arrays(X, random.integers(0, 2, 500), weighting=Weighting(l2=True), shard_rows=200)
    scale = random.random(60).astype(np.float32)
    for module in (row_norms, sample):
        monkeypatch.setattr(module, "PIECE_ENTRIES", entries)
    monkeypatch.setattr(row_norms, "PIECE_FEATURES", features)
    expected = 1 / np.linalg.norm(X.toarray() * scale, axis=1)
    np.testing.assert_allclose(row_norms.row_scale(data, scale), expected, rtol=1e-6)
    drawn, positions = sample.draw_rows(data, 0.4, 0, ThreadEngine(1))
    (shard,) = drawn.shards
    indices, values = np.empty(shard.nnz, np.uint16), np.empty(shard.nnz, shard.dtype)
    shard.read(0, shard.nnz, indices, values)
    found = scipy.sparse.csc_array((values, indices, shard.indptr(0, 60)), (len(positions), 60))
    np.testing.assert_array_equal(found.toarray(), X.toarray()[positions])
