"""The short form of the fault suite; ``.ci/faults`` runs the whole."""

from __future__ import annotations

import os
import signal

import pytest

from bigmc.ingestion import job as job_module
from faults import crash, damage, hostile, together, trials
from faults.commands import COMMANDS, make_inputs, small_parts
from faults.pieces import Piece, Results, run_pieces
from faults.recorder import Call

pytestmark = pytest.mark.slow

NAMED = {command.name: command for command in COMMANDS}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    before = job_module.SMALLEST_PART, job_module.ROWS_PER_PART
    small_parts()
    folder = tmp_path_factory.mktemp("faults") / "inputs"
    folder.mkdir()
    make_inputs(folder)
    yield folder
    job_module.SMALLEST_PART, job_module.ROWS_PER_PART = before


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    ("name", "one_in"),
    [("ingest", 120), ("append", 60), ("train sparse", 12), ("fit", 30), ("predict", 3), ("publish", 1)],
)
def test_a_command_completes_what_a_crash_left(name, one_in, inputs, tmp_path):
    outcome = trials.crashes(NAMED[name], inputs, tmp_path, trials.Tries(seed=1, cuts=2, one_in=one_in))
    assert not outcome.problems, outcome.problems[:3]
    assert outcome.different > 3


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("name", "each"), [("append", 1), ("train boost", 1), ("evaluate", 2)])
def test_a_failing_call_is_told_and_the_command_again_completes(name, each, inputs, tmp_path):
    outcome = trials.failures(NAMED[name], inputs, tmp_path, seed=1, each=each)
    assert not outcome.problems, outcome.problems[:3]
    assert outcome.trials > 5


@pytest.mark.parametrize(("name", "each"), [("ingest", 6), ("ingest numbers", 10)])
def test_a_failing_read_is_told(name, each, inputs, tmp_path):
    outcome = trials.unreadable(NAMED[name], inputs, tmp_path, seed=1, each=each)
    assert not outcome.problems, outcome.problems[:3]


def test_damaged_files_are_refused_or_answer_rightly(inputs, tmp_path):
    outcome = damage.dataset_outcome(inputs / "n.bigmc", tmp_path, seed=1, each=2)
    assert not outcome.problems, outcome.problems[:3]
    outcome = damage.model_outcome(inputs / "m.model", inputs / "n.bigmc", 1, 30, tmp_path)
    assert not outcome.problems, outcome.problems[:3]


@pytest.mark.parametrize("name", ["ingest", "train sparse", "path", "predict"])
def test_damaged_work_of_a_killed_command_is_refused_or_resumed_rightly(name, inputs, tmp_path):
    outcome = damage.unfinished_outcome(NAMED[name], inputs, tmp_path, seed=1, each=10)
    assert not outcome.problems, outcome.problems[:3]


def test_a_full_disk_is_told_and_the_command_again_completes(inputs, tmp_path):
    outcome = trials.full_disk(NAMED["ingest"], inputs, tmp_path, seed=1, each=4)
    assert not outcome.problems, outcome.problems[:3]


def test_a_piece_that_ends_its_process_is_a_problem_and_the_rest_runs(tmp_path):
    """What has run is in the file: called again, only the piece that is missing runs."""
    ran = tmp_path / "ran"

    def fine(work, results):
        with ran.open("a") as file:
            file.write("x")
        return trials.Outcome("fine", "test", 2, 1)

    listed = [
        Piece("killed", lambda work, results: os.kill(os.getpid(), signal.SIGKILL)),
        Piece("fine", fine),
    ]
    (tmp_path / "work").mkdir()
    results = Results(tmp_path / "found.jsonl")
    assert run_pieces(listed, results, tmp_path / "work", 60)
    again = Results(tmp_path / "found.jsonl")
    assert run_pieces(listed, again, tmp_path / "work", 60)
    assert ran.read_text() == "x"
    assert [(line["piece"], line["n_problems"]) for line in again.lines] == [("killed", 1), ("fine", 0)]
    assert "ended with -9" in again.lines[0]["problems"][0]


def test_hostile_files_end_in_one_line(inputs, tmp_path):
    for _, trial in hostile.all_trials(each=15):
        outcome = trial(inputs, work=tmp_path, seed=1)
        assert not outcome.problems, outcome.problems[:3]


def test_two_processes_on_one_target(inputs, tmp_path):
    outcome = together.at_once(NAMED["evaluate"], inputs, tmp_path, 2)
    assert not outcome.problems, outcome.problems


def test_a_second_writer_leaves_the_first_alone(tmp_path):
    assert not together.leftovers_of_the_living(tmp_path).problems


def calls(*listed: tuple[str, str, str, bytes]) -> list[Call]:
    return [Call(name, path, other, content) for name, path, other, content in listed]


def test_the_replay_knows_what_is_lost():
    """A file written and renamed without a sync may be lost or empty; after both syncs it is there."""
    log = calls(
        ("open", "/d/.f", "create", b""), ("write", "0", "", b"abc"), ("sync", "0", "", b""),
        ("rename", "/d/.f", "/d/f", b""), ("open", "/d", "look", b""), ("sync", "4", "", b""),
    )  # fmt: skip
    lost = []
    replay = crash.Replay({"/d": None})
    for number, call in enumerate(log):
        replay.apply(number, call)
        lost.append(replay.lost())
    assert lost[:5] == [{"/d": None}] * 5
    assert lost[5] == {"/d": None, "/d/f": b"abc"}
    assert replay.killed() == lost[5]
    images = list(crash.states({"/d": None}, log[:2], 0, 60))
    assert {image.get("/d/.f") for _, image in images} >= {None, b"", b"abc"}
