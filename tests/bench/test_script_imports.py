"""What stands outside the package names things that the package has."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path for folder in ("bench", "examples", "pipelines") for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.relative_to(ROOT).as_posix() for path in SCRIPTS])
def test_the_package_has_what_a_script_imports(path):
    missing = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bigmc":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    try:
                        importlib.import_module(f"{node.module}.{alias.name}")
                    except ModuleNotFoundError:
                        missing.append(f"{node.module}.{alias.name}")
    assert not missing


def test_there_are_scripts():
    assert len(SCRIPTS) > 30


def test_the_readme_of_benchmarks_names_every_script():
    named = set(re.findall(r"`(\w+\.py)`", (ROOT / "bench" / "README.md").read_text()))
    assert named == {path.name for path in (ROOT / "bench").glob("*.py")}
