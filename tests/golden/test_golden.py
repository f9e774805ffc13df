"""Every byte of a fixed set of datasets, models and predictions is as it was: a refactoring changes none."""

import json
from pathlib import Path

import pytest

from golden.courses import GROUPS, course_digests
from golden.products import digests, environment, make
from golden.record import sums_file


@pytest.fixture
def recorded():
    here, file = environment(), sums_file()
    if not file.exists():
        pytest.skip(f"no sums were recorded on a {file.stem}: python -m golden.record")
    sums = json.loads(file.read_text())
    others = {key: here[key] for key, value in sums["environment"].items() if here[key] != value}
    if others:
        pytest.skip(f"the sums were recorded with another {', '.join(others)}: python -m golden.record")
    return sums


def test_every_file_has_the_bytes_it_had(recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(Path())
    assert digests(Path()) == recorded["files"]


@pytest.mark.parametrize("group", GROUPS)
def test_every_solver_gets_there_as_it_did(recorded, group):
    assert course_digests(group) == recorded["courses"][group]
