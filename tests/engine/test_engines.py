"""Every engine keeps the same contract; what is run stands at module level, as a cluster asks for."""

import importlib
import os
import signal
import threading
import time

import numpy as np
import pytest
from distributed import Future
from sklearn.base import clone

import bigmc
from bigmc.budget import MemoryLimitError, resolve_limit
from bigmc.engine import ThreadEngine, opened
from bigmc.engine.dask import DaskEngine
from bigmc.errors import BigmcError

pytestmark = pytest.mark.slow


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


def count_running(part, folder):
    """Return how many parts of this process ran at some moment of this one."""
    mine = folder / f"{os.getpid()}.{part}"
    mine.touch()
    time.sleep(0.05)
    running = len(list(folder.glob(f"{os.getpid()}.*")))
    mine.unlink()
    return running


def process_of(part):
    return os.getpid()


def wait_for(part, folder):
    """Tell that a worker has the part, and go on once the file ``go`` is there."""
    (folder / f"{part}.{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return part


def powers_of(part, base):
    """Return numbers of many sizes, whose sum depends on the order of the additions."""
    return np.array([1.1 * base**part, 1.0 / (part + 1)])


def add_in_place(total, other):
    total += other
    return total


def held_up(part, folder):
    """Tell who ran the part; the last one waits for the file ``go``."""
    (folder / f"{part}.{os.getpid()}").touch()
    while part == 3 and not (folder / "go").exists():
        time.sleep(0.01)
    return np.array([1.0 + part])


def refuse(part):
    raise MemoryLimitError("too little", "give more")


def ones(part, n):
    return np.ones(n)


def rest(part):
    time.sleep(0.3)


def large(part):
    return bytes(2 << 20)


def length(part, data):
    return len(data)


def read_file(path):
    return path.read_bytes()


def preparation():
    os.environ["BIGMC_TEST"] = f"prepared {int(os.environ.get('BIGMC_TEST', ' 0').split()[-1]) + 1}"


def environment(part):
    return os.environ.get("BIGMC_TEST")


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
        assert len(list(tmp_path.iterdir())) <= 4 * engine.n_workers + 2
        results.close()

    @pytest.mark.parametrize("n_parts", [1, 8, 9, 30])
    def test_parts_are_added_up_in_groups_of_eight(self, engine, n_parts):
        groups = []
        for lo in range(0, n_parts, 8):
            group = powers_of(lo, 7.0)
            for part in range(lo + 1, min(lo + 8, n_parts)):
                group = group + powers_of(part, 7.0)
            groups.append(group)
        expected = groups[0]
        for group in groups[1:]:
            expected = expected + group
        found = engine.reduce(powers_of, add_in_place, range(n_parts), 7.0)
        np.testing.assert_array_equal(found, expected)

    def test_an_error_of_a_part_is_that_of_the_sum(self, engine):
        with pytest.raises(BigmcError, match="part 11"):
            engine.reduce(fail_at, add_in_place, range(20), 11, BigmcError)

    def test_nothing_to_add_up(self, engine):
        with pytest.raises(ValueError, match="nothing to add up"):
            engine.reduce(double, add_in_place, [], 1)

    def test_it_has_workers(self, engine):
        assert engine.n_workers == 2

    def test_parts_of_one_process_can_be_limited(self, engine, tmp_path):
        limited = engine.at_most(1)
        assert limited.n_threads == 1
        assert {running for _, running in limited.map(count_running, range(6), tmp_path)} == {1}
        assert engine.n_workers == 2

    def test_it_shares_memory_or_says_that_it_does_not(self, engine):
        processes = {pid for _, pid in engine.map(process_of, range(4))}
        assert (processes == {os.getpid()}) == engine.shares_memory

    def test_an_error_of_memory_keeps_its_cure(self, engine):
        with pytest.raises(MemoryLimitError, match="too little; give more"):
            list(engine.map(refuse, range(2)))

    def test_it_is_an_engine_for_every_function(self, engine):
        with opened(engine) as found:
            assert [r for _, r in found.map(double, range(2), 0)] == [0, 2]
        assert list(engine.map(double, range(2), 0)) == [(0, 0), (1, 2)]  # still open

    def test_an_estimator_with_it_can_be_cloned(self, engine):
        assert clone(bigmc.MinimaxRiskClassifier(engine=engine)).engine is not None


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
        with opened(cluster.scheduler_address) as engine:
            assert list(engine.map(double, range(3), 5)) == [(0, 5), (1, 7), (2, 9)]

    def test_a_client(self, client):
        with opened(client) as engine:
            assert list(engine.map(double, range(3), 5)) == [(0, 5), (1, 7), (2, 9)]
        assert client.status == "running"

    def test_what_went_over_the_network_is_counted(self, engine):
        large = bytes(1_000_000)
        assert [n for _, n in engine.map(length, range(5), large)] == [1_000_000] * 5
        usage = engine.usage()
        assert usage["tasks"] == 5
        assert 1_000_000 < usage["bytes_moved"] < 2_010_000  # once to each worker that had a part

    def test_one_sum_leaves_the_workers(self, engine):
        before = engine.usage()["bytes_moved"]
        total = engine.reduce(ones, add_in_place, range(20), 100_000)
        np.testing.assert_array_equal(total, np.full(100_000, 20.0))
        assert 800_000 < engine.usage()["bytes_moved"] - before < 900_000

    def test_short_parts_share_tasks(self, engine):
        before = engine.usage()["tasks"]
        assert [r for _, r in engine.map(length, range(300), b"four")] == [4] * 300
        assert engine.usage()["tasks"] - before < 100
        seen, results = [], engine.map(fail_at, range(300), 250, ValueError)
        with pytest.raises(ValueError, match="part 250"):
            seen.extend(part for part, _ in results)
        assert seen == [*range(250)]

    def test_long_parts_and_large_results_do_not(self, engine):
        for fn, n in ((rest, 10), (large, 30)):
            before = engine.usage()["tasks"]
            assert [part for part, _ in engine.map(fn, range(n))] == [*range(n)]
            assert engine.usage()["tasks"] - before == n

    def test_a_function_that_fills_an_array_of_this_process_is_refused(self, engine):
        filled = []
        with pytest.raises((AttributeError, TypeError), match="pickle"):
            list(engine.map(lambda part: filled.append(part), range(2)))

    def test_a_file_that_workers_do_not_see_is_named(self, engine, tmp_path):
        with pytest.raises(BigmcError, match=r"the worker at .* cannot find .*absent; put data"):
            list(engine.map(read_file, [tmp_path / "absent"]))

    def test_a_package_that_workers_do_not_have_is_named(self, engine, tmp_path, monkeypatch):
        (tmp_path / "only_here.py").write_text("def fn(part):\n    return part\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(BigmcError, match=r"No module named 'only_here'\); install the same bigmc"):
            list(engine.map(importlib.import_module("only_here").fn, range(2)))

    def test_workers_are_prepared_once_for_a_map(self, engine, monkeypatch):
        prepared = engine.prepared(preparation)
        assert {r for _, r in prepared.map(environment, range(4))} == {"prepared 1"}

    def test_a_scheduler_file_that_is_not_there(self, tmp_path, monkeypatch):
        monkeypatch.setattr("bigmc.engine.dask.CONNECT_SECONDS", 0.3)
        with pytest.raises(BigmcError, match="there is no scheduler file"), opened(tmp_path / "s.json"):
            pass

    def test_an_address_where_nobody_answers(self, monkeypatch):
        monkeypatch.setattr("bigmc.engine.dask.CONNECT_SECONDS", 0.3)
        with pytest.raises(BigmcError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
            DaskEngine("tcp://127.0.0.1:9")

    @pytest.mark.parametrize("answer", [{}, {"type": "Scheduler"}])
    def test_a_scheduler_that_went_before_it_said_anything(self, client, answer, monkeypatch):
        """Its client then knows nothing, not even that there are no workers."""
        monkeypatch.setattr(client, "scheduler_info", lambda **_: answer)
        with pytest.raises(BigmcError, match=r"the connection to the Dask scheduler at .* is lost"):
            DaskEngine(client)

    @pytest.mark.parametrize("no_answer", [TimeoutError, UnboundLocalError])
    def test_an_error_that_arrives_just_as_a_wait_for_it_ends(self, no_answer, engine, monkeypatch):
        result, waits = Future.result, []

        def too_late(future, timeout):
            waits.append(timeout)
            if len(waits) > 1:
                return result(future, timeout)
            while future.status == "pending":
                time.sleep(0.01)
            raise no_answer(f"timed out after {timeout} s.")

        monkeypatch.setattr(Future, "result", too_late)
        with pytest.raises(ValueError, match="part 0"):
            list(engine.map(fail_at, range(1), 0, ValueError))
        with pytest.raises(no_answer, match="part 0"):  # the error of the part
            list(engine.map(fail_at, range(1), 0, no_answer))

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

    def test_sums_of_a_lost_worker_are_computed_again(self, client, tmp_path):
        found, engine = [], DaskEngine(client)
        run = threading.Thread(
            target=lambda: found.append(engine.reduce(held_up, add_in_place, range(4), tmp_path))
        )
        run.start()
        while len(list(tmp_path.iterdir())) < 4:
            time.sleep(0.01)
        (waits,) = (int(path.suffix[1:]) for path in tmp_path.glob("3.*"))
        has_results = next(pid for pid in client.run(os.getpid).values() if pid != waits)
        os.kill(has_results, signal.SIGKILL)
        (tmp_path / "go").touch()
        run.join(60)
        np.testing.assert_array_equal(found, [[10.0]])


@pytest.mark.parametrize("engine", [3, object(), [ThreadEngine(1)]])
def test_anything_else_is_no_engine(engine):
    with (
        pytest.raises(BigmcError, match="give an Engine, a distributed"),
        opened(engine),
    ):
        pass


def test_the_limit_fits_into_the_workers():
    gigabyte = 10**9
    assert resolve_limit(None, 2 * gigabyte) == 1_230_000_000
    assert resolve_limit("1GB", 2 * gigabyte) == gigabyte
    with pytest.raises(MemoryLimitError, match=r"leaves 1.23 GB .* --memory-limit 2338MB"):
        resolve_limit("1500MB", 2 * gigabyte)
    with pytest.raises(MemoryLimitError, match=r"killed at 400 MB, which leaves 0 B"):
        resolve_limit(None, 400 * 10**6)
