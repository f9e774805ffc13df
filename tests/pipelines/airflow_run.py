"""Runs the DAGs in one process of Airflow: what test_airflow.py calls. Writes one JSON object at the end."""

import json
import os
import sys
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

folder, runs = sys.argv[1], json.loads(os.environ["RUNS"])  # pairs of a DAG and its configuration
bag = DagBag(dag_folder=folder)
dag = bag.dags["bigmc"]
downstream = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
said = {
    "import_errors": {str(path): error for path, error in bag.import_errors.items()},
    "downstream": downstream,
    "mapped": sorted(
        task.task_id for task in dag.tasks if task.is_mapped or task.get_closest_mapped_task_group()
    ),
    "outlets": [asset.name for task in dag.tasks for asset in task.outlets],
    "retries": sorted({task.retries for task in dag.tasks}),
    "runs": [],
}
for name, conf in runs:
    run = bag.dags[name].test(run_conf=conf)
    made = Path(conf["folder"])
    said["runs"].append(
        {
            "state": str(run.state),
            "files": {
                str(path.relative_to(made)): path.stat().st_mtime_ns
                for path in made.rglob("*")
                if path.is_file()
            },
            "tasks": [
                [ti.task_id, ti.map_index, str(ti.state), ti.try_number] for ti in run.get_task_instances()
            ],
        }
    )
Path(sys.argv[2]).write_text(json.dumps(said))
