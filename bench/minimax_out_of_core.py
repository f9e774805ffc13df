"""The minimax risk classifier on dense data ten times its memory limit, on threads and on Dask workers.

    python bench/minimax_out_of_core.py --rows 600000 --memory 96MB

The data are the digits of scikit-learn, repeated with noise, as 400 random Fourier features: 1600 bytes a
row. Every step is a process of its own. One line of JSON each: ``anonymous`` is the most anonymous memory
above that of the bare process, read twenty times a second, and ``digest`` the hash of μ and its bounds,
equal for equal bits.

compile       kernels, if this is the first run
bare          imports, kernels, threads
ingest        the dataset, from an array of the caller's
threads       training on threads of the process, which the kernel kills when it takes more than the bare
              process and 1.25 times the limit
dask          training with two workers of a Dask cluster
dask, killed  the same, and one of the two gets SIGKILL in the middle of the fifth scan
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from memory_cap import anonymous, capped, sample_anonymous

from bigmc import budget

COMMON = """
import hashlib, json, os, signal, sys, time
import numpy as np
import bigmc, bigmc.estimators, bigmc.ingestion
from sklearn.datasets import load_digits
step, target, (rows, limit, iterations) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
X, y = load_digits(return_X_y=True)
bigmc.MinimaxRiskClassifier(k_max=1, tol=0.9).fit(X[:200], y[:200])
if step == "ingest":
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(y), size=rows)
    X = X.astype(np.int8)[chosen] + rng.integers(-2, 3, size=(rows, 64), dtype=np.int8)
    y = y[chosen]
print(open("/proc/self/status").read().partition("RssAnon:")[2].split()[0], flush=True)
started, worked = time.monotonic(), time.process_time()
found = {}
"""
INGEST = """
data = bigmc.ingest(X, target, label=y, fourier=400, split={"train": 1.0}, memory_limit=limit)
found = {"n_samples": data.n_samples, "n_shards": data.n_shards, "bytes": data.nnz * data.dtype.itemsize}
"""
TRAIN = """
data = bigmc.open_dataset(target)["train"]
model = bigmc.MinimaxRiskClassifier(memory_limit=limit, tol=1e-3, k_max=iterations)
if step == "threads":
    model.fit(data)
else:
    from distributed import LocalCluster
    from bigmc.engine.dask import DaskEngine

    class Killing(DaskEngine):
        scans, killed = 0, None

        def map(self, fn, parts, *shared):
            parts = list(parts)
            self.scans += fn.__name__ == "_price_shard"
            for k, result in enumerate(super().map(fn, parts, *shared)):
                if step == "dask, killed" and self.scans == 5 and k == len(parts) // 2:
                    self.killed = next(iter(self._client.run(os.getpid).values()))
                    os.kill(self.killed, signal.SIGKILL)
                yield result

    options = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0, "threads_per_worker": 1}
    with LocalCluster(n_workers=2, **options) as cluster, Killing(cluster.scheduler_address) as engine:
        model.set_params(engine=engine).fit(data)
        assert (engine.killed is not None) == (step == "dask, killed")
c = model.certificate_
bits = model.coef_.data.tobytes() + model.intercept_.tobytes() + np.array([c.lower, c.upper]).tobytes()
found = {"lower": c.lower, "upper": c.upper, "gap": c.gap, "n_scans": model.n_passes_}
found["digest"] = hashlib.sha256(bits).hexdigest()[:16]
"""
REPORT = """
spent = {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - worked}
print(json.dumps(found | {name: round(value, 1) for name, value in spent.items()}))
"""
STEPS = {"compile": "", "bare": "", "ingest": INGEST, "threads": TRAIN, "dask": TRAIN, "dask, killed": TRAIN}


def run(step: str, script: Path, arguments: list[str], limit: int, bare: int) -> dict[str, Any]:
    """Run a step and return its figures."""
    held = step == "threads"
    with capped(bare + 5 * limit // 4) if held else nullcontext((None, None)) as (kind, enter):
        command = [sys.executable, str(script), step, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=enter, text=True)
        assert process.stdout is not None
        own = int(process.stdout.readline() or 0) * 1024
        samples = [anonymous(process.pid)]
        sampler = threading.Thread(target=sample_anonymous, args=(process.pid, samples))
        sampler.start()
        said = process.stdout.read()
        sampler.join()
        process.wait()
    figures = json.loads(said) if process.returncode == 0 else {}
    figures |= {"anonymous": max(samples) - own, "bare": own, "cap": kind}
    return {"step": step, "status": process.returncode, "limit": limit, **figures}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--memory", default="96MB")
    parser.add_argument("--iterations", type=int, default=20, help="after which training ends")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--to", type=Path, help="a folder where the dataset stays, for another run")
    options = parser.parse_args()
    limit = budget.parse_bytes(options.memory)
    with tempfile.TemporaryDirectory() as folder:
        target = (options.to or Path(folder)) / "digits.bigmc"
        bare = 0
        for step in options.steps:
            script = Path(folder) / "step.py"
            # A file with a main guard: Dask's workers import it.
            lines = (COMMON + STEPS[step] + REPORT).splitlines()
            script.write_text("if __name__ == '__main__':\n" + "\n".join("    " + line for line in lines))
            sizes = map(str, (options.rows, limit, options.iterations))
            found = run(step, script, [str(target), *sizes], limit, bare)
            bare = int(found["bare"]) if step == "bare" else bare
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
