"""The memory limit is a promise: the peak of a real process above its bare imports stays below it."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from measured import said_number

pytestmark = pytest.mark.slow

MEASURE = """
import json, sys
import bigmc.api, bigmc.ingestion.prepare, bigmc.store.dataset
from bigmc import budget
from bigmc.engine import ThreadEngine
bare = budget.current_memory()
budget.reset_peak()
options = json.loads(sys.argv[1])
bigmc.api.ingest("rows.csv", "d.bigmc", text="text", label="label", engine=ThreadEngine(2), **options)
print(budget.peak_memory() - bare)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """18 MB of text, far more than what a limit of 64 MB lets a worker hold at once."""
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(0)
    words = np.array([f"w{k:x}" for k in rng.integers(0, 1 << 40, 50_000)])
    with (folder / "rows.csv").open("w") as file:
        file.write("text,label\n")
        for _ in range(20):
            rows = words[(rng.random((1000, 80)) ** 3 * len(words)).astype(int)]
            file.writelines(f"{' '.join(row)},{k % 5}\n" for k, row in enumerate(rows))
    return folder


WORDS = {"memory_limit": "64MB", "ngrams": [1, 2], "names": True}
CHARACTERS = {"memory_limit": "64MB", "ngrams": [1, 3], "analyzer": "char_wb", "names": False}


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("options", [WORDS, CHARACTERS], ids=["words with names", "characters"])
def test_peak_above_the_bare_imports_is_within_the_limit(options, folder):
    assert measured_peak(options, folder) <= 60_000_000  # some slack: others measure on other machines


@pytest.mark.exhaustive
def test_a_run_that_compiles_its_kernels_stays_within_the_limit(folder, tmp_path):
    assert measured_peak(WORDS, folder, {"NUMBA_CACHE_DIR": str(tmp_path)}) <= 64_000_000
    assert list(tmp_path.rglob("*.nbc"))


def measured_peak(options, folder, environment=None):
    peak = said_number(MEASURE, json.dumps(options), folder=folder, environment=environment)
    shutil.rmtree(folder / "d.bigmc")
    return peak


@pytest.mark.parametrize(("chosen", "allocator"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_takes_memory_from_the_system_unless_the_user_chose_otherwise(chosen, allocator):
    """Arrow's own allocator kept 30 MB of what it had freed while Parquet was written."""
    variable = "ARROW_DEFAULT_MEMORY_POOL"
    environment = {k: v for k, v in os.environ.items() if k != variable}
    environment |= {} if chosen is None else {variable: chosen}
    code = "import bigmc, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert said.stdout.strip() == allocator, said.stderr
