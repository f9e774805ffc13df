"""The files of the containers name what is there; they are built where Docker is."""

import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "pipelines" / "container"
COMPOSE = (CONTAINER / "compose.yaml").read_text()


@pytest.mark.parametrize("name", ["Dockerfile", "airflow.Dockerfile"])
def test_what_is_installed_is_in_the_image_and_known_to_the_project(name):
    lines = (CONTAINER / name).read_text()
    extras = re.findall(r"'[\w/]*source\[([\w,]+)\]'", lines)
    assert extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {extra for some in extras for extra in some.split(",")} <= project["project"][
        "optional-dependencies"
    ].keys()
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")]
    needed = ["pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]]
    needed += project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(needed) <= set(kept)
    assert all((ROOT / name).exists() for name in kept)


def test_services_start_one_by_one_without_what_others_need():
    """Docker fills in the variables of the whole file, whichever service is asked for."""
    variables = re.findall(r"\$\{(\w+)(.*?)\}", COMPOSE)
    assert variables
    assert all(rest.startswith(":-") for _, rest in variables)


def test_services_name_files_and_services_that_are_there():
    compose = yaml.safe_load(COMPOSE)
    services = compose["services"]
    for service in services.values():
        if "build" in service:
            assert (CONTAINER / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert set(service.get("depends_on", [])) <= services.keys()
        for volume in service.get("volumes", []):
            source = volume.replace("${DATA:-./data}", "/anywhere").split(":")[0]
            assert source == "/anywhere" or source in compose["volumes"] or (CONTAINER / source).is_dir()
    commands = re.findall(r"^#   .*compose\.yaml (?:up -d|run --rm) (\w+(?: \w+)*)", COMPOSE, re.MULTILINE)
    assert {word for command in commands for word in command.split()[:1]} == services.keys() - {"worker"}


def test_the_guide_runs_dask_in_an_image_whose_own_command_is_bigmc(monkeypatch):
    """dask-kubernetes sets the arguments of a container, which follow the command of its image."""
    assert json.loads(
        re.findall(r"^ENTRYPOINT (.*)$", (CONTAINER / "Dockerfile").read_text(), re.MULTILINE)[0]
    ) == ["bigmc"]
    made = {}

    def make_cluster_spec(worker_command="dask-worker", **_):
        pods = {"scheduler": "dask-scheduler", "worker": worker_command}
        made.update({name: {"spec": {"containers": [{"args": args.split()}]}} for name, args in pods.items()})
        return {"spec": made}

    operator = ModuleType("operator")
    operator.make_cluster_spec, operator.KubeCluster = make_cluster_spec, None
    monkeypatch.setitem(sys.modules, "dask_kubernetes", ModuleType("dask_kubernetes"))
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", operator)
    guide = (ROOT / "docs" / "guides" / "cluster.md").read_text()
    code = guide.split("## Kubernetes")[1].split("```python\n")[1].split("```")[0]
    exec(code.split("cluster = KubeCluster")[0], {})
    for pod in made.values():
        [container] = pod["spec"]["containers"]
        assert [*container["command"], *container["args"]][:2] in (["env", "dask-scheduler"], ["env", "dask"])
