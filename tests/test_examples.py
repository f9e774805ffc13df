"""The examples run, each in a process of its own, and say what their pages promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bigmc

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {
    "error_bound.py": "minimax risk between",
    "larger_than_memory.py": "is about a kettle",
    "scikit_learn.py": "best alpha",
}


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES} == SAYS.keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}
    done = subprocess.run([sys.executable, path], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SAYS[path.name] in done.stdout
