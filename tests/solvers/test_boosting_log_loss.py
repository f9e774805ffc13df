"""The log loss of boosting: its optimum against L-BFGS-B, its bound, and mislabelled rows."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from test_boosting import margins, master_of

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError
from bigmc.solvers.boosting.restricted_master import Master


def log_loss_master(columns, y, C):
    """A master of the log loss with the learners of another one."""
    other = master_of(columns, y, C)
    master = Master(
        other.responses, len(columns), np.ones(len(y)), C, np.dtype(np.float64), 0, loss="log_loss"
    )
    master.classes = other.classes
    return master


def test_optimum_is_that_of_another_solver():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 60)
    columns = [np.where(random.random((60, 4)) < 0.3 + 0.4 * (y == c)[:, None], 1, -1) for c in range(3)]
    C = 200.0
    delta, r = margins(columns, y), C / (len(y) * 2)

    def objective(w):
        mu = np.exp(-(delta @ w)).reshape(len(y), 2)
        whole = 1.0 + mu.sum(axis=1)
        shares = (mu / whole[:, None]).ravel()
        return w.sum() + r * np.log(whole).sum(), 1.0 - r * (shares @ delta)

    best = scipy.optimize.minimize(objective, np.zeros(12), jac=True, bounds=[(0, None)] * 12, tol=1e-13)
    master, engine, values = log_loss_master(columns, y, C), ThreadEngine(1), []
    for _ in range(150):
        values.append(master.rebuild(engine).objective)
        master.improve(1e-9, 3, 2, engine)
    point = master.rebuild(engine)
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(values))
    assert point.objective == pytest.approx(best.fun, rel=1e-6)
    lower = point.lower_bound(master.largest_score())
    assert best.fun * (1 - 1e-3) < lower <= best.fun * (1 + 1e-9)


def test_stumps_reach_the_certified_gap():
    random = np.random.default_rng(1)
    X = random.normal(size=(120, 2)).round(1)
    y = np.where(random.random(120) < 0.2, random.integers(0, 3, 120), (X > 0).sum(axis=1))
    model = bigmc.MultiBoostClassifier(C=100.0, max_depth=1, loss="log_loss", tol=0.01).fit(X, y)
    assert model.certificate_.gap <= 0.01
    assert model.certificate_.lower <= model.objective_


def test_mislabelled_rows_have_less_influence():
    random = np.random.default_rng(2)
    X = random.normal(size=(3000, 6))
    truth = np.digitize((X[:, :3] ** 2).sum(axis=1), [1.2, 2.4, 4.0])
    y = np.where(random.random(3000) < 0.3, random.integers(0, 4, 3000), truth)
    right = {
        loss: (
            bigmc.MultiBoostClassifier(n_rounds=12, max_depth=4, loss=loss)
            .fit(X[:2000], y[:2000])
            .score(X[2000:], truth[2000:])
        )
        for loss in ("exponential", "log_loss")
    }
    assert right["log_loss"] > right["exponential"] + 0.02


def test_unknown_loss_is_refused():
    with pytest.raises(BigmcError, match="loss is 'hinge'; use one of exponential, log_loss"):
        bigmc.MultiBoostClassifier(loss="hinge").fit(np.eye(4), [0, 1, 0, 1])
