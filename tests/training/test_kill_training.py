"""Training killed with SIGKILL anywhere: the same command again ends with the same model, byte for byte."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from killing import child

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import BusyError
from bigmc.learners import sparse
from bigmc.solvers.sparse.chunks import rounds as chunk_rounds
from bigmc.solvers.sparse.chunks.certificate import Certifier
from bigmc.solvers.sparse.working_set.rounds import Rounds

pytestmark = pytest.mark.slow

COMMITS = ("replace", "fsync", "unlink")
"""Calls that change what a rerun finds; pathlib and shutil make them through ``os`` too."""

STEPS = {
    "in memory": ((Rounds, "certify"), (Rounds, "improve")),
    "in chunks": ((Certifier, "certify"), (chunk_rounds, "improve")),
}
"""A full pass over the data, and what is between two of them."""

WATCH = [
    *((os, name) for name in COMMITS),
    *(step for steps in STEPS.values() for step in steps),
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = (rng.random((700, 120)) < 0.08) * rng.normal(size=(700, 120))
    y = np.argmax(X @ rng.normal(size=(120, 4)) + rng.normal(size=(700, 4)), axis=1)
    path = tmp_path_factory.mktemp("kill") / "d.bigmc"
    api.ingest(X, path, label=y, split={"train": 1.0}, memory_limit="200MB")
    return path


@pytest.fixture(params=STEPS)
def steps(request, monkeypatch):
    """Names of the pass, and of what is between two of them."""
    if request.param == "in chunks":
        solve = sparse.solve
        monkeypatch.setattr(sparse, "solve", lambda run, start: solve(run, start, chunk_bytes=70_000))
    return [name for _, name in STEPS[request.param]]


def train(dataset: Path, to: Path) -> dict:
    return api.train("sparse", dataset, to, alpha=8e-2, tol=1e-7, memory_limit="64MB", engine=ThreadEngine(1))


@pytest.fixture
def uninterrupted(steps, dataset, tmp_path):
    train(dataset, tmp_path / "warm.model")  # compiles what is not compiled yet, which replaces files
    to = tmp_path / "whole.model"
    status, counts = child(lambda: train(dataset, to), WATCH)
    assert os.WIFEXITED(status)
    assert counts[steps[0]] >= 3, "too few passes to be killed in"
    return to.read_bytes(), counts


@pytest.mark.exhaustive(keep=1)
def test_killed_anywhere(steps, uninterrupted, dataset, tmp_path):
    expected, counts = uninterrupted
    points = [
        (name, k, when)
        for name in ("replace", "unlink", *steps)  # a kill around a sync leaves what one of these does
        for k in sorted({1, counts.get(name, 0) // 2, counts.get(name, 0)})
        for when in (("before",) if name in steps else ("before", "after"))  # steps change nothing on disk
        if 1 <= k <= counts.get(name, 0)
    ]
    assert len(points) >= 10
    resumed = 0
    for number, point in enumerate(points):
        to = tmp_path / f"{number}.model"
        status, _ = child(lambda to=to: train(dataset, to), WATCH, point)
        assert os.WIFSIGNALED(status), point
        assert os.WTERMSIG(status) == signal.SIGKILL
        resumed += (tmp_path / f"{number}.model.wip" / "checkpoint.npz").exists()
        result = train(dataset, to)
        assert to.read_bytes() == expected, point
        assert result["converged"]
        left = {path.name for path in tmp_path.glob(f"*{number}.model*")}
        assert left == {f"{number}.model"}, point
    assert resumed >= len(points) // 2


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize("seconds", [0.005, 0.03, 0.06, 0.1])
def test_killed_at_any_moment(seconds, uninterrupted, dataset, tmp_path):
    to = tmp_path / "m.model"
    child(lambda: train(dataset, to), WATCH, after_seconds=seconds)
    train(dataset, to)
    assert to.read_bytes() == uninterrupted[0]


def test_killed_in_every_pass_of_one_training(steps, uninterrupted, dataset, tmp_path):
    """Each life makes one round, saves its state, and dies in the pass after it."""
    expected, counts = uninterrupted
    to = tmp_path / "m.model"
    lives = 0
    for _ in range(counts[steps[0]] + 2):
        status, _ = child(lambda: train(dataset, to), WATCH, (steps[0], 2, "before"))
        if os.WIFEXITED(status):
            break
        lives += 1
    assert lives >= 2
    assert to.read_bytes() == expected


def test_rerun_after_success_touches_nothing(dataset, tmp_path):
    to = tmp_path / "m.model"
    first = train(dataset, to)
    before = to.stat().st_mtime_ns
    status, counts = child(lambda: train(dataset, to), WATCH)
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 0
    assert counts == {}
    again = train(dataset, to)
    assert to.stat().st_mtime_ns == before
    assert {name: again[name] for name in ("objective", "certificate", "n_iter", "n_passes")} == {
        name: first[name] for name in ("objective", "certificate", "n_iter", "n_passes")
    }


def test_second_process_refuses(dataset, tmp_path):
    to = tmp_path / "m.model"
    started, stop = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            certify = Rounds.certify

            def wait(self):
                os.write(started[1], b"1")
                os.read(stop[0], 1)
                Rounds.certify = certify
                return certify(self)

            Rounds.certify = wait
            train(dataset, to)
        finally:
            os._exit(0)
    os.read(started[0], 1)
    with pytest.raises(BusyError, match="another process"):
        train(dataset, to)
    second = subprocess.run(
        [sys.executable, "-m", "bigmc", "train", "sparse", dataset, "--to", to, "--memory", "64MB"],
        env={**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    os.write(stop[1], b"1")
    os.waitpid(pid, 0)
    assert second.returncode == 1
    assert f"another process is writing {to} (" in second.stderr.splitlines()[-1]
    train(dataset, to)
    assert list(tmp_path.iterdir()) == [to]
