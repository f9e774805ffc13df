import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from bigmc.kernels.minimax import add_multiple, primal_step, project_dual, subset_masks, subset_values


def brute_force(scores):
    subsets = [c for k in range(1, len(scores) + 1) for c in itertools.combinations(range(len(scores)), k)]
    values = [(sum(scores[y] for y in c) - 1) / len(c) for c in subsets]
    best = int(np.argmax(values))
    return values[best], set(subsets[best])


@pytest.mark.parametrize("n_classes", [2, 3, 8])
def test_the_best_subset_is_that_of_all_subsets(n_classes):
    rng = np.random.default_rng(n_classes)
    scores = rng.normal(size=(200, n_classes)) * rng.choice([0.1, 1, 10], size=(200, 1))
    scales = np.array([1.0, 0.2, 3.0])
    values, largest = np.empty(len(scores)), np.empty(3)
    subset_values(scores, scales, values, largest)
    for scale, phi in zip(scales, largest, strict=True):
        assert phi == pytest.approx(max(brute_force(scale * row)[0] for row in scores), abs=1e-12)
    masks = np.empty((len(scores), -(-n_classes // 8)), np.uint8)
    subset_masks(scores, masks)
    members = np.unpackbits(masks, axis=1, bitorder="little")
    for i, row in enumerate(scores):
        value, subset = brute_force(row)
        assert values[i] == pytest.approx(value, abs=1e-12)
        assert set(np.flatnonzero(members[i])) == subset


def test_subsets_of_many_classes_have_the_value_they_say():
    scores = np.random.default_rng(0).normal(size=(50, 131)) * 0.01
    values, masks = np.empty(50), np.empty((50, 17), np.uint8)
    subset_values(scores, np.ones(1), values, np.empty(1))
    subset_masks(scores, masks)
    members = np.unpackbits(masks, axis=1, bitorder="little")[:, :131].astype(bool)
    assert members.sum(axis=1).max() > 64
    for i, row in enumerate(scores):
        assert (row[members[i]].sum() - 1) / members[i].sum() == pytest.approx(values[i], abs=1e-12)
        ordered = np.sort(row)[::-1]
        assert values[i] == pytest.approx(max((np.cumsum(ordered) - 1) / np.arange(1, 132)), abs=1e-12)


@pytest.mark.parametrize("sigma", [0.01, 0.5, 3.0])
def test_the_dual_step_is_the_minimiser(sigma):
    rng = np.random.default_rng(1)
    points = rng.normal(size=(4, 3)) * 0.5
    found = points.copy()
    project_dual(found, sigma, 10.0, np.empty(4))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-12)

    # The same problem with a variable for every row's maximum, for a solver of its own.
    def value(z):
        return 0.5 * np.sum((z[:12] - points.ravel()) ** 2) + sigma * z[12:].sum()

    limits = [{"type": "eq", "fun": lambda z: z[:12].sum() - 1}]
    limits += [{"type": "ineq", "fun": lambda z: np.repeat(z[12:], 3) - z[:12]}]
    start = np.concatenate([np.full(12, 1 / 12), np.full(4, 0.5)])
    options = {"maxiter": 1000, "ftol": 1e-15}
    other = minimize(
        value, start, bounds=[(0, None)] * 16, constraints=limits, method="SLSQP", options=options
    )
    mine = value(np.concatenate([found.ravel(), found.max(axis=1)]))
    assert mine <= other.fun + 1e-7
    np.testing.assert_allclose(found.ravel(), other.x[:12], atol=1e-4)


def test_the_dual_step_does_not_depend_on_where_the_search_starts():
    points = np.random.default_rng(2).normal(size=(300, 7))
    results = []
    for start in (-100.0, 0.0, 1.5, 1e6):
        found = points.copy()
        project_dual(found, 0.1, start, np.empty(300))
        results.append(found)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=1e-12)


def test_the_primal_step_minimises_the_proximal_objective():
    rng = np.random.default_rng(3)
    coef, moments, tau = rng.normal(size=(3, 40, 3))
    lam, eta = rng.exponential(size=(40, 3)) * (rng.random((40, 3)) < 0.8), 0.7
    stepped, step = np.empty((2, 40, 3))
    primal_step(coef, moments, tau, lam, eta, stepped, step)
    np.testing.assert_array_equal(step, stepped - coef)
    # 0 is in (μ' − μ) / eta + slope + λ ∂|μ'|
    rest = -(stepped - coef) / eta - (moments - tau)
    away = stepped != 0
    np.testing.assert_allclose(rest[away], (lam * np.sign(stepped))[away], atol=1e-12)
    assert (np.abs(rest) <= lam + 1e-12)[~away].all()
    assert 10 < away.sum() < 110


def test_add_multiple():
    values, total = np.random.default_rng(4).normal(size=(2, 5, 3))
    expected = total + 0.3 * values
    add_multiple(values, 0.3, total)
    np.testing.assert_array_equal(total, expected)
