"""Tables that linear models nearly separate: most margins are just not positive, and steps make them so."""

import dense
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sparse_runs import solve

from bigmc.store.dataset import Dataset

N_ROWS, N_CLASSES = 900, 4


def table(seed):
    """Numbers, the same again with a little noise, and a category of many rare values, all standardised."""
    generator = np.random.default_rng(seed)
    base = generator.standard_normal((N_ROWS, 6))
    values = np.eye(150)[np.minimum(generator.geometric(0.03, N_ROWS) - 1, 149)]
    again = base + 0.05 * generator.standard_normal(base.shape)
    scores = base @ generator.standard_normal((6, N_CLASSES))
    noise = 0.4 * generator.standard_normal(scores.shape)
    return np.hstack([base, again, values / (values.std(axis=0) + 1e-9)]), (scores + noise).argmax(axis=1)


def optimum(loss, X, y, ridge):
    """Least value of the objective by L-BFGS on its definition."""
    m, size = N_CLASSES, X.shape[1] * N_CLASSES

    def value(flat):
        W, b = flat[:size].reshape(-1, m), flat[size:]
        f, by_weights, by_intercept = dense.loss_and_gradient(loss, X, y, W, b, np.ones(len(y)))
        return f + ridge / 2 * (W**2).sum(), np.concatenate([(by_weights + ridge * W).ravel(), by_intercept])

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-13, "gtol": 1e-8}
    start = np.zeros(size + m)
    return scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=options).fun


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared_hinge", "multitask_squared_hinge", "log_loss"])
def test_few_passes_reach_the_optimum_of_a_nearly_separable_table(loss):
    X, y = table(1)
    options = {"alpha": 0.0, "ridge": 1e-4, "loss": loss, "fit_intercept": True, "memory_limit": 1 << 30}
    found = solve(Dataset.from_arrays(scipy.sparse.csr_array(X), y), tol=1e-2, max_passes=40, **options)
    assert found.converged
    assert found.n_iter < 200
    best = optimum(loss, X, y, options["ridge"])
    assert (1 - 1e-6) * best < found.objective < 1.01 * best
