"""MultiBoost^cw against reference values, L-BFGS-B, brute force, and itself cut into other blocks."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.datasets import load_digits, load_iris

from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError, ModelError
from bigmc.solvers import boosting
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.boosting.oracle import Duals
from bigmc.solvers.boosting.predictions import BitResponses, RowResponses
from bigmc.solvers.boosting.pricing import Best, CutOracle, LocalScan
from bigmc.solvers.boosting.restricted_master import Master, Point
from bigmc.solvers.boosting.tree_growth import TreeGrower, TreePlan
from bigmc.solvers.boosting.trees import TreeOracle
from bigmc.solvers.loop import RunContext
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

LIMIT = 10**9


def solve(
    dataset, *, memory_limit, sample_weight=None, block_bytes=None, engine=None, checkpoint=None, **options
):
    """Call the solver with its options by name."""
    context = RunContext(engine or ThreadEngine(), checkpoint)
    return boosting.solve(
        dataset, boosting.BoostingOptions(**options), memory_limit, context, sample_weight, block_bytes
    )


def bits(column, n_words):
    padded = np.zeros(64 * n_words, np.uint8)
    padded[: len(column)] = column > 0
    return np.packbits(padded, bitorder="little").view(np.uint64)


def master_of(columns, y, C, dtype=np.float64):
    """A master whose pool has the given columns (n_samples, n_learners) of every class."""
    responses = BitResponses(y.astype(np.int32), len(columns))
    master = Master(responses, len(columns), np.ones(len(y)), C, np.dtype(dtype), 0)
    for c, own in enumerate(columns):
        slots = [responses.add(b"%d %d" % (c, j), bits(h, responses.n_words)) for j, h in enumerate(own.T)]
        master.classes[c].add(slots, np.ones(len(slots)))
    return master


def optimum(columns, y, C):
    master = master_of(columns, y, C)
    for k in range(12):
        master.rebuild(ThreadEngine(1))
        master.improve(10.0**-k, 300, 3, ThreadEngine(1))
    return master.rebuild(ThreadEngine(1)), master


def margins(columns, y):
    """Matrix of delta h: a row per pair (i, y), a column per learner of every class."""
    n_classes = len(columns)
    rows = []
    for i, own in enumerate(y):
        for other in range(n_classes):
            if other != own:
                row = [np.zeros(h.shape[1]) for h in columns]
                row[own] = columns[own][i].astype(float)
                row[other] = -columns[other][i].astype(float)
                rows.append(np.concatenate(row))
    return np.array(rows)


def lbfgs(columns, y, C):
    """The same problem by L-BFGS-B."""
    delta = margins(columns, y)
    r = C / len(delta)

    def value(w):
        mu = r * np.exp(-delta @ w)
        return w.sum() + mu.sum(), 1 - delta.T @ mu

    start = np.full(delta.shape[1], 0.1)
    options = {"maxiter": 20000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-10}
    found = scipy.optimize.minimize(
        value, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start), options=options
    )
    return found.fun


def arithmetic():
    i, j = np.arange(60)[:, None], np.arange(8)[None]
    y = np.arange(60) % 3
    columns = []
    for c in range(3):
        right = np.where(y[:, None] == c, 1, -1)
        other = np.where((7 * i + 13 * j + 5 * c + i * j + i * i * (c + 1)) % 11 < 5, 1, -1)
        columns.append(np.where((3 * i + 5 * j + c) % 4 != 0, right, other))
    return columns, y


def perfect(n_classes, n):
    y = np.arange(n) % n_classes
    return [np.where(y == c, 1, -1)[:, None] for c in range(n_classes)], y


@pytest.mark.parametrize(
    ("C", "value"), [(10, 5.163303983172), (100, 10.108590896461), (1e4, 20.996942026202)]
)
def test_master_reaches_the_reference_values_on_arithmetic_columns(C, value):
    point, _ = optimum(*arithmetic(), C)
    assert point.objective == pytest.approx(value, abs=1e-10)
    assert lbfgs(*arithmetic(), C) == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize(("n_classes", "n", "C"), [(3, 30, 1e4), (5, 50, 1e8), (5, 500, 1e8), (8, 64, 1e6)])
def test_master_reaches_the_optimum_of_perfect_learners(n_classes, n, C):
    point, _ = optimum(*perfect(n_classes, n), C)
    assert point.objective == pytest.approx(n_classes / 2 * (np.log(2 * C / n_classes) + 1), rel=1e-11)


@pytest.mark.parametrize(("C", "value"), [(100, 37.909633827131), (1000, 94.792017072764)])
def test_master_reaches_the_reference_values_on_digits(C, value):
    X, y = load_digits(return_X_y=True)
    columns = [np.where(X[:, f] > t, 1, -1) for f in range(64) for t in (4, 8, 12)]
    columns = [h for h in columns if abs(h.sum()) < len(h)]
    both = np.array([s * h for h in columns for s in (1, -1)]).T
    point, master = optimum([both] * 10, y, C)
    assert point.objective == pytest.approx(value, abs=1e-9)
    # The family is the pool itself, so that its largest score bounds the optimum.
    rows = np.arange(len(y))
    sigma = master.r * max((both.T @ master.u[:, c]).max() for c in range(10))
    assert sigma == pytest.approx(1.0, abs=1e-6)
    assert value - 1e-3 < point.lower_bound(sigma) <= value + 1e-9
    assert master.u[rows, y].sum() == pytest.approx(-(master.u.sum() - master.u[rows, y].sum()))
    assert all((own.weights >= 0).all() for own in master.classes)


def test_single_precision_weights_come_close_and_do_not_drift():
    columns, y = arithmetic()
    exact, _ = optimum(columns, y, 1e4)
    master = master_of(columns, y, 1e4, np.float32)
    for _ in range(20):
        point = master.rebuild(ThreadEngine(1))
        master.improve(1e-5, 50, 3, ThreadEngine(1))
    assert point.objective == pytest.approx(exact.objective, rel=1e-8)


@pytest.mark.parametrize("sigma", [0.0, 0.2, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("load", [-2.0, 0.0, 0.5, 4.0])
def test_a_bound_takes_the_best_multiple_of_the_dual_weights(sigma, load):
    point = Point(objective=9.0, mass=2.0, load=load, held_loss=np.nan, held_error=np.nan)
    s = np.geomspace(1e-3, 1e3, 200_001)
    s = s[s * sigma <= 1]
    assert point.lower_bound(sigma) == pytest.approx((s * (2.0 + load) - 2.0 * s * np.log(s)).max(), rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bounds_hold_wherever_the_descent_stands(dtype):
    columns, y = arithmetic()
    master = master_of(columns, y, 100, dtype)
    for _ in range(8):
        point = master.rebuild(ThreadEngine(1))
        delta = margins(columns, y)
        w = np.concatenate([own.weights for own in master.classes])
        mu = 100 / len(delta) * np.exp(-delta @ w)
        assert point.objective == pytest.approx(w.sum() + mu.sum(), rel=1e-12)
        sigma = (delta.T @ mu).max()
        assert point.lower_bound(sigma) <= 10.108590896461 + 1e-9
        assert point.lower_bound(sigma) > 0
        assert point.objective >= 10.108590896461 - 1e-9
        master.improve(0.0, 1, 1, ThreadEngine(1))


def iris_stumps(X):
    columns = [np.ones(len(X), int)]
    for x in X.T:
        values = np.unique(x)
        columns += [np.where(x > (a + b) / 2, 1, -1) for a, b in itertools.pairwise(values)]
    return np.array([s * h for h in columns for s in (1, -1)]).T


@pytest.mark.parametrize(
    ("C", "value", "most"),
    [(10, 5.036681289743, 13), (100, 13.587931030415, 16), (1000, 32.088950524015, 60)],
)
def test_column_generation_reaches_the_reference_values_on_iris(C, value, most):
    X, y = load_iris(return_X_y=True)
    assert iris_stumps(X).shape[1] == 240
    solution = solve(Dataset.from_arrays(X, y), C=C, tol=1e-9, memory_limit=LIMIT)
    assert solution.objective == pytest.approx(value, abs=1e-8)
    assert solution.certificate.gap <= 1e-9
    assert solution.n_passes <= most


@pytest.mark.parametrize("C", [100, 1000])
def test_column_generation_over_all_stumps_of_digits_is_certified_in_15_passes(C):
    X, y = load_digits(return_X_y=True)
    solution = solve(Dataset.from_arrays(X, y), C=C, tol=1e-6, memory_limit=LIMIT)
    assert solution.certificate.gap <= 1e-6
    assert solution.n_passes <= 15


def random_problem(seed, n=250, d=7, missing=0.1):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, d)).astype(float)
    X[rng.random((n, d)) < 0.3] = 0
    X[:, 2] = rng.normal(size=n)
    X[:, 5] = 1.5
    X[rng.random((n, d)) < missing] = np.nan
    return X, rng.integers(0, 4, n)


def all_cuts(X, rays):
    """Every learner of one cut on one feature, as columns."""
    columns = [np.ones(len(X))]
    for x in X.T:
        values = np.unique(np.append(x[~np.isnan(x)], 0.0) if rays else x[~np.isnan(x)])
        for a, b in itertools.pairwise(values):
            with np.errstate(invalid="ignore"):
                above = x > (a + b) / 2
            if rays:
                columns.append((above if a >= 0 else ~above & ~np.isnan(x)).astype(float))
            else:
                columns.append(np.where(above, 1.0, -1.0))
                columns.append(np.where(above | np.isnan(x), 1.0, -1.0))
        if not rays and np.isnan(x).any():
            columns.append(np.where(np.isnan(x), 1.0, -1.0))
    return np.array(columns).T


@pytest.mark.parametrize("rays", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_search_finds_the_best_cut_of_every_class(rays, missing):
    X, y = random_problem(1, missing=missing)
    dataset = Dataset.from_arrays(X, y, shard_rows=80)
    engine = ThreadEngine(2)
    responses = (RowResponses if rays else BitResponses)(dataset.labels(), 4)
    rng = np.random.default_rng(0)
    mu = rng.random((250, 4))
    mu[np.arange(250), y] = 0
    u = np.zeros((250, 8))
    u[:, :4] = -mu
    u[np.arange(250), y] = mu.sum(axis=1)
    columns = all_cuts(X, rays)
    scores = columns.T @ u[:, :4]
    for ranges in ([(0, 7)], [(0, 3), (3, 4), (4, 7)]):
        source = BinnedSource(dataset, ranges, Residency.DISK, 255, np.ones(250, bool), engine)
        found = CutOracle(
            LocalScan(source, 250, CutKind.RAY if rays else CutKind.STUMP, engine), responses, 4, engine
        ).price(Duals(u, 0.5), 10)
        assert found.sigma == pytest.approx(0.5 * np.abs(scores).max(), rel=1e-12)
        for c in range(4):
            places, signs = found.places[found.classes == c], found.signs[found.classes == c]
            answers = np.array([as_column(found.answers[p], 250, rays) for p in places])
            values = signs * (answers @ u[:, c])
            assert values[0] == pytest.approx(np.abs(scores[:, c]).max(), rel=1e-12)
            assert (np.diff(values) <= 1e-9).all()
            assert len({a.tobytes() for a in answers}) == len(answers)
            for answer in answers:
                assert min(np.abs(columns - answer[:, None]).max(0).min(), 1) == 0


def as_column(answer, n, rays):
    if rays:
        column = np.zeros(n)
        column[answer] = 1
        return column
    return np.where(np.unpackbits(answer.view(np.uint8), bitorder="little")[:n] > 0, 1.0, -1.0)


def test_the_last_level_of_a_tree_is_the_best_one_for_its_root():
    X, y = random_problem(2)
    dataset = Dataset.from_arrays(X, y, shard_rows=128)
    engine = ThreadEngine(2)
    responses = BitResponses(dataset.labels(), 4)
    rng = np.random.default_rng(3)
    u = np.zeros((250, 8))
    u[:, :4] = -rng.random((250, 4))
    u[np.arange(250), y] = -(u.sum(axis=1) - u[np.arange(250), y])
    cuts = np.concatenate([all_cuts(X, False), np.ones((250, 1))], axis=1)
    answers = {}
    # With the histograms of all trees kept, those of a few at a time, and none; tables of codes kept or not.
    for ranges, room, tables in (([(0, 7)], 10**7, 10**6), ([(0, 2), (2, 7)], 20_000, 0), ([(0, 7)], 0, 0)):
        source = BinnedSource(dataset, ranges, Residency.MEMORY, 255, np.ones(250, bool), engine)
        search = TreeOracle(
            TreeGrower(source, 250, TreePlan(2, room, tables), engine), responses, 4, 2, engine
        )
        found = search.price(Duals(u, 1.0), 5)
        answers[room] = [found.learners.keys(), found.classes.tolist(), found.places.tolist()]
        again = search.answers(found.learners)
        for one, other in zip(again, found.answers, strict=True):
            assert (as_column(one, 250, False) == as_column(other, 250, False)).all()
        for c, place, sign in zip(found.classes, found.places, found.signs, strict=True):
            tree = found.learners.take(place)
            if tree.feature[0] < 0:
                continue
            x = X[:, tree.feature[0]]
            answer = sign * as_column(found.answers[place], 250, False)
            edges = source.edges_of(int(tree.feature[0]))
            edge = edges[tree.cut[0]] if tree.cut[0] < len(edges) else np.inf
            with np.errstate(invalid="ignore"):
                above = (x > edge) | (np.isnan(x) & ~tree.missing_below[0])
            best = sum(np.abs(cuts[side].T @ u[side, c]).max() for side in (above, ~above) if side.any())
            assert answer @ u[:, c] == pytest.approx(best, rel=1e-9)
    assert answers[0] == answers[20_000] == answers[10**7]


def test_the_histogram_of_one_column_may_be_larger_than_that_of_a_part():
    """With 400 classes a part has histograms of 163 bins, and these columns have more."""
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(400, 3)), np.arange(400)
    dataset, engine = Dataset.from_arrays(X, y), ThreadEngine(1)
    source = BinnedSource(dataset, [(0, 3)], Residency.DISK, 255, np.ones(400, bool), engine)
    u = rng.normal(size=(400, 400))
    best = Best.none(400, 1)
    LocalScan(source, 400, CutKind.STUMP, engine).find(u, u.sum(axis=0), best)
    largest = np.zeros(400)
    for feature in range(3):
        edges = source.edges_of(feature)
        assert len(edges) > 163
        above = np.where(X[:, feature] > edges[:, np.newaxis], 1.0, -1.0)
        largest = np.maximum(largest, np.abs(above @ u).max(axis=0))
    np.testing.assert_allclose(best.values[:, 0], largest, rtol=1e-12)


@pytest.mark.parametrize("depth", [4, 6])
def test_histograms_kept_or_not_lead_to_the_same_deep_trees(depth):
    X, y = random_problem(8, n=600)
    dataset, engine = Dataset.from_arrays(X, y, shard_rows=256), ThreadEngine(2)
    responses = BitResponses(dataset.labels(), 4)
    u = np.zeros((600, 8))
    u[:, :4] = -(np.random.default_rng(0).exponential(size=(600, 4)) ** 4)
    u[np.arange(600), y] = -(u.sum(axis=1) - u[np.arange(600), y])
    found = []
    for room in (10**8, 10**5, 0):
        source = BinnedSource(dataset, [(0, 7)], Residency.MEMORY, 255, np.ones(600, bool), engine)
        search = TreeOracle(
            TreeGrower(source, 600, TreePlan(depth, room, room), engine), responses, 4, depth, engine
        )
        found.append(search.price(Duals(u, 1.0), 12))
    for other in found[1:]:
        assert other.learners.keys() == found[0].learners.keys()
        assert other.sigma == found[0].sigma
    one = found[0]
    for c, place, sign in zip(one.classes, one.places, one.signs, strict=True):
        answer = sign * as_column(one.answers[place], 600, False)
        assert answer @ u[:, c] <= one.sigma * (1 + 1e-6)
    scores = [s * as_column(one.answers[p], 600, False) @ u[:, c] for c, p, s in zip(*one[2:5], strict=True)]
    assert max(scores) == pytest.approx(one.sigma, rel=1e-6)


class Memory:
    """A checkpoint in memory that stops the run after so many saves."""

    def __init__(self, stop_after=None):
        self.kept, self.left = None, stop_after

    def save(self, meta, arrays):
        self.kept = (dict(meta), {name: array.copy() for name, array in arrays.items()})
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    def load(self):
        if self.kept is None:
            return None
        meta, arrays = self.kept
        return {**meta, "history": list(meta["history"])}, dict(arrays)


def same(a, b):
    first, second = a.stages.arrays(), b.stages.arrays()
    return all(np.array_equal(first[name], second[name]) for name in first) and np.array_equal(
        a.thresholds, b.thresholds
    )


RUNS = {
    "stump": {"C": 1e3, "max_depth": 1, "n_rounds": 6, "validation_fraction": 0.2, "patience": 99},
    "tree": {"C": 1e3, "max_depth": 3, "n_rounds": 3, "pool": 6},
    "ray": {"C": 1e3, "family": "ray", "n_rounds": 6},
}


@pytest.mark.parametrize("name", RUNS)
def test_blocks_workers_and_interruptions_do_not_change_a_bit(name):
    X, y = random_problem(4, n=500)
    dataset = Dataset.from_arrays(X, y, shard_rows=200)
    options = {"memory_limit": LIMIT, "tol": 1e-12, **RUNS[name]}
    whole = solve(dataset, engine=ThreadEngine(1), **options)
    for n_workers, block_bytes in ((3, None), (2, 4000), (1, 9000)):
        other = solve(dataset, engine=ThreadEngine(n_workers), block_bytes=block_bytes, **options)
        assert same(whole, other)
        assert [e["objective"] for e in other.history] == [e["objective"] for e in whole.history]
    for saves in (1, 3):
        kept = Memory(stop_after=saves)
        with pytest.raises(KeyboardInterrupt):
            solve(dataset, checkpoint=kept, **options)
        resumed = solve(dataset, checkpoint=kept, engine=ThreadEngine(1), block_bytes=4000, **options)
        assert same(whole, resumed)
        for one, other in zip(whole.history, resumed.history, strict=True):
            assert {k: v for k, v in one.items() if k != "bytes_read"} == pytest.approx(
                {k: v for k, v in other.items() if k != "bytes_read"}, rel=0, abs=0, nan_ok=True
            )
    with pytest.raises(ModelError, match=r"C=1000.0 \(now 5.0\)"):
        solve(dataset, checkpoint=kept, **{**options, "C": 5.0})


def test_weights_are_repetitions_and_zero_weights_absences():
    X, y = random_problem(5, n=150)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, 150)
    options = {"C": 50.0, "tol": 1e-9, "memory_limit": LIMIT, "n_rounds": 60, "inner_rounds": 300}
    weighted = solve(Dataset.from_arrays(X, y), sample_weight=weight, **options)
    repeated = solve(Dataset.from_arrays(X.repeat(weight, axis=0), y.repeat(weight)), **options)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-8)


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-200, 2.0**900])
@pytest.mark.parametrize("depth", [1, 2])
def test_only_the_ratios_of_weights_count(scale, depth):
    X, y = random_problem(5, n=150)
    weight = np.random.default_rng(0).uniform(1, 3, 150)
    options = {"C": 50.0, "memory_limit": LIMIT, "n_rounds": 5, "max_depth": depth}
    plain = solve(Dataset.from_arrays(X, y), sample_weight=weight, **options)
    assert same(plain, solve(Dataset.from_arrays(X, y), sample_weight=scale * weight, **options))


def test_dense_and_sparse_data_give_the_same_learners():
    X, y = random_problem(6, missing=0)
    options = {"C": 100.0, "n_rounds": 5, "memory_limit": LIMIT, "family": "stump"}
    assert same(
        solve(Dataset.from_arrays(X, y), **options),
        solve(Dataset.from_arrays(scipy.sparse.csr_array(X), y), **options),
    )


def test_shallow_data_is_certified_at_once():
    y = np.array([0, 1, 0, 1])
    constant = solve(Dataset.from_arrays(np.full((4, 2), 3.0), y), C=10.0, memory_limit=LIMIT)
    assert constant.certificate.gap <= 1e-3
    perfect = solve(Dataset.from_arrays(np.array([[0.0], [1], [0], [1]]), y), C=10.0, memory_limit=LIMIT)
    # Two classes of one perfect learner each: as case D of the reference values.
    assert perfect.objective == pytest.approx(np.log(10.0) + 1, rel=1e-3)


def tree_columns(solution, X, n_classes):
    """The answers of the trees of the last stage, class by class, one sample and node at a time."""
    stages = solution.stages
    members, _ = stages.stage(len(stages) - 1)
    columns = [[] for _ in range(n_classes)]
    for k in members:
        tree, n_nodes = stages.learners.take(k), stages.learners.feature.shape[1]
        answers = []
        for x in X:
            node = 0
            while node < n_nodes:
                value = x[tree.feature[node]]
                above = (
                    not tree.missing_below[node] if np.isnan(value) else value > solution.thresholds[k][node]
                )
                node = 2 * node + 1 + (above and tree.feature[node] >= 0)
            answers.append(stages.signs[k] * tree.leaf[node - n_nodes])
        columns[stages.classes[k]].append(answers)
    return [np.array(own, float).reshape(-1, len(X)).T for own in columns]


def test_over_the_trees_found_the_bounds_hold_and_meet():
    X, y = random_problem(9, n=120)
    data = Dataset.from_arrays(X, y)
    options = {"C": 30.0, "max_depth": 2, "memory_limit": LIMIT, "pool": 10}
    shrunk = solve(data, n_rounds=4, max_sweeps=1, inner_rounds=3, learning_rate=0.3, **options)
    optimised = solve(data, n_rounds=30, tol=1e-6, inner_rounds=300, **options)
    for solution in (shrunk, optimised):
        assert solution.certificate.gap == np.inf
        last = solution.history[-1]
        best = lbfgs(tree_columns(solution, X, 4), y, 30.0)
        assert last["restricted_lower"] <= best + 1e-7
        assert best <= last["objective"] + 1e-7
        assert 1 - last["restricted_lower"] / last["objective"] == pytest.approx(last["restricted_gap"])
    assert shrunk.history[-1]["restricted_gap"] > 0.1
    assert optimised.history[-1]["restricted_gap"] < 1e-5


@pytest.mark.parametrize("max_depth", [1, 2])
def test_shared_learners_are_those_of_all_classes(max_depth):
    X, y = random_problem(10, n=150)
    data = Dataset.from_arrays(X, y)
    options = {"C": 30.0, "max_depth": max_depth, "memory_limit": LIMIT, "learners": "shared"}
    one = solve(data, n_rounds=5, pool=1, inner_rounds=300, **options)
    stages = one.stages
    names = {(key, sign) for key, sign in zip(stages.learners.keys(), stages.signs.tolist(), strict=True)}
    assert len(names) <= 5 < len(stages.classes)  # a learner in a round, which several classes weigh
    more = solve(data, n_rounds=60, pool=15, tol=1e-8, inner_rounds=300, **options)
    best = lbfgs(tree_columns(more, X, 4), y, 30.0)
    assert more.objective == pytest.approx(best, rel=1e-6)


def test_shared_learners_lead_to_the_same_optimum():
    X, y = load_iris(return_X_y=True)
    options = {"tol": 1e-9, "memory_limit": LIMIT, "learners": "shared", "n_rounds": 200}
    solution = solve(Dataset.from_arrays(X, y), C=100, **options)
    assert solution.objective == pytest.approx(13.587931030415, abs=1e-8)
    assert solution.certificate.gap <= 1e-9


def test_data_without_a_cut_grow_no_trees():
    y = np.array([0, 1, 0, 1, 2, 2])
    for X in (np.full((6, 2), 3.0), np.full((6, 1), np.nan)):
        found = solve(Dataset.from_arrays(X, y), C=10.0, max_depth=3, memory_limit=LIMIT)
        assert found.history[-1]["objective"] <= 10.0 + 1e-12
        assert found.n_iter == 0
    perfect = solve(
        Dataset.from_arrays(y[:, np.newaxis], y), C=1e3, max_depth=2, memory_limit=LIMIT, tol=1e-9
    )  # fmt: skip
    # One perfect tree for each class: case D of the reference values.
    assert perfect.objective == pytest.approx(1.5 * (np.log(2e3 / 3) + 1), rel=1e-6)


def test_trees_end_when_none_found_is_worth_a_weight():
    X, y = load_iris(return_X_y=True)
    options = {"C": 1e3, "max_depth": 3, "memory_limit": LIMIT, "pool": 4, "max_sweeps": 1, "inner_rounds": 5}
    found = solve(Dataset.from_arrays(X, y), n_rounds=200, tol=1e-2, learning_rate=0.3, **options)
    assert found.n_iter < 100
    violations = [entry["sigma"] - 1 for entry in found.history]
    assert violations[-1] <= 1e-2 < min(violations[:-1])


def test_without_held_out_samples_the_last_stage_counts():
    X, y = random_problem(7)
    found = solve(Dataset.from_arrays(X, y), C=1e3, n_rounds=3, memory_limit=LIMIT)
    assert found.stage == found.n_iter == len(found.stages) - 1 > 0
    held = solve(Dataset.from_arrays(X, y), C=1e3, n_rounds=3, memory_limit=LIMIT, validation_fraction=0.3)
    assert held.stage == np.argmin([entry["held_error"] for entry in held.history])


def test_what_cannot_work_is_refused():
    X, y = random_problem(7)
    dataset = Dataset.from_arrays(X, y)
    with pytest.raises(DataError, match="one class"):
        solve(Dataset.from_arrays(X, np.zeros(250)), C=1.0, memory_limit=LIMIT)
    with pytest.raises(MemoryLimitError, match="training the boosted learner needs"):
        solve(dataset, C=1.0, memory_limit=10**6)
