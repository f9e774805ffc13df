"""What losses make of sums over the samples: against their definition, by differences and conjugates."""

import numpy as np
import pytest
from scipy.optimize import minimize
from solvers.dense import loss_and_gradient

from bigmc.kernels.linear.losses.sums import entropy
from bigmc.objectives import LOSSES

N, M, WIDTH, STEP = 9, 4, 8, 1e-6
BOUNDED = ("huber_hinge", "log_loss")
"""Losses whose dual variables may not increase."""


class Summed:
    """Weighted samples with scores, the mean of a loss by its definition, and sums as the loss adds them up.

    Labels are sets for the losses that take no other.
    """

    def __init__(self, name):
        generator = np.random.default_rng(5)
        self.name, self.loss = name, LOSSES[name]()
        self.scores, self.weights = generator.normal(size=(N, M)), generator.random(N) + 0.5
        self.y = np.arange(N, dtype=np.int32) % M
        codes = self.y[:, None]
        if not self.loss.takes_labels:  # a label, and every other time the one before it
            self.y = np.eye(M, dtype=int)[self.y] | (np.eye(M, dtype=int)[self.y - 1] * (codes % 2))
            codes = np.argsort(self.y == 0, axis=1, kind="stable")[:, :2].astype(np.int32)
            codes[self.y.sum(axis=1) == 1, 1] = -1
        padded = np.full((N, WIDTH), self.loss.pad_score)
        padded[:, :M] = self.scores
        self.samples = padded, codes, self.weights
        self.residuals, self.values, self.curvatures = sums = np.zeros((3, M, M))
        self.loss.class_sums(*self.samples, *sums)

    def mean(self, scores):
        """Mean loss of scores, and its derivatives by each of them."""
        return loss_and_gradient(self.name, np.eye(N), self.y, scores, np.zeros(M), self.weights)[:2]

    def by_intercept(self, intercept):
        return self.mean(self.scores + intercept)[1].sum(axis=0)

    def dual_value(self, scale, factor):
        residual_sum = (self.residuals * factor).sum()
        value = self.loss.dual_values(self.values * factor**2).sum()
        return self.loss.dual_value(
            scale,
            residual_sum,
            value,
            self.weights.sum(),
            lambda scale: entropy(*self.samples, factor, scale),
        )


every_loss = pytest.mark.parametrize("name", LOSSES)
with_one_label = pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.takes_labels])


@every_loss
def test_derivatives_by_the_intercept_are_those_of_the_definition(name):
    summed = Summed(name)
    half = summed.weights.sum() / 2
    assert summed.values.sum() / summed.weights.sum() == pytest.approx(summed.mean(summed.scores)[0])
    gradient = summed.loss.intercept_gradient(summed.residuals)
    np.testing.assert_allclose(gradient, half * summed.by_intercept(np.zeros(M)), atol=1e-12)
    hessian = [
        half * (summed.by_intercept(step) - summed.by_intercept(-step)) / (2 * STEP)
        for step in STEP * np.eye(M)
    ]
    np.testing.assert_allclose(summed.loss.intercept_curvature(summed.curvatures), hessian, atol=1e-7)


@every_loss
def test_sums_by_class_are_those_of_the_definition(name):
    summed = Summed(name)
    half, totals = summed.weights.sum() / 2, (np.zeros(M), np.zeros(M), np.zeros(3))
    summed.loss.class_totals(*summed.samples, *totals)
    gradient, curvatures, (residual, value, more) = totals
    np.testing.assert_allclose(gradient, half * summed.by_intercept(np.zeros(M)), atol=1e-12)
    np.testing.assert_allclose(curvatures, np.diag(summed.loss.intercept_curvature(summed.curvatures)))
    assert residual == pytest.approx(summed.residuals.sum())
    assert value + more == pytest.approx(2 * half * summed.mean(summed.scores)[0])


@every_loss
def test_gradients_of_the_kept_classes_are_enough(name):
    summed = Summed(name)
    gradients = np.random.default_rng(6).normal(size=(3, N)) @ summed.mean(summed.scores)[1]
    n_kept = summed.loss.n_kept(M)
    assert n_kept == (M if name == "multitask_squared_hinge" else M - 1)
    unpacked = summed.loss.unpacked(gradients[:, M - n_kept :], M, WIDTH)
    np.testing.assert_allclose(unpacked, np.pad(gradients, ((0, 0), (0, WIDTH - M))), atol=1e-12)


@every_loss
def test_balanced_residuals_leave_no_derivative_by_the_intercept(name):
    summed = Summed(name)
    factor = summed.loss.balance(summed.residuals)
    assert np.abs(summed.loss.intercept_gradient(summed.residuals)).max() > 0.1
    np.testing.assert_allclose(summed.loss.intercept_gradient(summed.residuals * factor), 0.0, atol=1e-8)
    if name in BOUNDED:
        assert factor.max() == 1.0  # none may increase, and no more is taken than that


@with_one_label
@pytest.mark.parametrize("scale", [0.4, 1.0])
@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_the_dual_value_is_that_of_the_conjugate(name, scale, factor):
    """Minus the conjugate at the derivatives is the least value of the mean loss less their product."""
    summed = Summed(name)
    factors, (_, derivatives) = np.full((M, M), factor), summed.mean(summed.scores)

    def tilted(scores):
        value, by_scores = summed.mean(scores.reshape(N, M))
        slopes = scale * factor * derivatives
        return value - (slopes * scores.reshape(N, M)).sum(), (by_scores - slopes).ravel()

    least = minimize(tilted, summed.scores.ravel(), jac=True, method="BFGS", options={"gtol": 1e-9}).fun
    assert summed.dual_value(scale, factors) == pytest.approx(least, abs=1e-9)


@every_loss
def test_the_largest_scale_is_where_the_dual_value_or_a_variable_is_largest(name):
    summed = Summed(name)
    values = summed.loss.dual_values(summed.values)
    largest = summed.loss.largest_scale(summed.residuals.sum(), values.sum())
    if name in BOUNDED:
        assert largest == 1.0
        return
    below, at, above = (summed.dual_value(share * largest, np.ones((M, M))) for share in (0.9, 1.0, 1.1))
    assert at > max(below, above)
    assert below == pytest.approx(above)
    assert summed.loss.largest_scale(0.0, 0.0) == 0.0  # no margins: the dual point is 0
