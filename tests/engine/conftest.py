"""One cluster of processes for all tests of this folder, of as many workers as a test asks for."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from distributed import Client, LocalCluster

from bigmc.engine.dask import DaskEngine


@pytest.fixture(scope="session")
def cluster():
    options = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0, "threads_per_worker": 1}
    found = LocalCluster(n_workers=1, processes=True, **options)
    yield found
    with suppress(KeyError):  # LocalCluster may count out a killed worker twice while it closes
        found.close()


@pytest.fixture(scope="session")
def session_client(cluster):
    with Client(cluster, set_as_default=False) as found:
        yield found


@pytest.fixture
def client(cluster, session_client):
    """A client of a cluster with two workers at least."""
    grow(cluster, session_client, 2)
    return session_client


@pytest.fixture
def engine_of(cluster, session_client) -> Callable[[int], DaskEngine]:
    """Makes the engine of so many workers."""

    def make(n_workers: int) -> DaskEngine:
        grow(cluster, session_client, n_workers)
        return DaskEngine(session_client)

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
