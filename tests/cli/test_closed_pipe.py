"""A command whose output nobody reads any more ends without a word, as other programs do after SIGPIPE."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import bigmc
from bigmc.model import LinearModel

PREDICT = ("predict", "m.model", "rows.svmlight", "--to", "-")
ENV = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of 9 features, and more rows than a pipe holds predictions of."""
    folder = tmp_path_factory.mktemp("pipe")
    dump_svmlight_file(np.eye(9)[np.arange(4000) % 9], np.zeros(4000), str(folder / "rows.svmlight"))
    model = LinearModel("sparse", np.arange(9), 9, np.arange(9), np.eye(9), np.zeros(9))
    model.save(folder / "m.model")
    return folder


def started(folder, *command, **options):
    program = [sys.executable, "-m", "bigmc", *command]
    return subprocess.Popen(program, cwd=folder, env=ENV, stderr=subprocess.PIPE, text=True, **options)


def silent_141(process):
    said = process.communicate()[1]
    assert [line for line in said.splitlines() if not line.startswith("predict: ")] == []
    assert process.returncode == 141


@pytest.mark.parametrize("command", [PREDICT, ("info", "m.model")])
def test_standard_output_is_closed(folder, command):
    out, into = os.pipe()
    os.close(out)
    process = started(folder, *command, stdout=into)
    os.close(into)
    silent_141(process)


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(
    ("command", "closed"),
    [
        *((PREDICT, closed) for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")),
        (("info", "m.model"), ">&-"),
        (("info", "m.model"), "<&- >&- 2>&-"),
        (("info", "absent.model"), "2>&-"),
        (("info", "absent.model"), "<&- >&- 2>&-"),
    ],
)
def test_streams_that_are_closed_from_the_start_lead_nowhere(folder, command, closed):
    """Otherwise the first files that are opened take their numbers, and output ends in these."""
    program = " ".join([sys.executable, "-m", "bigmc", *command, closed])
    done = subprocess.run(["sh", "-c", program], cwd=folder, env=ENV, capture_output=True, text=True)
    assert done.returncode == ("absent.model" in command)
    assert "Traceback" not in done.stderr
    if ">&-" in closed.split():
        assert done.stdout == ""


def test_a_reader_leaves_after_the_first_row(folder):
    process = started(folder, *PREDICT, stdout=subprocess.PIPE)
    assert process.stdout.readline() == '{"row_id": 0, "predicted_label": 0}\n'
    process.stdout.close()
    process.stdout = None
    silent_141(process)


def test_the_reader_of_a_named_pipe_leaves(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    process = started(folder, *PREDICT[:-1], str(tmp_path / "pipe"))
    with open(tmp_path / "pipe") as pipe:
        assert pipe.readline()
    silent_141(process)
