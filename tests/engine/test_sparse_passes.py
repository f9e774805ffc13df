"""The passes of the sparse learner over samples that do not fit: workers add up what threads do."""

import numpy as np
import pytest

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.sampled.passes import Job, full_pass

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    ("loss", "weighted"),
    [
        ("squared_hinge", False),
        ("squared_hinge", True),
        ("log_loss", True),
        ("multitask_squared_hinge", True),
        ("huber_hinge", False),
    ],
)
def test_a_pass_over_the_shards_gives_the_same_bits(engine_of, tmp_path, monkeypatch, loss, weighted):
    monkeypatch.setattr(
        "bigmc.ingestion.writing.shard_placement.plan_merges",
        lambda entries: [[i] for i in range(len(entries))],
    )
    monkeypatch.setattr("bigmc.ingestion.job.SMALLEST_PART", 1 << 12)
    monkeypatch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 100)
    generator = np.random.default_rng(0)
    X = generator.integers(0, 3, (1200, 30)).astype(np.float64)
    y = generator.integers(0, 4, 1200)
    dataset = bigmc.ingest(X, tmp_path / "x.bigmc", label=y)
    assert dataset.n_shards > 4
    weights = generator.integers(0, 3, 1200).astype(float) if weighted else None
    features = np.arange(30)
    coef = Coefficients(features, np.zeros((30, 8)))
    coef.rows[:, :4] = 0.1 * generator.standard_normal((30, 4))
    scales = (0.5, 1.0) if loss == "log_loss" else ()
    minimised, dtype = objective(loss, "l1/l2"), np.dtype(np.float64)
    job = Job(minimised, coef, np.zeros(4), features, dtype, 1 << 14, 10, scales)
    sums = 1200.0 if weights is None else weights.sum()
    threads = full_pass(dataset, job, weights, sums, ThreadEngine(2))
    workers = full_pass(dataset, job, weights, sums, engine_of(2))
    np.testing.assert_array_equal(workers.gradient, threads.gradient)
    np.testing.assert_array_equal(workers.curvature, threads.curvature)
    np.testing.assert_array_equal(workers.entropies.values, threads.entropies.values)
    assert len(workers.entropies.values) == len(scales)
