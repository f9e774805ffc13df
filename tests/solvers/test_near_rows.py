"""Classes by themselves on the rows near their margins: against minimisers of all rows."""

import errno
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from bigmc.engine import ThreadEngine
from bigmc.learners import learner_of
from bigmc.options.learners import SparseOptions
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse import solve
from bigmc.solvers.sparse.ridge import dense_descent, dense_file, dense_problem, near_rows
from bigmc.solvers.sparse.ridge.near_rows import Room
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import FileCheckpoint

N_ROWS, N_FEATURES, N_CLASSES = 2400, 30, 6
ROOM = Room(N_ROWS // 2, 1)


def rows(seed=0):
    """Return rows that are much alike, of classes that a narrow margin tells apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(N_CLASSES, size=N_ROWS)
    centres = 2.0 * rng.normal(size=(N_CLASSES, N_FEATURES))
    alike = 20.0 * rng.normal(size=(N_ROWS, 4)) @ rng.normal(size=(4, N_FEATURES))
    return centres[labels] + alike + rng.normal(size=(N_ROWS, N_FEATURES)), labels


def run_of(X, y, weights=None, *, ridge=0.1, n_threads=1, shard_rows=65_536, **context):
    data = Dataset.from_arrays(X, y, shard_rows=shard_rows)
    learner = learner_of(SparseOptions(ridge=ridge / len(X), tol=0.05))
    return learner.solver_run(data, weights, 1 << 28, RunContext(ThreadEngine(n_threads), **context))


@pytest.fixture
def few_are_many(monkeypatch):
    """Treat these features as many."""
    for module in (dense_descent, dense_file):
        monkeypatch.setattr(module, "MANY_FEATURES", N_FEATURES)


@pytest.fixture
def reads(monkeypatch):
    """Return a list of the rows of each evaluation."""
    seen = []
    at = dense_problem.DenseProblem.at

    def counted(problem, *args):
        seen.append(len(problem.rows.values))
        return at(problem, *args)

    monkeypatch.setattr(dense_problem.DenseProblem, "at", counted)
    return seen


def least(X, signs, weights, ridge):
    """Return the least objective of one class, and the objective, in double precision."""
    A = np.column_stack([X, np.ones(len(X))])

    def value(w):
        left = np.maximum(1.0 - signs * (A @ w), 0.0)
        slope = -2.0 * A.T @ (weights * signs * left)
        slope[:-1] += ridge * w[:-1]
        return weights @ left**2 + 0.5 * ridge * w[:-1] @ w[:-1], slope

    options = {"maxiter": 5_000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 40}
    scale = np.append(np.std(X, axis=0), 1.0)
    found = minimize(
        lambda v: (value(v / scale)[0], value(v / scale)[1] / scale),
        np.zeros(A.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options=options,
    )
    return found.fun, value


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_class_is_at_its_minimum_after_few_evaluations_of_all_rows(weighted, reads):
    X, y = rows()
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, N_ROWS).astype(float) if weighted else None
    run = run_of(X, y, weights)
    start = dense_descent.start_by_descent(run, 1e-3, ROOM)
    own = np.ones(N_ROWS) if weights is None else weights
    ridge = run.task.objective.ridge * own.sum()
    for r in (0, N_CLASSES - 1):
        best, value = least(X, np.where(y == r, 1.0, -1.0), own, ridge)
        assert value(np.append(start.coef[:, r], start.intercept[r]))[0] <= best * (1 + 2e-3)
    n_all = np.count_nonzero(own)
    with_classes = reads.count(n_all)
    assert min(reads) < n_all // 2
    reads.clear()
    dense_descent.start_by_descent(run, 1e-3)
    assert reads.count(n_all) > 2 * with_classes


def test_sets_of_labels_are_problems_of_their_own():
    X, y = rows()
    marks = np.eye(N_CLASSES, dtype=int)[y]
    marks[:, 0] |= X @ np.random.default_rng(2).normal(size=N_FEATURES) > 20.0
    run = run_of(X, marks)
    start = dense_descent.start_by_descent(run, 1e-3, ROOM)
    best, value = least(X, 2.0 * marks[:, 0] - 1.0, np.ones(N_ROWS), run.task.objective.ridge * N_ROWS)
    assert value(np.append(start.coef[:, 0], start.intercept[0]))[0] <= best * (1 + 2e-3)


def test_any_number_of_threads_gives_the_same_bits():
    X, y = rows()
    one, two = (
        dense_descent.start_by_descent(run_of(X, y, n_threads=n), 1e-2, Room(N_ROWS // 2, n)) for n in (1, 2)
    )
    np.testing.assert_array_equal(one.coef, two.coef)
    np.testing.assert_array_equal(one.intercept, two.intercept)


def test_with_too_little_memory_all_rows_go_on():
    X, y = rows()
    run = run_of(X, y)
    without = dense_descent.start_by_descent(run, 1e-2)
    too_little = dense_descent.start_by_descent(run, 1e-2, Room(near_rows.fewest_rows(N_FEATURES + 1) - 1, 1))
    np.testing.assert_array_equal(without.coef, too_little.coef)


def test_the_rows_that_memory_allows_do_not_depend_on_the_threads():
    rooms = [Room.of(1025, 48_000, 200_000_000, n) for n in (1, 2, 16)]
    assert len({room.most_rows for room in rooms}) == 1
    assert [room.n_threads for room in rooms] == [1, 2, 2]
    assert Room.of(1025, 48_000, 50_000_000, 1) is None


def test_without_time_it_ends(reads):
    X, y = rows()
    dense_descent.start_by_descent(run_of(X, y, ends=-math.inf), 1e-3, ROOM)
    assert len(reads) <= 3


def test_a_matrix_in_a_file_gives_the_bits_of_one_in_memory(few_are_many):
    X, y = rows()
    run = run_of(X, y, shard_rows=700)
    start, n_reads = dense_file.start_from_file(run, 1e-2)
    room = dense_file._room(run, N_FEATURES + 1)
    expected = dense_descent.start_by_descent(run, 1e-2, room)
    np.testing.assert_array_equal(start.coef, expected.coef)
    assert 10 < n_reads < 60


def test_a_full_disk_is_left_alone(few_are_many, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    X, y = rows()
    monkeypatch.setattr(dense_file, "file_array", full)
    assert dense_file.start_from_file(run_of(X, y, shard_rows=700), 1e-2) is None


@pytest.mark.parametrize("max_passes", [12, 16])
def test_passes_through_the_file_are_bounded_and_counted(max_passes, few_are_many, reads):
    X, y = (part[:1200] for part in rows())  # the passes after those through the file take long
    run = run_of(X, y, ridge=1.0, shard_rows=350)
    run = replace(run, limits=replace(run.limits, max_passes=max_passes))
    solution = solve(run, chunk_bytes=1 << 20)
    assert 5 < len(reads) <= max_passes - 4
    assert len(reads) + 2 <= solution.n_passes


def test_larger_than_memory_it_is_certified_in_fewer_passes(few_are_many):
    X, y = rows()
    run = run_of(X, y, ridge=1.0, shard_rows=700)
    solution = solve(run, chunk_bytes=1 << 20)
    ridge = run.task.objective.ridge * N_ROWS
    best = sum(least(X, np.where(y == r, 1.0, -1.0), np.ones(N_ROWS), ridge)[0] for r in range(N_CLASSES))
    assert solution.certificate.lower * N_ROWS <= best * (1 + 1e-6)
    assert solution.objective * N_ROWS <= best * 1.05
    assert solution.converged
    assert solution.n_passes < 40


class Killed(Exception):
    pass


def test_a_killed_training_goes_on_to_the_same_bits(few_are_many, tmp_path, monkeypatch):
    X, y = rows()
    whole = solve(run_of(X, y, ridge=1.0, shard_rows=700), chunk_bytes=1 << 20)
    at, left = dense_problem.DenseProblem.at, [12]

    def dying(problem, *args):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return at(problem, *args)

    monkeypatch.setattr(dense_problem.DenseProblem, "at", dying)
    with pytest.raises(Killed):
        solve(
            run_of(X, y, ridge=1.0, shard_rows=700, checkpoint=FileCheckpoint(tmp_path)), chunk_bytes=1 << 20
        )
    resumed = solve(
        run_of(X, y, ridge=1.0, shard_rows=700, checkpoint=FileCheckpoint(tmp_path)), chunk_bytes=1 << 20
    )
    np.testing.assert_array_equal(resumed.coef, whole.coef)
    assert resumed.history == whole.history
