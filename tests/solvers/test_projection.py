"""Dual points whose gradients were taken back to their ball, against gradients and optima by numpy."""

import numpy as np
import pytest
import scipy.sparse
from dense import loss_and_gradient, objective_value, prox
from sparse_runs import solve
from test_rare_features import N_CLASSES, made

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.solvers.sparse.state import Start, State
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.working_set.gradient import gradient_pass
from bigmc.solvers.sparse.working_set.projection import dual_bound, projected_bound
from bigmc.store.block import Residency
from bigmc.store.weighting import Weighting

PAIRS = [
    ("squared_hinge", "l1/l2", 2e-3),
    ("log_loss", "l1/l2", 6e-4),
    ("multitask_squared_hinge", "l1/l2", 2e-3),
    ("huber_hinge", "l1", 1e-3),
]


class Point:
    """Weights of a penalty larger by a fifth, and what a pass finds at them."""

    def __init__(self, loss, penalty, alpha, *, ridge=0.0, fit_intercept=False, weights=None):
        self.X, dataset = made(Weighting())
        self.dataset, self.y, self.fit_intercept = dataset, dataset.labels(), fit_intercept
        self.loss, self.penalty, self.alpha, self.ridge = loss, penalty, alpha, ridge
        self.weights = np.ones(dataset.n_samples) if weights is None else weights
        common = {"loss": loss, "penalty": penalty, "ridge": ridge, "fit_intercept": fit_intercept}
        found = solve(
            dataset, alpha=1.2 * alpha, tol=1e-4, memory_limit=1 << 30, sample_weight=weights, **common
        )
        minimised = objective(loss, penalty, ridge=ridge)
        engine, double = ThreadEngine(1), np.dtype(np.float64)
        self.problem = Problem(dataset, minimised, alpha, weights, double, engine)
        self.source = BlockSource(dataset, [(0, 25), (25, 40)], Residency.MEMORY)
        self.state = State.at(Start(found.features, found.coef, found.intercept), self.problem.width)
        self.descent = Descent("line_search", fit_intercept, 0)
        holding = self.source.columns_of(found.features)
        self.problem.rebuild_scores(self.state.coef, self.state.intercept, holding)
        self.screening = Screening(dataset.column_nnz(), found.features)
        self.before = dual_bound(self.problem, self.source, self.state.coef, self.screening, self.descent)
        gradient_pass(self.problem, self.source, self.state.coef, np.empty((0, N_CLASSES)), self.screening)

    def projected(self):
        allowed = 1e-4 * self.alpha
        return projected_bound(
            self.problem, self.source, self.state, self.screening, self.descent, allowed, 40
        )

    def least(self):
        """The objective at weights near the optimum, from the definitions: it cannot be less than a bound."""
        options = {"loss": self.loss, "penalty": self.penalty, "fit_intercept": self.fit_intercept}
        near = solve(self.dataset, alpha=self.alpha, tol=1e-7, memory_limit=1 << 30, **options)
        W = np.zeros((40, N_CLASSES))
        W[near.features] = near.coef
        return objective_value(
            self.loss, self.penalty, self.X.toarray(), self.y, W, near.intercept, self.alpha, self.ridge
        )

    def excess(self):
        """What each gradient at the scores of the problem has beyond the ball, from the definitions."""
        n, scores = len(self.y), self.problem.scores[:, :N_CLASSES]
        residuals = loss_and_gradient(
            self.loss, scipy.sparse.identity(n, format="csr"), self.y, scores, 0.0, self.weights
        )[1]
        gradients = self.X.T @ residuals + self.ridge * self.state.coef.take(np.arange(40))[:, :N_CLASSES]
        return np.array([np.linalg.norm(prox(self.penalty, g, self.alpha)) for g in gradients])


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(("loss", "penalty", "alpha"), PAIRS)
@pytest.mark.parametrize(("ridge", "weighted"), [(0.0, False), (0.0, True), (1e-3, False)])
def test_gradients_end_in_their_ball(loss, penalty, alpha, ridge, weighted):
    weights = np.random.default_rng(0).random(4000) + 0.5 if weighted else None
    point = Point(loss, penalty, alpha, ridge=ridge, weights=weights)
    before = point.excess().max()
    point.projected()
    assert before > 0.15 * alpha
    assert point.excess().max() <= 2e-2 * before


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("loss", "penalty", "alpha", "fit_intercept"),
    [(*PAIRS[0], False), *((*pair, True) for pair in PAIRS[:2]), (*PAIRS[2], False), (*PAIRS[3], True)],
)
def test_the_bound_is_one_and_what_it_loses_is_a_fraction_of_what_scaling_loses(
    loss, penalty, alpha, fit_intercept
):
    point = Point(loss, penalty, alpha, fit_intercept=fit_intercept)
    after = point.projected()
    best = point.least()
    assert after.lower <= best * (1 + 1e-9)
    assert best - after.lower <= 0.3 * (best - point.before.lower)
    assert after.nnz == point.X.nnz  # nothing is left out, and the pass behind the bound counts
