"""Log loss by columns with residuals kept: against dense arrays and scipy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from bigmc.kernels.linear.arguments import (
    Columns,
    Entries,
    Extra,
    GradientSums,
    Level,
    Measures,
    Norm,
    Samples,
    Step,
    Support,
)
from bigmc.kernels.linear.columns import log_columns
from bigmc.kernels.linear.columns.log_sums import ResidualWork
from bigmc.kernels.linear.parallel.team import Crew
from bigmc.kernels.linear.penalties.formulas import SPARSE_GROUP
from bigmc.kernels.linear.rows import log_rows

PAD = -1e30
WIDTH = 8
L1_L2 = Norm(SPARSE_GROUP, 0.0)


class Instance:
    """Samples in two shards with weights, scales and scores, and the same as dense arrays."""

    def __init__(self, n_classes, dtype=np.float64, seed=0):
        generator = np.random.default_rng(seed)
        self.n, self.d, self.n_classes = 70, 9, n_classes
        dense = generator.integers(-2, 3, (self.n, self.d)) * (generator.random((self.n, self.d)) < 0.5)
        self.base = np.array([0, 40, self.n])
        indptr, indices, data = [], [], []
        for a, b in zip(self.base[:-1], self.base[1:], strict=True):
            columns = [np.flatnonzero(dense[a:b, j]) for j in range(self.d)]
            start = sum(map(len, indices))
            indptr.append(start + np.concatenate([[0], np.cumsum([len(c) for c in columns])]))
            indices.extend(columns)
            data.extend(dense[a:b][c, j] for j, c in enumerate(columns))
        self.entries = Entries(
            np.array(indptr), np.concatenate(indices).astype(np.uint16),
            np.concatenate(data).astype(np.int8), self.base,
        )  # fmt: skip
        self.weights = generator.random(self.n)
        row_scale = (0.5 + generator.random(self.n)).astype(dtype)
        self.scale = 0.5 + generator.random(self.d)
        self.X = dense * row_scale[:, None] * self.scale
        self.scores = generator.normal(0, 2, (self.n, n_classes))
        self.labels = generator.integers(0, n_classes, self.n)
        wide = np.full((self.n, WIDTH), PAD, dtype)
        wide[:, :n_classes] = self.scores
        self.samples = Samples(
            wide, self.labels[:, None].astype(np.int32), self.weights, row_scale, row_scale * self.weights
        )
        residuals = np.empty((self.n, 1), dtype) if n_classes == 2 else wide
        self.shares = np.empty_like(residuals)
        log_rows.fill_residuals(wide, self.samples.labels, residuals, self.shares)
        self.samples = self.samples._replace(scores=residuals)
        self.P = softmax(self.scores, axis=1)
        self.G = self.P - np.eye(n_classes)[self.labels]

    def model(self, W):
        """Mean of the quadratic model of the losses, and its residuals, after weights of columns join."""
        T = self.X @ W
        turned = self.P * (T - (self.P * T).sum(axis=1, keepdims=True))
        value = self.weights @ ((self.G + turned / 2) * T).sum(axis=1)
        return value / self.weights.sum(), self.G + turned

    @property
    def residuals(self):
        """Twice the residuals that are kept, of all classes; two of them are kept as one margin."""
        return unfolded(2 * self.samples.scores, self.n_classes)

    @property
    def two_over_n(self):
        return 2 / self.weights.sum()


def unfolded(residuals, n_classes):
    """Slopes of all classes."""
    return np.hstack([-residuals, residuals]) if n_classes == 2 else residuals[:, :n_classes]


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-13), (np.float32, 2e-6)])
def test_scores_are_replaced_by_residuals_and_probabilities(dtype, tol):
    instance = Instance(5, dtype)
    assert np.allclose(instance.residuals, instance.G, rtol=0, atol=tol)
    assert np.allclose(instance.shares[:, :5], instance.P, rtol=0, atol=tol)
    assert not instance.samples.scores[:, 5:].any()
    assert not instance.shares[:, 5:].any()


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-13), (np.float32, 1e-6)])
def test_two_classes_are_one_margin(dtype, tol):
    instance = Instance(2, dtype)
    assert np.allclose(instance.residuals, instance.G, rtol=0, atol=tol)
    assert np.allclose(instance.shares[:, 0], instance.P.prod(axis=1), rtol=0, atol=tol)


def test_residuals_of_a_sure_sample_keep_their_digits():
    scores = np.array([[30.0, 0.0] + [PAD] * 6], np.float32)
    none = np.empty((0, WIDTH), np.float32)
    log_rows.fill_residuals(scores, np.zeros((1, 1), np.int32), scores, none)
    expected = np.exp(log_softmax(np.array([30.0, 0.0])))[1] / 2
    assert np.allclose(scores[0, :2], [-expected, expected], rtol=1e-5)


@pytest.mark.parametrize(("label", "margin"), [(0, -30.0), (1, 30.0)])
def test_the_margin_of_a_sure_sample_keeps_its_digits(label, margin):
    scores = np.array([[0.0, margin] + [PAD] * 6], np.float32)
    residuals, shares = np.empty((2, 1, 1), np.float32)
    log_rows.fill_residuals(scores, np.full((1, 1), label, np.int32), residuals, shares)
    expected = np.exp(log_softmax(np.array([30.0, 0.0])))
    assert np.allclose(residuals[0, 0], (1 if label == 0 else -1) * expected[1] / 2, rtol=1e-5)
    assert np.allclose(shares[0, 0], expected.prod(), rtol=1e-5)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_gradients_and_curvatures(n_classes, largest):
    instance = Instance(n_classes)
    places = np.array([2, -1, 0, 1, 3, 4, -1, 5, 6])
    sums = GradientSums(np.zeros((7, WIDTH)), np.zeros(7))
    log_columns.add_gradients(places, instance.entries, instance.samples, n_classes, sums, largest)
    own = np.argsort(places)[2:]
    X = instance.X[:, own] / instance.scale[own]
    gradient = (X * instance.weights[:, None]).T @ instance.G / 2
    second = (X**2 * instance.weights[:, None]).T @ (instance.P * (1 - instance.P)) / 2
    assert np.allclose(sums.gradients[:, :n_classes], gradient, atol=1e-12)
    assert np.allclose(sums.curvatures, second.max(axis=1) if largest else second.mean(axis=1), atol=1e-12)


@pytest.mark.parametrize(("n_classes", "dtype", "tol"), [(2, np.float64, 1e-13), (5, np.float32, 2e-6)])
def test_sums_of_losses_are_those_of_scipy(n_classes, dtype, tol):
    instance = Instance(n_classes, dtype)
    scores = np.full((instance.n, WIDTH), PAD, dtype)
    scores[:, :n_classes] = instance.scores
    scores[0, instance.labels[0]], scores[1, instance.labels[1]] = 40, -90  # sure, and surely wrong
    losses = -log_softmax(scores[:, :n_classes].astype(float), axis=1)[np.arange(instance.n), instance.labels]
    for weights in (instance.weights, np.empty(0)):
        total = log_rows.total_loss(n_classes, scores, instance.samples.labels, weights)
        expected = (losses * weights).sum() if len(weights) else losses.sum()
        assert total == pytest.approx(expected, rel=tol)
    alone = log_rows.total_loss(n_classes, scores[:1], instance.samples.labels[:1], np.empty(0))
    assert alone == pytest.approx(losses[0], rel=max(tol, 1e-5))
    assert alone > 0


@pytest.mark.parametrize("n_classes", [2, 5])
def test_balanced_residuals_are_probabilities_of_others_times_factors(n_classes):
    instance = Instance(n_classes)
    factor = np.zeros((n_classes, WIDTH))
    factor[:, :n_classes] = np.random.default_rng(1).random((n_classes, n_classes))
    scores = np.full((instance.n, WIDTH), PAD)
    scores[:, :n_classes] = instance.scores
    out = np.full(instance.shares.shape, np.nan)
    log_rows.balanced_residuals(scores, instance.samples.labels, factor, out)
    expected = instance.P * factor[instance.labels, :n_classes]
    expected[np.arange(instance.n), instance.labels] = 0.0
    expected[np.arange(instance.n), instance.labels] = -expected.sum(axis=1)
    assert np.allclose(unfolded(out, n_classes), expected / 2, atol=1e-14)
    assert not out[:, n_classes:].any()


@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_norms_and_violations_of_columns(n_classes, ridge):
    instance, alpha = Instance(n_classes), 0.03
    columns = Columns(np.arange(instance.d), np.arange(instance.d), instance.scale, instance.entries)
    coef = np.zeros((2, WIDTH))
    coef[:, :n_classes] = np.random.default_rng(2).normal(size=(2, n_classes))
    slots = np.full(instance.d, -1)
    slots[[1, 6]] = 0, 1
    out = Measures(*np.empty((3, instance.d)))
    level = Level(n_classes, instance.two_over_n, alpha, ridge)
    log_columns.gradient_norms(L1_L2, columns, instance.samples, level, Support(slots, coef), out)
    gradient = instance.X.T @ (instance.G * (instance.weights / instance.weights.sum())[:, None])
    norms = np.linalg.norm(gradient, axis=1)
    assert np.allclose(out.norms, norms, rtol=1e-12)
    violations = np.maximum(norms - alpha, 0)
    for j, row in ((1, coef[0]), (6, coef[1])):
        row = row[:n_classes]
        left = gradient[j] + ridge * row + alpha * row / np.linalg.norm(row)
        violations[j] = np.linalg.norm(left)
    assert np.allclose(out.violations, violations, rtol=1e-10)
    distances = np.maximum(norms - alpha, 0) ** 2 if ridge else np.zeros(instance.d)
    assert np.allclose(out.distances, distances, rtol=1e-10)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_sweeps_lead_to_the_minimum_of_the_model(n_classes):
    instance, alpha, ridge = Instance(n_classes), 0.02, 0.01
    generator = np.random.default_rng(5)
    tilt = np.zeros((instance.d, WIDTH))
    tilt[:, :n_classes] = generator.normal(0, 0.01, (instance.d, n_classes))
    columns = Columns(np.arange(instance.d), np.arange(instance.d), instance.scale, instance.entries)
    work = ResidualWork(
        columns, instance.samples, instance.shares, Crew.of(np.dtype(float), WIDTH, n_classes)
    )
    step = Step(n_classes, instance.two_over_n, alpha, True, 0.0)
    extra = Extra(np.full(instance.d, ridge), tilt)
    W, violations = np.zeros((instance.d, WIDTH)), np.empty(instance.d)

    def objective(W):
        W = W.reshape(instance.d, n_classes)
        penalty = alpha * np.linalg.norm(W, axis=1).sum() + ridge / 2 * (W**2).sum()
        return instance.model(W)[0] + (tilt[:, :n_classes] * W).sum() + penalty

    before = objective(W[:, :n_classes])
    for _ in range(300):
        log_columns.sweep(L1_L2, work, step, extra, W, violations)
        now = objective(W[:, :n_classes])
        assert now <= before + 1e-14
        before = now
    assert violations.max() < 1e-6
    assert np.allclose(instance.residuals, instance.model(W[:, :n_classes])[1], atol=1e-11)
    start = W[:, :n_classes].ravel() + generator.normal(0, 0.05, instance.d * n_classes)
    best = minimize(
        objective, start, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14, "maxiter": 10**5}
    )
    assert before <= best.fun + 1e-9


@pytest.mark.parametrize("n_classes", [2, 5])
def test_steps_of_an_intercept(n_classes):
    instance = Instance(n_classes)
    residual_sums, variance, products = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros((n_classes, n_classes))
    log_rows.add_level(instance.samples, instance.shares, residual_sums, variance, products)
    w, P = instance.weights, instance.P
    assert np.allclose(residual_sums[:n_classes], w @ instance.G / 2)
    assert np.allclose(variance[:n_classes], w @ (P * (1 - P)))
    beside = ~np.eye(n_classes, dtype=bool)  # with two classes the diagonal is not added up
    assert np.allclose(products[beside], ((P * w[:, None]).T @ P)[beside])
    step = np.zeros(WIDTH)
    step[:n_classes] = np.arange(n_classes) / 3
    log_rows.shift(instance.samples, instance.shares, step)
    T = np.broadcast_to(step[:n_classes], P.shape)
    moved = instance.G + P * (T - (P * T).sum(axis=1, keepdims=True))
    assert np.allclose(instance.residuals, moved)
