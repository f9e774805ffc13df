"""The sparse learner beside its peers: frozen problems x methods, time to a tolerance, in one run.

    python bench/sparse_race.py --problems packages --methods bigmc lightning --repeat 3
    python bench/sparse_race.py --problems packages --methods bigmc lightning --alphas 1e-3 1e-4 1e-5

Every run is a process of its own. A JSON line per run: seconds and CPU seconds to each relative error of the
objective, peak memory, test accuracy, features with weights, and the trace; then a line of medians per
problem, method and alpha. With ``--alphas`` the methods end by their own criteria (bigmc: a certified gap of
1e-3; lightning: its default of 1e-3 or 200 epochs, as in the paper) instead of being stopped at a tolerance.
Data are fetched and made on first use; peers whose interpreter is missing are skipped by name
(``bench/peers.py`` makes them). ``bench/sparse_plots.py`` draws the lines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # bigmc need not be installed

from peers import interpreter  # noqa: E402
from sparse_methods import METHODS  # noqa: E402
from sparse_problems import PROBLEMS, optimum, prepare  # noqa: E402

_KEYS = (
    "seconds", "cpu_seconds", "passes", "bytes_read", "peak_bytes", "added_bytes",
    "objective", "relative", "gap", "accuracy", "nonzero_rows",
)  # fmt: skip


def one(order: dict[str, Any]) -> dict[str, Any]:
    """Run one method on one problem; what goes wrong is part of the result."""
    method = METHODS[order["method"]]
    head = {key: order[key] for key in ("problem", "method", "alpha", "seed")}
    python = Path(sys.executable)
    if method.interpreter:
        python = interpreter(method.interpreter, Path(order["folder"]))
        if not python.exists():
            return {**head, "skipped": f"no interpreter: python bench/peers.py {method.interpreter}"}
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    paths = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [python, HERE / "sparse_methods.py", json.dumps(order)],
        env={**os.environ, **single, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()
        return {**head, "failed": last[-1] if last else f"exit code {done.returncode}"}
    return {**head, "optimum": order["optimum"], **json.loads(done.stdout.splitlines()[-1])}


def medians(runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the medians over the seeds; a tolerance that not every second run reached has none."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for run in runs:
        if "trace" in run:
            groups.setdefault((run["problem"], run["method"], run["alpha"]), []).append(run)
    for (problem, method, alpha), group in groups.items():
        reached = {
            tolerance: {key: _median(_reached(run, tolerance, key) for run in group) for key in _KEYS[:2]}
            for tolerance in group[0].get("to", {})
        }
        keys = [key for key in _KEYS if all(key in run for run in group)]
        yield {
            "problem": problem, "method": method, "alpha": alpha, "median_of": len(group),
            **({"to": reached} if reached else {}),
            **{key: _median(run[key] for run in group) for key in keys},
        }  # fmt: skip


def _reached(run: dict[str, Any], tolerance: str, key: str) -> float:
    point = run["to"][tolerance]
    return point[key] if point else float("inf")


def _median(values: Iterable[float]) -> float | None:
    found = statistics.median_high(values)
    return None if found == float("inf") else found


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=["digits"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["bigmc", "lightning"])
    parser.add_argument("--repeat", type=int, default=1, help="seeds; methods that know no seed run once")
    parser.add_argument("--alphas", nargs="+", type=float, help="a path of these instead of the frozen alpha")
    parser.add_argument("--alpha", type=float, help="in place of the frozen one, to the same tolerances")
    parser.add_argument("--time-limit", type=float, default=300, help="CPU seconds of a run")
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    parser.add_argument("--to", type=Path, help="a file that the JSON lines are also appended to")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    def put(line: dict[str, Any]) -> None:
        print(json.dumps({key: value for key, value in line.items() if key != "trace"}), flush=True)
        if arguments.to:
            with arguments.to.open("a") as out:
                out.write(json.dumps(line) + "\n")

    runs = []
    for name in arguments.problems:
        problem = PROBLEMS[name]
        prepare(problem, folder)
        for alpha in arguments.alphas or [arguments.alpha or problem.alpha]:
            upper = None if arguments.alphas else optimum(problem, folder, alpha)["upper"]
            for seed in range(arguments.repeat):
                for method in arguments.methods:
                    if seed and not METHODS[method].seeded:
                        continue
                    order = {
                        "problem": name, "method": method, "alpha": alpha, "seed": seed, "optimum": upper,
                        "folder": str(folder), "time_limit": arguments.time_limit,
                    }  # fmt: skip
                    runs.append(one(order))
                    put(runs[-1])
    for line in medians(runs):
        put(line)


if __name__ == "__main__":
    main()
