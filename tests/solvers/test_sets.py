"""Sets of labels: their losses against brute force, optima of a conic solver, and the special case of one.

The optima were computed once with CLARABEL through cvxpy, one variable for every pair of a label and a class
that is none; they agree with `dense.fista` to 1e-9.
"""

import numpy as np
import pytest
import scipy.sparse
from dense import fista, loss_and_gradient, objective_value
from instances import UNITS, instance, label_sets, whole_instance
from sparse_runs import largest_alpha, solve
from test_pair_kernels import RATIO, column
from test_pairs import LIMIT, NAMES, Memory, bits, options_of

from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError
from bigmc.kernels.linear.arguments import GradientSums, Norm, Samples
from bigmc.kernels.linear.columns import loss_columns
from bigmc.kernels.linear.parallel.team import WHOLE
from bigmc.kernels.linear.penalties import formulas
from bigmc.objectives import LOSSES, PENALTIES, objective
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource, Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.newton import Support
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset
from bigmc.store.shards.label_sets import fill_rows, set_column

SET_LOSSES = [name for name, loss in LOSSES.items() if loss.takes_sets]

#: Instance, alpha, ridge, intercept → loss → optima with l1/l2, l1, l1/linf, sparse_group.
OPTIMA = {
    ("iris", 0.02, 0.0, False): {
        "multilabel_ranking": (0.9091037721, 0.991868396, 0.8101934345, 0.9428415755),
        "multitask_squared_hinge": (2.1830954009, 2.2587507552, 2.1124324975, 2.2142779106),
    },
    ("arith", 0.02, 0.0, False): {
        "multilabel_ranking": (1.7613859633, 1.8361723973, 1.6794286324, 1.7951516401),
        "multitask_squared_hinge": (3.2004740643, 3.2893148498, 3.1488391297, 3.2338390809),
    },
    ("arith", 0.01, 0.03, False): {
        "multilabel_ranking": (1.8279102662, 1.8622468444, 1.810006897, 1.8398372252),
        "multitask_squared_hinge": (3.2458457389, 3.2868074716, 3.2293412202, 3.2593983413),
    },
}
CASES = [
    (case, loss, penalty, optimum)
    for number, (case, by_loss) in enumerate(OPTIMA.items())
    for i, (loss, optima) in enumerate(by_loss.items())
    for j, (penalty, optimum) in enumerate(zip(NAMES, optima, strict=True))
    if (number + i + j) % 2 == 0  # each pair is in half of the cases
]


def rows_of(indicator):
    """Codes of every row, -1 after the last."""
    most = max(1, int(indicator.sum(axis=1).max()))
    return np.array([[*np.flatnonzero(row), *[-1] * most][:most] for row in indicator], np.int32)


def samples(name):
    """Return whole values, sets of labels, and the factor of alpha for the optima of an instance."""
    X, _, unit = whole_instance(name)
    return X, label_sets(name), unit


def dataset_of(name, **options):
    return Dataset.from_arrays(*samples(name)[:2], **options)


def test_rows_of_codes_are_what_the_column_holds():
    column = set_column(np.array([2, 0, 2, 2, 4]), np.array([3, 1, 0, 3, 2]), 5)
    assert column.to_pylist() == [[1], [], [0, 3], [], [2]]
    out = np.empty((5, 2), np.int32)
    fill_rows(column, out)
    assert out.tolist() == [[1, -1], [-1, -1], [0, 3], [-1, -1], [2, -1]]
    out = np.empty((3, 2), np.int32)
    fill_rows(column.slice(2), out)
    assert out.tolist() == [[0, 3], [-1, -1], [2, -1]]


@pytest.mark.parametrize("loss", SET_LOSSES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels_are_finite_differences_of_the_definition(loss, dtype):
    m = 5
    code, x, _, scores, row_scale, weights, entries = column(loss, n_classes=m)
    scores = scores.astype(dtype)
    Y = (np.random.default_rng(3).random((len(x), m)) < 0.5).astype(int)
    Y[0], Y[1], Y[2] = 0, 1, [0, 0, 1, 0, 0]
    labels, gain = rows_of(Y), (row_scale * weights).astype(dtype)
    row_scale = row_scale.astype(dtype)
    samples = Samples(scores, labels, weights, row_scale, gain)
    hessian, none = np.empty((m, m)), np.empty((0, 0), dtype)
    work, other = loss_columns.column_work(scores, m), loss_columns.column_work(scores, m)
    loss_columns.column_curvature(code, 0, WHOLE, entries, samples, none, work, hessian)
    sums, diagonal, squares = work.sums, work.diagonal, work.squares
    loss_columns.column_gradient(code, 0, WHOLE, entries, samples, none, other)
    again = other.sums
    close = {"rtol": 1e-12, "atol": 1e-13} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(again, sums, **close)
    gradients, traces = np.zeros((1, m)), np.zeros(1)
    places, added = np.zeros(1, np.int64), GradientSums(gradients, traces)
    loss_columns.add_gradients(code, places, entries, samples, m, added, False)
    np.testing.assert_allclose(gradients[0], sums, **close)
    assert traces[0] == pytest.approx(diagonal.sum() / m, rel=1e-5)
    n = weights.sum()

    def value_at(move):
        return n * loss_and_gradient(loss, x[:, None], Y, move[None], scores[:, :m], weights)[0]

    small = 1e-4
    base = value_at(np.zeros(m))
    for r, step in enumerate(small * np.eye(m)):
        difference = (value_at(step) - value_at(-step)) / (2 * small)
        assert 2 * sums[r] == pytest.approx(difference, rel=1e-4, abs=1e-4)
        second = (value_at(step) - 2 * base + value_at(-step)) / small**2
        assert 2 * diagonal[r] == pytest.approx(second, rel=1e-3)
        if loss == "multilabel_ranking":
            assert hessian[r] @ np.ones(m) == pytest.approx(0, abs=1e-4)
    move = np.array([0.3, -0.7, 0.0, 1.1, 0.2])
    change = loss_columns.column_loss_change(code, 0, WHOLE, entries, samples, np.empty(m, dtype), move)
    assert change == pytest.approx(value_at(move) - base, rel=1e-9 if dtype == np.float64 else 1e-5)
    if loss == "multilabel_ranking":  # the bound of the constant step
        across = np.eye(m) - 1 / m
        largest = np.linalg.eigvalsh(across @ hessian @ across)[-1]
        top = np.sort(squares)[::-1]
        assert largest <= squares.sum() + (m - 1) * top[0] + top[1] + 1e-6


@pytest.mark.parametrize("loss", SET_LOSSES)
def test_sums_by_class_give_the_loss_and_the_derivatives_by_the_intercept(loss):
    m = 4
    _, _, _, scores, _, weights, _ = column(loss)
    Y = (np.random.default_rng(4).random((len(weights), m)) < 0.4).astype(int)
    one = LOSSES[loss]()
    residuals, values, curvatures = np.zeros((3, m, m))
    one.class_sums(scores, rows_of(Y), weights, residuals, values, curvatures)
    n, X, zeros = weights.sum(), np.zeros((len(Y), 1)), np.zeros((1, m))

    def gradient_at(b):
        return loss_and_gradient(loss, X, Y, zeros, scores[:, :m] + b, weights)

    value, _, wanted = gradient_at(np.zeros(m))
    assert values.sum() / n == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(2 / n * one.intercept_gradient(residuals), wanted, rtol=1e-10, atol=1e-14)
    for step, row in zip(1e-6 * np.eye(m), 2 / n * one.intercept_curvature(curvatures), strict=True):
        difference = (gradient_at(step)[2] - gradient_at(-step)[2]) / 2e-6
        np.testing.assert_allclose(row, difference, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", SET_LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_newton_steps_have_the_derivatives_of_the_definition(loss, intercept):
    generator = np.random.default_rng(7)
    n, m = 90, 11
    X = generator.integers(-2, 3, (n, 12)) * (generator.random((n, 12)) < 0.5)
    Y = (generator.random((n, m)) < 0.3).astype(int)
    Y[0], Y[1] = 0, 1
    weights = generator.integers(0, 3, n).astype(float)
    dataset = Dataset.from_arrays(X.astype(np.int8), Y)
    both = objective(loss, "l1/l2", sets=True)
    problem = Problem(dataset, both, 1e-3, weights, np.dtype(np.float64), ThreadEngine(1))
    (_, block), *_ = BlockSource(dataset, [(0, 12)], Residency.MEMORY).stream([0])
    held = [Columns.of(0, block, np.arange(12))]
    features, b = np.array([1, 3, 4, 9]), generator.standard_normal(m) * intercept
    W = np.zeros((12, m))
    W[features] = 0.3 * generator.standard_normal((4, m))
    rows = np.pad(W[features], ((0, 0), (0, problem.width - m)))
    problem.rebuild_scores(Coefficients(features, rows), b, held)
    support = Support(problem, held, [features], intercept)

    def at(step):
        moved = W.copy()
        moved[features] += step[:4, :m]
        constant = b + (step[4, :m] if intercept else 0)
        value, G, g = loss_and_gradient(loss, X, Y, moved, constant, weights)
        return value, np.vstack([G[features], g[None]]) if intercept else G[features]

    gradient, diagonal = support.gradient()
    shape = gradient.shape
    np.testing.assert_allclose(gradient[:, :m], at(np.zeros(shape))[1], rtol=1e-10, atol=1e-13)
    direction = np.zeros(shape)
    direction[:, :m] = generator.standard_normal((shape[0], m))
    product = problem.two_over_n * support.product(direction)
    small = 1e-6
    difference = (at(small * direction)[1] - at(-small * direction)[1]) / (2 * small)
    np.testing.assert_allclose(product[:, :m], difference, rtol=1e-5, atol=1e-7)
    unit = np.zeros(shape)
    unit[2, 5] = 1.0
    assert (problem.two_over_n * support.product(unit))[2, 5] == pytest.approx(diagonal[2, 5])
    change = support.loss_change(direction, 0.4)
    assert change == pytest.approx(at(0.4 * direction)[0] - at(0 * direction)[0], rel=1e-9)


@pytest.mark.exhaustive(keep=6)
@pytest.mark.parametrize(("case", "loss", "penalty", "optimum"), CASES, ids=str)
def test_reference_optima(case, loss, penalty, optimum):
    name, alpha, ridge, intercept = case
    X, Y, unit = samples(name)
    alpha, ridge = unit * alpha, unit**2 * ridge
    options = options_of(penalty, loss=loss, alpha=alpha, ridge=ridge, fit_intercept=intercept)
    found = solve(dataset_of(name), tol=3e-7, **options)
    assert found.certificate.gap <= 3e-7
    assert abs(found.objective - optimum) <= 1e-6
    W = np.zeros((X.shape[1], Y.shape[1]))
    W[found.features] = found.coef
    value = objective_value(loss, penalty, X, Y, W, found.intercept, alpha, ridge, RATIO)
    assert value == pytest.approx(found.objective, rel=1e-12)
    for entry in found.history:
        assert entry["lower"] <= optimum + 1e-9
        assert entry["objective"] >= optimum - 1e-9


@pytest.mark.parametrize("penalty", PENALTIES)
def test_sets_of_one_label_are_the_multiclass_squared_hinge(penalty):
    X, y, unit = whole_instance("arith")
    one = Dataset.from_arrays(X, y)
    sets = Dataset.from_arrays(X, y[:, None] == one.classes)
    common = options_of(penalty, fit_intercept=True, ridge=1e-3 * unit**2)
    top = largest_alpha(one, **common)
    assert largest_alpha(sets, loss="multilabel_ranking", **common) == pytest.approx(top, rel=1e-12)
    options = common | {"alpha": 0.02 * unit, "tol": 1e-9}
    single, ranking = solve(one, **options), solve(sets, loss="multilabel_ranking", **options)
    assert ranking.objective == pytest.approx(single.objective, rel=2e-9)
    np.testing.assert_array_equal(ranking.features, single.features)
    np.testing.assert_allclose(ranking.coef, single.coef, atol=2e-4 / unit)
    if penalty != "l1/l2":  # which has kernels of its own
        assert bits(ranking) == bits(single)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", SET_LOSSES)
def test_weights_vanish_from_the_largest_dual_norm_at_zero_on(loss, penalty):
    X, Y, _ = samples("arith")
    gradient = loss_and_gradient(loss, X, Y, np.zeros((X.shape[1], Y.shape[1])), 0, np.ones(len(Y)))[1]
    code = Norm(PENALTIES[penalty].code, RATIO if penalty == "sparse_group" else PENALTIES[penalty].l1_ratio)
    top = max(formulas.dual_norm(code, g) for g in gradient)
    assert largest_alpha(dataset_of("arith"), loss=loss, **options_of(penalty)) == pytest.approx(top)
    above = solve(dataset_of("arith"), loss=loss, alpha=top * (1 + 1e-9), tol=1e-9, **options_of(penalty))
    assert len(above.features) == 0
    assert above.certificate.gap < 1e-12


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize("loss", SET_LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_weight_of_two_is_the_sample_twice(loss, intercept):
    X, Y, unit = samples("iris")
    weights = 1.0 + (np.arange(len(Y)) % 3 == 0)
    repeats = weights.astype(int)
    strengths = {"alpha": 0.05 * unit, "ridge": 0.01 * unit**2}
    options = options_of("l1/l2", loss=loss, tol=1e-8, fit_intercept=intercept, **strengths)
    weighted = solve(dataset_of("iris"), sample_weight=weights, **options)
    doubled = Dataset.from_arrays(np.repeat(X, repeats, axis=0), np.repeat(Y, repeats, axis=0))
    assert weighted.objective == pytest.approx(solve(doubled, **options).objective, rel=3e-8)
    X = X / unit  # the same optimum, which FISTA reaches sooner beside the intercept's column of ones
    optimum = fista(loss, "l1/l2", X, Y, 3, 0.05, 0.01, weights=weights, intercept=intercept)
    assert weighted.objective == pytest.approx(optimum, rel=1e-7)


def test_constant_steps():
    alpha = 0.02 * UNITS["arith"]
    options = options_of("l1", loss="multilabel_ranking", alpha=alpha, tol=1e-7, max_passes=1000)
    found = solve(dataset_of("arith"), step="constant", **options)
    assert abs(found.objective - OPTIMA["arith", 0.02, 0.0, False]["multilabel_ranking"][1]) <= 1e-6


@pytest.mark.exhaustive(keep=1)
@pytest.mark.slow
@pytest.mark.parametrize("loss", SET_LOSSES)
def test_in_chunks_stopped_and_resumed_by_any_number_of_workers(loss):
    dataset, unit = dataset_of("arith", shard_rows=20), UNITS["arith"]
    strengths = {"alpha": 0.02 * unit, "ridge": 1e-3 * unit**2}
    options = options_of("l1/l2", loss=loss, tol=1e-2, fit_intercept=True, chunk_bytes=4000, **strengths)
    kept = Memory()
    whole = solve(dataset, checkpoint=kept, engine=ThreadEngine(1), **options)
    assert whole.plan is None
    assert whole.certificate.gap <= 1e-2
    in_memory = solve(dataset, **(options | {"chunk_bytes": None}))
    assert whole.objective == pytest.approx(in_memory.objective, rel=1e-2)
    for saved in (kept.saved[0], kept.saved[-2]):
        again = solve(dataset, checkpoint=Memory(saved), engine=ThreadEngine(2), **options)
        assert bits(again) == bits(whole)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.slow
@pytest.mark.parametrize("loss", SET_LOSSES)
def test_single_precision_scores(loss, monkeypatch):
    monkeypatch.setattr("bigmc.solvers.sparse.memory_plan.SMALL_SCORES", 0)
    alpha = 0.02 * UNITS["iris"]
    found = solve(dataset_of("iris"), loss=loss, alpha=alpha, tol=1e-4, **options_of("l1"))
    assert found.plan.score_dtype == np.float32
    optimum = OPTIMA["iris", 0.02, 0.0, False][loss][1]
    assert found.certificate.lower <= optimum * (1 + 1e-7)
    assert -1e-6 * optimum <= found.objective - optimum <= 1e-4 * optimum


@pytest.mark.parametrize(
    ("loss", "sets", "cure"),
    [
        ("squared_hinge", True, "multilabel_ranking"),
        ("log_loss", True, "multitask_squared_hinge"),
        ("multilabel_ranking", False, "squared_hinge"),
    ],
)
def test_losses_that_are_not_for_the_labels_are_refused_with_those_that_are(loss, sets, cure):
    with pytest.raises(BigmcError, match=f"the loss {loss} is not for .*{cure}"):
        objective(loss, "l1/l2", sets=sets)
    X, y = instance("iris")
    with pytest.raises(BigmcError, match=cure):
        solve(
            Dataset.from_arrays(X, label_sets("iris") if sets else y), loss=loss, alpha=1, memory_limit=LIMIT
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", SET_LOSSES)
def test_a_corrected_sample_out_of_core_reaches_the_optimum_of_all_samples(loss):
    generator = np.random.default_rng(0)
    X = scipy.sparse.random(60_000, 60, 0.15, format="csr", rng=generator)
    X.data = generator.integers(1, 4, X.nnz).astype(np.int8)
    Y = X @ generator.standard_normal((60, 5)) + 4 * generator.gumbel(size=(60_000, 5)) > 6
    dataset = Dataset.from_arrays(X, Y, shard_rows=4000)
    options = {"loss": loss, "alpha": 0.02, "tol": 1e-3}
    seen = []
    streamed = solve(dataset, memory_limit=4_000_000, progress=seen.append, **options)
    assert any(step.stage == "train on a sample" for step in seen)
    assert streamed.plan is None
    assert streamed.certificate.gap <= 1e-3
    assert streamed.n_passes <= 10
    whole = solve(dataset, memory_limit=10**9, alpha=0.02, loss=loss, tol=1e-6)
    assert streamed.objective == pytest.approx(whole.objective, rel=1e-3)
    assert streamed.certificate.lower <= whole.objective * (1 + 1e-6)
    other = solve(dataset, memory_limit=4_000_000, engine=ThreadEngine(1), **options)
    assert bits(other) == bits(streamed)
