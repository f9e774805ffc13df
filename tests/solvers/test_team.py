"""Threads that share the work on a column: steps are those of one thread, bit for bit, and right."""

import numpy as np
import pytest
from dense import loss_and_gradient

from bigmc.engine import ThreadEngine
from bigmc.kernels.linear.parallel.team import MATRIX_CLASSES, Crew, assist, close
from bigmc.objectives import objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps import visits
from bigmc.solvers.sparse.steps.chunk_parts import Part
from bigmc.solvers.sparse.steps.chunk_steps import ChunkSteps
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

#: Values are whole numbers of twentieths: one byte each, so that kernels are those of most other tests.
UNIT = 20
N, D, ALPHA = 9000, 7, 2e-3 * UNIT
LOSSES = ["squared_hinge", "log_loss", "multitask_squared_hinge", "huber_hinge"]


def drawn(n_classes):
    """Samples in two shards; columns of all lengths, from a single entry to all samples."""
    generator = np.random.default_rng(n_classes)
    X = np.round(UNIT * generator.normal(size=(N, D))) * (
        generator.random((N, D)) < np.linspace(0.02, 1.2, D)
    )
    scores = X @ generator.normal(size=(D, n_classes)) / UNIT
    y = (scores + generator.normal(size=(N, n_classes))).argmax(1)
    return X, y, Dataset.from_arrays(X, y, shard_rows=5000)


class Visited:
    """Weights, scores and violations after steps of every column, or projections."""

    def __init__(self, dataset, loss, penalty, n_threads, *, project=False):
        engine, double = ThreadEngine(n_threads), np.dtype(float)
        problem = Problem(dataset, objective(loss, penalty), ALPHA, None, double, engine)
        d = dataset.n_features
        every, no_terms = np.arange(d), Terms(np.zeros((d, problem.width)), np.zeros(d))
        block = next(BlockSource(dataset, [(0, d)], Residency.MEMORY).stream([0]))[1]
        rows = np.zeros((d, problem.width))
        part = Part(problem, Columns.of(0, block, every), 0, every, rows, every)
        steps = ChunkSteps.of(
            Descent("line_search", False, 0), problem, ALPHA, lambda: self._set_scores(problem, part)
        )
        steps.begin_sweep()
        move = steps.project if project else steps.move_columns
        self.violations = [move(part, no_terms, sweep, 0.0) for sweep in range(3)]
        steps.end()
        self.rows, self.scores = rows[:, : dataset.n_classes], problem.scores[:, : dataset.n_classes]

    def _set_scores(self, problem, part):
        coef = Coefficients.zeros(problem.width).updated([(np.arange(len(part.rows)), part.rows)])
        problem.rebuild_scores(coef, np.zeros(problem.n_classes), [part.columns])


@pytest.mark.exhaustive(keep=10)
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5, 20])
@pytest.mark.parametrize(
    ("loss", "penalty"), [(loss, "l1/l2") for loss in LOSSES] + [("squared_hinge", "l1")]
)
def test_steps_are_the_same_for_any_number_of_threads(loss, penalty, n_classes, project):
    X, _, dataset = drawn(n_classes)
    alone = Visited(dataset, loss, penalty, 1, project=project)
    assert alone.rows.any()
    assert np.allclose(alone.scores, X @ alone.rows, atol=1e-10)
    for n_threads in (2, 5):
        other = Visited(dataset, loss, penalty, n_threads, project=project)
        assert other.rows.tobytes() == alone.rows.tobytes()
        assert other.scores.tobytes() == alone.scores.tobytes()
        assert np.array(other.violations).tobytes() == np.array(alone.violations).tobytes()


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_of_pieces_are_those_of_the_column(loss):
    X, y, _ = drawn(20)
    longest = D - 1  # so that nothing has moved when it is visited, it is the only one
    X[:, :longest] = 0.0
    dataset = Dataset.from_arrays(X, y, shard_rows=5000)
    gradient = loss_and_gradient(loss, X, y, np.zeros((D, 20)), np.zeros(20), np.ones(N))[1]
    found = Visited(dataset, loss, "l1/l2", 2).violations[0][longest]
    assert found == pytest.approx(np.linalg.norm(gradient[longest]) - ALPHA, rel=1e-12)


def test_a_board_that_is_closed_sends_assistants_away():
    dataset, double = drawn(5)[2], np.dtype(float)
    problem = Problem(dataset, objective("squared_hinge", "l1/l2"), ALPHA, None, double, ThreadEngine(1))
    block = next(BlockSource(dataset, [(0, D)], Residency.MEMORY).stream([0]))[1]
    columns = Columns.of(0, block, np.arange(D)).in_order(np.arange(D), np.ones(D))
    crew = Crew.of(problem.dtype, problem.width, problem.n_classes)
    work = problem.objective.column_work(columns, problem.samples, crew, problem.n_classes)
    problem.scores[:] = 0.0
    close(crew.board)
    scores = problem.scores.copy()
    assist(work)  # it returns
    assert (problem.scores == scores).all()


@pytest.mark.parametrize(
    ("n_samples", "n_sparse", "assisted"),
    [(900, 0, False), (9000, 0, True), (9000, 90, True), (9000, 110, False)],
)
def test_who_assists_has_columns_that_are_cut_into_pieces(n_samples, n_sparse, assisted, monkeypatch):
    """With five classes, columns of 1,024 entries are cut; half of all entries must be in such."""
    calls, n_columns = [], 90_000 // n_samples  # so that both have the same number of entries
    monkeypatch.setattr(visits, "assist", lambda work: calls.append(1) or assist(work))
    generator = np.random.default_rng(0)
    X, y = generator.integers(1, 4, (n_samples, n_columns + n_sparse)), np.arange(n_samples) % 5
    X[n_samples // 10 :, n_columns:] = 0
    Visited(Dataset.from_arrays(X.astype(np.int8), y), "squared_hinge", "l1/l2", 2)
    assert bool(calls) == assisted


def test_many_classes_have_no_matrices():
    assert Crew.of(np.dtype(float), 136, MATRIX_CLASSES + 1).matrices.size == 0
