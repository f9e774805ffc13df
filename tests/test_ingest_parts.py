"""Ingest by several processes at once, each a part of it, and publication by the plain command."""

import hashlib
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from killing import child

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import BusyError, DataError, StoreError
from bigmc.ingestion import fit_feature_map
from bigmc.ingestion import job as job_module
from bigmc.ingestion.target import refuse_foreign_folder
from bigmc.ingestion.writing.part_writer import PartWriter
from bigmc.store.verify import verify

pytestmark = pytest.mark.slow

OPTIONS = {"text": "text", "label": "label", "hash_bits": 10, "memory_limit": "64MB"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(job_module, "SMALLEST_PART", 1 << 14)
    monkeypatch.setattr(job_module, "ROWS_PER_PART", 400)


@pytest.fixture
def source(tmp_path):
    lines = (f"word{i % 90} and word{i % 7},{'xyz'[i % 3]}\n" for i in range(4000))
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(lines))
    return tmp_path / "rows.csv"


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_parts_then_the_whole_is_the_whole(source, tmp_path):
    whole, to = tmp_path / "whole.bigmc", tmp_path / "d.bigmc"
    api.ingest(source, whole, **OPTIONS, engine=ThreadEngine(1))
    done = []

    def part(number: int) -> None:
        done.append(api.ingest_part(source, to, (number, 3), **OPTIONS, engine=ThreadEngine(1)))

    threads = [threading.Thread(target=part, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result["n_samples"] for result in done) == 4000
    assert min(result["n_pieces"] for result in done) >= 1
    assert not (to / "manifest.json").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartWriter, "run", lambda self: pytest.fail("a part was done twice"))
        api.ingest(source, to, **OPTIONS, engine=ThreadEngine(1))
    assert contents(to) == contents(whole)
    assert api.ingest_part(source, to, (0, 3), **OPTIONS) == {"n_pieces": 0, "n_samples": 0}
    assert contents(to) == contents(whole)


@pytest.mark.parametrize("question", ["exists", "is_dir"])
def test_a_folder_that_another_process_makes_meanwhile_is_not_a_foreign_one(question, tmp_path, monkeypatch):
    """Parts begin at the same time, so that the folder may appear right after any question about it."""
    ask = getattr(Path, question)

    def ask_before_it_is_made(path: Path) -> bool:
        answer = ask(path)
        path.mkdir(exist_ok=True)
        return answer

    monkeypatch.setattr(Path, question, ask_before_it_is_made)
    refuse_foreign_folder(tmp_path / "d.bigmc")


def test_the_whole_does_what_is_missing(source, tmp_path):
    to = tmp_path / "d.bigmc"
    api.ingest_part(source, to, (1, 3), **OPTIONS)
    assert api.ingest(source, to, **OPTIONS).n_samples == 4000
    assert verify(to) == []


def test_a_killed_part_is_done_by_its_retry(source, tmp_path):
    to = tmp_path / "d.bigmc"
    work = [(os, "replace")]
    status, _ = child(lambda: api.ingest_part(source, to, (0, 2), **OPTIONS), work, ("replace", 12, "before"))
    assert os.WTERMSIG(status) == signal.SIGKILL
    unfinished = {path.name for path in (to / "wip" / "parts").iterdir() if path.is_dir()}
    assert any(name.endswith(".partial") for name in unfinished)
    for number in range(2):
        api.ingest_part(source, to, (number, 2), **OPTIONS)
    assert api.ingest(source, to, **OPTIONS).n_samples == 4000
    assert verify(to) == []


def test_one_part_has_one_writer(source, tmp_path):
    """While another process does a part: its retry, another division and the finishing step refuse."""
    to = tmp_path / "d.bigmc"
    api.ingest_part(source, to, (0, 2), **OPTIONS)
    with job_module.exclusive(to / "wip" / "1-of-2.lock"):
        with pytest.raises(BusyError, match="another process"):
            api.ingest_part(source, to, (1, 2), **OPTIONS)
        with pytest.raises(BusyError, match="another process"):
            api.ingest_part(source, to, (0, 3), **OPTIONS)
        with pytest.raises(BusyError, match="another process"):
            api.ingest_part(source, to, (0, 2), **OPTIONS | {"hash_bits": 9})
        with pytest.raises(BusyError, match="another process"):
            api.ingest(source, to, **OPTIONS)
        assert api.ingest_part(source, to, (0, 2), **OPTIONS)["n_pieces"] > 1
    assert api.ingest(source, to, **OPTIONS).n_samples == 4000


@pytest.mark.parametrize("part", [(2, 2), (-1, 2), (0, 0)])
def test_no_such_part(part, source, tmp_path):
    with pytest.raises(DataError, match="count the parts from 0"):
        api.ingest_part(source, tmp_path / "d.bigmc", part, **OPTIONS)


def test_unknown_option(source, tmp_path):
    with pytest.raises(DataError, match="no option 'hashbits'"):
        api.ingest_part(source, tmp_path / "d.bigmc", (0, 1), hashbits=3)


def test_the_feature_map_is_fitted_once_and_found_after_a_kill(tmp_path):
    X = np.random.default_rng(0).normal(3, 2, (900, 4))
    y = np.arange(900) % 2
    to = tmp_path / "d.bigmc"

    def run():
        return api.ingest(X, to, label=y, standardize=True)

    status, _ = child(run, [(job_module.Job, "run_parts")], ("run_parts", 1, "before"))
    assert os.WTERMSIG(status) == signal.SIGKILL
    made = (to / "wip" / fit_feature_map.MAP).stat().st_mtime_ns
    api.ingest_part(X, to, (0, 2), label=y, standardize=True)
    assert (to / "wip" / fit_feature_map.MAP).stat().st_mtime_ns == made
    assert run().n_samples == 900


def test_a_plan_whose_place_another_whole_file_has_taken_is_named(tmp_path):
    """Its checksum is right: the map of the features was swapped with it."""
    rows = "".join(f"{i % 11},{i % 3},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("x,z,label\n" + rows)
    options = {"dense": ["x", "z"], "label": "label", "standardize": True, "memory_limit": "64MB"}
    api.ingest_part(tmp_path / "rows.csv", tmp_path / "d.bigmc", (0, 2), **options)
    plan, map_ = (tmp_path / "d.bigmc" / "wip" / name for name in ("plan.json", "map.json"))
    whole = plan.read_bytes()
    plan.write_bytes(map_.read_bytes())
    with pytest.raises(StoreError, match=r"plan\.json is damaged"):
        api.ingest(tmp_path / "rows.csv", tmp_path / "d.bigmc", **options)
    plan.write_bytes(whole)
    assert api.ingest(tmp_path / "rows.csv", tmp_path / "d.bigmc", **options).n_samples == 60
