"""The memory limit is a promise of every command: a real process, measured above its bare imports."""

import json
from dataclasses import replace

import numpy as np
import pytest
from measured import said_number

from bigmc import api
from bigmc.engine import ThreadEngine

pytestmark = pytest.mark.slow

MEASURE = """
import json, sys
import bigmc.api, bigmc.ingestion, bigmc.estimators, bigmc.cli
import bigmc.inference.evaluation.evaluate, bigmc.inference.predict
from bigmc import budget
from bigmc.engine import ThreadEngine
from bigmc.kernels.compile_server import compile_elsewhere
compile_elsewhere()  # as commands do
bare = budget.current_memory()
budget.reset_peak()
command, arguments, options = json.loads(sys.argv[1])
getattr(bigmc.api, command)(*arguments, **options, engine=ThreadEngine(2))
print(budget.peak_memory() - bare)
"""
N_ROWS, WORDS = 20_000, 200
SPARSE = {"max_passes": 3, "alpha": 1e-4}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """35 MB of text, 7 million entries of it in a dataset, and a model of 300,000 weights."""
    here = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(0)
    words = np.array([f"w{k:x}" for k in rng.integers(0, 1 << 36, 60_000)])
    with (here / "rows.csv").open("w") as file:
        file.write("text,label\n")
        for _ in range(N_ROWS // 1000):
            rows = words[(rng.random((1000, WORDS)) ** 3 * len(words)).astype(int)]
            file.writelines(f"{' '.join(row)},{k % 12}\n" for k, row in enumerate(rows))
    options = {"text": "text", "label": "label", "memory_limit": "400MB", "engine": ThreadEngine(2)}
    api.ingest(here / "rows.csv", here / "d.bigmc", **options)
    api.train("sparse", here / "d.bigmc", here / "few.model", max_passes=1, alpha=1.0)
    features = np.sort(rng.choice(1 << 18, 25_000, replace=False))  # what they are memory does not know
    coef = rng.normal(size=(25_000, 12)).astype(np.float32)
    many = replace(api.load_model(here / "few.model").model_, features=features, coef=coef, step=None)
    many.save(here / "m.model")
    return here


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(
    ("command", "arguments", "options"),
    [
        (
            "train",
            ["sparse", "d.bigmc", "small.model"],
            # the peak of alpha 1e-4 is 1 MB higher, for nearly twice the time
            SPARSE | {"memory_limit": "64MB", "alpha": 3e-4},
        ),
        ("predict", ["m.model", "rows.csv", "b.parquet"], {"scores": True, "memory_limit": "64MB"}),
        ("evaluate", ["m.model", "d.bigmc"], {"split": "train", "memory_limit": "64MB"}),
        ("predict", ["m.model", "d.bigmc", "a.parquet"], {"scores": True, "memory_limit": "64MB"}),
        (
            "train",
            ["sparse", "d.bigmc", "large.model"],
            SPARSE | {"memory_limit": "128MB", "max_passes": 2},
        ),
    ],
    ids=["train in 64 MB", "predict a file", "evaluate", "predict a dataset", "train in 128 MB"],
)
def test_peak_above_the_bare_imports_is_within_the_limit(command, arguments, options, here):
    peak = said_number(MEASURE, json.dumps([command, arguments, options]), folder=here)
    assert peak <= int(options["memory_limit"].removesuffix("MB")) * 1_000_000


@pytest.mark.exhaustive
def test_few_rows_of_many_standardized_columns_are_predicted_within_the_limit(tmp_path):
    """Few rows of 1,000 columns at a time left so much memory unused that 119 of 64 MB were taken."""
    rng = np.random.default_rng(0)
    X, names = rng.normal(size=(1500, 1000)).round(4), [f"x{j}" for j in range(1000)]
    with (tmp_path / "wide.csv").open("w") as file:
        file.write(",".join([*names, "label"]) + "\n")
        file.writelines(f"{','.join(map(str, row))},{row[0] > 0:d}\n" for row in X.tolist())
    options = {"dense": ["x*"], "label": "label", "standardize": True, "engine": ThreadEngine(2)}
    api.ingest(tmp_path / "wide.csv", tmp_path / "d.bigmc", **options)
    api.train("sparse", tmp_path / "d.bigmc", tmp_path / "m.model", max_passes=1)
    arguments = ["predict", ["m.model", "wide.csv", "p.csv"], {"memory_limit": "64MB"}]
    assert said_number(MEASURE, json.dumps(arguments), folder=tmp_path) <= 64_000_000


MEASURE_MEANS = """
from pathlib import Path
from bigmc import budget
from bigmc.ingestion.prepare import make_job
from bigmc.options.ingest import IngestOptions
names = tuple(f"x{j}" for j in range(4000))
options = IngestOptions(dense=names, label="label", missing="fill")
bare = budget.current_memory()
budget.reset_peak()
make_job("rows.csv", Path("d.bigmc"), options, 160_000_000)
print(budget.peak_memory() - bare)
"""


@pytest.mark.exhaustive
def test_the_means_of_thousands_of_columns_are_taken_within_the_limit(tmp_path):
    """What each batch left in the heap was of no use to the next: `fit` of 400 MB took 2 GB first."""
    numbers = np.random.default_rng(0).integers(0, 1000, (40, 4000)).astype(str)
    with (tmp_path / "rows.csv").open("w") as file:
        file.write(",".join([*(f"x{j}" for j in range(4000)), "label"]) + "\n")
        rows = [",".join(row) for row in numbers.tolist()]
        file.writelines(f"{rows[k % 40]},{k % 3}\n" for k in range(4000))
    assert said_number(MEASURE_MEANS, folder=tmp_path) <= 160_000_000
