"""Every byte of a fixed set of datasets, models and predictions is as it was: a refactoring changes none."""

import json
from pathlib import Path

import pytest

from golden.products import digests, environment, make
from golden.record import SUMS


def test_every_file_has_the_bytes_it_had(tmp_path, monkeypatch):
    recorded = json.loads(SUMS.read_text())
    here = environment()
    others = {key: here[key] for key, value in recorded["environment"].items() if here[key] != value}
    if others:
        pytest.skip(f"the sums were recorded with another {', '.join(others)}: python -m golden.record")
    monkeypatch.chdir(tmp_path)
    make(Path())
    assert digests(Path()) == recorded["files"]
