"""How runs over chunks divide their memory."""

import pytest

from bigmc.budget import MemoryLimitError
from bigmc.solvers.sparse.chunks.plan import plan_chunks
from bigmc.solvers.sparse.memory_plan import Size

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
