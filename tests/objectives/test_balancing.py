"""Factors for the intercept, compared with a general-purpose minimiser and with what they must satisfy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components

from bigmc.objectives.balancing import balance_classes, balance_tasks


def reference(flow):
    """Return the factors from the convex problem that balancing solves: min_x Σ f_ij exp(x_i - x_j)."""

    def value(x):
        moved = flow * np.exp(x[:, None] - x[None, :])
        return moved.sum(), moved.sum(axis=1) - moved.sum(axis=0)

    x = minimize(value, np.zeros(len(flow)), jac=True, method="BFGS", options={"gtol": 1e-12}).x
    return np.exp(x[:, None] - x[None, :])


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_the_flow_through_every_class_is_balanced(n_classes):
    flow = np.random.default_rng(n_classes).exponential(size=(n_classes, n_classes)) + 0.01
    factors = balance_classes(flow)
    off = ~np.eye(n_classes, dtype=bool)
    np.testing.assert_allclose(factors[off], reference(flow * off)[off], rtol=1e-6)
    balanced = factors * flow
    np.testing.assert_allclose(balanced.sum(axis=0), balanced.sum(axis=1), rtol=1e-12)
    assert not np.diag(factors).any()


def test_flow_that_cannot_come_back_is_dropped():
    flow = np.array([[9.0, 4.0, 2.0, 0.0], [1.0, 9.0, 0.0, 0.0], [0.0, 0.0, 9.0, 5.0], [0.0, 0.0, 1.0, 9.0]])
    factors = balance_classes(flow)  # {0, 1} and {2, 3} lead back to themselves; 0 to 2 does not
    expected = np.zeros((4, 4))
    expected[0, 1], expected[1, 0] = 1 / 2, 2.0
    expected[2, 3], expected[3, 2] = 1 / np.sqrt(5), np.sqrt(5)
    np.testing.assert_allclose(factors, expected, rtol=1e-12)


def test_no_flow_at_all_is_balanced():
    assert not balance_classes(np.zeros((3, 3))).any()


def test_of_a_class_and_its_rest_the_larger_is_scaled_down():
    residuals = np.array([[3.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 3.0, 0.0]])
    factors = balance_tasks(residuals)
    np.testing.assert_allclose(factors, [[2 / 3, 1 / 4, 0.0], [1.0, 1.0, 0.0], [1.0, 1 / 4, 0.0]])


@pytest.mark.parametrize("density", [0.02, 0.06, 0.2])
def test_flow_is_kept_within_the_strongly_connected_components_of_scipy(density):
    kept = 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        flow = generator.exponential(size=(40, 40)) * (generator.random((40, 40)) < density)
        np.fill_diagonal(flow, 0.0)
        _, component = connected_components(flow > 0, directed=True, connection="strong")
        expected = (flow > 0) & (component[:, None] == component)
        factors = balance_classes(flow)
        np.testing.assert_array_equal(factors > 0, expected)
        kept += np.count_nonzero(expected)
    assert kept > 0
