"""Airflow 3 DAG: every day's files are appended to a dataset; its model starts from that of the day before.

The source of a day is a pattern with ``{day}`` in it, such as ``/data/in/{day}/*.csv``. Each day has a folder
of its own below `folder`; the newest model of an earlier day is the start of the training. Tasks resume when
they are tried again and do nothing when they are done, so the last day can be cleared and run again. The
training of an earlier day is refused, since the dataset has grown: remove the folder of that day first.
`bigmc_dag.py` describes BIGMC, BIGMC_RETRY_SECONDS, BIGMC_TASK_HOURS and BIGMC_POOL; BIGMC_SCHEDULE is when
this DAG runs, by default never.
"""

from __future__ import annotations

import os
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Param, dag, task

BIGMC = os.environ.get("BIGMC", "bigmc")

MODEL = Asset("bigmc_daily_model")
"""Updated when the model of a day has been measured; a DAG with ``schedule=[MODEL]`` begins then."""

PARAMS = {
    "source": Param("", type="string", description="Files of a day: a pattern that contains {day}."),
    "folder": Param("", type="string", description="Folder for the dataset and a folder for each day."),
    "day": Param("", type="string", description="Day as YYYY-MM-DD; by default that of the scheduled run."),
    "ingest": Param("--text text --label label", type="string", description="Options of bigmc ingest."),
    "train": Param("", type="string", description="Options of bigmc train sparse."),
    "memory": Param("2GB", type="string", description="Memory limit of a task."),
}


def command(*words: str) -> str:
    """Return a command of bigmc for the shell; its JSON result is the task's XCom."""
    return shlex.join([BIGMC, *words, "--json"])


def folder_of_day(params: dict[str, Any], context: dict[str, Any]) -> Path:
    """Return the folder of the day that is run."""
    return Path(params["folder"]) / (params["day"] or context["ds"])


@dag(
    dag_id="bigmc_daily",
    schedule=os.environ.get("BIGMC_SCHEDULE"),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=float(os.environ.get("BIGMC_RETRY_SECONDS", "60"))),
        "execution_timeout": timedelta(hours=float(os.environ.get("BIGMC_TASK_HOURS", "12"))),
        "pool": os.environ.get("BIGMC_POOL", "default_pool"),
    },
    params=PARAMS,
    tags=["bigmc"],
    doc_md=__doc__,
)
def daily() -> None:
    """Build the graph: append → train → evaluate."""

    @task.bash
    def append(params: Any = None, **context: Any) -> str:
        day = folder_of_day(params, context)
        day.mkdir(parents=True, exist_ok=True)
        dataset, source = day.parent / "data.bigmc", params["source"].format(day=day.name)
        more = ("--append",) if (dataset / "manifest.json").exists() else ()
        options = (*shlex.split(params["ingest"]), "--memory", params["memory"])
        return command("ingest", source, "--to", str(dataset), *options, *more)

    @task.bash
    def train(params: Any = None, **context: Any) -> str:
        day = folder_of_day(params, context)
        earlier = [path for path in sorted(day.parent.glob("*/day.model")) if path.parent.name < day.name]
        start = ("--warm-start", str(earlier[-1])) if earlier else ()
        options = (*start, *shlex.split(params["train"]), "--memory", params["memory"])
        return command("train", "sparse", f"{day.parent}/data.bigmc", "--to", f"{day}/day.model", *options)

    @task.bash(outlets=[MODEL])
    def evaluate(params: Any = None, **context: Any) -> str:
        day = folder_of_day(params, context)
        options = ("--to", f"{day}/day.json", "--memory", params["memory"])
        return command("evaluate", f"{day}/day.model", f"{day.parent}/data.bigmc", *options)

    append() >> train() >> evaluate()


daily()
