"""The limit that a refusal names is accepted at once, and little less than it is refused."""

import importlib
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sparse_runs import solve

from bigmc import MultiBoostClassifier
from bigmc.budget import SMALLEST_LIMIT, MemoryLimitError, parse_bytes
from bigmc.solvers.boosting import memory_plan as boosting
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.boosting.restricted_master import tile_rows
from bigmc.solvers.minimax import memory_plan as minimax
from bigmc.store.dataset import Dataset

pytestmark = pytest.mark.slow

sparse = importlib.import_module("bigmc.solvers.sparse.solve")


@dataclass
class Shape:
    """As much of a dataset as a plan asks for."""

    n_samples: int
    n_features: int
    n_classes: int
    filled: float
    dtype = np.dtype(np.float32)

    @property
    def nnz(self):
        return int(self.column_nnz().sum())

    @property
    def n_shards(self):
        return -(-self.n_samples // 65_536)

    def column_nnz(self):
        steps = np.arange(1, self.n_features + 1)
        return np.maximum(self.n_samples * self.filled / steps**0.5, 1).astype(np.int64)

    def plan(self, block_bytes):
        return [(0, self.n_features)]


SHAPES = [
    Shape(150, 4, 3, 1.0),
    Shape(20_000, 16, 26, 1.0),
    Shape(900_000, 50, 10, 1.0),
    Shape(60_000, 784, 10, 0.2),
    Shape(63_000, 1 << 18, 50, 0.01),
    Shape(20_000, 20, 5_000, 1.0),
    Shape(5_000_000, 30, 2, 1.0),
]


def named_limit(plan, limit):
    with pytest.raises(MemoryLimitError, match="give --memory") as error:
        plan(limit)
    return parse_bytes(error.value.cure.removeprefix("give --memory ").removesuffix(" or more"))


def check(plan):
    """Every refusal names one limit, the least in whole megabytes: it works, and 95 % of it does not."""
    try:
        plan(SMALLEST_LIMIT)
    except MemoryLimitError:
        named = named_limit(plan, SMALLEST_LIMIT)
        plan(named)
        plan(2 * named)
        assert named_limit(plan, int(0.95 * named)) == named


HOW = ((1, CutKind.STUMP), (4, CutKind.STUMP), (1, CutKind.RAY))


@pytest.mark.parametrize(
    ("shape", "depth", "cut_kind"),
    [(shape, *how) for shape in SHAPES for how in HOW],
    ids=str,
)
def test_boosting_names_the_least_limit(shape, depth, cut_kind):
    how = {"tol": 1e-3, "depth": depth, "cut_kind": cut_kind}
    check(lambda limit: boosting.plan_memory(shape, limit=limit, **how))


@pytest.mark.parametrize(
    ("n_samples", "n_psi", "n_classes", "sparse"),
    list(itertools.product((500, 60_000, 5_000_000), (10, 400, 1 << 16), (2, 30, 2_000), (False, True))),
)
def test_minimax_names_the_least_limit(n_samples, n_psi, n_classes, sparse):
    shape = minimax.Shape(
        n_samples=n_samples,
        n_psi=n_psi,
        n_classes=n_classes,
        row_entries=60.0 if sparse else n_psi,
        value_bytes=0 if sparse else 8,
        shard_rows=min(n_samples, 65_536),
        column_bytes=6 * n_samples,
    )
    check(lambda limit: minimax.plan_memory(shape, limit))


@pytest.mark.parametrize(
    ("n_features", "n_classes", "alpha", "intercept"),
    list(itertools.product((1 << 10, 1 << 16), (2, 1_000), (0.0, 1e-2), (False, True))),
)
def test_the_sparse_learner_names_the_least_limit(n_features, n_classes, alpha, intercept, monkeypatch):
    """Of all samples at once and of chunks of them, what fits first is named."""

    class Planned(Exception):
        pass

    def stop(*_):
        raise Planned

    monkeypatch.setattr(sparse, "load", stop)  # what comes after the plan
    rng = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(12_000), 4), rng.integers(0, n_features, 48_000)
    X = scipy.sparse.csr_matrix((np.ones(48_000), (rows, columns)), shape=(12_000, n_features))
    dataset = Dataset.from_arrays(X, np.arange(12_000) % n_classes)

    def plan(limit):
        with pytest.raises(Planned):
            solve(dataset, alpha=alpha, ridge=0.1, fit_intercept=intercept, memory_limit=limit)

    check(plan)


def test_a_boosted_learner_trains_with_the_limit_that_its_refusal_names():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 6))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + 2 * (X[:, 2] > 0)

    def fit(limit):
        return MultiBoostClassifier(n_rounds=2, max_depth=4, pool=2, memory_limit=limit).fit(X, y)

    named = named_limit(fit, 32_000_000)
    assert fit(named).score(X, y) > 0.6
    with pytest.raises(MemoryLimitError):
        fit(int(0.95 * named))


def test_training_ends_with_a_valid_model_when_answers_fill_the_limit(monkeypatch):
    X, y = load_iris(return_X_y=True)
    options = {"C": 1e3, "pool": 3, "tol": 1e-6, "memory_limit": "40MB"}
    optimum = MultiBoostClassifier(max_depth=1, **options).fit(X, y).certificate_
    asked = boosting.BoostingPlan.pool

    def small(plan, wanted, n_classes, in_use):
        return asked(plan, wanted, n_classes, in_use) if in_use < 15 * 24 else 0

    monkeypatch.setattr(boosting.BoostingPlan, "pool", small)
    with pytest.warns(ConvergenceWarning, match=r"fill the memory limit of 40 MB; give --memory \d+MB for"):
        model = MultiBoostClassifier(max_depth=1, **options).fit(X, y)
    assert 1 <= model.n_iter_ < 20
    assert 0 < model.certificate_.lower <= optimum.upper
    assert model.certificate_.upper == model.objective_ >= optimum.lower


def test_tiles_of_many_classes_are_small_whole_words():
    assert tile_rows(10) == tile_rows(128) == 8192
    for n_classes in (500, 5_000, 10**6):
        assert tile_rows(n_classes) % 64 == 0
        assert 64 <= tile_rows(n_classes) < 8192


def test_training_without_a_penalty_counts_the_weights_of_all_features_before_it_begins():
    """Every feature gets weights then: a limit that they do not fit into is refused at once."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((2000, 60_000), density=0.01, rng=rng, format="csr")
    dataset = Dataset.from_arrays(X, rng.integers(0, 30, 2000))
    seen = []
    with pytest.raises(MemoryLimitError, match="weights"):
        solve(dataset, alpha=0.0, ridge=1e-3, memory_limit=30_000_000, progress=lambda p: seen.append(p))
    assert not seen
