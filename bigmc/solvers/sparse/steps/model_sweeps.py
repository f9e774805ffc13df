"""Sweeps on a quadratic model of the log loss, which is made anew before each of them.

The derivatives of every sample are computed once for a sweep, where steps on the loss itself take
exponentials of all classes for each entry (`bigmc.kernels.linear.columns.log_columns`). Weights whose
objective is larger than before are taken back half the way, as often as it takes: it is convex, and the model
has its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.columns import log_columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.sweeps import Sweeper
from bigmc.solvers.sparse.steps.visits import Aim, Visits, WorkingColumns
from bigmc.solvers.sparse.weighted_columns import WeightedColumns

#: A sweep on the model looks at all samples, and at the entries of all weights, which is worth it with more
#: entries to sweep over than there are samples, and than this share of those entries.
_SHARE = 0.125
#: The objective is larger only if by more than rounding, in units of the scores' precision; and weights are
#: taken back half the way so many times at most.
_ROUNDING, _HALVINGS = 4.0, 30


class ModelSweeper(Sweeper):
    """Sweeps over all columns that have weights, and others: the scores are set by their weights alone.

    Parameters
    ----------
    problem : Problem
        Of a loss that keeps residuals.
    descent : Descent
        With line search.
    most_visits, newton_bytes, ends
        See `Sweeper`.
    """

    #: Whether the last sweep on a model went too far.
    _overshot = False

    def _sweep_blocks(
        self,
        working: list[WorkingColumns],
        chosen: list[NDArray[np.int64]],
        intercept: NDArray[np.float64],
        aim: Aim,
    ) -> float:
        """Sweep on the model, but for few entries, and after a sweep on it went too far."""
        if self._overshot or not self._worth_it(working, chosen):
            self._overshot = False
            return super()._sweep_blocks(working, chosen, intercept, aim)
        before, start = self._value(working, aim.alpha), [w.rows.copy() for w in working]
        shares = self._problem.spare_residuals
        self._problem.fill_residuals(shares)
        visits = Visits.on_model(self._problem, log_columns.sweep, shares)
        largest = self._visit_blocks(visits, working, chosen, aim)
        self._set_scores(working, intercept)
        allowed = before * (1.0 + _ROUNDING * float(np.finfo(self._problem.dtype).eps))
        for _ in range(_HALVINGS):
            if self._value(working, aim.alpha) <= allowed:
                break
            self._overshot = True
            for w, rows in zip(working, start, strict=True):
                w.rows[:] = 0.5 * (w.rows + rows)
            self._set_scores(working, intercept)
        return largest

    def _worth_it(self, working: Sequence[WorkingColumns], chosen: Sequence[NDArray[np.int64]]) -> bool:
        n_chosen = sum(w.columns.nnz_of(some) for w, some in zip(working, chosen, strict=True))
        n_weighted = sum(w.columns.nnz_of(np.flatnonzero(w.rows.any(axis=1))) for w in working)
        return n_chosen > self._problem.n_samples + _SHARE * n_weighted

    def _set_scores(self, working: Sequence[WorkingColumns], intercept: NDArray[np.float64]) -> None:
        weighted = (WeightedColumns.of_rows(w.columns, w.rows) for w in working)
        self._problem.add_up_scores(intercept, weighted)

    def _value(self, working: Sequence[WorkingColumns], alpha: float) -> float:
        """Return the objective, of which the scores are, but for terms of the intercept."""
        penalty = self._problem.objective.penalty
        value = self._problem.total_loss() / self._problem.weight_sum
        return value + sum(alpha * penalty.value(w.rows) + w.terms.value(w.rows) for w in working)


def sweeper_of(
    problem: Problem, descent: Descent, most_visits: int, newton_bytes: int, ends: float = math.inf
) -> Sweeper:
    """Return sweeps on a model where that is cheaper than the loss, unless steps are to be constant."""
    kind = ModelSweeper if problem.objective.loss.keeps_residuals and descent.line_search else Sweeper
    return kind(problem, descent, most_visits, newton_bytes, ends)
