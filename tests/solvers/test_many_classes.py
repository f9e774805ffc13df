"""Losses of so many classes that their sums are kept by class instead of by pairs of classes."""

import numpy as np
import pytest
import scipy.sparse
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.objectives import LOSSES, objective
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse import margins
from bigmc.solvers.sparse.chunks.plan import plan_chunks
from bigmc.solvers.sparse.chunks.task import ChunkTask, ConstantScores
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.margins import ClassMargins, Margins, PairMargins
from bigmc.solvers.sparse.memory_plan import Size
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.row_scales import exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.store.dataset import Dataset


def problem(loss, n=400, m=24, weighted=True):
    return problem_of(loss, *samples(loss, n, m, weighted))


def samples(loss, n, m, weighted):
    """Sparse rows with labels or sets of labels, and their weights."""
    generator = np.random.default_rng(3)
    X = scipy.sparse.random(n, 5, 0.5, format="csr", rng=generator)
    sets = loss == "multilabel_ranking"
    y = (generator.random((n, m)) < 0.1).astype(int) if sets else generator.integers(0, m, n)
    weights = generator.integers(0, 4, n).astype(float) if weighted else None
    return Dataset.from_arrays(X, y, shard_rows=100), weights


def problem_of(loss, dataset, weights, dtype=np.float64):
    both = objective(loss, "l1/l2", sets=dataset.has_sets)
    made = Problem(dataset, both, 1e-3, weights, np.dtype(dtype), ThreadEngine(2))
    made.scores[:] = np.random.default_rng(4).normal(0, 1, made.scores.shape)
    made.scores[:, dataset.n_classes :] = both.loss.pad_score
    return made


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_by_class_are_those_of_pairs(loss, monkeypatch):
    made = problem(loss)
    pairs = made.margins()
    monkeypatch.setattr(margins, "MOST_PAIRED_CLASSES", 10)
    classes = made.margins()
    assert isinstance(pairs, PairMargins)
    assert isinstance(classes, ClassMargins)
    for name in ("total_loss", "total_residual", "intercept_gradient", "intercept_curvatures"):
        np.testing.assert_allclose(getattr(classes, name), getattr(pairs, name), rtol=1e-10, atol=1e-10)
    if loss != "log_loss":  # its dual is made of entropies
        assert classes.dual_values == pytest.approx(pairs.dual_values, rel=1e-12)
    again = classes.plus(classes).minus(classes)
    np.testing.assert_allclose(again.stacked, classes.stacked, rtol=1e-12)
    assert Margins.of(made.objective.loss, Margins.empty(made.n_classes)).total_loss == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_products_with_the_hessian_of_the_intercept_are_those_of_the_matrix(loss):
    made = problem(loss, n=1500)  # more than one part of the products
    direction = np.random.default_rng(1).standard_normal(made.n_classes)
    product = made.margins().intercept_hessian() @ direction
    np.testing.assert_allclose(made.intercept_product(direction), product, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_conjugate_gradients_find_the_intercept_that_the_matrix_gives(loss, monkeypatch):
    by_pairs, by_class = problem(loss), problem(loss)
    expected, found = np.zeros((2, by_pairs.n_classes))
    one = improve_intercept(by_pairs, expected, 40)
    monkeypatch.setattr(margins, "MOST_PAIRED_CLASSES", 10)
    products = []
    product = by_class.intercept_product
    monkeypatch.setattr(by_class, "intercept_product", lambda step: products.append(step) or product(step))
    other = improve_intercept(by_class, found, 40)
    assert len(products) <= by_class.n_classes  # of all steps: the diagonal is nearly the whole Hessian
    assert isinstance(other, ClassMargins)
    assert other.total_loss == pytest.approx(one.total_loss, rel=1e-9)
    assert np.abs(other.intercept_gradient).max() <= 1e-8 * other.total_residual


def sparse_problem(n, d, m, generator):
    """Samples with a few features, one of which says the class in most of them."""
    y = generator.permutation(np.arange(n) % m)
    columns = generator.integers(0, d, (n, 6))
    columns[:, 0] = y % d
    rows = np.repeat(np.arange(n), 6)
    X = scipy.sparse.csr_array((np.ones(n * 6), (rows, columns.ravel())), shape=(n, d))
    return Dataset.from_arrays(X, y, shard_rows=2000)


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(
    ("loss", "fit_intercept"),
    [
        ("squared_hinge", True),
        ("multitask_squared_hinge", True),
        ("log_loss", True),
        pytest.param("squared_hinge", False, marks=pytest.mark.slow),
        pytest.param("huber_hinge", False, marks=pytest.mark.slow),
    ],
)
def test_bounds_of_chunks_enclose_the_optimum(loss, fit_intercept, monkeypatch):
    dataset = sparse_problem(1500, 40, 15, np.random.default_rng(5))
    options = {"alpha": 5e-3, "loss": loss, "fit_intercept": fit_intercept}
    best = solve(dataset, tol=1e-5, memory_limit=1 << 30, **options).certificate
    monkeypatch.setattr(margins, "MOST_PAIRED_CLASSES", 10)
    found = solve(dataset, tol=1e-2, memory_limit=1 << 30, chunk_bytes=60_000, **options)
    assert found.plan is None
    assert found.converged
    assert found.certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= found.certificate.upper * (1 + 1e-9)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_five_thousand_classes_train_within_512_megabytes():
    dataset = sparse_problem(5000, 1 << 15, 5000, np.random.default_rng(0))
    options = {"alpha": 1e-3, "loss": "multitask_squared_hinge", "fit_intercept": True, "tol": 0.05}
    found = solve(dataset, memory_limit=512 * 10**6, max_passes=2, **options)
    assert found.plan is None
    assert found.certificate.upper >= found.certificate.lower


@pytest.mark.parametrize(
    ("limit", "n_features", "n_classes"),
    [(64, 1 << 20, 2), (64, 1 << 20, 24), (64, 1 << 20, 200), (128, 1 << 20, 2186), (512, 1 << 20, 5000)],
)
def test_chunks_of_large_shards_of_many_classes_need_little_memory(limit, n_features, n_classes):
    size = Size(
        n_samples=10**6,
        n_features=n_features,
        n_classes=n_classes,
        nnz=60 * 10**6,
        n_shards=16,
        width=-(-n_classes // 8) * 8,
        itemsize=1,
        tol=1e-2,
        column_scaled=True,
        largest_shard=60 * 65_536,
    )
    plan = plan_chunks(limit * 10**6, 2, 65_536, size)
    scores = 4 * size.width * 65_536 // plan.shard_parts
    gradients = 8 * size.width * plan.most_gradients(0)
    assert scores + plan.held_shard_bytes + gradients + 20 * n_features < limit * 10**6


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_constant_scores_stand_for_all_samples_and_read_single_labels_once(loss, weighted):
    dataset, weights = samples(loss, 1500, 24, weighted)
    if weighted:
        weights[dataset.label_sets()[:, 0] == 7] = 0.0  # a class whose samples do not count
    of_all = problem_of(loss, dataset, weights)
    descent, precise = Descent("line_search", True, 0), np.dtype(np.float64)
    task = ChunkTask(
        dataset, weights, of_all.objective, 1e-3, 1e-3, descent, precise, RunContext(ThreadEngine(1))
    )
    spill = Spill(dataset, weights, 3, 0, None, exact_rows(dataset))
    try:
        before = spill.n_bytes
        scores = ConstantScores(task, spill, np.zeros(24))
        once = spill.n_bytes - before
        intercept = np.random.default_rng(2).standard_normal(24)
        scores.shift(intercept)
        of_all.rebuild_scores(Coefficients.zeros(of_all.width), intercept, [])
        np.testing.assert_allclose(scores.margins().stacked, of_all.margins().stacked, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            scores.intercept_product(intercept), of_all.intercept_product(intercept), rtol=1e-9, atol=1e-9
        )
        assert dataset.has_sets or spill.n_bytes - before == once > 0
    finally:
        spill.close()


def test_steps_that_rounding_hides_are_not_halved(monkeypatch):
    loss = "squared_hinge"
    dataset, weights = samples(loss, 4000, 24, weighted=False)
    made = problem_of(loss, dataset, weights, np.float32)
    intercept = np.zeros(24)
    improve_intercept(made, intercept, 40)
    evaluations = []
    margins_of = Problem.margins
    monkeypatch.setattr(Problem, "margins", lambda self: evaluations.append(1) or margins_of(self))
    tilt = np.random.default_rng(5).standard_normal(24)
    tilt = np.pad(tilt - tilt.mean(), (0, made.width - 24))[None]
    for size in (1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 1e-7):  # what is left to gain goes by their squares
        before = len(evaluations)
        improve_intercept(made, intercept, 1, Terms(size * tilt, np.zeros(1)))
        assert len(evaluations) - before <= 2
