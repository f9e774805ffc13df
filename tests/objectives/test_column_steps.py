"""What an objective does with columns: against gradients and optima by numpy."""

import numpy as np
import pytest
from kernels.test_log_columns import WIDTH, Instance
from solvers.dense import fista, loss_and_gradient, objective_value, prox

from bigmc.kernels.linear.arguments import Columns, Extra, Level, Measures, Step, Support
from bigmc.kernels.linear.parallel.team import Crew
from bigmc.objectives import PENALTIES, objective

N_CLASSES, ALPHA = 5, 0.03
PAIRS = [("squared_hinge", "l1/l2"), ("squared_hinge", "l1"), ("multitask_squared_hinge", "l1/l2")]
every_pair = pytest.mark.parametrize(("loss", "penalty"), PAIRS)


class Weighed:
    """Columns of samples whose scores are those of weights, which start at zero."""

    def __init__(self, loss, penalty, ridge=0.0):
        self.instance, self.loss, self.penalty = Instance(N_CLASSES), loss, penalty
        self.minimised = objective(loss, penalty, ridge=ridge)
        self.X, self.y, self.weights = self.instance.X, self.instance.labels, self.instance.weights
        n, d = self.X.shape
        scores = np.full((n, WIDTH), self.minimised.loss.pad_score)
        scores[:, :N_CLASSES] = 0.0
        self.samples = self.instance.samples._replace(scores=scores)
        self.columns = Columns(np.arange(d), np.arange(d), self.instance.scale, self.instance.entries)
        self.extra = Extra(np.full(d, ridge), np.empty((0, WIDTH)))
        self.step = Step(N_CLASSES, 2 / self.weights.sum(), ALPHA, line_search=True, negligible=0.0)
        self.coef, self.violations = np.zeros((d, WIDTH)), np.zeros(d)
        crew = Crew.of(np.dtype(float), WIDTH, N_CLASSES)
        self.work = self.minimised.column_work(self.columns, self.samples, crew, N_CLASSES)

    @property
    def W(self):
        return self.coef[:, :N_CLASSES]

    def gradient(self):
        return loss_and_gradient(self.loss, self.X, self.y, self.W, np.zeros(N_CLASSES), self.weights)[1]


def is_dual_norm(norms, penalty, gradients):
    """Whether gradients are in the dual ball of this size, and in none smaller: their projection is zero."""
    pairs = list(zip(norms, gradients, strict=True))
    within = all(not prox(penalty, row, norm * (1 + 1e-9)).any() for norm, row in pairs)
    return within and all(prox(penalty, row, norm * (1 - 1e-6)).any() for norm, row in pairs)


@every_pair
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_sweeps_lead_to_the_optimum(loss, penalty, ridge):
    weighed = Weighed(loss, penalty, ridge)
    for _ in range(100):
        weighed.minimised.sweep(weighed.work, weighed.step, weighed.extra, weighed.coef, weighed.violations)
    assert weighed.violations.max() < 1e-6
    data = loss, penalty, weighed.X, weighed.y
    value = objective_value(*data, weighed.W, 0.0, ALPHA, ridge, weights=weighed.weights)
    best = fista(*data, N_CLASSES, ALPHA, ridge, weights=weighed.weights, n_iter=500)
    assert value == pytest.approx(best, rel=1e-7)
    mean, _, _ = loss_and_gradient(*data[:1], *data[2:], weighed.W, np.zeros(N_CLASSES), weighed.weights)
    assert weighed.minimised.regulariser(ALPHA, weighed.coef) == pytest.approx(value - mean)


@every_pair
def test_projections_lead_into_the_ball(loss, penalty):
    weighed = Weighed(loss, penalty)
    assert prox(penalty, weighed.gradient(), ALPHA).any()
    for _ in range(200):
        weighed.minimised.project(weighed.work, weighed.step, weighed.extra, weighed.coef, weighed.violations)
    assert np.abs(prox(penalty, weighed.gradient(), ALPHA)).max() < 1e-6


@every_pair
def test_norms_of_columns_are_those_of_their_gradients(loss, penalty):
    weighed = Weighed(loss, penalty)
    d = len(weighed.coef)
    out = Measures(*np.zeros((3, d)))
    support = Support(np.full(d, -1), np.empty((0, WIDTH)))
    level = Level(N_CLASSES, weighed.step.two_over_n, ALPHA, 0.0)
    measured = weighed.columns, weighed.samples, level, np.empty((0, 0)), support, out
    weighed.minimised.gradient_norms(*measured)
    assert is_dual_norm(out.norms, penalty, weighed.gradient())
    excess = prox(penalty, weighed.gradient(), ALPHA)
    np.testing.assert_allclose(out.violations, np.linalg.norm(excess, axis=1), atol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_measures_of_gradients_are_those_of_the_dual_ball(penalty):
    gradients, scale = np.random.default_rng(2).normal(size=(6, N_CLASSES)), np.linspace(0.5, 2.0, 6)
    minimised, norms = objective("log_loss", penalty, ridge=0.1), np.zeros(6)
    minimised.add_dual_norms(gradients, scale, N_CLASSES, norms)
    assert is_dual_norm(norms, penalty, scale[:, None] * gradients)
    minimised.add_dual_norms(gradients, scale, N_CLASSES, norms)
    assert is_dual_norm(norms / 2, penalty, scale[:, None] * gradients)
    out = Measures(*np.zeros((3, 6)))
    minimised.measure_gradients(0.7, gradients, np.zeros((6, N_CLASSES)), N_CLASSES, out)
    assert is_dual_norm(out.norms, penalty, gradients)
    excess = np.linalg.norm(prox(penalty, gradients, 0.7), axis=1)
    np.testing.assert_allclose(out.violations, excess, rtol=1e-12)
    np.testing.assert_allclose(out.distances, excess**2, rtol=1e-12)


@pytest.mark.parametrize("loss", ["squared_hinge", "multitask_squared_hinge", "log_loss"])
def test_curvatures_of_columns_are_bounded(loss):
    weighed = Weighed(loss, "l1/l2")
    bounds, m = np.zeros(len(weighed.coef)), N_CLASSES
    weighed.minimised.largest_curvatures(weighed.columns, weighed.samples, m, weighed.step.two_over_n, bounds)
    small, hessians = 1e-5, []
    for j in range(len(bounds)):
        ends = []
        for step in (small * np.eye(m)[r] * sign for r in range(m) for sign in (1, -1)):
            weighed.W[j] = step
            ends.append(weighed.gradient()[j])
        weighed.W[j] = 0.0
        hessians.append((np.array(ends[::2]) - ends[1::2]) / (2 * small))
    largest = np.linalg.eigvalsh(hessians)[:, -1]
    assert (bounds >= largest * (1 - 1e-6)).all()
    assert (bounds <= 3 * largest).all()
