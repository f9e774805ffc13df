"""Workers that share no memory find what threads do, bit for bit: here they are copies made by pickling."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sparse_runs import solve

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.engine.base import sum_in_groups
from bigmc.solvers import boosting
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.cluster_pricing import WorkerScan, columns_of, worker_ranges
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.loop import RunContext
from bigmc.solvers.minimax import MinimaxParameters, solve_minimax
from bigmc.store.block import Residency


class Apart:
    """One part after the other, on copies of everything: as processes get it, without starting any."""

    shares_memory, n_threads, process_memory = False, 1, None

    def __init__(self, n_workers):
        self.n_workers = n_workers

    def at_most(self, n_threads):
        return self

    def local(self):
        return ThreadEngine()

    def prepared(self, prepare):
        return self

    def usage(self):
        return {}

    def map(self, fn, parts, *shared):
        for part in parts:
            yield part, pickle.loads(pickle.dumps(fn(*pickle.loads(pickle.dumps((part, *shared))))))

    def reduce(self, fn, add, parts, *shared):
        return sum_in_groups((result for _, result in self.map(fn, parts, *shared)), add)


class Kept:
    """A checkpoint in memory that stops the run after its second save."""

    def __init__(self):
        self.kept, self.left = None, 2

    def save(self, meta, arrays):
        self.kept = (dict(meta), {name: array.copy() for name, array in arrays.items()})
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt

    def load(self):
        return self.kept and ({**self.kept[0], "history": list(self.kept[0]["history"])}, self.kept[1])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """On disk: numbers, some of them 0, in columns of different lengths; cuts tell the classes apart."""
    generator = np.random.default_rng(0)
    X = generator.integers(0, 40, (500, 9)) * (generator.random((500, 9)) < np.linspace(0.3, 1.0, 9))
    y = (X[:, 7] > X[:, 8]).astype(int) + 2 * (X[:, 2] + generator.integers(0, 9, 500) > 20)
    X = scipy.sparse.csr_array(X.astype(np.int8))
    return bigmc.ingest(X, tmp_path_factory.mktemp("workers") / "x.bigmc", label=y)


@pytest.mark.parametrize("blocks", [None, 3000])
@pytest.mark.parametrize(
    "options",
    [
        {"max_depth": 1},
        {"max_depth": 1, "family": "ray"},
        {"max_depth": 3, "pool": 6},
        {"max_depth": 3, "pool": 6, "min_frequency": 0.6},
    ],
    ids=["stumps", "rays", "trees", "trees of frequent columns"],
)
def test_boosting(dataset, options, blocks, tmp_path):
    asked = boosting.BoostingOptions(C=1e3, n_rounds=4, tol=1e-9, **options)
    threads = boosting.solve(dataset, asked, 10**9, RunContext(ThreadEngine(2)))
    checkpoint = Kept()
    for engine in (Apart(2), Apart(3)):  # stopped once: the second has not seen the first one's columns
        context = RunContext(engine, checkpoint, scratch=tmp_path)
        try:
            workers = boosting.solve(dataset, asked, 10**9, context, block_bytes=blocks)
        except KeyboardInterrupt:
            continue
    one, other = threads.stages.arrays(), workers.stages.arrays()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert np.array_equal(threads.thresholds, workers.thresholds)
    assert [entry["gap"] for entry in threads.history] == pytest.approx(
        [entry["gap"] for entry in workers.history], abs=0, nan_ok=True
    )
    assert workers.bytes_read > 0
    assert not list(tmp_path.iterdir())


def test_edges_of_a_column_that_no_worker_has_read_yet(dataset, tmp_path):
    """A resumed run asks for them: for those of learners that had weight before."""
    counted, ranges = np.ones(dataset.n_samples, bool), [(0, 9)]
    here = BinnedSource(dataset, ranges, Residency.DISK, 16, counted, ThreadEngine(1))
    for _ in here.stream():
        pass
    parts = worker_ranges(dataset, ranges, 2)
    with columns_of(dataset, parts, Residency.DISK, 16, counted, CutKind.STUMP, tmp_path) as columns:
        for feature in range(9):
            edges = WorkerScan(columns, Apart(2)).edges_of(feature)
            assert 1 < len(edges) < 16
            assert np.array_equal(edges, here.edges_of(feature))


def test_sparse(dataset):
    options = {"alpha": 1e-3, "tol": 1e-4, "memory_limit": 1 << 30, "fit_intercept": True}
    threads, workers = (solve(dataset, engine=engine, **options) for engine in (ThreadEngine(2), Apart(2)))
    assert np.array_equal(threads.coef, workers.coef)
    assert threads.certificate == workers.certificate


def test_minimax(dataset):
    parameters = MinimaxParameters(lambda0=0.05, tol=1e-4)
    threads, workers = (
        solve_minimax(dataset, parameters, 1 << 29, RunContext(engine))
        for engine in (ThreadEngine(2), Apart(2))
    )
    assert np.array_equal(threads.weights.coef, workers.weights.coef)
    assert threads.certificate == workers.certificate
