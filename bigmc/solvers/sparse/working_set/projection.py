"""A dual point that is nearly feasible, beside weights that are not optimal yet.

Scaled into the ball of the penalty, the derivatives of the losses give a bound that depends on the gradient
furthest outside of it, which may be one of a hundred thousand: the bound lags behind the objective. So
gradients outside the ball are projected onto it, each by the dual variables of its own samples
(`bigmc.solvers.sparse.steps.projections`). What the bound loses is quadratic in the violations. Projections
move a copy of the weights, whose scores determine the dual variables, so that these fit any loss.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.bounds import lower_bound
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.screening import Screening
from bigmc.solvers.sparse.state import State
from bigmc.solvers.sparse.steps.chunk_parts import Part
from bigmc.solvers.sparse.steps.chunk_steps import ChunkSteps
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.projections import Projections
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.solvers.sparse.working_set.gradient import dual_gradients

#: Features whose gradients have at least this share of alpha take part: those of others stay in the ball.
_NEAR = 0.9
#: Entries to visit, in sweeps over all, and their minimum: words need four or five sweeps, letters and other
#: columns that are much the same more.
_SWEEPS, _CHEAP_ENTRIES = 8, 1 << 22


class Proof(NamedTuple):
    """A lower bound of the optimum, and the entries that the pass behind it worked on."""

    lower: float
    nnz: int


class _Moved:
    """A copy of the weights of a state, which projections move."""

    def __init__(
        self, problem: Problem, source: BlockSource, state: State, features: NDArray[np.int64]
    ) -> None:
        self._problem, self._source, self._state = problem, source, state
        self.level = state.intercept.copy()
        blocks = list(source.columns_of(features))
        rows = [np.zeros((len(columns.features), problem.width)) for columns in blocks]
        places = [np.arange(len(own)) for own in rows]
        self.parts = [
            Part(problem, columns, k, every, own, every)
            for k, (columns, every, own) in enumerate(zip(blocks, places, rows, strict=True))
        ]
        self._fresh = True

    def set_scores(self) -> None:
        """Set the scores, which are those of the state at first."""
        if self._fresh:
            self._fresh = False
            return
        coef = self._state.coef
        moved = [(p.columns.features, coef.take(p.columns.features) + p.rows) for p in self.parts]
        coef = coef.updated(moved)
        self._problem.rebuild_scores(coef, self.level, self._source.columns_of(coef.features))


def projected_bound(
    problem: Problem,
    source: BlockSource,
    state: State,
    screening: Screening,
    descent: Descent,
    allowed: float,
    most_columns: int,
) -> Proof:
    """Return the lower bound that a dual point near that of the scores gives; the scores are lost.

    Parameters
    ----------
    problem : Problem
        Its scores are those of the state.
    screening : Screening
        With the norms of the gradients of the features that are left.
    allowed : float
        Sweeps end when no gradient is further out of the ball than this.
    most_columns : int
        Maximum number of features that take part: those with the largest gradients.
    """
    objective, alpha = problem.objective, problem.alpha
    moved = _Moved(problem, source, state, _nearly_out(screening, state, alpha, most_columns))
    steps = ChunkSteps.of(descent, problem, alpha, moved.set_scores)
    of_level = Terms(np.zeros((1, problem.width)), np.zeros(1)) if descent.fit_intercept else None
    terms = [_terms(part, state, objective.ridge) for part in moved.parts]
    most_visits = max(_SWEEPS * sum(part.columns.nnz for part in moved.parts), _CHEAP_ENTRIES)
    Projections(steps, moved.parts, terms, (moved.level, of_level), allowed).run(most_visits)
    steps.end()
    return dual_bound(problem, source, state.coef, screening, descent)


def dual_bound(
    problem: Problem, source: BlockSource, coef: Coefficients, screening: Screening, descent: Descent
) -> Proof:
    """Return the lower bound that the present scores give, in a pass over the features that are left.

    Parameters
    ----------
    coef : Coefficients
        Any weights: the bound is that of the scores.
    screening : Screening
        Says which features are left.
    descent : Descent
        With an intercept the dual point must add up to zero for each class.
    """
    factor, margins = np.empty((0, problem.n_classes)), problem.margins()
    if descent.fit_intercept:
        pairs = problem.pair_margins()
        balanced = problem.objective.loss.balance(pairs.residuals)
        if balanced is None:
            return Proof(0.0, 0)
        margins, factor = pairs, balanced
    gradients = dual_gradients(problem, source, coef, factor, screening)
    entropy = partial(problem.entropy, factor)
    point = lower_bound(problem, problem.dtype, margins, gradients, entropy, factor)
    return Proof(point.value, gradients.nnz)


def _nearly_out(screening: Screening, state: State, alpha: float, most: int) -> NDArray[np.int64]:
    """Return the features whose gradients are, or come near to being, out of the ball."""
    norms = np.where(screening.zero, 0.0, screening.norms)
    features = np.flatnonzero(norms > _NEAR * alpha)
    if len(features) > most:
        features = np.sort(features[np.argsort(-norms[features], kind="stable")[:most]])
    return features


def _terms(part: Part, state: State, ridge: float) -> Terms:
    """Return the gradients of the ridge, with which the gradients belong into the ball."""
    rows = state.coef.take(part.columns.features) if ridge > 0.0 else np.empty((0, part.rows.shape[1]))
    return Terms(ridge * rows, np.zeros(len(part.rows)))
