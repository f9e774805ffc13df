"""The kernels of losses and penalties against finite differences and brute force."""

import numpy as np
import pytest
from dense import loss_and_gradient, objective_value, penalty_value

from bigmc.kernels.linear.arguments import Entries, Norm, Samples
from bigmc.kernels.linear.columns import loss_columns
from bigmc.kernels.linear.parallel.team import WHOLE
from bigmc.kernels.linear.penalties import formulas
from bigmc.objectives import LOSSES, PENALTIES

LABEL_LOSSES = [name for name, loss in LOSSES.items() if loss.takes_labels]
RATIO = 0.3
PENALTY_CODES = {
    name: Norm(penalty.code, RATIO if name == "sparse_group" else penalty.l1_ratio)
    for name, penalty in PENALTIES.items()
}
TURNS = np.linspace(0, 2 * np.pi, 200_001)
CIRCLE = np.stack([np.cos(TURNS), np.sin(TURNS)], axis=1)


def column(loss, n_classes=4, n_samples=30, seed=0):
    """One column over two shards, its samples' scores, and what the kernels take of it."""
    generator = np.random.default_rng(seed)
    x = np.where(generator.random(n_samples) < 0.6, generator.integers(-2, 3, n_samples), 0).astype(np.int8)
    y = generator.integers(0, n_classes, n_samples).astype(np.int32)
    scores = np.full((n_samples, 8), -1e30)
    scores[:, :n_classes] = generator.standard_normal((n_samples, n_classes))
    row_scale, weights = generator.random((2, n_samples)) + 0.5
    half = n_samples // 2
    rows = [np.flatnonzero(x[:half]), np.flatnonzero(x[half:])]
    indptr = np.array([[0, len(rows[0])], [len(rows[0]), len(rows[0]) + len(rows[1])]], np.int64)
    entries = Entries(
        indptr, np.concatenate(rows).astype(np.uint16), x[x != 0], np.array([0, half, n_samples])
    )
    return LOSSES[loss].kernels, x * row_scale, y, scores, row_scale, weights, entries


@pytest.mark.parametrize("loss", LABEL_LOSSES)
def test_gradient_and_hessian_are_finite_differences(loss):
    m = 4
    code, x, y, scores, row_scale, weights, entries = column(loss)
    samples = Samples(scores, y[:, None], weights, row_scale, row_scale * weights)
    none, hessian = np.empty((0, 0)), np.empty((m, m))
    work, again = loss_columns.column_work(scores, m), loss_columns.column_work(scores, m)
    loss_columns.column_curvature(code, 0, WHOLE, entries, samples, none, work, hessian)
    sums, diagonal = work.sums, work.diagonal
    loss_columns.column_gradient(code, 0, WHOLE, entries, samples, none, again)
    np.testing.assert_allclose(again.sums, sums, rtol=1e-12, atol=1e-14)
    n = weights.sum()

    def by_definition(w):
        value, _, _ = loss_and_gradient(loss, x[:, None], y, w[None], scores[:, :m], weights)
        return value, (x[:, None] * residuals_of(w)).sum(axis=0)

    def residuals_of(w):
        rows = np.arange(len(y))
        single = [
            loss_and_gradient(
                loss, x[i : i + 1, None], y[i : i + 1], w[None], scores[i : i + 1, :m], weights[i : i + 1]
            )[2]
            for i in rows
        ]
        return np.array(single) * weights[:, None] / n

    small = 1e-6
    for r in range(m):
        step = small * np.eye(m)[r]
        up, down = by_definition(step), by_definition(-step)
        assert 2 / n * sums[r] == pytest.approx((up[0] - down[0]) / (2 * small), rel=1e-6, abs=1e-9)
        expected = 2 / n * hessian[r]
        if loss == "multitask_squared_hinge":
            expected = np.diag(2 / n * diagonal)[r]
        np.testing.assert_allclose(expected, (up[1] - down[1]) / (2 * small), rtol=1e-5, atol=1e-7)
        assert 2 / n * diagonal[r] == pytest.approx(((up[1] - down[1]) / (2 * small))[r], rel=1e-5)
    move = np.array([0.3, -0.7, 0.0, 1.1, 0, 0, 0, 0])
    change = loss_columns.column_loss_change(code, 0, WHOLE, entries, samples, np.empty(8), move) / n
    assert change == pytest.approx(by_definition(move[:m])[0] - by_definition(np.zeros(m))[0], rel=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.5, 20.0])
def test_no_point_near_the_proximal_point_is_better(penalty, alpha):
    """The function is convex, so that a point without a better one around it is the minimum."""
    generator = np.random.default_rng(1)
    for n_classes in (1, 3, 6):
        for _ in range(5):
            linear, curve = 3 * generator.standard_normal(n_classes), generator.random(n_classes) + 0.2
            new = np.empty(n_classes)
            formulas.prox(PENALTY_CODES[penalty], alpha, linear, curve, new)

            def value(u, linear=linear, curve=curve):
                norms = np.array([penalty_value(penalty, row[None], RATIO) for row in u])
                return (curve * u**2 / 2 - linear * u).sum(axis=1) + alpha * norms

            way = generator.standard_normal((300, n_classes)) * 10.0 ** generator.uniform(-6, 0, (300, 1))
            way[::3] *= generator.random((100, n_classes)) < 0.4
            way[1::3] = -new * generator.random((100, 1))
            assert value(new[None])[0] <= value(new + way).min() + 1e-13 * (1 + np.abs(value(new[None])[0]))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_dual_norm_is_the_largest_product_with_weights_of_penalty_one(penalty):
    sizes = np.array([penalty_value(penalty, u[None], RATIO) for u in CIRCLE[::40]])
    for g in ([1.0, 0.0], [0.3, -2.0], [1.0, 1.0], [-5.0, 4.9], [0.0, 0.0]):
        brute = max(0.0, (CIRCLE[::40] @ g / sizes).max())
        assert formulas.dual_norm(PENALTY_CODES[penalty], np.array(g)) == pytest.approx(brute, rel=1e-5)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("row", [[0.0, 0.0], [1.0, 0.0], [0.5, -0.5], [0.5, 0.5], [-2.0, 0.7]])
def test_violation_is_the_steepest_descent_there_is(penalty, row):
    row, alpha, ridge, small = np.array(row), 0.7, 0.3, 1e-7
    ends = row + small * CIRCLE[::100]
    directional = np.array([penalty_value(penalty, end[None], RATIO) for end in ends])
    directional = (directional - penalty_value(penalty, row[None], RATIO)) / small
    for g in ([0.1, 0.1], [1.0, -0.2], [-0.3, 2.0], [-0.9, -0.9], [0.5, -0.6]):
        fall = -(CIRCLE[::100] @ (np.array(g) + ridge * row) + alpha * directional).min()
        found = formulas.violation(
            PENALTY_CODES[penalty], alpha, ridge, row, np.array(g), np.ones(2), np.empty(2)
        )
        # the directions are at most 1.6e-3 off the steepest, which costs half of its square
        assert found == pytest.approx(max(fall, 0.0), rel=2e-6, abs=1e-6)


@pytest.mark.parametrize("loss", LABEL_LOSSES)
def test_sums_by_class_give_the_loss_and_the_derivatives_by_the_intercept(loss):
    m = 4
    _, _, y, scores, _, weights, _ = column(loss)
    one = LOSSES[loss]()
    residuals, values, curvatures = np.zeros((3, m, m))
    one.class_sums(scores, y[:, None], weights, residuals, values, curvatures)
    n, zeros = weights.sum(), np.zeros((1, m))

    def by_definition(b):
        value, _, wanted = loss_and_gradient(
            loss, np.zeros((len(y), 1)), y, zeros, scores[:, :m] + b, weights
        )
        return value, wanted

    value, wanted = by_definition(np.zeros(m))
    assert values.sum() / n == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(2 / n * one.intercept_gradient(residuals), wanted, rtol=1e-10, atol=1e-14)
    for r, row in enumerate(2 / n * one.intercept_curvature(curvatures)):
        step = 1e-6 * np.eye(m)[r]
        difference = (by_definition(step)[1] - by_definition(-step)[1]) / 2e-6
        np.testing.assert_allclose(row, difference, rtol=1e-5, atol=1e-7)


def test_objective_value_of_a_known_case():
    W = np.array([[3.0, -4.0], [0.0, 2.0]])
    values = {"l1/l2": 7.0, "l1": 9.0, "l1/linf": 6.0, "sparse_group": RATIO * 9 + (1 - RATIO) * 7}
    X, y = np.zeros((3, 2)), np.array([0, 1, 1])
    for penalty, expected in values.items():
        for loss, mean in (("squared_hinge", 1), ("multitask_squared_hinge", 2), ("log_loss", np.log(2))):
            found = objective_value(loss, penalty, X, y, W, 0, 0.1, 0.2, RATIO)
            assert found == pytest.approx(mean + 0.1 * expected + 0.1 * 29)
