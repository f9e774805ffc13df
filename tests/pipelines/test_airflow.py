"""The Airflow DAGs: imported, looked at, and run with tasks that are killed once, by a real Airflow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigmc
from bigmc import api
from bigmc.store.verify import verify

AIRFLOW = os.environ.get("AIRFLOW_PYTHON", "")
ROOT = Path(bigmc.__file__).parents[1]
DAGS = ROOT / "pipelines" / "airflow"

pytestmark = pytest.mark.skipif(
    not AIRFLOW,
    reason="AIRFLOW_PYTHON names no Python with Airflow 3; .ci/airflow installs one and runs this",
)

KILLED_ONCE = """
import os, signal, sys
from pathlib import Path
from bigmc.ingestion import job
from bigmc.ingestion.writing.part_writer import PartWriter
from bigmc.store.files.checkpoint import FileCheckpoint

def die_after(owner, name, marker):
    if not marker.exists():
        whole = getattr(owner, name)
        def then_die(*args):
            whole(*args)
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        setattr(owner, name, then_die)

job.SMALLEST_PART, job.ROWS_PER_PART = 1 << 14, 500
words, here = sys.argv, Path({here!r})
if "train" in words and "1e-3" in words:
    die_after(FileCheckpoint, "save", here / "train.killed")
if "--part" in words and "1/3" in words:
    die_after(PartWriter, "_set_bad_aside", here / "part.killed")
from bigmc.cli import main
main()
"""
"""The program bigmc, which is killed with SIGKILL in the middle of one part and after a first checkpoint."""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("airflow")
    rng = np.random.default_rng(0)
    words = {c: [f"{c}{i}" for i in range(40)] for c in "abc"}
    every = [word for mine in words.values() for word in mine]
    lines = (
        f"{' '.join([*rng.choice(words[c], 4), *rng.choice(every, 8)])},{c}\n"
        for c in rng.choice([*"abc"], 3000)
    )
    (folder / "rows.csv").write_text("text,label\n" + "".join(lines))
    (folder / "bigmc.py").write_text(KILLED_ONCE.format(here=str(folder)))
    (folder / "bigmc").write_text(
        f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} -P {folder}/bigmc.py "$@"\n'
    )
    (folder / "bigmc").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def said(here):
    """Run the DAG twice on SQLite, and the daily one for two days; return what airflow_run.py found."""
    size = (here / "rows.csv").stat().st_size
    conf = {
        "source": str(here / "rows.csv"),
        "folder": str(here / "out"),
        "ingest": "--text text --label label --hash-bits 10 --split train=0.6,valid=0.2,test=0.2",
        "alphas": ["1e-2", "1e-3"],
        "memory": "200MB",
        "part_bytes": size // 3 + 1,
    }
    head, *rows = (here / "rows.csv").read_text().splitlines(keepends=True)
    days = ["2026-01-01", "2026-01-02"]
    for number, day in enumerate(days):
        (here / "in" / day).mkdir(parents=True)
        (here / "in" / day / "rows.csv").write_text("".join([head, *rows[number::2]]))
    daily = [
        {
            "source": str(here / "in" / "{day}" / "*.csv"),
            "folder": str(here / "daily"),
            "day": day,
            "ingest": "--text text --label label --hash-bits 10",
            "train": "--alpha 1e-2",
            "memory": "200MB",
        }
        for day in days
    ]
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(here / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "BIGMC": str(here / "bigmc"),
        "BIGMC_RETRY_SECONDS": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RUNS": json.dumps([["bigmc", conf]] * 2 + [["bigmc_daily", day] for day in daily]),
    }
    driver = Path(__file__).with_name("airflow_run.py")
    with (here / "log").open("w") as log:
        migrate = [AIRFLOW, "-m", "airflow", "db", "migrate"]
        subprocess.run(migrate, env=env, stdout=log, stderr=log, check=True)
        run = [AIRFLOW, driver, DAGS, here / "said.json"]
        done = subprocess.run(run, env=env, stdout=log, stderr=log, check=False)
    assert done.returncode == 0, (here / "log").read_text()[-3000:]
    return json.loads((here / "said.json").read_text())


def test_the_file_imports_with_airflow_alone(said):
    assert said["import_errors"] == {}


def test_structure(said):
    assert said["downstream"] == {
        "parts": ["ingest_part"],
        "ingest_part": ["ingest"],
        "ingest": ["alphas"],
        "alphas": ["candidate.evaluate", "candidate.train"],
        "candidate.train": ["candidate.evaluate"],
        "candidate.evaluate": ["publish"],
        "publish": ["test"],
        "test": [],
    }
    assert said["mapped"] == ["candidate.evaluate", "candidate.train", "ingest_part"]
    assert said["outlets"] == ["bigmc_best_model"]
    assert said["retries"] == [2]


def test_killed_tasks_are_tried_again_and_go_on(said, here):
    first = said["runs"][0]
    assert first["state"] == "success"
    tries = {(name, index): number for name, index, state, number in first["tasks"] if state == "success"}
    assert len(tries) == len(first["tasks"]) == 12
    assert (here / "part.killed").exists()
    assert (here / "train.killed").exists()
    assert {task for task, number in tries.items() if number > 1} == {
        ("ingest_part", 1),
        ("candidate.train", 1),
    }
    out = here / "out"
    assert verify(out / "data.bigmc") == []
    options = {"text": "text", "label": "label", "hash_bits": 10, "split": "train=0.6,valid=0.2,test=0.2"}
    whole = api.ingest(here / "rows.csv", here / "whole.bigmc", memory_limit="200MB", **options)
    assert whole.n_samples == 3000
    api.train("sparse", out / "data.bigmc", here / "whole.model", alpha=1e-3, memory_limit="200MB")
    models = [api.load_model(path) for path in (out / "1e-3.model", here / "whole.model")]
    np.testing.assert_array_equal(*(model.coef_.toarray() for model in models))
    assert (out / "best.model").read_bytes() in {(out / f"{a}.model").read_bytes() for a in ("1e-2", "1e-3")}


def test_run_again_does_nothing(said, here):
    second = said["runs"][1]
    assert second["state"] == "success"
    assert {number for *_, number in second["tasks"]} == {1}
    before, after = (run["files"] for run in said["runs"][:2])
    assert {name for name in before if before[name] != after[name]} <= {"1e-2.json", "1e-3.json", "best.json"}
    assert before.keys() == after.keys() > {"best.model", "data.bigmc/manifest.json"}
    assert json.loads((here / "out" / "best.json").read_text())["accuracy"] > 0.7


def test_a_dataset_and_a_model_grow_day_by_day(said, here):
    assert [run["state"] for run in said["runs"][2:]] == ["success", "success"]
    out = here / "daily"
    assert api.open_dataset(out / "data.bigmc").n_samples == 3000
    days = [json.loads((out / day / "day.json").read_text()) for day in ("2026-01-01", "2026-01-02")]
    assert days[0]["n_samples"] < days[1]["n_samples"]
    assert verify(out / "data.bigmc") == []
