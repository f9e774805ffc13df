"""Ridge problems larger than memory whose samples are sorted by class."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sparse_runs import run_of, solve

from bigmc.engine import ThreadEngine
from bigmc.solvers import loop
from bigmc.solvers.sparse.ridge.block_plan import BlockPlan, plan_blocks
from bigmc.solvers.sparse.ridge.block_reader import BlockReader, RowBlock
from bigmc.solvers.sparse.ridge.mixed_blocks import mixed
from bigmc.solvers.sparse.ridge.row_blocks import RowBlockDescent, descend_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.weighting import Weighting

N_ROWS, N_CLASSES = 1500, 12
RIDGE = {"alpha": 0.0, "loss": "multitask_squared_hinge", "memory_limit": 1 << 30}


def texts(order, **options):
    """Six shards of counts of words, sorted by a label that depends on them, or not."""
    generator = np.random.default_rng(4)
    X = scipy.sparse.random_array((N_ROWS, 1600), density=0.01, rng=generator, format="csr")
    X.data = generator.integers(1, 5, X.nnz).astype(float)
    y = np.argmax(X @ generator.normal(size=(1600, N_CLASSES)), axis=1)
    rows = np.argsort(y, kind="stable") if order == "sorted" else generator.permutation(N_ROWS)
    return Dataset.from_arrays(X[rows], y[rows], shard_rows=270, **options)


def alone(data, block_bytes=1 << 20):
    """Return a plan of each shard alone."""
    whole = [RowBlock([s], int(data.base[s]), int(data.base[s + 1])) for s in range(data.n_shards)]
    return BlockPlan(whole, np.flatnonzero(data.column_nnz()), True, block_bytes)


def test_only_samples_in_an_order_of_classes_are_mixed():
    plan = alone(texts("random"))
    assert mixed(plan, texts("random")) is plan
    small = alone(texts("sorted"), block_bytes=1000)
    assert mixed(small, texts("sorted")) is small


def test_every_sample_is_in_one_block_and_the_groups_are_alike():
    data = texts("sorted")
    plan = mixed(alone(data, 320_000), data)
    assert len(plan.groups) > 2
    every = np.concatenate([np.arange(N_ROWS)[block.samples] for block in plan.blocks])
    np.testing.assert_array_equal(np.sort(every), np.arange(N_ROWS))
    assert [block for group in plan.groups for block in group] == plan.blocks
    for group in plan.groups:
        labels = np.concatenate([data.labels()[block.samples] for block in group])
        counts = np.bincount(labels, minlength=N_CLASSES) * len(plan.groups)
        assert np.abs(counts - data.class_counts()).sum() < 0.15 * N_ROWS


@pytest.mark.parametrize("turned_bytes", [0, 15_000, 1 << 20])
@pytest.mark.parametrize("weighting", [Weighting(), Weighting(l2=True, idf=True), Weighting(binary=True)])
def test_blocks_read_together_have_their_samples_one_after_another(weighting, turned_bytes):
    data = texts("sorted", weighting=weighting)
    features = np.flatnonzero(data.column_nnz())
    plan = mixed(alone(data, 320_000), data)
    shards = list(range(data.n_shards))
    every = RowBlock(shards, 0, N_ROWS)
    whole, squares, _ = BlockReader(data, features, ThreadEngine(1), True, [every]).read(every)
    dense = scipy.sparse.csr_array((whole.values, whole.slots, whole.indptr)).toarray()
    reader = BlockReader(data, features, ThreadEngine(1), True, plan.blocks, turned_bytes=turned_bytes)
    for _ in range(2):  # the second time from the scratch file
        for group in plan.groups:
            places = np.concatenate([np.arange(N_ROWS)[block.samples] for block in group])
            rows, own, labels = reader.read(*group)
            read = scipy.sparse.csr_array(
                (rows.values, rows.slots, rows.indptr), (len(places), dense.shape[1])
            )
            np.testing.assert_array_equal(read.toarray(), dense[places])
            np.testing.assert_array_equal(own, squares[places])
            np.testing.assert_array_equal(labels, data.label_sets()[places])
    reader.close()


@pytest.mark.parametrize("weighted", [False, True])
def test_mixed_samples_come_to_the_optimum_and_sorted_ones_do_not(weighted):
    data = texts("sorted")
    weights = np.random.default_rng(1).integers(0, 3, N_ROWS).astype(float) if weighted else None
    own = {"sample_weight": weights, "fit_intercept": False, "ridge": 1 / N_ROWS, **RIDGE}
    best = solve(data, tol=1e-6, **own)
    run = run_of(data, tol=0.02, max_passes=12, **own)
    plan = alone(data)
    sorted_ones = descend_blocks(run, plan, None).certificate
    certificate = descend_blocks(run, mixed(plan, data), None).certificate
    assert certificate.gap <= 0.02 < 0.05 < sorted_ones.gap
    assert certificate.lower <= best.objective * (1 + 1e-6)
    assert best.objective <= certificate.upper <= 1.02 * best.objective


class Killed(Exception):
    pass


class Dying(FileCheckpoint):
    def save(self, meta, arrays):
        super().save(meta, arrays)
        raise Killed


def test_a_killed_descent_goes_on_to_the_same_bits(tmp_path):
    data = texts("sorted")
    make = partial(run_of, data, ridge=1 / N_ROWS, fit_intercept=True, tol=5e-3, **RIDGE)
    plan = mixed(alone(data, 320_000), data)
    whole = descend_blocks(make(), plan, None)
    with pytest.raises(Killed):
        descend_blocks(make(checkpoint=Dying(tmp_path)), plan, None)
    run = make(checkpoint=FileCheckpoint(tmp_path))
    resumed = descend_blocks(run, plan, loop.load(run.context, run.fingerprint))
    np.testing.assert_array_equal(resumed.state.coef.rows, whole.state.coef.rows)
    assert (resumed.certificate, resumed.state.history) == (whole.certificate, whole.state.history)


def test_a_state_in_another_order_is_not_continued(tmp_path):
    """Such as one that was written before samples were mixed."""
    data = texts("sorted")
    make = partial(run_of, data, ridge=1 / N_ROWS, fit_intercept=True, tol=5e-3, **RIDGE)
    with pytest.raises(Killed):
        descend_blocks(make(checkpoint=Dying(tmp_path)), alone(data), None)
    plan, run = mixed(alone(data, 320_000), data), make(checkpoint=FileCheckpoint(tmp_path))
    resumed = descend_blocks(run, plan, loop.load(run.context, run.fingerprint))
    assert resumed.certificate == descend_blocks(make(), plan, None).certificate


def test_a_training_larger_than_memory_mixes_them():
    data = texts("sorted")
    options = {"ridge": 1 / N_ROWS, "fit_intercept": False, "tol": 0.02, "max_passes": 12, **RIDGE}
    found = solve(data, chunk_bytes=1 << 20, **options)
    assert found.converged
    assert found.objective <= 1.02 * solve(data, **{**options, "tol": 1e-6}).objective


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    ("n_rows", "density", "n_groups"), [(60_000, 0.02, 4), (60_000, 0.02, 12), (400_000, 0.002, 9)]
)
def test_mixed_blocks_fit_into_the_memory_they_are_planned_for(n_rows, density, n_groups):
    """Against what Python counts as allocated, and whether shards are put into row order at once or not."""
    generator = np.random.default_rng(0)
    X = scipy.sparse.random_array(
        (n_rows, 1200), density=density, rng=generator, format="csr", dtype=np.float32
    )
    y = np.sort(generator.integers(0, 20, n_rows))
    data = Dataset.from_arrays(X, y, shard_rows=n_rows // 8)
    options = {**RIDGE, "ridge": 0.1, "tol": 1e-3, "max_passes": 3, "engine": ThreadEngine(1)}

    def planned(memory_limit):
        run = run_of(data, **{**options, "memory_limit": memory_limit})
        plan = plan_blocks(run)
        return run, plan and mixed(plan, data)

    sizes = range(200 << 20, 20 << 20, -(1 << 19))
    limit = next(size for size in sizes if (plan := planned(size)[1]) and len(plan.groups) >= n_groups)
    run, plan = planned(limit)
    assert plan.cuts
    RowBlockDescent(run, plan).improve()  # whatever is made once
    tracemalloc.start()
    descend_blocks(*planned(limit), None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + (18 << 20) <= limit < 3.5 * peak + (18 << 20)
