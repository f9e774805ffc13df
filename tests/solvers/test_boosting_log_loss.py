"""The log loss of boosting: its optimum against L-BFGS-B, its bound, and mislabelled rows."""

import itertools
from functools import partial

import numpy as np
import pytest
import scipy.optimize
from test_boosting import margins, master_of

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError
from bigmc.solvers.boosting.restricted_master import Master


def log_loss_master(columns, y, C, label_noise=0.0):
    """A master of the log loss with the learners of another one."""
    other = master_of(columns, y, C)
    of = partial(Master, loss="log_loss", label_noise=label_noise)
    master = of(other.responses, len(columns), np.ones(len(y)), C, np.dtype(np.float64), 0)
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


def test_descent_lowers_the_loss_with_label_noise():
    random = np.random.default_rng(4)
    y = random.integers(0, 3, 60)
    columns = [np.where(random.random((60, 4)) < 0.3 + 0.4 * (y == c)[:, None], 1, -1) for c in range(3)]
    C, noise, engine, values = 200.0, 0.3, ThreadEngine(1), []
    delta, r = margins(columns, y), C / (len(y) * 2)
    master = log_loss_master(columns, y, C, noise)
    for _ in range(150):
        values.append(master.rebuild(engine).objective)
        master.improve(1e-9, 3, 2, engine)
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(values))
    assert values[-1] < values[1] - 0.01
    point = master.rebuild(engine)
    assert point.lower_bound(1.0) == -np.inf

    def loss(w):
        p = 1.0 / (1.0 + np.exp(-(delta @ w)).reshape(len(y), 2).sum(axis=1))
        return -r * np.log((1 - noise) * p + noise / 3).sum()

    w = master._all_weights()
    assert point.objective == pytest.approx(w.sum() + loss(w))
    slopes = scipy.optimize.approx_fprime(w, loss, 1e-6)
    own = np.concatenate([columns[c].T @ master.u[:, c] for c in range(3)]) * r
    np.testing.assert_allclose(own, -slopes, atol=1e-4)
    # Where a weight may grow or fall, 1 is its slope: a point from which no small step leads down.
    np.testing.assert_allclose(own[w > 0], 1.0, atol=1e-3)
    assert (own <= 1.0 + 1e-3).all()


def test_stumps_reach_the_certified_gap():
    random = np.random.default_rng(1)
    X = random.normal(size=(120, 2)).round(1)
    y = np.where(random.random(120) < 0.2, random.integers(0, 3, 120), (X > 0).sum(axis=1))
    model = bigmc.MultiBoostClassifier(C=100.0, max_depth=1, loss="log_loss", tol=0.01).fit(X, y)
    assert model.certificate_.gap <= 0.01
    assert model.certificate_.lower <= model.objective_


def test_mislabelled_rows_have_less_influence():
    random = np.random.default_rng(2)
    X = random.normal(size=(12_000, 6))
    truth = np.digitize((X[:, :3] ** 2).sum(axis=1), [1.2, 2.4, 4.0])
    y = np.where(random.random(12_000) < 0.3, random.integers(0, 4, 12_000), truth)
    exponential, log_loss, with_noise = (
        bigmc.MultiBoostClassifier(n_rounds=25, max_depth=4, **loss)
        .fit(X[:4000], y[:4000])
        .score(X[4000:], truth[4000:])
        for loss in ({}, {"loss": "log_loss"}, {"loss": "log_loss", "label_noise": 0.3})
    )
    assert log_loss > exponential + 0.02
    assert with_noise > log_loss + 0.02


@pytest.mark.parametrize("options", [{"max_depth": 4}, {"max_depth": 1, "loss": "log_loss"}])
def test_label_noise_is_for_trees_with_the_log_loss(options):
    with pytest.raises(BigmcError, match="label noise is for trees with the log loss"):
        bigmc.MultiBoostClassifier(label_noise=0.2, **options).fit(np.eye(4), [0, 1, 0, 1])


def test_unknown_loss_is_refused():
    with pytest.raises(BigmcError, match="loss is 'hinge'; use one of exponential, log_loss"):
        bigmc.MultiBoostClassifier(loss="hinge").fit(np.eye(4), [0, 1, 0, 1])
