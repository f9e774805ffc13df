from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from minimax_instances import REFERENCES, digits, standardised, whole_program
from sklearn.datasets import load_iris

from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.kernels.minimax import subset_values
from bigmc.progress import silent
from bigmc.solvers.loop import RunContext
from bigmc.solvers.minimax import MinimaxParameters, iterations, method_choice, solve_minimax
from bigmc.solvers.minimax.expectations import expectations
from bigmc.solvers.minimax.iterations import sample_by_hash
from bigmc.solvers.minimax.pdhg import Iterate, SaddleProblem, SaddleSolver
from bigmc.solvers.minimax.pricing import Weights, price_constraints
from bigmc.solvers.minimax.restricted import WorkingSets
from bigmc.solvers.minimax.rows import WorkingRows
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.shards.memory_shard import MemoryShard
from bigmc.store.weighting import Weighting

LIMIT = 400_000_000


def solve(X, y, intercept=True, shard_rows=65_536, weighting=None, **options):
    dataset = Dataset.from_arrays(X, y, shard_rows=shard_rows, weighting=weighting)
    return solve_dataset(dataset, **{"fit_intercept": intercept, "tol": 1e-7, **options})


def solve_dataset(dataset, memory_limit=LIMIT, engine=None, checkpoint=None, progress=silent, **options):
    context = RunContext(engine or ThreadEngine(), checkpoint, progress)
    return solve_minimax(dataset, MinimaxParameters(**options), memory_limit, context)


def objective(X, y, lambda0, intercept, solution):
    """Compute (3) at the solution, from its definition."""
    coef = np.zeros((X.shape[1], len(solution.classes)))
    coef[solution.weights.features] = solution.weights.coef
    psi, mu = np.asarray(X, float), coef
    if intercept:
        psi, mu = np.column_stack([psi, np.ones(len(psi))]), np.vstack([coef, solution.weights.intercept])
    values = np.empty(len(psi))
    subset_values(psi @ mu, np.ones(1), values, np.empty(1))
    codes = np.unique(y, return_inverse=True)[1]
    components = np.stack([psi * (codes == c)[:, np.newaxis] for c in range(mu.shape[1])], axis=2)
    tau, deviation = components.mean(axis=0), components.std(axis=0)
    return 1 - np.sum(tau * mu) + values.max() + lambda0 * np.sum(deviation * np.abs(mu))


@pytest.mark.parametrize("name", list(REFERENCES))
def test_references(name):
    X, y, intercept, optimum = REFERENCES[name]()
    solution = solve(X, y, intercept)
    assert solution.converged
    assert solution.certificate.upper == pytest.approx(optimum, abs=1e-7)
    assert solution.certificate.lower == pytest.approx(optimum, abs=1e-7)
    assert objective(X, y, 0.01, intercept, solution) == pytest.approx(solution.certificate.upper, abs=1e-9)


def test_a_shard_without_rows_has_no_constraints():
    X, y = standardised(load_iris().data), load_iris().target
    dataset = Dataset.from_arrays(X, y, shard_rows=40)
    empty = MemoryShard(
        np.zeros(5, np.int64),
        np.empty(0, np.uint16),
        np.empty(0),
        dataset.shards[0].table().slice(0, 0),
    )
    shards = [dataset.shards[0], empty, *dataset.shards[1:]]
    whole = Dataset(shards, dataset.classes, 4, Weighting(), {})
    weights = Weights(np.arange(4), np.random.default_rng(0).normal(size=(4, 3)), np.zeros(3))
    priced = [price_constraints(data, weights, 9, 1 << 20, ThreadEngine(1)) for data in (dataset, whole)]
    for without, having in zip(*(vars(one).values() for one in priced), strict=True):
        np.testing.assert_array_equal(without, having)


@pytest.mark.parametrize("n_steps", [40, 50])
def test_first_order_steps_end_with_the_bounds_of_the_last_step(n_steps):
    X, y = standardised(load_iris().data), load_iris().target
    parameters = MinimaxParameters(fit_intercept=False)
    expected = expectations(Dataset.from_arrays(X, y), y.astype(np.int32), 3, parameters, 1 << 20)
    solver = SaddleSolver(SaddleProblem.of(expected, 0.01 * expected.deviation), X)
    iterate = Iterate.start(np.full((150, 3), 1 / 450), np.zeros((4, 3)))
    iterate.restart_gap = 0.0  # never restart: the last point stays
    last, average = solver.run(iterate, n_steps, np.inf)
    np.testing.assert_array_equal(last.coef, iterate.coef)
    np.testing.assert_array_equal(average.dual, iterate.dual_sum / iterate.weight)


@pytest.mark.parametrize("kind", ["array", "sparse"])
def test_a_balanced_distribution_is_that_of_the_normal_equations(kind):
    """``p (1 - Xa)`` with ``X' Diag(p) X a = X' p`` for the components of every class, solved by numpy."""
    X, y = standardised(load_iris().data), load_iris().target
    psi = scipy.sparse.csr_array(X) if kind == "sparse" else X
    dataset, parameters = Dataset.from_arrays(psi, y), MinimaxParameters(fit_intercept=False)
    expected = expectations(dataset, y.astype(np.int32), 3, parameters, 1 << 20)
    rows = WorkingRows(dataset, expected, dataset.row_scale(None), 1 << 16, ThreadEngine(1), 153)
    rows.set(np.arange(150))
    dual = np.random.default_rng(0).random((153, 3))
    components = np.array([[True, True, False], [True, False, False], [False, True, False], [False] * 3])
    found = rows.balanced(dual / dual.sum(), components)
    everywhere = np.vstack([[X[y == c].mean(axis=0) for c in range(3)], X])  # the centroids come first
    for c in range(3):
        own = everywhere[:, components[:, c]]
        change = np.linalg.lstsq((own.T * dual[:, c]) @ own, own.T @ dual[:, c], rcond=None)[0]
        dual[:, c] *= 1 - own @ change
    np.testing.assert_allclose(found, dual / dual.sum(), rtol=1e-6)
    assert np.abs(rows.moments(found)[components]).max() < 1e-9


@pytest.mark.parametrize("kind", ["float32", "float64", "sparse"])
def test_rows_are_held_while_they_are_wanted_and_read_in_double_precision(kind):
    X, y = standardised(load_iris().data).astype("float32"), load_iris().target
    X = X.astype(np.float64) if kind == "float64" else X
    parameters = MinimaxParameters(fit_intercept=False)
    psi = scipy.sparse.csr_array(np.hstack([X, np.zeros((150, 90))])) if kind == "sparse" else X
    dataset = Dataset.from_arrays(psi, y, shard_rows=40)
    expected = expectations(dataset, y.astype(np.int32), 3, parameters, 1 << 20)
    rows = WorkingRows(dataset, expected, dataset.row_scale(None), 1 << 16, ThreadEngine(1), 153)
    centroids = np.array([X[y == c].astype(np.float64).mean(axis=0) for c in range(3)])
    random = np.random.default_rng(0)
    held = np.empty(0, np.int64)
    for _ in range(8):
        wanted = np.flatnonzero(random.random(150) < random.random())
        places = rows.set(wanted)
        assert len(rows) == 3 + len(wanted)
        np.testing.assert_array_equal(rows.samples, [-3, -2, -1, *wanted])
        before = [-3, -2, -1, *held]
        expected_places = [list(rows.samples).index(i) if i in rows.samples else -1 for i in before]
        np.testing.assert_array_equal(places, expected_places)
        chosen = np.sort(random.permutation(len(rows))[:60])
        found = rows.vectors(chosen)
        found = found.toarray()[:, :4] if kind == "sparse" else found
        assert found.dtype == np.float64
        everything = np.vstack([centroids, X[wanted]])
        np.testing.assert_allclose(found, everything[chosen], rtol=1e-12, atol=1e-15)
        held = wanted


@pytest.mark.parametrize("lambda0", [0.0, 0.001, 0.1, 1.0])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_optimum_is_that_of_the_whole_program(lambda0, n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(n_classes, size=60)
    X = rng.normal(size=(60, 4)) + np.eye(n_classes, 4)[y]
    X[:, 3] = 7.0  # constant
    X[:, 2] = X[:, 1]  # twice the same
    solution = solve(X, y, lambda0=lambda0, shard_rows=17)
    assert solution.certificate.upper == pytest.approx(whole_program(X, y, lambda0, True), abs=1e-6)
    assert solution.converged


def test_bounds_hold_when_it_is_stopped_early():
    X, y, intercept, optimum = REFERENCES["digits"]()
    for k_max in (1, 2, 5):
        solution = solve(X, y, intercept, k_max=k_max)
        assert not solution.converged
        assert solution.certificate.lower <= optimum <= solution.certificate.upper
        assert objective(X, y, 0.01, intercept, solution) == pytest.approx(solution.certificate.upper)


def test_bounds_of_first_order_steps_alone(monkeypatch):
    monkeypatch.setattr(method_choice, "PROGRAM_COST", np.inf)
    X, y, intercept, optimum = REFERENCES["iris"]()
    solution = solve(X, y, intercept, tol=1e-4)
    assert solution.converged
    assert solution.certificate.lower <= optimum <= solution.certificate.upper


def test_the_linear_program_alone(monkeypatch):
    monkeypatch.setattr(method_choice, "PROGRAM_COST", 0.0)
    X, y, intercept, optimum = REFERENCES["digits, 5 classes"]()
    solution = solve(X, y, intercept, tol=1e-6, n_max=100, m_max=20)
    assert solution.certificate.upper == pytest.approx(optimum, abs=1e-6)
    assert solution.certificate.gap <= 1e-6


def test_sparse_and_dense_data_have_the_same_optimum():
    X, y = digits(200, 4)
    X[X < 0.5] = 0
    dense = solve(X, y, tol=1e-8)
    sparse = solve(scipy.sparse.csr_array(np.hstack([X, np.zeros((200, 900))])), y, tol=1e-8)
    assert sparse.certificate.upper == pytest.approx(dense.certificate.upper, abs=1e-7)
    assert (sparse.weights.features < 64).all()


def hashed_texts(n_samples, n_features, n_classes, vocabulary=32, own=4, noise=5):
    """Return counts of signed hashed words, some of each class's own."""
    rng = np.random.default_rng(0)
    slot = rng.integers(n_features, size=(n_classes, vocabulary))
    sign = rng.choice([-1.0, 1.0], size=slot.shape)
    y = rng.integers(n_classes, size=n_samples)
    words = [(y, own), (rng.integers(n_classes, size=n_samples), noise)]
    X = np.zeros((n_samples, n_features))
    for topic, count in words:
        for _ in range(count):
            word = topic, rng.integers(vocabulary, size=n_samples)
            np.add.at(X, (np.arange(n_samples), slot[word]), sign[word])
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9), y


@pytest.mark.exhaustive
@pytest.mark.slow
def test_features_that_a_class_never_has_do_not_hide_the_lower_bound():
    X, y = hashed_texts(1200, 256, 5)
    X[y == 0, :40] = 0.0
    X[y == 1, 30:60] = np.abs(X[y == 1, 30:60])
    solution = solve_dataset(Dataset.from_arrays(scipy.sparse.csr_array(X), y))
    assert solution.converged
    assert solution.stopped == "tol"
    coarse = solve(scipy.sparse.csr_array(X), y, tol=1e-3, memory_limit=60_000_000)
    assert coarse.certificate.lower <= solution.certificate.upper
    assert solution.certificate.lower <= coarse.certificate.upper


@pytest.mark.parametrize("absent", ["of one sign", "of both signs"])
def test_hashed_texts_have_the_optimum_of_the_whole_program(absent):
    X, y = hashed_texts(80, 24, 3, vocabulary=12)
    X = np.abs(X) if absent == "of one sign" else X
    X[y == 1, :6] = 0.0
    optimum = whole_program(X, y, 0.01, True)
    for data in (X, scipy.sparse.csr_array(X)):
        solution = solve(data, y, tol=1e-6)
        assert solution.converged
        assert solution.certificate.upper == pytest.approx(optimum, abs=2e-6)


def test_a_linear_program_that_outgrows_its_memory_hands_back(monkeypatch):
    monkeypatch.setattr(method_choice, "PROGRAM_COST", method_choice.PROGRAM_COST / 20)
    monkeypatch.setattr(WorkingSets, "nbytes", lambda self: 10**12)
    X, y, intercept, optimum = REFERENCES["digits, 5 classes"]()
    solution = solve(X, y, intercept, tol=1e-3)
    assert solution.stopped == "tol"
    constraints = [entry["n_constraints"] for entry in solution.history]
    assert any(one > 0 and after == 0 for one, after in pairwise(constraints))
    assert solution.certificate.lower <= optimum <= solution.certificate.upper


@pytest.mark.parametrize(
    ("limit", "stopped"), [({"k_max": 2}, "k_max"), ({"time_limit": 1e-9}, "time_limit")]
)
def test_every_end_has_its_reason(limit, stopped):
    X, y, intercept, _ = REFERENCES["digits"]()
    assert solve(X, y, intercept, **limit).stopped == stopped


def test_unit_rows_are_those_of_the_values_divided_by_their_norm():
    X, y = digits(150, 3)
    weighted = solve(X, y, weighting=Weighting(l2=True))
    by_hand = solve(X / np.linalg.norm(X, axis=1, keepdims=True), y)
    # The store keeps norms in single precision.
    assert weighted.certificate.upper == pytest.approx(by_hand.certificate.upper, abs=1e-5)


def test_working_features_grow_to_the_optimum(monkeypatch):
    monkeypatch.setattr(iterations, "_FIRST_COMPONENTS", 20)
    X, y, intercept, optimum = REFERENCES["wine"]()
    solution = solve(X, y, intercept, m_max=3)
    assert solution.certificate.upper == pytest.approx(optimum, abs=1e-7)


def test_a_class_that_does_not_occur_is_left_out():
    X, y, _, optimum = REFERENCES["iris"]()
    dataset = Dataset.from_arrays(X, y)
    dataset.class_labels = np.arange(5)
    dataset.n_classes = 5
    solution = solve_dataset(dataset, tol=1e-7)
    assert solution.classes.tolist() == [0, 1, 2]
    assert solution.certificate.upper == pytest.approx(optimum, abs=1e-7)


def test_a_class_of_one_sample():
    X, y = load_iris(return_X_y=True)
    X = standardised(X)
    y = np.where(np.arange(150) == 7, 3, y)
    solution = solve(X, y)
    assert solution.certificate.upper == pytest.approx(whole_program(X, y, 0.01, True), abs=1e-6)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_many_classes():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(70), 5)
    X = rng.normal(size=(70, 12))[y] + 0.1 * rng.normal(size=(350, 12))
    solution = solve(X, y, tol=1e-3)
    assert solution.converged
    assert 0 < solution.certificate.upper < 1 - 1 / 70
    assert objective(X, y, 0.01, True, solution) == pytest.approx(solution.certificate.upper, abs=1e-9)


class Stop(Exception):
    pass


class StoppingCheckpoint(FileCheckpoint):
    """Is killed after so many saves."""

    def __init__(self, folder, saves):
        super().__init__(folder)
        self.saves = saves

    def save(self, meta, arrays):
        super().save(meta, arrays)
        self.saves -= 1
        if not self.saves:
            raise Stop


@cache
def uninterrupted():
    X, y, intercept, _ = REFERENCES["digits"]()
    return X, y, intercept, solve(X, y, intercept, shard_rows=100)


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize("saves", [1, 2, 5, 9])
def test_going_on_gives_the_same_bits(tmp_path, saves):
    X, y, intercept, whole = uninterrupted()
    with pytest.raises(Stop):
        solve(X, y, intercept, shard_rows=100, checkpoint=StoppingCheckpoint(tmp_path, saves))
    resumed = solve(X, y, intercept, shard_rows=100, checkpoint=FileCheckpoint(tmp_path))
    assert resumed.certificate == whole.certificate
    assert resumed.history == whole.history
    assert resumed.weights.coef.tobytes() == whole.weights.coef.tobytes()
    assert resumed.phi == whole.phi


def test_any_number_of_workers_gives_the_same_bits():
    X, y, intercept, _ = REFERENCES["digits, 5 classes"]()
    one, three = (solve(X, y, intercept, shard_rows=40, engine=ThreadEngine(n)) for n in (1, 3))
    assert one.weights.coef.tobytes() == three.weights.coef.tobytes()
    assert one.history == three.history


def test_a_time_limit_ends_with_a_valid_model():
    X, y, intercept, optimum = REFERENCES["digits"]()
    solution = solve(X, y, intercept, time_limit=0.05)
    assert solution.certificate.lower <= optimum <= solution.certificate.upper
    assert objective(X, y, 0.01, intercept, solution) == pytest.approx(solution.certificate.upper)


def test_a_linear_program_beyond_the_memory_limit_is_not_begun(monkeypatch):
    monkeypatch.setattr(method_choice, "ENTRY_BYTES", 1e9)
    X, y, intercept, optimum = REFERENCES["iris"]()
    solution = solve(X, y, intercept, tol=1e-4)
    assert solution.history[-1]["n_constraints"] == 0
    assert solution.certificate.lower <= optimum <= solution.certificate.upper


def test_a_memory_limit_that_cannot_work_is_refused_with_figures():
    rng = np.random.default_rng(0)
    with pytest.raises(MemoryLimitError, match=r"expectations and coefficients .* give --memory"):
        solve(rng.normal(size=(300, 2000)), np.arange(300) % 100, memory_limit=33_000_000)


def test_values_that_are_not_finite_are_refused():
    X, y, *_ = REFERENCES["iris"]()
    X[3, 2] = np.nan
    with pytest.raises(DataError, match="not finite"):
        solve(X, y)


def test_one_class_is_refused():
    with pytest.raises(DataError, match="at least 2 classes"):
        solve(np.eye(4), np.zeros(4))


def test_all_zero_features_are_refused_without_an_intercept():
    with pytest.raises(DataError, match="every feature is zero"):
        solve(np.zeros((4, 2)), [0, 1, 0, 1], intercept=False)
    # With one only the shares of the classes are known: the error of always guessing.
    assert solve(np.zeros((4, 2)), [0, 1, 0, 1]).certificate.upper == pytest.approx(0.5, abs=0.01)


def test_samples_are_chosen_by_hash():
    first = sample_by_hash(10_000, 1000, seed=3)
    assert len(np.unique(first)) == 1000
    assert (np.diff(first) > 0).all()
    assert abs(np.mean(first) - 5000) < 300
    assert not np.array_equal(first, sample_by_hash(10_000, 1000, seed=4))
    assert sample_by_hash(10, 20, seed=0).tolist() == list(range(10))
