"""What a second thread is worth in training in memory.

    python bench/threads.py packages squared_hinge 1e-4 --folder bench/data

The problems are those of ``sparse_problems.py``. One line of JSON: seconds on the wall with one thread and
with two, in turn, to a certified gap of 1e-3, the ratio of their medians, and whether all models have the
same bits. On a machine that other work keeps busy run it by ``chrt -r 1``, so that it has the processors when
it asks for them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

from sparse_problems import PROBLEMS

from bigmc import SparseClassifier
from bigmc.engine import ThreadEngine

TOLERANCE = 1e-3


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("loss")
    parser.add_argument("alpha", type=float)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    dataset, _ = PROBLEMS[given.problem].make(given.folder)
    options = {"loss": given.loss, "tol": TOLERANCE}
    for n_threads in (1, 2):  # an easier problem compiles or loads the kernels
        SparseClassifier(20 * given.alpha, engine=ThreadEngine(n_threads), **options).fit_dataset(dataset)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    models = set()
    for _ in range(given.repeat):
        for n_threads, taken in seconds.items():
            started = time.perf_counter()
            learner = SparseClassifier(given.alpha, engine=ThreadEngine(n_threads), **options)
            found = learner.fit_dataset(dataset)
            taken.append(round(time.perf_counter() - started, 2))
            models.add((found.certificate_.lower, found.coef_.data.tobytes()))
    alone, together = (statistics.median(taken) for taken in seconds.values())
    figures = {"problem": given.problem, "loss": given.loss, "alpha": given.alpha, "seconds": seconds}
    more = {"ratio": round(alone / together, 2), "same bits": len(models) == 1, "load": os.getloadavg()[0]}
    print(json.dumps(figures | more))


if __name__ == "__main__":
    main()
