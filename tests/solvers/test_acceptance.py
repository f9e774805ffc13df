"""What a round came to is kept if its objective is lower; else the best weights on the way are tried."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from dense import loss_and_gradient, objective_value
from test_chunk_rounds import PLAN, made, run
from test_pass_norms import task_of

from bigmc.objectives import objective
from bigmc.solvers.sparse.chunks import acceptance
from bigmc.solvers.sparse.chunks.acceptance import accept, accept_or_retreat
from bigmc.solvers.sparse.chunks.damping import RoundKind
from bigmc.solvers.sparse.chunks.interpolation import best_share, between
from bigmc.solvers.sparse.chunks.state import ChunkState, PastRound
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.state import Evaluated
from bigmc.store.dataset import Dataset

ALPHA, RIDGE = 2e-2, 1e-2
CANDIDATES = np.array([7, 0, 3, 19, 11])  # as layers are, in no order


class Problem:
    """Samples with few features, evaluated from the definitions."""

    def __init__(self, loss, penalty):
        X, self.dataset = made(n=600, d=20)
        self.X, self.y = X.toarray().astype(float), np.asarray(self.dataset.labels())
        self.loss, self.penalty = loss, penalty
        task = task_of(self.dataset, loss, ALPHA, penalty)
        self.task = replace(
            task,
            objective=objective(loss, penalty, ridge=RIDGE),
            descent=replace(task.descent, fit_intercept=True),
        )

    def value(self, W, b):
        return objective_value(self.loss, self.penalty, self.X, self.y, W, b, ALPHA, RIDGE)

    def evaluated(self, W, b):
        _, gradient, by_intercept = loss_and_gradient(self.loss, self.X, self.y, W, b, np.ones(len(self.y)))
        padded = np.pad(gradient[CANDIDATES], ((0, 0), (0, self.task.width - 5)))
        return Evaluated(
            coef_of(W, self.task.width),
            b,
            self.value(W, b),
            padded,
            np.ones(len(CANDIDATES)),
            by_intercept,
            1.0,
        )


def coef_of(W, width):
    features = np.flatnonzero(W.any(axis=1))
    return Coefficients(features, np.pad(W[features], ((0, 0), (0, width - W.shape[1]))))


def weights(seed, size):
    generator = np.random.default_rng(seed)
    W = np.zeros((20, 5))
    W[CANDIDATES] = size * generator.standard_normal((len(CANDIDATES), 5))
    W[generator.choice(CANDIDATES)] = 0.0
    return W, 0.1 * generator.standard_normal(5)


@pytest.mark.parametrize("penalty", ["l1/l2", "l1", "l1/linf"])
@pytest.mark.parametrize("loss", ["squared_hinge", "log_loss"])
def test_the_best_share_of_the_way_is_that_of_a_search_along_it(loss, penalty):
    problem, shares = Problem(loss, penalty), []
    for seed in range(12):
        (V, b), (W, c) = weights(seed, 0.02), weights(seed + 100, (0.02, 0.1, 0.3)[seed % 3])
        share = best_share(problem.task, problem.evaluated(V, b), problem.evaluated(W, c), CANDIDATES)
        way = scipy.optimize.minimize_scalar(
            lambda t, V=V, W=W, b=b, c=c: problem.value(V + t * (W - V), b + t * (c - b)),
            bounds=(0, 1.5), method="bounded",
        )  # fmt: skip
        assert share == pytest.approx(way.x, abs=0.05)
        shares.append(share)
    assert min(shares) < 0.2
    assert max(shares) > 0.4


def test_weights_between_two():
    (V, b), (W, c) = weights(1, 1.0), weights(2, 1.0)
    problem = Problem("squared_hinge", "l1")
    coef, intercept = between(problem.evaluated(V, b), problem.evaluated(W, c), 0.25)
    found = np.zeros((20, 5))
    found[coef.features] = coef.rows[:, :5]
    assert found == pytest.approx(0.75 * V + 0.25 * W)
    assert intercept == pytest.approx(0.75 * b + 0.25 * c)


def state_at(problem, W, b, gain=0.5):
    anchor = problem.evaluated(W, b)
    past = [PastRound(anchor.coef, np.zeros(anchor.coef.rows.shape, np.float32), b)]
    state = ChunkState(anchor.coef, b, anchor=anchor, layers=[CANDIDATES], gain=gain, damping=2.0)
    return replace(state, past=past, trial=True, own_damping=np.ones(len(CANDIDATES), np.float32))


def test_a_trial_that_went_too_far_is_refused_and_the_best_on_the_way_is_better():
    problem = Problem("squared_hinge", "l1/l2")
    W, b = weights(3, 0.01)
    start = problem.evaluated(W, b)
    step = np.zeros_like(W)
    step[CANDIDATES] = -start.gradient[:, :5]
    state = state_at(problem, W, b)
    length = next(t for t in 0.01 * 1.5 ** np.arange(20) if problem.value(W + t * step, b) > start.objective)
    far = problem.evaluated(W + length * step, b)
    assert not accept_or_retreat(problem.task, state, far)
    assert state.trial
    assert state.anchor.objective == start.objective
    assert (state.own_damping > 1.0).any()  # features that overshot
    assert state.damping == 4.0
    assert state.past == []
    tried = np.zeros_like(W)
    tried[state.coef.features] = state.coef.rows[:, :5]
    retreat = problem.evaluated(tried, state.intercept)
    assert retreat.objective < start.objective
    assert accept_or_retreat(problem.task, state, retreat)
    assert state.anchor is retreat
    assert state.gain == 0.5  # that of the last round: passes go by it


def test_what_a_round_gained_is_noted():
    problem = Problem("squared_hinge", "l1/l2")
    W, b = weights(3, 0.5)
    state, better = state_at(problem, W, b), problem.evaluated(0.5 * W, b)
    before = state.anchor.objective
    assert accept_or_retreat(problem.task, state, better)
    assert state.gain == pytest.approx(1 - better.objective / before)
    assert len(state.past) == 1
    assert state.damping == pytest.approx(1.4)


def test_without_an_intercept_features_alone_are_damped_less():
    problem = Problem("squared_hinge", "l1/l2")
    problem.task = replace(problem.task, descent=replace(problem.task.descent, fit_intercept=False))
    W, b = weights(3, 0.5)
    state = state_at(problem, W, b)
    assert accept_or_retreat(problem.task, state, problem.evaluated(0.9 * W, b))
    assert state.damping == 2.0
    assert (state.own_damping < 1.0).any()


def test_features_of_all_samples_move_with_the_intercept_which_their_own_slopes_do_not(monkeypatch):
    problem = Problem("squared_hinge", "l1/l2")
    W, b = weights(3, 0.5)
    state = state_at(problem, W, b)
    monkeypatch.setattr(Dataset, "column_nnz", lambda self, features: np.where(features == 3, 600, 90))
    accept_or_retreat(problem.task, state, problem.evaluated(0.9 * W, b))
    assert (state.own_damping[CANDIDATES == 3] == 1.0).all()
    assert (state.own_damping[CANDIDATES != 3] != 1.0).any()


@pytest.mark.parametrize("objective", [math.inf, math.nan])
def test_where_nothing_on_the_way_is_better_all_steps_are_damped(objective):
    problem = Problem("squared_hinge", "l1/l2")
    state = state_at(problem, *weights(3, 0.5))
    reached = replace(problem.evaluated(*weights(4, 0.5)), objective=objective)
    assert not accept_or_retreat(problem.task, state, reached)
    assert not state.trial
    assert state.damping == 8.0
    assert (state.own_damping == 1.0).all()


def test_a_way_uphill_has_no_share():
    problem = Problem("log_loss", "l1/l2")
    V, b = np.zeros((20, 5)), np.zeros(5)
    W, c = weights(5, 3.0)
    start, end = problem.evaluated(V, b), problem.evaluated(W, c)
    uphill = np.vdot(start.gradient[:, :5], W[CANDIDATES]) + start.intercept_gradient @ c
    W, c = (W, c) if uphill > 0 else (-W, -c)
    end = problem.evaluated(W, c)
    assert best_share(problem.task, start, end, CANDIDATES) == 0.0


@pytest.mark.parametrize("kind", RoundKind)
def test_objectives_that_differ_by_rounding_are_equal(kind):
    problem = Problem("squared_hinge", "l1/l2")
    state = state_at(problem, *weights(3, 0.5))
    value = state.anchor.objective
    for more, accepted in ((2.0, True), (6.0, False)):
        own = replace(state, past=list(state.past))
        reached = replace(state.anchor, objective=value * (1 + more * np.finfo(float).eps))
        assert accept(problem.task, own, kind, reached) is accepted
    assert not accept(problem.task, replace(state), kind, None)


@pytest.mark.exhaustive
def test_chunks_that_retreat_come_to_the_optimum_too(monkeypatch):
    """With hardly any damping sweeps go too far, until features that do are damped by themselves."""
    _, dataset = made()
    _, expected = run(dataset, tol=1e-5, alpha=2e-3)
    shares = []

    def noted(*of):
        shares.append(best_share(*of))
        return shares[-1]

    monkeypatch.setattr("bigmc.solvers.sparse.chunks.damping._SWEEPS", 1e-3)
    monkeypatch.setattr("bigmc.solvers.sparse.chunks.damping._LEAST_OF_SWEEPS", 1e-3)
    monkeypatch.setattr(acceptance, "best_share", noted)
    state, certificate = run(dataset, replace(PLAN, chunk_bytes=10_000), tol=1e-4, alpha=2e-3)
    assert certificate.gap <= 1e-4
    assert certificate.upper == pytest.approx(expected.upper, rel=1e-4)
    assert any(0.0 < share < 1.0 for share in shares)
    assert state.own_damping.max() > 1.0
