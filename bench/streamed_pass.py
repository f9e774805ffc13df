"""A full pass over data on disk beside the same pass over data in memory.

    python bench/streamed_pass.py words

A pass computes scores, losses and the gradient of every feature at the same weights, shard by shard: from
disk beside the same from data held in memory, once with the system's page cache warm and once emptied of the
dataset's files before each pass. Medians; one JSON line each. Problems as in ``bench/sparse_race.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # bigmc need not be installed

from sparse_problems import PROBLEMS  # noqa: E402

from bigmc import SparseClassifier  # noqa: E402
from bigmc.engine import ThreadEngine  # noqa: E402
from bigmc.objectives import objective  # noqa: E402
from bigmc.solvers.sparse.coefficients import Coefficients  # noqa: E402
from bigmc.solvers.sparse.columns import BlockSource  # noqa: E402
from bigmc.solvers.sparse.problem import Problem  # noqa: E402
from bigmc.solvers.sparse.sampled.passes import Job, full_pass  # noqa: E402
from bigmc.solvers.sparse.screening import Screening  # noqa: E402
from bigmc.solvers.sparse.working_set.gradient import gradient_pass  # noqa: E402
from bigmc.store.block import Residency  # noqa: E402
from bigmc.store.dataset import Dataset  # noqa: E402

_BLOCK_BYTES = 64 << 20


def median_of(
    n_passes: int, work: Callable[[], None], before: Callable[[], None] | None = None
) -> dict[str, float]:
    """Return the medians of seconds and CPU seconds."""
    seconds, cpu_seconds = [], []
    for _ in range(n_passes):
        if before:
            before()
        clock, cpu = time.perf_counter(), time.process_time()
        work()
        seconds.append(time.perf_counter() - clock)
        cpu_seconds.append(time.process_time() - cpu)
    return {"seconds": statistics.median(seconds), "cpu_seconds": statistics.median(cpu_seconds)}


def report(problem: str, cache: str, found: dict[str, float], memory: dict[str, float]) -> None:
    ratio = found["seconds"] / memory["seconds"]
    rounded = {key: round(value, 3) for key, value in {**found, "ratio": ratio}.items()}
    print(json.dumps({"problem": problem, "from": cache, **rounded}), flush=True)


def empty_cache(dataset: Dataset) -> None:
    """Have the system drop what it keeps of the dataset's files."""
    for path in Path(dataset.path).rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    given = parser.parse_args()
    problem = PROBLEMS[given.problem]
    train, _ = problem.make(given.folder.resolve())

    # weights of a larger penalty: what a pass costs hardly depends on them
    model = SparseClassifier(5 * problem.alpha, tol=0.3).fit(train).model_
    minimised, engine = objective("squared_hinge", "l1/l2", None, 0.0), ThreadEngine()
    single = np.dtype(np.float32)
    at = Problem(train, minimised, problem.alpha, None, single, engine)
    rows = np.zeros((len(model.features), at.width))
    rows[:, : at.n_classes] = model.coef
    coef, intercept = Coefficients(model.features, rows), np.zeros(at.n_classes)

    screening = Screening(train.column_nnz(), coef.features)

    def by_shards() -> None:
        used = np.flatnonzero(train.column_nnz())
        job = Job(minimised, coef, intercept, used, single, _BLOCK_BYTES, train.n_features)
        full_pass(train, job, None, float(train.n_samples), engine)

    held = BlockSource(train, [(0, train.n_features)], Residency.MEMORY)
    support = list(held.columns_of(coef.features))
    at.rebuild_scores(coef, intercept, support)

    def with_scores() -> None:
        at.rebuild_scores(coef, intercept, support)
        at.margins()
        gradient_pass(at, held, coef, np.empty((0, at.n_classes)), screening)

    memory = median_of(given.passes, with_scores)
    report(given.problem, "memory", memory, memory)
    report(given.problem, "warm", median_of(given.passes, by_shards), memory)
    cold = median_of(given.passes, by_shards, lambda: empty_cache(train))
    report(given.problem, "cold", cold, memory)


if __name__ == "__main__":
    main()
