"""Every byte of a fixed set of datasets, models and predictions is as it was: a refactoring changes none."""

from pathlib import Path

from golden.products import digests, make
from golden.record import recorded_here


def test_every_file_has_the_bytes_it_had(tmp_path, monkeypatch):
    recorded = recorded_here()
    monkeypatch.chdir(tmp_path)
    make(Path())
    assert digests(Path()) == recorded["files"]
