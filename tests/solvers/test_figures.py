"""Figures of a run, of its history and its progress: against the definition, by numpy."""

import numpy as np
import pytest
from dense import loss_and_gradient, objective_value
from sampled_runs import made
from sparse_runs import solve

from bigmc.solvers.certificate import Certificate

N_CLASSES, ALPHA = 5, 2e-2


def violations(loss, X, y, W, b, weights, ridge):
    """Lengths of what is left of the conditions of optimality: the longest of a feature, the intercept's."""
    _, gradients, by_intercept = loss_and_gradient(loss, X, y, W, b, weights)
    lengths = np.linalg.norm(W, axis=1, keepdims=True)
    left = gradients + ridge * W + ALPHA * W / np.where(lengths > 0, lengths, 1.0)
    allowed = np.where(lengths[:, 0] > 0, 0.0, ALPHA)
    return (np.linalg.norm(left, axis=1) - allowed).max(), np.linalg.norm(by_intercept)


WAYS = {
    "in memory": {"memory_limit": 1 << 30},
    "in chunks": {"memory_limit": 64 << 20, "chunk_bytes": 40_000},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("loss", "ridge"), [("squared_hinge", 0.0), ("squared_hinge", 0.1), ("log_loss", 0.0)]
)
def test_the_history_ends_with_what_the_weights_come_to(way, loss, ridge):
    X, y, dataset = made(n=1500)
    weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    told = []
    found = solve(
        dataset, alpha=ALPHA, loss=loss, ridge=ridge, fit_intercept=True, sample_weight=weights,
        tol=3e-2, progress=lambda message: told.append(message.facts), **WAYS[way],
    )  # fmt: skip
    W, b, last = np.zeros((dataset.n_features, N_CLASSES)), found.intercept, found.history[-1]
    W[found.features] = found.coef
    value = objective_value(loss, "l1/l2", X, y, W, b, ALPHA, ridge, weights=weights)
    assert last["objective"] == pytest.approx(value, rel=1e-5)
    assert last["gap"] == pytest.approx(1 - last["lower"] / value, rel=1e-2, abs=1e-7)
    assert last["n_nonzero"] == len(found.features)
    features, intercept = violations(loss, X, y, W, b, weights, ridge)
    assert last["violation"] == pytest.approx(max(features, intercept), rel=1e-3)
    iterations = [facts["n_iter"] for facts in told if "n_iter" in facts]
    assert iterations == sorted(iterations)
    assert (iterations[-1], told[-1]["objective"]) == (last["n_iter"], last["objective"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", ["squared_hinge", "log_loss"])
def test_weights_of_samples_count_in_relation_to_each_other(way, loss):
    """All of them divided by a power of two change no number but their own sum, so not a bit of the model."""
    _, y, dataset = made(n=1500)
    weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    one, other = (
        solve(dataset, alpha=ALPHA, loss=loss, fit_intercept=True, sample_weight=own, tol=3e-2, **WAYS[way])
        for own in (weights, weights / 2**14)
    )
    np.testing.assert_array_equal(other.coef, one.coef)
    np.testing.assert_array_equal(other.intercept, one.intercept)
    assert other.certificate == one.certificate


@pytest.mark.parametrize(
    ("lower", "upper", "gap"), [(0.5, 2.0, 0.75), (-1.0, 2.0, 1.5), (2.5, 2.0, 0.0), (0.0, 0.0, 0.0)]
)
def test_the_gap_is_a_share_of_the_upper_bound(lower, upper, gap):
    assert Certificate.of(lower, upper) == Certificate(lower, upper, gap)
