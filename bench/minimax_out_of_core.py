"""The minimax risk classifier on dense data ten times its memory limit, on threads and on Dask workers.

    python bench/minimax_out_of_core.py --rows 400000 --memory 64MB

The data are the digits of scikit-learn, repeated with noise, as 400 random Fourier features: 1600 bytes a
row. Every step is a process of its own. One line of JSON each; ``added`` is the peak of a process above
what it had after its imports, which the limit is for (the Dask run holds the workers to nothing).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

COMMON = """
import json, sys, time
import numpy as np
import bigmc, bigmc.estimators, bigmc.ingestion
from bigmc import budget
from sklearn.datasets import load_digits
target, rows, limit, option = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
X, y = load_digits(return_X_y=True)
if option == "ingest":
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(y), size=rows)
    X = (X[chosen] + rng.integers(-2, 3, size=(rows, 64))).astype(np.int8)
    y = y[chosen]
bigmc.MinimaxRiskClassifier(k_max=1, tol=0.9).fit(X[:200], y[:200])  # compiles, and starts the threads
bare = budget.current_memory()
budget.reset_peak()
started, worked = time.monotonic(), time.process_time()
"""
INGEST = """
data = bigmc.ingest(X, target, label=y, fourier=400, split={"train": 1.0}, memory_limit=limit)
found = {"n_samples": data.n_samples, "n_shards": data.n_shards, "bytes": data.nnz * data.dtype.itemsize}
"""
TRAIN = """
data = bigmc.open_dataset(target)["train"]
model = bigmc.MinimaxRiskClassifier(memory_limit=limit, tol=3e-2)
if option == "dask":
    from distributed import LocalCluster
    from bigmc.engine.dask import DaskEngine
    options = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0, "threads_per_worker": 1}
    with LocalCluster(n_workers=2, **options) as cluster, DaskEngine(cluster.scheduler_address) as engine:
        model.set_params(engine=engine).fit(data)
else:
    model.fit(data)
c = model.certificate_
found = {"lower": c.lower, "upper": c.upper, "gap": c.gap, "n_iter": model.n_iter_}
"""
REPORT = """
found |= {"seconds": time.monotonic() - started, "cpu": time.process_time() - worked}
print(json.dumps({"step": option, "limit": limit, "added": budget.peak_memory() - bare, **found}))
"""


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--memory", default="64MB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "digits.bigmc")
        for option, body in (("ingest", INGEST), ("threads", TRAIN), ("dask", TRAIN)):
            script = Path(folder) / f"step_{option}.py"
            # A file with a main guard: Dask's workers import it.
            lines = (COMMON + body + REPORT).splitlines()
            script.write_text("if __name__ == '__main__':\n" + "\n".join("    " + line for line in lines))
            command = [sys.executable, str(script), target, str(options.rows), options.memory, option]
            found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            print(json.dumps(json.loads(found.stdout.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()
