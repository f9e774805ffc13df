"""Imports run one way; a new upward or sideways import fails here, also inside a function."""

import ast
from functools import cache
from pathlib import Path

import bigmc

ROOT = Path(bigmc.__file__).parent

LEAVES = {"errors", "lazy", "progress", "budget", "version", "options", "printable"}
ALLOWED = {
    "errors": set(),
    "lazy": set(),
    "progress": set(),
    "budget": set(),
    "version": set(),
    "printable": set(),
    "options": {"errors"},
    "kernels": set(),
    "store": {"kernels", "engine"},
    "engine": {"kernels"},
    "objectives": {"kernels"},
    "model": {"kernels", "store"},
    "solvers": {"store", "engine", "objectives", "model", "kernels"},
    "learners": {"solvers", "store", "engine", "objectives", "model", "kernels"},
    "estimators": {"learners", "inference", "solvers", "store", "engine", "objectives", "model", "kernels"},
    "ingestion": {"store", "engine", "kernels"},
    "inference": {"ingestion", "store", "engine", "model", "kernels"},
    "training": {"inference", "estimators", "learners", "ingestion", "solvers", "model", "store", "engine"},
    "text": {"training", "inference", "estimators", "ingestion", "model", "store", "engine"},
    "reporting": {"store", "model"},
    "export": {"ingestion", "model", "reporting"},
    "api": {
        "estimators",
        "inference",
        "training",
        "ingestion",
        "reporting",
        "export",
        "store",
        "engine",
        "model",
    },
    "cli": {"api", "engine"},
    "mlflow": {"api", "store"},
    "__main__": {"cli"},
    "__init__": {"api", "estimators", "text"},
}
LAYERS = {p.name.removesuffix(".py") for p in ROOT.iterdir()}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def layer_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@cache
def imported_modules(path: Path) -> frozenset[str]:
    """Return the modules of the package that a file imports, in functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found & set(MODULES))


def imported_layers(path: Path) -> set[str]:
    return {module.split(".")[1] for module in imported_modules(path) if module != "bigmc"}


def test_every_module_belongs_to_a_layer():
    assert {layer_of(p) for p in ROOT.rglob("*.py")} <= set(ALLOWED)


def test_imports_run_one_way():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        layer = layer_of(path)
        allowed = ALLOWED[layer] | {layer} | (LEAVES if layer not in LEAVES else set())
        upward = (imported_layers(path) & LAYERS) - allowed
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(upward)]
        if layer != "__init__" and "bigmc" in imported_modules(path):
            wrong.append(f"{path.relative_to(ROOT)} imports the package itself")
    assert not wrong, wrong


def test_no_modules_import_each_other_in_a_circle():
    imports = {module: imported_modules(path) - {module} for module, path in MODULES.items()}
    while free := [module for module, below in imports.items() if not below]:
        imports = {m: below - set(free) for m, below in imports.items() if m not in free}
    # What is left imports, directly or not, a circle.
    users = set().union(*imports.values())
    assert not imports, f"a circle among {sorted(set(imports) & users)}"


def test_the_folders_within_a_package_do_not_import_each_other_in_a_circle():
    """A module beside folders may stand above some and below others: folders without folders are compared."""
    folder_of = {m: m.rpartition(".")[0] for m, path in MODULES.items() if path.name != "__init__.py"}
    with_folders = {folder.rpartition(".")[0] for folder in folder_of.values()}
    below: dict[str, set[str]] = {
        folder: set() for folder in folder_of.values() if folder.count(".") > 1 and folder not in with_folders
    }
    for module, folder in folder_of.items():
        if folder in below:
            below[folder] |= {folder_of.get(used, used) for used in imported_modules(MODULES[module])} - {
                folder
            }
    below = {folder: used & below.keys() for folder, used in below.items()}
    assert len(below) > 10
    while free := [folder for folder, used in below.items() if not used]:
        below = {folder: used - set(free) for folder, used in below.items() if folder not in free}
    assert not below, f"a circle among {sorted(below)}"


def test_blocks_and_statistics_know_no_dataset():
    for name in ("protocols", "block", "statistics"):
        assert "bigmc.store.dataset" not in imported_modules(ROOT / "store" / f"{name}.py")


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


CHANGES_A_DISK = {
    "write_bytes", "write_text", "mkdir", "makedirs", "unlink", "rmdir", "rmtree", "rename",
    "renames", "replace", "mkstemp", "symlink", "link", "truncate", "ftruncate", "fsync", "pwrite", "tofile",
}  # fmt: skip
OUTSIDE = {
    "store/files/disk.py": CHANGES_A_DISK,
    "kernels/__init__.py": {"mkdir"},  # a cache of compiled kernels
    "kernels/compile_server.py": {"makedirs"},  # the same
    "budget.py": {"write_text"},  # resets a figure under /proc
    "solvers/sparse/problem.py": {"mkstemp", "unlink"},  # mapped into memory for a run
    "solvers/sparse/scratch/scratch_arrays.py": {"mkstemp", "unlink", "pwrite"},  # gone with the process
    "store/files/file_array.py": {"mkstemp", "unlink", "ftruncate"},  # the same
    "cli/metrics.py": {"replace"},  # figures of a run for a collector, not a result
    "cli/demo.py": {"mkdir", "unlink", "replace"},  # makes a source, not a result
}


def test_only_one_module_changes_the_disk():
    """So that tests of kills and failures, which stand there, see every change."""
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            called, owner = node.func.attr, ast.unparse(node.func.value)
            if called not in CHANGES_A_DISK - OUTSIDE.get(name, set()) or owner == "disk":
                continue
            if called in ("replace", "rename", "link", "truncate") and owner != "os" and "path" not in owner:
                continue  # of strings, tables and dataclasses
            wrong.append(f"{name}:{node.lineno} {ast.unparse(node.func)}")
    assert not wrong, wrong
