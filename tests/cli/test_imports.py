"""Commands import what they use: the rest would take most of the time of a short one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bigmc

ENV = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}
CODE = (
    "import atexit, json, sys; sys.argv[0] = 'bigmc';"
    "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr));"
    "from bigmc.cli import main; main()"
)
LIBRARIES = {"dask", "distributed", "highspy", "pandas", "pyarrow.dataset", "scipy.sparse", "sklearn", "zarr"}
SOLVERS = {"bigmc.solvers.boosting", "bigmc.solvers.minimax", "bigmc.solvers.sparse"}
ESTIMATORS = {"bigmc.estimators", "bigmc.learners.boosting", "bigmc.learners.minimax"}
WRITING = {"bigmc.ingestion.job", "bigmc.store.shards.write"}
NOT_IN_TRAINING = {"bigmc.ingestion.job", "bigmc.ingestion.readers", "bigmc.solvers.sparse.out_of_core"}
NOT_IN_PREDICTING = {"pyarrow.compute", "numcodecs", "bigmc.cli.training"}


def imported_by(command: str, cwd: Path) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    words = [sys.executable, "-c", CODE, *command.split()]
    done = subprocess.run(words, env=ENV, cwd=cwd, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imports")
    rows = (f"{'ab'[i % 2] * 3} word{i % 9},{'ab'[i % 2]}\n" for i in range(300))
    (folder / "in.csv").write_text("text,label\n" + "".join(rows))
    return folder


def test_help_imports_no_library_of_arrays(folder):
    assert not imported_by("--help", folder) & {"numpy", "numba", "pyarrow", *LIBRARIES}


def test_commands_import_what_they_use(folder):
    found = imported_by("ingest in.csv --to d --text text --label label --split train=1", folder)
    assert found >= WRITING
    assert not found & {*LIBRARIES, *SOLVERS, *ESTIMATORS}
    found = imported_by("train sparse d --to m", folder)
    assert "bigmc.solvers.sparse" in found
    assert not found & {*LIBRARIES, *SOLVERS - {"bigmc.solvers.sparse"}, *ESTIMATORS, *NOT_IN_TRAINING}
    found = imported_by("predict m in.csv --to p.parquet", folder)
    assert "bigmc.ingestion.readers" in found
    assert not found & {*LIBRARIES, *SOLVERS, *ESTIMATORS, *WRITING, *NOT_IN_PREDICTING}


@pytest.mark.exhaustive
def test_fit_of_a_table_imports_no_sparse_matrices(folder):
    rows = (f"{i % 7},{i * i % 11},{'ab'[i % 2]}\n" for i in range(60))
    (folder / "table.csv").write_text("x,z,label\n" + "".join(rows))
    # with so little memory no second process compiles kernels that this fit does not need
    found = imported_by("fit table.csv --to table.model --label label --memory 1GB", folder)
    assert "bigmc.training.fit.fit" in found
    assert not found & LIBRARIES
