"""The conda recipe asks for what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_the_recipe_follows_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((ROOT / "pipelines" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == project["version"]
    names = {"pyarrow-core": "pyarrow"}
    run = {}
    for requirement in recipe["requirements"]["run"]:
        name, _, least = requirement.partition(" >=")
        run[names.get(name, name)] = least
    assert run.pop("python") == project["requires-python"].removeprefix(">=")
    assert run.pop("__linux") == ""
    asked = [re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", item).groups() for item in project["dependencies"]]
    assert run == dict(asked)
