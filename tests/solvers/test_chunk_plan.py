"""How runs over chunks divide their memory."""

from dataclasses import replace

import numpy as np
import pytest
from sparse_runs import run_of

from bigmc.budget import MemoryLimitError
from bigmc.solvers.sparse.chunks.plan import plan_chunks
from bigmc.solvers.sparse.memory_plan import Size
from bigmc.store.dataset import Dataset

#: Little data, but all of it in one shard of many rows: a worker of a pass takes the most.
ONE_SHARD = Size(
    n_samples=65_536, n_features=4000, n_classes=300, nnz=1 << 19, n_shards=1, width=304, itemsize=4,
    tol=1e-3, largest_shard=1 << 19, n_certain=50,
)  # fmt: skip


def test_the_bytes_that_a_refusal_names_are_enough():
    with pytest.raises(MemoryLimitError) as refused:
        plan_chunks(3_000_000, 2, 65_536, ONE_SHARD)
    plan = plan_chunks(refused.value.needed, 2, 65_536, ONE_SHARD)
    assert plan.most_candidates >= 50
    with pytest.raises(MemoryLimitError):
        plan_chunks(refused.value.needed - 100_000, 2, 65_536, ONE_SHARD)


@pytest.mark.parametrize("limit", [58, 60, 64, 72])
def test_chunks_have_samples_enough_where_shards_are_cut_into_parts(limit):
    """Offsets of the candidates' columns, of every part of a shard, must not take all of a chunk."""
    size = Size(
        n_samples=750_000, n_features=1 << 20, n_classes=2, nnz=27_000_000, n_shards=12, width=8, itemsize=1,
        tol=1e-3, largest_shard=2_360_000, n_kept=1, n_beside=2,
    )  # fmt: skip
    plan = plan_chunks(limit * 10**6, 1, 65_536, size)
    assert plan.n_chunks(size.nnz, plan.most_candidates) < size.n_samples // 1000


#: Words and pairs of package descriptions in 2^20 buckets, 24 classes.
WORDS = Size(
    n_samples=520_000, n_features=1 << 20, n_classes=24, nnz=97_000_000, n_shards=12, width=24, itemsize=1,
    tol=1e-3, largest_shard=12_300_000,
)  # fmt: skip


def test_workers_leave_memory_for_candidates_where_the_limit_is_small():
    """With large blocks there were 1,800 of them at 60 MB, and passes named a few hundred at a time."""
    size = replace(WORDS, n_samples=313_000, nnz=25_000_000, n_shards=6, largest_shard=4_200_000, itemsize=2)
    plan = plan_chunks(60 * 10**6, 1, 52_219, size)
    assert plan.most_candidates > 5000
    assert plan.most_gradients(plan.beside_workers(0, 2000)) > 2000


def test_workers_take_larger_blocks_where_smaller_ones_would_cut_shards_into_parts():
    """In 32 parts there were 799 candidates at 48 MB, of which the objective was 1 % worse after 10 reads."""
    size = Size(
        n_samples=799_000, n_features=1 << 18, n_classes=18, nnz=26_400_000, n_shards=13, width=24,
        itemsize=1, tol=1e-3, largest_shard=2_170_000,
    )  # fmt: skip
    plan = plan_chunks(48 * 10**6, 1, 65_536, size)
    assert plan.shard_parts == 1
    assert plan.most_candidates > 5000


@pytest.mark.parametrize("limit", [64, 100, 128, 150, 200, 400, 1000, 4000])
def test_what_passes_keep_does_not_depend_on_the_workers_but_fits_beside_all_of_them(limit):
    """Candidates follow from the gradients that are kept, and models have the same bits for any number."""
    one = plan_chunks(limit * 10**6, 1, 65_536, WORDS)
    for n_workers in (2, 3, 8):
        plan = plan_chunks(limit * 10**6, n_workers, 65_536, WORDS)
        assert replace(plan, most_workers=1) == one
        for held, n_candidates in ((0, 0), (0, one.most_candidates), (one.most_held(1000, 5), 1000)):
            beside = plan.beside_workers(held, n_candidates)
            assert beside == one.beside_workers(held, n_candidates)
            kept = min(plan.most_gradients(beside), WORDS.n_features)
            assert kept == min(one.most_gradients(beside), WORDS.n_features)
            at_once = plan.n_workers(beside, kept)
            assert 1 <= at_once <= n_workers
            gradients = 8 * (plan.n_kept + 1) * (at_once + 1) * kept  # of each worker, and their sums
            assert beside + at_once * plan.worker_bytes + gradients <= plan.free_bytes
    assert plan.n_workers(0, 1000) == 8 if limit >= 400 else True


@pytest.mark.parametrize("limit", [64, 80, 147])
def test_a_dual_point_fits_beside_a_chunk_and_weights_and_gradients_of_all_candidates(limit):
    """Names of places, n-grams of 150 classes: a chunk changes the weights of fewer features, if need be."""
    names = Size(
        n_samples=3_826_486, n_features=1 << 18, n_classes=150, nnz=98_361_088, n_shards=61, width=152,
        itemsize=1, tol=1e-3, largest_shard=1_700_000,
    )  # fmt: skip
    plan = plan_chunks(limit * 10**6, 1, 65_536, names)
    before = plan.most_candidates
    for n_candidates in (plan.most_candidates + 1, plan.most_by_rows):
        moved = plan.most_moved(n_candidates)
        assert 16 < moved <= before
        before = moved
        weights = 4 * plan.width * n_candidates
        gradients = 2 * weights  # those of the weights, and those of the dual point
        # weights, linear terms, these with a ridge, what they are made of, and a copy of weights for scores
        own = 5 * 8 * plan.width * moved
        assert plan.chunk_bytes + weights + gradients + own <= plan.free_bytes


#: Rows of 20 numbers and words in 2^18 buckets, 15 classes, log loss.
MIXED = Size(
    n_samples=400_000, n_features=1 << 18, n_classes=15, nnz=36_700_000, n_shards=7, width=16, itemsize=4,
    tol=1e-3, largest_shard=6_000_000, n_kept=14, n_beside=16,
)  # fmt: skip


def test_centred_columns_take_memory_of_chunks_but_none_of_passes():
    """Passes read columns as they are; with what 16 centred ones take a shard was cut into four parts."""
    sizes = [replace(MIXED, n_frequent=n) for n in (0, 16)]
    plain, centred = (plan_chunks(48_000_000, 2, 60_000, size) for size in sizes)
    assert plain.shard_parts == centred.shard_parts == 1
    assert centred.worker_bytes == plain.worker_bytes
    assert centred.n_chunks(8_000_000, 60) > 1.3 * plain.n_chunks(8_000_000, 60)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_columns_are_centred_beside_an_intercept_only(fit_intercept):
    dataset = Dataset.from_arrays(np.eye(40)[:, :4] + 1.0, np.arange(40) % 3)
    run = run_of(dataset, alpha=0.1, memory_limit=64_000_000, fit_intercept=fit_intercept)
    assert run.size == replace(run.task.size(1e-3), n_frequent=4 if fit_intercept else 0)
