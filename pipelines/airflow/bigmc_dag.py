"""Airflow 3 DAG: ingest in parts, train a model per penalty, choose the best, publish it.

Every task is one command of bigmc, which Airflow runs as a process: where this file is parsed only Airflow
need be installed. The variable BIGMC names the program, by default ``bigmc``; source and folder must be on a
disk that all workers see. A task that failed or was killed resumes when Airflow tries it again, and a task
run again after success does nothing.

Variables of the environment:

* ``BIGMC_RETRY_SECONDS``: pause before a task is tried again, by default 60.
* ``BIGMC_TASK_HOURS``: a task that takes longer is killed and tried again, by default 12.
* ``BIGMC_POOL``: Airflow pool of the tasks. A pool with one slot for each ``memory`` that the machine has
  keeps tasks from sharing memory that is not there:
  ``airflow pools set bigmc $((MACHINE_GB / TASK_GB)) "tasks of bigmc"``.
"""

from __future__ import annotations

import glob
import os
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Param, dag, task, task_group

BIGMC = os.environ.get("BIGMC", "bigmc")
RETRY_SECONDS = float(os.environ.get("BIGMC_RETRY_SECONDS", "60"))
TASK_HOURS = float(os.environ.get("BIGMC_TASK_HOURS", "12"))
POOL = os.environ.get("BIGMC_POOL", "default_pool")

MODEL = Asset("bigmc_best_model")
"""Updated when a model is published; a DAG with ``schedule=[MODEL]`` begins then."""

PARAMS = {
    "source": Param("", type="string", minLength=1, description="Files to learn from: path, folder or glob."),
    "folder": Param("", type="string", minLength=1, description="Folder for models."),
    "dataset": Param("", type="string", description="Dataset; by default data.bigmc in the folder."),
    "ingest": Param(
        "--text text --label label --split train=0.8,valid=0.1,test=0.1",
        type="string",
        description="Options of bigmc ingest, with the splits train, valid and test.",
    ),
    "train": Param("", type="string", description="Options of bigmc train sparse, besides --alpha."),
    "alphas": Param(["1e-3", "1e-4", "1e-5"], type="array", items={"type": "string"}, minItems=1),
    "part_bytes": Param(1 << 30, type="integer", minimum=1, description="Source bytes of an ingest task."),
    "max_parts": Param(16, type="integer", minimum=1, description="Ingest tasks at most."),
    "memory": Param("2GB", type="string", description="Memory limit of a task."),
}


def command(*words: str) -> str:
    """Return a command of bigmc for the shell; its JSON result is the task's XCom."""
    return shlex.join([BIGMC, *words, "--json"])


def dataset(params: dict[str, Any]) -> str:
    """Return the path of the dataset."""
    return params["dataset"] or f"{params['folder']}/data.bigmc"


def ingest_words(params: dict[str, Any], *more: str) -> str:
    """Return the ingest command, for a part or for the whole."""
    options = (*shlex.split(params["ingest"]), "--memory", params["memory"])
    return command("ingest", params["source"], "--to", dataset(params), *options, *more)


@dag(
    dag_id="bigmc",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=RETRY_SECONDS),
        "execution_timeout": timedelta(hours=TASK_HOURS),
        "pool": POOL,
    },
    params=PARAMS,
    tags=["bigmc"],
    doc_md=__doc__,
)
def pipeline() -> None:
    """Build the graph: ingest_part[…] → ingest → candidate[train → evaluate] → publish → test."""

    @task
    def parts(params: Any = None) -> list[str]:
        """Return how the source is divided, by its size."""
        found = [Path(path) for path in glob.glob(params["source"], recursive=True)]
        files = [file for path in found for file in ([path] if path.is_file() else path.rglob("*"))]
        size = sum(file.stat().st_size for file in files)
        count = min(params["max_parts"], max(1, -(-size // params["part_bytes"])))
        Path(params["folder"]).mkdir(parents=True, exist_ok=True)
        return [f"{number}/{count}" for number in range(count)]

    @task.bash
    def ingest_part(part: str, params: Any = None) -> str:
        return ingest_words(params, "--part", part)

    @task.bash
    def ingest(params: Any = None) -> str:
        return ingest_words(params)

    @task
    def alphas(params: Any = None) -> list[str]:
        """Return the penalties, each of which becomes a candidate."""
        return list(params["alphas"])

    @task_group
    def candidate(alpha: str) -> None:
        @task.bash
        def train(alpha: str, params: Any = None) -> str:
            options = ("--alpha", alpha, *shlex.split(params["train"]), "--memory", params["memory"])
            model = f"{params['folder']}/{alpha}.model"
            return command("train", "sparse", dataset(params), "--to", model, *options)

        @task.bash
        def evaluate(alpha: str, params: Any = None) -> str:
            name = f"{params['folder']}/{alpha}"
            options = ("--split", "valid", "--to", f"{name}.json", "--memory", params["memory"])
            return command("evaluate", f"{name}.model", dataset(params), *options)

        train(alpha) >> evaluate(alpha)

    @task.bash(outlets=[MODEL])
    def publish(params: Any = None) -> str:
        folder = params["folder"]
        evaluations = [f"{folder}/{alpha}.json" for alpha in params["alphas"]]
        return command("publish", *evaluations, "--to", f"{folder}/best.model")

    @task.bash
    def test(params: Any = None) -> str:
        name = f"{params['folder']}/best"
        options = ("--split", "test", "--to", f"{name}.json", "--memory", params["memory"])
        return command("evaluate", f"{name}.model", dataset(params), *options)

    ingested = ingest()
    penalties = alphas()
    ingest_part.expand(part=parts()) >> ingested >> penalties
    candidate.expand(alpha=penalties) >> publish() >> test()


pipeline()
