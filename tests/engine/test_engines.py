"""Every engine keeps the same contract; what is run stands at module level, as a cluster asks for."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from distributed import Client, LocalCluster

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.engine.dask import DaskEngine
from bigmc.errors import BigmcError
from bigmc.solvers import solve_minimax


def double(part, offset):
    time.sleep(0.02 * (part % 3))
    return 2 * part + offset


def fail_at(part, bad, exception):
    if part == bad:
        raise exception(f"part {part}")
    return part


def touch(part, folder):
    (folder / str(part)).touch()
    return part


def wait_for(part, folder):
    """Tell that a worker has the part, and go on once the file ``go`` is there."""
    (folder / f"{part}.{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return part


@pytest.fixture(scope="module")
def cluster():
    options = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0, "threads_per_worker": 1}
    with LocalCluster(n_workers=2, processes=True, **options) as found:
        yield found


@pytest.fixture
def client(cluster):
    with Client(cluster, set_as_default=False) as found:
        found.wait_for_workers(2, timeout=30)
        yield found


class EngineContract:
    @pytest.fixture
    def engine(self):
        raise NotImplementedError

    def test_results_come_in_the_order_of_the_parts(self, engine):
        assert list(engine.map(double, range(9), 1)) == [(p, 2 * p + 1) for p in range(9)]

    def test_no_parts_no_results(self, engine):
        assert list(engine.map(double, [], 1)) == []

    def test_the_first_error_is_raised_when_its_turn_comes(self, engine):
        results = engine.map(fail_at, range(20), 4, BigmcError)
        assert [next(results)[0] for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(BigmcError, match="part 4"):
            next(results)

    def test_parts_are_not_started_far_ahead_of_the_reader(self, engine, tmp_path):
        results = engine.map(touch, range(60), tmp_path)
        next(results)
        time.sleep(0.2)
        assert len(list(tmp_path.iterdir())) <= 2 * engine.n_workers + 2
        results.close()

    def test_it_has_workers(self, engine):
        assert engine.n_workers == 2


class TestThreadEngine(EngineContract):
    @pytest.fixture
    def engine(self):
        return ThreadEngine(2)


class TestDaskEngine(EngineContract):
    @pytest.fixture
    def engine(self, client):
        return DaskEngine(client)

    def test_a_client_of_the_caller_stays_open(self, client):
        with DaskEngine(client) as engine:
            list(engine.map(double, range(2), 0))
        assert client.status == "running"

    def test_an_address(self, cluster):
        with DaskEngine(cluster.scheduler_address) as engine:
            assert list(engine.map(double, range(3), 5)) == [(0, 5), (1, 7), (2, 9)]

    def test_an_address_where_nobody_answers(self, monkeypatch):
        monkeypatch.setattr("bigmc.engine.dask._TIMEOUT", 0.3)
        with pytest.raises(BigmcError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
            DaskEngine("tcp://127.0.0.1:9")

    def test_a_lost_worker_costs_a_computation_only(self, client, tmp_path):
        found = []
        engine = DaskEngine(client)
        run = threading.Thread(target=lambda: found.extend(engine.map(wait_for, range(6), tmp_path)))
        run.start()
        while not (running := list(tmp_path.glob("0.*"))):
            time.sleep(0.01)
        os.kill(int(running[0].suffix[1:]), signal.SIGKILL)
        (tmp_path / "go").touch()
        run.join(60)
        assert found == [(p, p) for p in range(6)]
        assert len(list(tmp_path.glob("0.*"))) == 2


@pytest.fixture(scope="module")
def digits_on_disk(tmp_path_factory):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    target = tmp_path_factory.mktemp("data") / "digits.bigmc"
    dataset = bigmc.ingest(X[:600] / 16, target, label=y[:600], split={"a": 0.5, "b": 0.5})
    return dataset


def test_a_cluster_gives_the_model_that_threads_give(digits_on_disk, client):
    options = {"fit_intercept": False, "tol": 1e-4, "memory_limit": 400_000_000}
    threads = solve_minimax(digits_on_disk, **options)
    workers = solve_minimax(digits_on_disk, **options, engine=DaskEngine(client))
    assert digits_on_disk.n_shards > 1
    assert workers.certificate.upper == pytest.approx(threads.certificate.upper, abs=1e-9)
    np.testing.assert_array_equal(workers.weights.coef, threads.weights.coef)
    assert workers.history == threads.history


def test_a_worker_killed_in_training_changes_nothing(digits_on_disk, client):
    options = {"fit_intercept": False, "tol": 1e-4, "memory_limit": 400_000_000}
    undisturbed = solve_minimax(digits_on_disk, **options)
    killed = []

    def kill(progress):
        if progress.done == 3:
            killed.append(min(worker["pid"] for worker in client.run(_process).values()))
            os.kill(killed[0], signal.SIGKILL)

    disturbed = solve_minimax(digits_on_disk, **options, engine=DaskEngine(client), progress=kill)
    assert killed
    assert disturbed.history == undisturbed.history
    np.testing.assert_array_equal(disturbed.weights.coef, undisturbed.weights.coef)


def _process():
    return {"pid": os.getpid()}
