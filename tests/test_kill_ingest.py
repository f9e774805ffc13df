"""Ingest killed with SIGKILL at its commit points and at any moment: the same command again completes it."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killing import ANY, child

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import BusyError
from bigmc.ingestion import job as job_module
from bigmc.store.verify import verify

pytestmark = pytest.mark.slow

N_ROWS = 4000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("kill") / "rows.csv"
    rows = (
        "bad row\n" if i % 997 == 500 else f"word{i % 90} and word{i % 7},{'xyz'[i % 3]}\n"
        for i in range(N_ROWS)
    )
    path.write_text("text,label\n" + "".join(rows))
    return path


def ingest(source: Path, to: Path) -> None:
    api.ingest(
        source,
        to,
        text="text",
        label="label",
        hash_bits=10,
        on_bad_row="quarantine",
        memory_limit="64MB",
        engine=ThreadEngine(1),
    )


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(job_module, "SMALLEST_PART", 1 << 15)
    monkeypatch.setattr(job_module, "ROWS_PER_PART", 1000)


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a dataset."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def uninterrupted(source, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "SMALLEST_PART", 1 << 15)
        patch.setattr(job_module, "ROWS_PER_PART", 1000)
        to = tmp_path_factory.mktemp("whole") / "d.bigmc"
        ingest(source, to)
    assert verify(to) == []
    return contents(to)


COMMITS = [(os, name) for name in ("replace", "rename", "fsync", "unlink", "rmdir")]
"""Calls that change what a reader or a rerun finds; pathlib and shutil make them through ``os`` too."""


def test_killed_at_every_commit_point(source, uninterrupted, tmp_path):
    status, counts = child(lambda: ingest(source, tmp_path / "whole.bigmc"), COMMITS)
    assert os.WIFEXITED(status)
    n_calls = counts[ANY]
    assert n_calls > 40
    stages = set()
    points = range(0, n_calls, max(1, n_calls // 12))
    for point in points:
        to = tmp_path / f"{point}.bigmc"
        status, _ = child(lambda to=to: ingest(source, to), COMMITS, (ANY, point + 1, "before"))
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        stages.add(("shards" if (to / "shards").exists() else "parts", (to / "manifest.json").exists()))
        ingest(source, to)
        assert contents(to) == uninterrupted
    assert {("parts", False), ("shards", False)} <= stages
    assert len(points) >= 10


def test_killed_again_and_again_on_one_target(source, uninterrupted, tmp_path):
    to = tmp_path / "d.bigmc"
    for life in range(8):
        status, _ = child(lambda: ingest(source, to), COMMITS, (ANY, 1 + (5 << life), "before"))
        if os.WIFEXITED(status):
            break
    assert life >= 3
    ingest(source, to)
    assert contents(to) == uninterrupted


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.2, 0.35])
def test_killed_at_any_moment(seconds, source, uninterrupted, tmp_path):
    to = tmp_path / "d.bigmc"
    child(lambda: ingest(source, to), COMMITS, after_seconds=seconds)
    ingest(source, to)
    assert contents(to) == uninterrupted
    assert verify(to) == []


def test_rerun_after_success_touches_nothing(source, uninterrupted, tmp_path):
    to = tmp_path / "d.bigmc"
    ingest(source, to)
    before = {path: path.stat().st_mtime_ns for path in [to, *to.rglob("*")]}
    ingest(source, to)
    assert {path: path.stat().st_mtime_ns for path in [to, *to.rglob("*")]} == before
    assert contents(to) == uninterrupted


def test_another_memory_limit_or_number_of_threads_continues(source, tmp_path):
    """What a part holds may then be cut into other shards; rows, labels and splits are the same."""
    to = tmp_path / "d.bigmc"
    child(lambda: ingest(source, to), COMMITS, (ANY, 61, "before"))
    dataset = api.ingest(
        source, to, text="text", label="label", hash_bits=10, on_bad_row="quarantine", memory_limit="300MB"
    )
    assert dataset.n_samples == N_ROWS - 4


def test_second_process_refuses(source, tmp_path, uninterrupted):
    """Two at once: the first holds the lock inside its run, the second says so and exits with 1."""
    to = tmp_path / "d.bigmc"
    started, stop = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write = job_module.Job.run_parts

            def wait_then_write(self, *args):
                os.write(started[1], b"1")
                os.read(stop[0], 1)
                return write(self, *args)

            job_module.Job.run_parts = wait_then_write
            ingest(source, to)
        finally:
            os._exit(0)
    os.read(started[0], 1)
    with pytest.raises(BusyError, match="another process"):
        ingest(source, to)
    command = "ingest rows.csv --text text --label label --hash-bits 10 --on-bad-row quarantine --memory 64MB"
    second = subprocess.run(
        [sys.executable, "-m", "bigmc", *command.split(), "--to", to],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    os.write(stop[1], b"1")
    os.waitpid(pid, 0)
    assert second.returncode == 1
    assert "another process is writing" in second.stderr.splitlines()[-1]
    assert contents(to) == uninterrupted
