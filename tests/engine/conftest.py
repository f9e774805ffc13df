"""One cluster of processes for all tests of this folder, of as many workers as a test asks for; and data."""

from collections.abc import Callable
from contextlib import suppress

import dask
import numpy as np
import pytest
import scipy.sparse
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

import bigmc
from bigmc.engine.dask import DaskEngine


@pytest.fixture(scope="package", autouse=True)
def forked_workers():
    """Fork workers from a process that has imported what they need: it takes longer than most tests."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        learners = (
            "bigmc.api",
            "bigmc.estimators",
            "bigmc.ingestion",
            "bigmc.inference.evaluation.evaluate",
            "bigmc.inference.predict",
        )
        get_mp_context().set_forkserver_preload(["distributed", *learners])
        yield


@pytest.fixture(scope="package")
def cluster(forked_workers):
    """Return a cluster whose killed workers are replaced however often they are killed.

    Some seconds after a worker was lost, LocalCluster looks whether one of its name is there. If that one was
    just killed too, it closes what would have started the next, and there are no workers ever again.
    """
    options = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "memory_limit": 0,
        "threads_per_worker": 1,
    }
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}):
        found = LocalCluster(n_workers=1, processes=True, **options)
        yield found
    with suppress(KeyError):  # LocalCluster may count out a killed worker twice while it closes
        found.close()


@pytest.fixture(scope="package")
def one_client(cluster):
    found = Client(cluster, set_as_default=False)
    yield found
    with suppress(RuntimeError):  # the event loop of a cluster that lost its workers may have ended
        found.close()


@pytest.fixture
def client(cluster, one_client):
    """A client of a cluster with two workers at least."""
    grow(cluster, one_client, 2)
    return one_client


@pytest.fixture
def engine_of(cluster, one_client) -> Callable[[int], DaskEngine]:
    """Makes the engine of so many workers."""

    def make(n_workers: int) -> DaskEngine:
        grow(cluster, one_client, n_workers)
        return DaskEngine(one_client)

    return make


def grow(cluster, client, n_workers):
    """Have so many workers; after a kill that a nanny did not survive, new ones."""
    for seconds in (10, 60):
        if len(cluster.workers) != n_workers:
            cluster.scale(n_workers)
        try:
            client.wait_for_workers(n_workers, timeout=seconds)
        except TimeoutError:
            cluster.scale(0)
        else:
            return
    raise TimeoutError("the cluster does not start")


@pytest.fixture(scope="package")
def counts(tmp_path_factory):
    """A dataset of 20,000 rows in ten shards or more, whose entries do not fit into 3 MB."""
    generator = np.random.default_rng(0)
    parts = [scipy.sparse.random(20_000, d, p, rng=generator) for d, p in ((20, 0.6), (200, 0.03))]
    X = scipy.sparse.hstack(parts, format="csr")
    X.data = np.ones(X.nnz, np.int8)
    y = np.argmax(X[:, :20] @ generator.standard_normal((20, 6)) + generator.gumbel(size=(20_000, 6)), axis=1)
    folder = tmp_path_factory.mktemp("counts") / "x.bigmc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bigmc.ingestion.writing.shard_placement.plan_merges",
            lambda shards: [[i] for i in range(len(shards))],
        )
        patch.setattr("bigmc.ingestion.job.SMALLEST_PART", 1 << 12)
        patch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 2000)
        bigmc.ingest(X, folder, label=y)
    return folder


@pytest.fixture
def tiny_limits(monkeypatch):
    """Let a memory limit be smaller than any real one, so that little data does not fit."""
    monkeypatch.setattr("bigmc.budget.SMALLEST_LIMIT", 1_000_000)
    monkeypatch.setattr("bigmc.inference.memory.FIXED_COST", 0)
    monkeypatch.setattr("bigmc.inference.memory.SMALLEST_SCRATCH", 1 << 18)
