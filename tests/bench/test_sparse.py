"""The benchmark of the sparse learner runs, and its figures are those of the weights."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, BENCH / "sparse_race.py", "--problems", "digits", "--folder", folder]
    command += [
        "--methods",
        "bigmc",
        "sparsa",
        "sgd-3",
        "lightning",
        "--repeat",
        "2",
        "--to",
        folder / "lines",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return [json.loads(line) for line in (folder / "lines").read_text().splitlines()]


@pytest.mark.exhaustive
def test_methods_of_one_objective_meet(lines):
    runs = {(run["method"], run["seed"]): run for run in lines if "trace" in run}
    assert set(runs) == {("bigmc", 0), ("bigmc", 1), ("sparsa", 0), ("sgd-3", 0), ("sgd-3", 1)}
    for (method, _), run in runs.items():
        assert run["accuracy"] > 0.8
        if method != "sgd-3":
            assert -1e-5 <= run["relative"] <= 1e-4  # the optimum is certified to 1e-5
            assert run["lower"] <= run["optimum"] * (1 + 1e-5)
            if method == "bigmc":  # its certificate, found again from the weights alone
                assert run["lower"] == pytest.approx(run["objective"], rel=2e-4)
            seconds = [run["to"][tolerance]["seconds"] for tolerance in ("0.1", "0.01", "0.001", "0.0001")]
            assert seconds == sorted(seconds)


def test_a_peer_without_interpreter_is_named(lines):
    skipped = [run for run in lines if "skipped" in run]
    assert [run["method"] for run in skipped] == ["lightning", "lightning"]
    assert "peers.py lightning" in skipped[0]["skipped"]


def test_medians(lines):
    runs = [run for run in lines if "trace" in run and run["method"] == "bigmc"]
    (median,) = (line for line in lines if line.get("median_of") == 2 and line["method"] == "bigmc")
    assert median["seconds"] == np.max([run["seconds"] for run in runs])  # the upper one of two
