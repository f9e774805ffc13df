"""Imports run one way; a new upward or sideways import fails here, also inside a function."""

import ast
from pathlib import Path

import bigmc

ROOT = Path(bigmc.__file__).parent

LEAVES = {"errors", "progress", "budget", "version"}
ALLOWED = {
    "errors": set(),
    "progress": set(),
    "budget": set(),
    "version": set(),
    "kernels": set(),
    "store": {"kernels", "engine"},
    "engine": set(),
    "objectives": {"kernels"},
    "model": {"kernels", "store"},
    "solvers": {"store", "engine", "objectives", "model", "kernels"},
    "estimators": {"solvers", "store", "engine", "objectives", "model", "kernels"},
    "ingestion": {"store", "engine", "kernels"},
    "inference": {"ingestion", "store", "engine", "model", "kernels"},
    "training": {"inference", "estimators", "ingestion", "solvers", "model", "store", "engine"},
    "reporting": {"store", "model"},
    "api": {
        "estimators",
        "inference",
        "training",
        "ingestion",
        "reporting",
        "store",
        "engine",
        "model",
    },
    "cli": {"api", "engine"},
    "__main__": {"cli"},
    "__init__": {"api", "estimators"},
}
LAYERS = {p.name.removesuffix(".py") for p in ROOT.iterdir()}


def layer_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules = [node.module] if node.module != "bigmc" else [f"bigmc.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            raise AssertionError(f"{path}: relative imports hide the layer")
        else:
            continue
        found |= {m.split(".")[1] for m in modules if m.startswith("bigmc.")}
    return found


def test_every_module_belongs_to_a_layer():
    assert {layer_of(p) for p in ROOT.rglob("*.py")} <= set(ALLOWED)


def test_imports_run_one_way():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        layer = layer_of(path)
        allowed = ALLOWED[layer] | {layer} | (LEAVES if layer not in LEAVES else set())
        upward = (imported_layers(path) & LAYERS) - allowed
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(upward)]
    assert not wrong, wrong


def test_the_layers_have_no_cycle():
    order: list[str] = []

    def visit(layer: str, trail: tuple[str, ...]) -> None:
        assert layer not in trail, " → ".join((*trail, layer))
        if layer in order:
            return
        for below in sorted(ALLOWED[layer]):
            visit(below, (*trail, layer))
        order.append(layer)

    for layer in ALLOWED:
        visit(layer, ())


def test_only_the_linear_program_imports_highspy():
    users = [p for p in ROOT.rglob("*.py") if "highspy" in p.read_text() and p.name != "linear_program.py"]
    assert not users


def test_importing_the_package_is_light():
    import subprocess
    import sys

    code = "import bigmc, sys; print([m for m in ('sklearn', 'numba', 'dask', 'pandas') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
