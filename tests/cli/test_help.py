"""The help of commands speaks of values in a user's words, and flags take none."""

import re

import pytest

COMMANDS = [
    "fit",
    "ingest",
    "predict",
    "evaluate",
    "path",
    "train sparse",
    "train boost",
    "train mrc",
    "explain",
]


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("train sparce", "sparse")])
def test_a_misspelt_command_is_suggested(run, typed, meant):
    status, _, err = run(typed)
    assert status == 2
    assert f"Did you mean '{meant}'?" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_options_name_their_values(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = run(f"{command} --help")
    assert status == 0
    options = [line for line in out[out.index("Options") :].splitlines() if "--" in line]
    assert options
    for line in options:
        assert not re.search(r"\b(INTEGER|FLOAT|BOOLEAN|PATH)\b", line), line


@pytest.mark.parametrize("command", ["", "train"])
def test_summaries_of_commands_are_whole(run, command, monkeypatch):
    """click cuts a summary that is too long for its line and ends it with dots."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(f"{command} --help")
    summaries = out[out.index("Commands:") :].splitlines()[1:]
    assert summaries
    assert not [line for line in summaries if line.endswith("...")]
