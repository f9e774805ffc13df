"""The shell completes commands and options; it asks a process of its own, as the installed script is one."""

import os
import subprocess
import sys

import pytest

SCRIPT = "import sys; from bigmc.cli import main; sys.argv = ['bigmc']; main()"


def asked(**variables) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(("words", "found"), [("train m", "mrc"), ("predict m.model x --sco", "--scores")])
def test_words_are_completed(words, found):
    number = str(len(words.split()))
    line = {"COMP_WORDS": f"bigmc {words}", "COMP_CWORD": number}
    assert asked(_BIGMC_COMPLETE="complete_bash", **line).split() == [found]


def test_the_script_for_a_shell_is_shown():
    assert "complete -o default -F _bigmc_completion bigmc" in asked(_BIGMC_COMPLETE="source_bash")
