"""Dual coordinates of one block of samples after the other: against LIBLINEAR and the solver in memory."""

import re
import tracemalloc
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import LinearSVC
from sparse_runs import run_of, solve

from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.solvers import loop
from bigmc.solvers.sparse import check_memory
from bigmc.solvers.sparse import solve as solve_run
from bigmc.solvers.sparse.out_of_core import chunk_plan
from bigmc.solvers.sparse.ridge import block_reader
from bigmc.solvers.sparse.ridge.block_plan import BlockPlan, plan_blocks
from bigmc.solvers.sparse.ridge.block_reader import BlockReader, RowBlock
from bigmc.solvers.sparse.ridge.row_blocks import RowBlockDescent, descend_blocks, is_unfinished
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.weighting import Weighting

N_ROWS, N_CLASSES = 900, 11
RIDGE = {"alpha": 0.0, "loss": "multitask_squared_hinge", "memory_limit": 1 << 30}


def texts(n_features=1600, **options):
    """Five shards of counts of words, and labels that depend on them."""
    generator = np.random.default_rng(4)
    X = scipy.sparse.random_array((N_ROWS, n_features), density=0.01, rng=generator, format="csr")
    X.data = generator.integers(1, 5, X.nnz).astype(float)
    y = np.argmax(X @ generator.normal(size=(n_features, N_CLASSES)), axis=1)
    return X, y, Dataset.from_arrays(X, y, shard_rows=200, **options)


def blocks(data, n_shards=2, duals_in_file=False):
    """Return a plan of so many shards together."""
    shards = [list(range(lo, min(lo + n_shards, data.n_shards))) for lo in range(0, data.n_shards, n_shards)]
    whole = [RowBlock(some, int(data.base[some[0]]), int(data.base[some[-1] + 1])) for some in shards]
    return BlockPlan(whole, np.flatnonzero(data.column_nnz()), duals_in_file)


def parts_of_shards(data, duals_in_file=False):
    """Return a plan of parts of shards, but for the last two, which stay whole."""
    found = []
    for s in range(data.n_shards - 2):
        start, stop = int(data.base[s]), int(data.base[s + 1])
        found += [RowBlock([s], start, start + 70), RowBlock([s], start + 70, stop)]
    last = [data.n_shards - 2, data.n_shards - 1]
    found.append(RowBlock(last, int(data.base[last[0]]), data.n_samples))
    return BlockPlan(found, np.flatnonzero(data.column_nnz()), duals_in_file)


@pytest.mark.parametrize(
    "weighting", [Weighting(), Weighting(l2=True, idf=True), Weighting(binary=True, l2=True)]
)
@pytest.mark.parametrize("pieces", [(1 << 18, 1 << 16), (300, 90)])
@pytest.mark.parametrize("turned_bytes", [0, 1 << 20])
def test_parts_of_shards_have_the_samples_of_the_shards(weighting, pieces, turned_bytes, monkeypatch):
    monkeypatch.setattr(block_reader, "PIECE_ENTRIES", pieces[0])
    monkeypatch.setattr(block_reader, "PIECE_FEATURES", pieces[1])
    _, _, data = texts(weighting=weighting)
    plan = parts_of_shards(data)
    reader = BlockReader(data, plan.features, ThreadEngine(1), True, plan.blocks, turned_bytes=turned_bytes)
    for s in range(data.n_shards - 2):
        start, stop = int(data.base[s]), int(data.base[s + 1])
        whole, squares, _ = reader.read(RowBlock([s], start, stop))
        for lo, hi in ((start, start + 70), (start + 70, stop)):
            part, own, labels = reader.read(RowBlock([s], lo, hi))
            entries = slice(whole.indptr[lo - start], whole.indptr[hi - start])
            np.testing.assert_array_equal(
                part.indptr, whole.indptr[lo - start : hi - start + 1] - entries.start
            )
            np.testing.assert_array_equal(part.slots, whole.slots[entries])
            np.testing.assert_array_equal(part.values, whole.values[entries])
            np.testing.assert_array_equal(own, squares[lo - start : hi - start])
            np.testing.assert_array_equal(labels, data.label_sets()[lo:hi])


def test_with_parts_of_shards_it_comes_to_the_same_optimum():
    _, _, data = texts()
    options = {"ridge": 1 / N_ROWS, "fit_intercept": False, **RIDGE}
    best = solve(data, tol=1e-7, **options)
    trained = descend_blocks(run_of(data, tol=5e-3, **options), parts_of_shards(data), None)
    certificate, state = trained.certificate, trained.state
    assert certificate.gap <= 5e-3
    assert certificate.lower <= best.objective
    assert best.certificate.lower <= certificate.upper
    n_reads, entry = state.nnz_read // data.nnz, 2 + data.dtype.itemsize
    nnz_cut = sum(shard.nnz for shard in data.shards[:-2])
    # rows once to count, entries once for each part; then what was written is read
    in_file = state.bytes_read - (2 + 2 * entry) * nnz_cut - n_reads * entry * (data.nnz - nnz_cut)
    assert in_file % (n_reads + 1) == 0
    assert 0 < in_file // (n_reads + 1) < 1.5 * entry * nnz_cut


@pytest.mark.exhaustive
def test_a_limit_too_small_for_a_shard_takes_parts_of_it_and_nothing_else():
    """Texts of 2^16 words and 40 classes: chunks have no memory for the vectors of every word."""
    generator = np.random.default_rng(0)
    n_rows, n_features, n_classes = 12_000, 1 << 16, 40
    X = scipy.sparse.random_array((n_rows, n_features), density=0.004, rng=generator, format="csr")
    y = np.argmax(X[:, : 50 * n_classes].reshape((n_rows * n_classes, 50)).sum(axis=1).reshape(n_rows, -1), 1)
    data = Dataset.from_arrays(X.astype(np.float32), y, shard_rows=8_000)
    run = run_of(data, ridge=1 / n_rows, fit_intercept=True, tol=0.1, **RIDGE | {"memory_limit": 60 << 20})
    plan = plan_blocks(run)
    assert not all(block.is_whole(data) for block in plan.blocks)
    assert [block.start for block in plan.blocks[1:]] == [block.stop for block in plan.blocks[:-1]]
    check_memory(run)
    with pytest.raises(MemoryLimitError):
        chunk_plan(run, None)
    found = solve_run(run)
    best = solve(data, ridge=1 / n_rows, fit_intercept=True, tol=0.02, **RIDGE)
    assert found.certificate.lower <= best.objective
    assert found.objective <= 1.1 * best.objective
    assert "violation" not in found.history[-1]
    refused = run_of(data, ridge=1 / n_rows, tol=0.1, **RIDGE | {"memory_limit": 30 << 20})
    with pytest.raises(MemoryLimitError) as error:
        check_memory(refused)
    least = int(re.search(r"--memory (\d+)MB", str(error.value))[1])
    check_memory(run_of(data, ridge=1 / n_rows, tol=0.1, **RIDGE | {"memory_limit": least * 10**6}))
    assert least * 10**6 <= 60 << 20


def test_a_shard_is_cut_once_more_whenever_the_memory_asks_for_it():
    """Into no part too many, as each reads all of the shard, and into sixteen at most."""
    generator = np.random.default_rng(0)
    X = scipy.sparse.random_array((60_000, 2000), density=0.01, rng=generator, format="csr")
    X.data[:] = 1.0
    data = Dataset.from_arrays(X, np.arange(60_000) % 2)
    run = run_of(data, ridge=0.1, **RIDGE)
    plans = [plan_blocks(run, limit) for limit in range(60 << 20, 10 << 20, -(1 << 14))]
    counts = [0 if plan is None else len(plan.blocks) for plan in plans]
    assert list(dict.fromkeys(counts)) == [*range(1, 17), 0]


def weights_of(trained, data):
    coef = np.zeros((data.n_features, data.n_classes))
    coef[trained.state.coef.features] = trained.state.coef.rows[:, : data.n_classes]
    return coef


def objective(seen, marks, coef, intercept, ridge, weights):
    losses = (np.maximum(1.0 - np.where(marks, 1.0, -1.0) * (seen @ coef + intercept), 0.0) ** 2).sum(axis=1)
    return weights @ losses / weights.sum() + 0.5 * ridge * (coef**2).sum()


@pytest.mark.parametrize("n_shards", [1, 3])
def test_the_weights_are_those_of_liblinear(n_shards):
    X, y, data = texts()
    run = run_of(data, ridge=0.5 / N_ROWS, fit_intercept=True, tol=1e-4, max_passes=400, **RIDGE)
    trained = descend_blocks(run, blocks(data, n_shards), None)
    peer = LinearSVC(C=2.0, tol=1e-8, max_iter=100_000).fit(X, y)
    scores = X @ weights_of(trained, data) + trained.state.intercept
    np.testing.assert_allclose(scores, peer.decision_function(X), atol=0.03)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    "weighting", [Weighting(), Weighting(l2=True, idf=True), Weighting(binary=True, l2=True)]
)
def test_the_certificate_is_of_the_objective_and_encloses_the_optimum(weighting, fit_intercept):
    X, y, data = texts(weighting=weighting)
    weights = np.random.default_rng(1).integers(0, 4, N_ROWS).astype(float)
    options = {"ridge": 5.0 / weights.sum(), "fit_intercept": fit_intercept, "sample_weight": weights}
    best = solve(data, tol=1e-7, **RIDGE, **options)
    seen = X.toarray() if not weighting.binary else (X.toarray() > 0).astype(float)
    seen = seen * (1.0 if data.column_scale() is None else data.column_scale())
    if weighting.l2:
        seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    for tol in (0.3, 0.02):
        trained = descend_blocks(run_of(data, tol=tol, **RIDGE, **options), blocks(data), None)
        coef, certificate = weights_of(trained, data), trained.certificate
        marks = y[:, None] == np.arange(N_CLASSES)
        value = objective(seen, marks, coef, trained.state.intercept, options["ridge"], weights)
        assert certificate.upper == pytest.approx(value, rel=1e-5)
        assert certificate.lower <= best.objective
        assert best.certificate.lower <= certificate.upper
        assert fit_intercept or certificate.gap <= tol  # of so few samples a shrunk intercept is another one


def test_sets_of_labels_are_problems_of_their_own():
    X, _, _ = texts()
    marks = np.random.default_rng(2).random((N_ROWS, N_CLASSES)) < 0.15
    data = Dataset.from_arrays(X, marks.astype(int), shard_rows=200)
    run = run_of(data, ridge=1 / N_ROWS, fit_intercept=True, tol=1e-4, max_passes=400, **RIDGE)
    trained = descend_blocks(run, blocks(data), None)
    scores = X @ weights_of(trained, data) + trained.state.intercept
    for c in (0, N_CLASSES - 1):
        peer = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(X, marks[:, c])
        np.testing.assert_allclose(scores[:, c], peer.decision_function(X), atol=0.03)


@pytest.mark.parametrize("plan_of", [blocks, parts_of_shards])
def test_any_number_of_threads_gives_the_same_bits(plan_of):
    _, _, data = texts()
    found = []
    for n_threads in (1, 2, 3):
        run = run_of(data, ridge=1 / N_ROWS, fit_intercept=True, engine=ThreadEngine(n_threads), **RIDGE)
        found.append(descend_blocks(run, plan_of(data), None))
    for other in found[1:]:
        np.testing.assert_array_equal(other.state.coef.rows, found[0].state.coef.rows)
        assert other.certificate == found[0].certificate


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_dual_variables_in_a_file_change_no_bit_and_are_counted(fit_intercept, tmp_path):
    _, _, data = texts()
    make = partial(run_of, data, ridge=1 / N_ROWS, fit_intercept=fit_intercept, tol=5e-2, **RIDGE)
    held = descend_blocks(make(), blocks(data), None)
    stored = descend_blocks(make(scratch=tmp_path), blocks(data, duals_in_file=True), None)
    np.testing.assert_array_equal(stored.state.coef.rows, held.state.coef.rows)
    assert stored.certificate == held.certificate
    assert not list(tmp_path.iterdir())
    n_epochs, n_proofs = stored.state.n_iter // 2, len(stored.state.history)
    times = 2 * n_epochs + (1 + fit_intercept) * n_proofs
    more = stored.state.bytes_read - held.state.bytes_read
    assert more == times * 4 * N_ROWS * N_CLASSES
    assert stored.state.history[-1]["bytes_read"] == stored.state.bytes_read


class Killed(Exception):
    """Stands for a kill after a state was saved."""


class Dying(FileCheckpoint):
    """Is killed after it has saved so many states beside the first."""

    left = 0

    def save(self, meta, arrays):
        super().save(meta, arrays)
        self.left -= 1
        if self.left == -1:
            raise Killed


@pytest.mark.parametrize("after", [1, 2, 5])
@pytest.mark.parametrize("plan_of", [blocks, partial(blocks, duals_in_file=True), parts_of_shards])
def test_a_killed_descent_goes_on_to_the_same_bits(after, plan_of, tmp_path, monkeypatch):
    # So that the dual variables are large:
    monkeypatch.setattr("bigmc.store.files.checkpoint._LARGE", 1 << 10)
    _, _, data = texts()
    make = partial(run_of, data, ridge=1 / N_ROWS, fit_intercept=True, tol=5e-3, **RIDGE)
    plan = plan_of(data)
    whole = descend_blocks(make(), plan, None)
    checkpoint = Dying(tmp_path)
    checkpoint.left = after
    with pytest.raises(Killed):
        descend_blocks(make(checkpoint=checkpoint), plan, None)
    run = make(checkpoint=FileCheckpoint(tmp_path))
    saved = loop.load(run.context, run.fingerprint)
    assert is_unfinished(saved)
    resumed = descend_blocks(run, plan, saved)
    np.testing.assert_array_equal(resumed.state.coef.rows, whole.state.coef.rows)
    assert (resumed.certificate, resumed.state.history) == (whole.certificate, whole.state.history)


def test_a_training_larger_than_memory_goes_on_from_there_to_its_tolerance():
    """Where the intercept is shrunk the gap ends above 0; chunks of the samples then lead on."""
    _, _, data = texts()
    options = {"ridge": 10 / N_ROWS, "fit_intercept": True, **RIDGE}
    found = solve(data, tol=1e-5, chunk_bytes=1 << 20, **options)
    best = solve(data, tol=1e-7, **options)
    assert found.converged
    assert found.objective == pytest.approx(best.objective, rel=2e-5)
    assert "violation" not in found.history[0]  # of the descent through blocks
    assert "violation" in found.history[-1]  # of a pass over chunks


def test_passes_and_bytes_are_what_was_read():
    _, _, data = texts()
    found = solve(data, ridge=1 / N_ROWS, tol=0.1, chunk_bytes=1 << 20, **RIDGE)
    assert found.converged
    [figures] = found.history
    assert found.n_passes == figures["n_passes"] == figures["n_iter"] / 2 + 1
    assert found.bytes_read == found.n_passes * data.nnz * (2 + data.dtype.itemsize)
    few = solve(data, ridge=1 / N_ROWS, tol=1e-6, max_passes=3, chunk_bytes=1 << 20, **RIDGE)
    assert few.n_passes == 3
    assert not few.converged


@pytest.mark.parametrize(
    "other", [{"alpha": 1e-3}, {"loss": "squared_hinge"}, {"max_passes": 1}, {"step": "constant"}]
)
def test_other_problems_go_other_ways(other):
    _, _, data = texts()
    assert plan_blocks(run_of(data, **{"ridge": 0.1, **RIDGE})) is not None
    assert plan_blocks(run_of(data, **{"ridge": 0.1, **RIDGE, **other})) is None


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_classes", "density"),
    [
        (60_000, 1200, 2, 0.001),
        (60_000, 1200, 20, 0.001),
        (400_000, 1200, 30, 0.001),
        (2_000, 40_000, 20, 0.01),
        (20_000, 3000, 3, 0.05),
        (24_000, 1200, 700, 0.001),
    ],
)
def test_blocks_fit_into_the_memory_they_are_planned_for(n_rows, n_features, n_classes, density):
    """Where samples, features or entries take most of it: against what Python counts as allocated."""
    generator = np.random.default_rng(0)
    shape = n_rows, n_features
    X = scipy.sparse.random_array(shape, density=density, rng=generator, format="csr", dtype=np.float32)
    data = Dataset.from_arrays(X, generator.integers(0, n_classes, n_rows), shard_rows=n_rows // 8)

    def make(memory_limit):
        options = {**RIDGE, "memory_limit": memory_limit, "tol": 1e-3, "max_passes": 3}
        return run_of(data, ridge=0.1, engine=ThreadEngine(1), fit_intercept=True, **options)

    sizes = range(20 << 20, 200 << 20, 1 << 20)
    limit = next(size for size in sizes if (plan := plan_blocks(make(size))) and len(plan.blocks) <= 4)
    plan = plan_blocks(make(limit))
    assert len(plan.blocks) > 1
    RowBlockDescent(make(limit), plan).improve()  # whatever is made once
    tracemalloc.start()
    descend_blocks(make(limit), plan, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + (18 << 20) <= limit < 3.5 * peak + (18 << 20)
