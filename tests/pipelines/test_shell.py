"""The pipeline as a shell script, run as a person would, and as Slurm jobs, with a stand-in for sbatch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigmc
from bigmc import api
from bigmc.model import load_model
from bigmc.store.verify import verify

pytestmark = pytest.mark.slow

PIPELINES = Path(__file__).parents[2] / "pipelines"
SCRIPTS = [*PIPELINES.glob("*.sh"), *PIPELINES.glob("slurm/*")]
INGEST = "--text 'the text' --label label --hash-bits 10 --split train=0.6,valid=0.2,test=0.2"

STEPS = [
    "ingest --part 0/2",
    "ingest --part 1/2",
    "ingest",
    "train 1e-2.model",
    "train 1e-3.model",
    "evaluate 1e-2.model",
    "evaluate 1e-3.model",
    "publish best.model",
    "evaluate best.model",
]


@pytest.fixture
def settings(tmp_path):
    """Return the environment of a small run: a file of 600 rows, and ``bigmc`` on the path."""
    rng = np.random.default_rng(0)
    lines = (
        f"{' '.join(rng.choice(40, 6).astype(str))} {c} also {c},{c}\n" for c in rng.choice(["ab", "cd"], 600)
    )
    (tmp_path / "rows.csv").write_text("the text,label\n" + "".join(lines))
    program(tmp_path / "bin" / "bigmc", f'exec {sys.executable} -m bigmc "$@"')
    return {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(bigmc.__file__).parents[1]),
        "BIGMC_SOURCE": str(tmp_path / "rows.csv"),
        "BIGMC_FOLDER": str(tmp_path / "out"),
        "BIGMC_INGEST": INGEST,
        "BIGMC_ALPHAS": "1e-2",
        "BIGMC_PARTS": "2",
        "BIGMC_MEMORY": "200MB",
    }


def program(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["#!/usr/bin/env bash", *lines, ""]))
    path.chmod(0o755)


def run(script: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", PIPELINES / script], env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0
    return done.stdout


def commands(log: Path) -> list[str]:
    """Return the commands that the stand-in for bigmc was given: name, part, model."""
    short = []
    for line in log.read_text().splitlines():
        words = line.split("\t")
        more = [word for word in words if word == "--part" or ("/" in word and word[0].isdigit())]
        models = [Path(word).name for word in words if word.endswith(".model")]
        short.append(" ".join([words[0], *more, *models]))
    return short


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse(script):
    subprocess.run(["bash", "-n", script], check=True)


def test_run_on_one_machine(settings, tmp_path):
    said = [json.loads(line) for line in run("run.sh", settings).splitlines()]
    parts = sorted(result["part"] for result in said if "part" in result)
    assert parts == ["0/2", "1/2"]
    assert sum(result["n_samples"] for result in said if "part" in result) == 600
    out = tmp_path / "out"
    assert verify(out / "data.bigmc") == []
    dataset = api.open_dataset(out / "data.bigmc")
    assert dataset.n_samples == 600
    assert (out / "best.model").read_bytes() == (out / "1e-2.model").read_bytes()
    best = json.loads((out / "best.json").read_text())
    assert best["split"] == "test"
    assert best["n_samples"] == dataset.splits["test"]
    assert best["accuracy"] == api.evaluate(load_model(out / "best.model"), dataset)["accuracy"] > 0.9


@pytest.fixture
def recorder(settings, tmp_path):
    """Return the environment with a stand-in for bigmc that writes down what it is asked."""
    log = tmp_path / "commands"
    program(tmp_path / "bin" / "bigmc", f"(IFS=$'\\t'; echo \"$*\") >> {log}")
    return {**settings, "BIGMC_ALPHAS": "1e-2 1e-3"}, log


def test_slurm_runs_the_same_commands(recorder, tmp_path):
    """Its sbatch runs an array's tasks at once, from a copy of the script in a folder of its own."""
    env, log = recorder
    program(
        tmp_path / "bin" / "sbatch",
        f'echo "$*" >> {tmp_path}/jobs',
        "tasks=()",
        "while [[ $1 == -* ]]; do",
        '    case $1 in --array) tasks=($(seq "${2%-*}" "${2#*-}")); shift 2;;',
        "    --job-name | --output | --dependency | --mem | --time) shift 2;; *) shift;; esac",
        "done",
        f'mkdir -p {tmp_path}/spool && cp "$1" {tmp_path}/spool/script && shift',
        'for task in "${tasks[@]:-}"; do',
        f'    SLURM_ARRAY_TASK_ID=$task bash {tmp_path}/spool/script "$@" >&2 || exit 1',
        "done",
        f"wc -l < {tmp_path}/jobs",
    )
    run("slurm/submit.sh", {**env, "BIGMC_MEMORY": "1.5GiB"})
    assert commands(log) == STEPS
    jobs = (tmp_path / "jobs").read_text().splitlines()
    assert len(jobs) == 6
    assert "--dependency" not in jobs[0]
    for number, job in enumerate(jobs[1:], start=1):
        after = "aftercorr" if job.endswith("evaluate") or " evaluate " in job else "afterok"
        assert f"--dependency {after}:{number} " in job
    assert all("--mem 2610M --time 12:00:00" in job for job in jobs)
    by_slurm = sorted(log.read_text().splitlines())
    log.unlink()
    run("run.sh", {**env, "BIGMC_MEMORY": "1.5GiB"})
    assert sorted(log.read_text().splitlines()) == by_slurm
    assert "--text\tthe text\t" in by_slurm[0] + by_slurm[-1] + "".join(by_slurm)


def test_a_dataset_that_grows_elsewhere(recorder, tmp_path):
    env, log = recorder
    run("run.sh", {**env, "BIGMC_DATA": "all.bigmc", "BIGMC_INGEST": "--append", "BIGMC_TRAIN": ""})
    words = [line.split("\t") for line in log.read_text().splitlines()]
    assert all("all.bigmc" in line for line in words if line[0] != "publish")
    assert sum("--append" in line for line in words) == 3


def test_a_failed_step_ends_the_run(recorder, tmp_path):
    env, log = recorder
    program(tmp_path / "bin" / "bigmc", f'echo "$*" >> {log}', '[[ "$1" != train ]]')
    done = subprocess.run(["bash", PIPELINES / "run.sh"], env=env, check=False)
    assert done.returncode == 1
    assert "evaluate" not in log.read_text()
