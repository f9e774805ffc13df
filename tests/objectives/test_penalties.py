"""Penalties near some weights, against their definition: finite differences and loops."""

import numpy as np
import pytest

from bigmc.objectives.penalties import GROUP_LASSO, LASSO, PENALTIES, SPARSE_GROUP

SMOOTH = pytest.mark.parametrize("penalty", [GROUP_LASSO, LASSO, SPARSE_GROUP], ids=lambda p: p.name)
STEP = 1e-5


def near(penalty, size=1.0):
    """Rows of weights with one that is zero, a factor for each row, and the penalty near them."""
    random = np.random.default_rng(0)
    rows = random.uniform(0.5, 2.0, (6, 4)) * random.choice([-1, 1], (6, 4))
    rows[2, 1] = 0.0
    rows *= size
    alphas = random.uniform(0.1, 1.0, 6)
    return rows, alphas, penalty.restricted(rows, alphas)


def value(penalty, rows, alphas):
    return sum(alpha * penalty.value(row[np.newaxis]) for row, alpha in zip(rows, alphas, strict=True))


@SMOOTH
def test_the_derivatives_along_a_direction_are_those_of_the_value(penalty):
    rows, alphas, restricted = near(penalty)
    for seed in range(5):
        # without a group the penalty has no derivative at a weight that is zero, which is not free there
        direction = np.random.default_rng(seed).standard_normal(rows.shape) * restricted.free
        values = [value(penalty, rows + t * STEP * direction, alphas) for t in (-1, 0, 1)]
        slope = (restricted.gradient * direction).sum()
        assert slope == pytest.approx((values[2] - values[0]) / (2 * STEP), rel=1e-6)
        across = (direction**2).sum(axis=1) - (restricted.unit * direction).sum(axis=1) ** 2
        bend = (values[2] - 2 * values[1] + values[0]) / STEP**2
        assert restricted.curvature @ across == pytest.approx(bend, rel=1e-3, abs=1e-4)
        change = restricted.change(rows + 0.3 * direction)
        expected = value(penalty, rows + 0.3 * direction, alphas) - value(penalty, rows, alphas)
        assert change == pytest.approx(expected, rel=1e-9)


@SMOOTH
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_weights_are_turned_with_their_sign_or_with_their_row(penalty, size):
    rows, _, restricted = near(penalty, size)
    step = np.zeros_like(rows)
    step[0] = -2.0 * rows[0]  # the whole row
    step[1, 0] = -1.5 * rows[1, 0]  # one weight
    step[3] = -0.5 * rows[3]  # none
    step[4] = np.array([-9.0, 0.1, 0.1, 0.1]) * rows[4]  # one weight, and with it the direction of the row
    step[5] = -rows[5]  # to zero
    moved = rows + step
    for (j, r), turned in np.ndenumerate(restricted.turned(step)):
        sign = penalty.l1_ratio > 0 and moved[j, r] * rows[j, r] <= 0
        direction = penalty.l1_ratio < 1 and moved[j] @ rows[j] <= 0
        moves = rows[j, r] != 0 or penalty.l1_ratio == 0
        assert turned == ((sign or direction) and moves), (j, r)


def test_a_factor_of_zero_leaves_weights_free():
    rows = np.array([[1.0, -2.0]])
    restricted = SPARSE_GROUP.restricted(rows, np.zeros(1))
    assert restricted.free.all()
    assert not restricted.turned(-2.0 * rows).any()


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=lambda p: p.name)
def test_the_conversion_is_the_largest_ratio_of_a_dual_norm(penalty, n_classes):
    """By duality it is the largest ratio of the Euclidean norm to the penalty."""
    random = np.random.default_rng(1)
    points = random.standard_normal((200, n_classes)) ** 3
    points[:2] = np.ones(n_classes), np.eye(n_classes)[0]  # where a maximum and the others are smallest
    values = np.array([penalty.value(point[np.newaxis]) for point in points])
    ratio = (np.linalg.norm(points, axis=1) / values).max()
    assert ratio == pytest.approx(penalty.dual_conversion(n_classes), rel=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=lambda p: p.name)
def test_slopes_are_those_of_the_value_also_where_weights_are_zero(penalty):
    random = np.random.default_rng(7)
    rows, moves = random.integers(-1, 2, (2, 40, 3)).astype(float)
    rows[:3] = 0.0
    expected = [
        (penalty.value(row[None] + STEP * move) - penalty.value(row[None])) / STEP
        for row, move in zip(rows, moves, strict=True)
    ]
    np.testing.assert_allclose(penalty.slopes(rows, moves), expected, rtol=1e-4, atol=1e-4)
