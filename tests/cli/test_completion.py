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


def completed(words: str, last: str = "") -> list[str]:
    """Return the kinds and words that the shell is told for a line, whose last word is unfinished."""
    line = {"COMP_WORDS": f"bigmc {words} {last}", "COMP_CWORD": str(len(words.split()) + 1)}
    return asked(_BIGMC_COMPLETE="bash_complete", **line).split()


@pytest.mark.parametrize(
    ("words", "last", "found"),
    [
        ("", "pred", ["plain,predict"]),
        ("train", "m", ["plain,mrc"]),
        ("predict m.model x", "--sco", ["plain,--scores"]),
        ("publish e.json --by", "mic", ["plain,micro_f1"]),
        ("predict m.mo", "", ["file,"]),
        ("train sparse data.bigmc --to", "m", ["file,m"]),
    ],
)
def test_words_are_completed(words, last, found):
    assert completed(words, last) == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown(shell):
    script = asked(_BIGMC_COMPLETE=f"{shell}_source")
    assert f"_BIGMC_COMPLETE={shell}_complete" in script
