"""Time of one gradient pass of the sparse learner, per stored entry: ``python bench/sparse_reference.py``.

One JSON line per number of classes and of threads, on random sparse columns with counts of one byte.
"""

import json
import time

import numpy as np
import scipy.sparse

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.solvers.sparse.working_set.gradient import gradient_pass
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

N_SAMPLES, N_FEATURES, ENTRIES = 200_000, 20_000, 8_000_000


def main() -> None:
    generator = np.random.default_rng(0)
    rows = generator.integers(0, N_SAMPLES, ENTRIES)
    columns = (N_FEATURES * generator.random(ENTRIES) ** 3).astype(np.int64)
    X = scipy.sparse.csr_array((np.ones(ENTRIES, np.int8), (rows, columns)), (N_SAMPLES, N_FEATURES))
    X.data[:] = 1
    for n_classes in (7, 20, 54):
        dataset = Dataset.from_arrays(X, generator.integers(0, n_classes, N_SAMPLES))
        for n_threads in (1, 2):
            problem = Problem(
                dataset, objective("squared_hinge", "l1/l2"), 1e-4, None, np.dtype(np.float32),
                ThreadEngine(n_threads),
            )  # fmt: skip
            coef = Coefficients.zeros(problem.width)
            problem.rebuild_scores(coef, np.zeros(n_classes), [])
            source = BlockSource(dataset, [(0, N_FEATURES)], Residency.MEMORY)
            screening = Screening(dataset.column_nnz(), coef.features)
            seconds = []
            for _ in range(5):
                start = time.perf_counter()
                gradient_pass(problem, source, coef, np.empty((0, n_classes)), screening)
                seconds.append(time.perf_counter() - start)
            figures = {
                "n_classes": n_classes,
                "threads": n_threads,
                "ns_per_entry": round(min(seconds[1:]) / dataset.nnz * 1e9, 2),
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
