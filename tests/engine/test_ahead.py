"""The process that compiles while a first fit computes: when it starts, and that it ends with the fit."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import Popen

import pytest

import bigmc
from bigmc.api.warm import write_rows
from bigmc.engine import ThreadEngine, ahead, threads
from bigmc.kernels import compile_server

pytestmark = pytest.mark.slow

PROGRAM = """
import os, pathlib, subprocess, sys, time
import numpy as np
from bigmc.api.fitting import FIRST_FIT
from bigmc.engine import ThreadEngine, ahead, threads
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.kernels.csc import undo_delta

folder, end = pathlib.Path(sys.argv[1]), sys.argv[2]
started, start = [], subprocess.Popen
def noted(command, **options):
    process = start(command, **options)
    started.append((FIRST_FIT in command, process))
    return process
subprocess.Popen = noted
compile_elsewhere()
threads.available_cpus = lambda: {n_processors}
ahead.LOCKED = folder
with ahead.Ahead(ThreadEngine()) as compiling:
    compiling.expect(FIRST_FIT, {kinds}, {limit})
    undo_delta(np.array([1, 0, 2], np.uint16))
    others = [process for is_ahead, process in started if is_ahead]
    while others and not list(folder.glob("bigmc-first-fit-*")):
        assert others[0].poll() is None
        time.sleep(0.05)
    if end == "killed":
        print(others[0].pid, flush=True)
        os.kill(os.getpid(), 9)
print(len(others), [process.returncode is not None for process in others])
"""

ENOUGH = {"n_processors": 2, "limit": 2_000_000_000, "kinds": ["numbers"]}


def run(folder: Path, end: str, **given: object) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, whose kernels and temporary files are in a folder."""
    own = {"NUMBA_CACHE_DIR": str(folder / "kernels"), "TMPDIR": str(folder)}
    env = {**os.environ, **own, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}
    code = PROGRAM.format(**ENOUGH | given)
    return subprocess.run(
        [sys.executable, "-c", code, folder, end], env=env, capture_output=True, text=True, check=False
    )


def test_it_starts_where_a_kernel_is_missing_and_ends_with_the_fit(tmp_path: Path) -> None:
    first = run(tmp_path, "left")
    assert (first.stdout, first.stderr) == ("1 [True]\n", "")
    assert not list(tmp_path.glob("bigmc-first-fit-*"))
    assert run(tmp_path, "left").stdout == "0 []\n"  # the kernel is there now


@pytest.mark.parametrize(
    "given",
    [{"n_processors": 1}, {"limit": 1_999_999_999}, {"kinds": []}],
    ids=["one processor", "little memory", "nothing is known"],
)
def test_it_does_not_start(tmp_path: Path, given: dict[str, object]) -> None:
    assert run(tmp_path, "left", **given).stdout == "0 []\n"


def test_it_ends_after_a_kill_of_the_fit_and_leaves_no_files(tmp_path: Path) -> None:
    killed = run(tmp_path, "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ends = time.monotonic() + 60
    while Path(f"/proc/{int(killed.stdout)}").exists() or list(tmp_path.glob("bigmc-first-fit-*")):
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_it_does_not_start_beside_another(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert run(tmp_path, "left").stdout == "0 []\n"
    os.close(handle)


def test_a_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(threads, "available_cpus", lambda: 2)
    monkeypatch.setattr(ahead, "LOCKED", tmp_path)
    monkeypatch.setattr(ahead, "PATIENCE", 0.2)
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(Popen(*a, **k)) or started[-1])
    with ahead.Ahead(ThreadEngine(1)) as compiling:
        compiling.expect("http.server", ["--bind", "127.0.0.1", "0"], 2_000_000_000)
        compile_server.on_miss.pop()()
    assert [process.returncode for process in started] == [-signal.SIGKILL]


class Told(Exception):
    """What is expected is known; the fit need not go on."""


@pytest.mark.parametrize(
    ("columns", "kinds"),
    [
        ({"text": "text"}, ["texts"]),
        ({"dense": ["x", "y"], "text": "text"}, ["texts", "numbers"]),
        ({"date": "day"}, ["numbers"]),
    ],
)
def test_fits_say_of_what_kind_their_columns_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict[str, object], kinds: list[str]
) -> None:
    header, *lines = write_rows(tmp_path / "rows.csv").read_text().splitlines()
    dated = [f"{line},2026-11-{1 + i % 28:02}" for i, line in enumerate(lines)]
    rows, dataset = tmp_path / "dated.csv", tmp_path / "d.bigmc"
    rows.write_text("\n".join([f"{header},day", *dated]))
    bigmc.ingest(rows, dataset, label="label", memory_limit="200MB", **columns)

    def told(_: ahead.Ahead, *given: object) -> None:
        raise Told(*given)

    monkeypatch.setattr(ahead.Ahead, "expect", told)
    for source, options in ((rows, {"label": "label", **columns}), (dataset, {})):
        with pytest.raises(Told) as said:
            bigmc.fit(source, tmp_path / "m.model", memory_limit="200MB", **options)
        assert said.value.args == ("bigmc.api.first_fit", kinds, 200_000_000)
