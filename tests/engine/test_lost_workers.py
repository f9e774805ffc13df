"""Workers and schedulers that die in mid-run: nothing is lost, or one line says what and how to go on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from distributed import Client, LocalCluster

import bigmc
from bigmc.budget import MemoryLimitError
from bigmc.engine.dask import DaskEngine
from bigmc.errors import BigmcError

pytestmark = pytest.mark.slow

OPTIONS = {"C": 1e3, "n_rounds": 4, "tol": 1e-9, "memory_limit": "300MB"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with numbers on disk and in a file, and what undisturbed threads make of them."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    here = tmp_path_factory.mktemp("data")
    lines = [",".join([*(f"p{j}" for j in range(64)), "y"])]
    lines += [",".join(map(str, [*row.astype(int), label])) for row, label in zip(X, y, strict=True)]
    (here / "digits.csv").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        ingest(here, "threads.bigmc", None)
    bigmc.train("boost", here / "threads.bigmc", here / "boost.model", **OPTIONS)
    bigmc.train("mrc", here / "threads.bigmc", here / "mrc.model", tol=0.02, memory_limit="300MB")
    return here


def small_parts(monkeypatch):
    monkeypatch.setattr("bigmc.ingestion.job.SMALLEST_PART", 1 << 13)
    monkeypatch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 100)


def ingest(folder, to, engine, progress=lambda message: None):
    dense = [f"p{j}" for j in range(64)]
    bigmc.ingest(
        folder / "digits.csv", folder / to, dense=dense, label="y", memory_limit="300MB", engine=engine,
        progress=progress,
    )  # fmt: skip


class Killer:
    """A progress callback that kills workers at a stage of the run."""

    def __init__(self, client, at, victims):
        self.client, self.at, self.victims = client, at, victims
        self.killed = []

    def __call__(self, message):
        if not self.killed and message.stage != "scan" and message.done >= self.at:
            workers = sorted(self.client.run(os.getpid).values())
            self.killed = workers[: self.victims]
            for pid in self.killed:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("victims", [1, 2])  # one of two; all of them, and new ones start
def test_killed_workers_change_no_byte_of_a_dataset(folder, client, victims, monkeypatch):
    small_parts(monkeypatch)
    killer = Killer(client, 300, victims)
    ingest(folder, f"killed-{victims}.bigmc", DaskEngine(client), killer)
    assert len(killer.killed) == victims
    names = sorted(p.relative_to(folder / "threads.bigmc") for p in (folder / "threads.bigmc").rglob("*.*"))
    for name in names:
        here = folder / f"killed-{victims}.bigmc" / name
        assert here.is_dir() or here.read_bytes() == (folder / "threads.bigmc" / name).read_bytes(), name


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("learner", "victims", "at"), [("boost", 1, 2), ("boost", 2, 1), ("mrc", 2, 3)])
def test_killed_workers_change_no_bit_of_a_model(folder, client, learner, victims, at):
    options = OPTIONS if learner == "boost" else {"tol": 0.02, "memory_limit": "300MB"}
    killer = Killer(client, at, victims)
    to = folder / f"{learner}-{victims}.model"
    bigmc.train(learner, folder / "threads.bigmc", to, engine=client, progress=killer, **options)
    assert len(killer.killed) == victims
    assert to.read_bytes() == (folder / f"{learner}.model").read_bytes()


class Disturbed:
    """An engine to whose workers something happens when so many results have come."""

    def __init__(self, engine, at, disturb):
        self.engine, self.left, self.disturb = engine, at, disturb

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def at_most(self, n_threads):
        return self

    def prepared(self, prepare):
        self.engine = self.engine.prepared(prepare)
        return self

    def map(self, fn, parts, *shared):
        for found in self.engine.map(fn, parts, *shared):
            self.left -= 1
            if self.left == 0:
                self.disturb()
            yield found

    def reduce(self, fn, add, parts, *shared):
        """Disturb soon after the parts were given to the workers: their sums leave them at the end only."""
        if self.left > 0 >= self.left - len(parts):
            timer = threading.Timer(0.1, self.disturb)
            timer.start()
        self.left -= len(parts)
        return self.engine.reduce(fn, add, parts, *shared)


OUT_OF_CORE = {"alpha": 0.02, "memory_limit": "3MB"}


@pytest.fixture(scope="module")
def undisturbed():
    """What threads trained out of core, once there is one."""
    return {}


@pytest.fixture
def sparse(counts, tiny_limits, undisturbed, tmp_path):
    """Return what trains out of core while the workers are disturbed, and checks the bytes of the model."""
    if not undisturbed:
        bigmc.train("sparse", counts, tmp_path / "threads.model", **OUT_OF_CORE)
        undisturbed["model"] = (tmp_path / "threads.model").read_bytes()

    def train(client, at, disturb):
        engine = Disturbed(DaskEngine(client), at, disturb)
        bigmc.train("sparse", counts, tmp_path / "disturbed.model", engine=engine, **OUT_OF_CORE)
        assert engine.left < 0
        assert (tmp_path / "disturbed.model").read_bytes() == undisturbed["model"]

    return train


def signalled(client, number, victims):
    """Send a signal to some of the workers; return their processes."""
    workers = sorted(client.run(os.getpid).values())[:victims]
    for pid in workers:
        os.kill(pid, number)
    return workers


def test_a_killed_worker_changes_no_bit_of_a_sparse_model(sparse, client):
    killed = []
    sparse(client, 13, lambda: killed.extend(signalled(client, signal.SIGKILL, 1)))
    assert len(killed) == 1


def test_a_slow_worker_changes_no_bit(sparse, client):
    went_on = []

    def slow():
        (pid,) = signalled(client, signal.SIGSTOP, 1)
        threading.Timer(1.0, lambda: (went_on.append(pid), os.kill(pid, signal.SIGCONT))).start()

    sparse(client, 13, slow)
    assert len(went_on) == 1


def test_a_worker_that_hangs_is_given_up(sparse, cluster, client, monkeypatch):
    """Dask takes a worker that is silent for its ``worker-ttl``, five minutes, for lost."""
    monkeypatch.setattr(cluster.scheduler, "worker_ttl", 2.0)
    monkeypatch.setattr("distributed.scheduler.heartbeat_interval", lambda n: 0.1)
    look = threading.Timer(3.0, lambda: cluster.sync(cluster.scheduler.check_worker_ttl))
    hung = []

    def hang():
        hung.extend(signalled(client, signal.SIGSTOP, 1))
        look.start()

    sparse(client, 13, hang)
    look.join()
    assert hung[0] not in client.run(os.getpid).values()


def test_a_cluster_without_workers_is_waited_for_and_then_told(cluster, client, monkeypatch):
    monkeypatch.setattr("bigmc.engine.dask.DESERTED_SECONDS", 0.5)
    monkeypatch.setattr("bigmc.engine.dask.LOOK_SECONDS", 0.1)
    results = DaskEngine(client).map(wait_a_little, range(100))
    next(results)
    cluster.scale(0)
    with pytest.raises(BigmcError, match="no workers for 0 seconds; start some, then run the same command"):
        list(results)
    with pytest.raises(BigmcError, match="has no workers"):
        DaskEngine(client)


def test_waits_that_end_while_results_are_fetched_lose_none(cluster, client, monkeypatch):
    """Dask never fetches again if a wait for a result is over between its arrival and the first step."""
    monkeypatch.setattr("bigmc.engine.dask.LOOK_SECONDS", 0.003)
    engine, ends = DaskEngine(client), time.monotonic() + 60.0

    def looks():  # at every end of a wait
        assert time.monotonic() < ends, "results do not come any more"
        return DaskEngine._workers(engine)

    monkeypatch.setattr(engine, "_workers", looks)
    assert list(engine.map(wait_briefly, range(400))) == [(part, part) for part in range(400)]


def wait_briefly(part):
    time.sleep(0.002 * (part % 5))
    return part


def wait_a_little(part):
    time.sleep(0.1)
    return part


def take_all(part):
    kept = []
    while True:
        kept.append(np.ones(2_000_000))
        time.sleep(0.02)


def test_a_worker_over_its_memory(folder):
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "threads_per_worker": 1}
    with LocalCluster(n_workers=1, memory_limit="500MB", **options) as small, Client(small) as client:
        small.scheduler.allowed_failures = 0  # a restart takes seconds, and four of them no more is learned
        with pytest.raises(MemoryLimitError, match=r"leaves 30 MB .* --memory-limit"):
            bigmc.evaluate(
                folder / "boost.model", folder / "threads.bigmc", memory_limit="300MB", engine=client
            )
        with pytest.raises(BigmcError, match=r"part 0 \(take_all\) ended 1 process.*give a smaller --memory"):
            list(DaskEngine(client).map(take_all, range(1)))


class Cluster:
    """A scheduler and a worker in processes of their own, as the commands of Dask start them."""

    def __init__(self, file):
        start = [sys.executable, "-m"]
        common = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        file.unlink(missing_ok=True)
        self.scheduler = subprocess.Popen(
            [*start, "distributed.cli.dask_scheduler", "--port", "0", *common], **quiet
        )
        while not file.exists():
            time.sleep(0.05)
        self.worker = subprocess.Popen(
            [*start, "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "2", *common], **quiet
        )
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(1, timeout=300)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in (self.worker, self.scheduler):
            process.kill()
            process.wait()


@pytest.mark.exhaustive
def test_a_lost_scheduler_is_told_in_one_line_and_the_same_command_goes_on(folder, tmp_path):
    file, model = tmp_path / "scheduler.json", tmp_path / "gone.model"
    options = ["--C", "1e3", "--rounds", "4", "--tol", "1e-9", "--memory", "300MB", "--json"]
    command = [
        sys.executable,
        "-m",
        "bigmc",
        "train",
        "boost",
        str(folder / "threads.bigmc"),
        "--to",
        str(model),
    ]
    command += [*options, "--scheduler-file", str(file)]
    with Cluster(file) as cluster:
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not (tmp_path / "gone.model.wip" / "checkpoint.npz").exists():
            assert run.poll() is None
            time.sleep(0.005)
        cluster.scheduler.kill()
        said, complaint = run.communicate(timeout=300)
    assert run.returncode == 1
    assert not said
    told = [line for line in complaint.splitlines() if not line.startswith("train: ")]
    assert len(told) == 1
    assert told[0].startswith("bigmc: the connection to the Dask scheduler at tcp://127.0.0.1:")
    assert told[0].endswith("run the same command again, it continues")
    assert not model.exists()
    with Cluster(file):
        again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert model.read_bytes() == (folder / "boost.model").read_bytes()
    assert json.loads(again.stdout)["tasks"] > 0


@pytest.mark.exhaustive
def test_the_address_of_a_lost_scheduler_is_told_later_too(tmp_path):
    """When its client has given up, and forgotten the address."""
    file = tmp_path / "scheduler.json"
    with Cluster(file) as cluster, DaskEngine(file) as engine:
        address = json.loads(file.read_text())["address"]
        cluster.scheduler.kill()
        while engine._client.scheduler is not None:
            time.sleep(0.05)
        with pytest.raises(BigmcError, match=f"the Dask scheduler at {address} is lost"):
            list(engine.map(abs, range(2)))
