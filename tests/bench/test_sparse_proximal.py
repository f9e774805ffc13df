"""The solvers written for the benchmark agree with the reference objective of the digits."""

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from sparse_proximal import Loss, best_first_step, fista, fobos, penalty, sparsa

pytestmark = pytest.mark.slow

# first 300 rows, X / 16, alpha 0.01: FISTA, its dual value and a conic solver agree
ALPHA, OPTIMUM = 0.01, 0.250278922590


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return sp.csr_matrix(X[:300] / 16), y[:300].astype(np.int64)


def objective(X, y, W):
    loss = Loss(X, y, 10)
    return loss.value(loss.scores(W)) + ALPHA * penalty(W)


@pytest.mark.parametrize(
    ("solver", "n_iter", "error"),
    [("fista, line search", 2000, 1e-5), ("fista, constant", 3000, 1e-4), ("sparsa", 2000, 1e-8)],
)
def test_full_gradient_solvers_reach_the_reference(digits, solver, n_iter, error):
    loss = Loss(*digits, 10)
    steps = {
        "fista, line search": lambda: fista(loss, ALPHA, True),
        "fista, constant": lambda: fista(loss, ALPHA, False),
        "sparsa": lambda: sparsa(loss, ALPHA),
    }[solver]()
    W, passes = next(islice(steps, n_iter - 1, None))
    assert objective(*digits, W) == pytest.approx(OPTIMUM, rel=error)
    assert passes >= 2 * n_iter - 1


@pytest.mark.exhaustive
def test_fobos_comes_near_the_reference(digits):
    first_step = best_first_step(*digits, 10, ALPHA, seed=0)
    W, passes = next(islice(fobos(*digits, 10, ALPHA, first_step, seed=0), 99, None))
    assert passes == 100
    assert OPTIMUM < objective(*digits, W) < 1.5 * OPTIMUM


def test_gradient_is_that_of_finite_differences(digits):
    loss = Loss(*digits, 10)
    generator = np.random.default_rng(0)
    W, direction = generator.standard_normal((2, 64, 10))
    _, gradient = loss.value_and_gradient(loss.scores(W))
    h = 1e-6
    slope = (loss.value(loss.scores(W + h * direction)) - loss.value(loss.scores(W - h * direction))) / (
        2 * h
    )
    assert np.vdot(gradient, direction) == pytest.approx(slope, rel=1e-6)
