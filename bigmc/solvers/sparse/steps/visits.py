"""Visits to some columns in memory: one step for each, by the threads of an engine together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, for_each
from bigmc.errors import DataError
from bigmc.kernels.linear import arguments
from bigmc.kernels.linear.arguments import Extra, Step
from bigmc.kernels.linear.columns.log_sums import ResidualWork
from bigmc.kernels.linear.parallel.team import MOST_PIECES, Crew, assist, close, least_shared
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: Numbers of the scores to look at, in columns that are cut into pieces, from which on a team is worth it.
_WORTH_IT = 1 << 16
#: The least share of them among those of all columns: assistants wait in loops meanwhile, which takes their
#: processor from others. With .29 (texts of 60,000 words in chunks) two threads took as long as one.
_LEAST_SHARE = 0.5


class WorkingColumns(NamedTuple):
    """Columns in memory, and what sweeps over them change.

    Attributes
    ----------
    rows : float64 array of shape (n_columns, width)
        Weights of the columns; changed in place.
    violations : float64 array of shape (n_columns,)
        Violation of each column before its last step; changed in place.
    terms : Terms
        Of the columns.
    """

    columns: Columns
    rows: NDArray[np.float64]
    violations: NDArray[np.float64]
    terms: Terms


class Aim(NamedTuple):
    """One sweep: its number, for the shuffle, the weight of the penalty, and a violation not worth a step."""

    number: int
    alpha: float
    negligible: float


class Visits(NamedTuple):
    """What goes through columns.

    Attributes
    ----------
    work : callable
        Returns what kernels take, from columns and the crew of a team.
    lead : callable
        Goes through it: called with the work, a step, extra terms, weights and violations.
    """

    work: Callable[[arguments.Columns, Crew], Any]
    lead: Callable[..., None]

    @classmethod
    def on_loss(cls, problem: Problem, lead: Callable[..., None]) -> Visits:
        """Return steps on the loss itself: scores move along."""

        def work(columns: arguments.Columns, crew: Crew) -> Any:
            return problem.objective.column_work(columns, problem.samples, crew, problem.n_classes)

        return cls(work, lead)

    @classmethod
    def on_model(cls, problem: Problem, kernel: Callable[..., None], shares: NDArray[Any]) -> Visits:
        """Return steps on a quadratic model of the log loss: residuals, which are filled, move along.

        Parameters
        ----------
        kernel : callable
            `bigmc.kernels.linear.columns.log_columns.sweep` or ``project``.
        shares : array of the shape of the residuals
            Probabilities that the model was made with.
        """

        def work(columns: arguments.Columns, crew: Crew) -> ResidualWork:
            return ResidualWork(columns, problem.residual_samples, shares, crew)

        return cls(work, partial(kernel, problem.objective.penalty.kernel))


def visit(
    problem: Problem,
    visits: Visits,
    working: WorkingColumns,
    chosen: NDArray[np.int64],
    aim: Aim,
    descent: Descent,
) -> float:
    """Go through some of the columns, in a random order.

    Parameters
    ----------
    chosen : int64 array
        Positions of columns.
    descent : Descent
        With the seed of the shuffle.

    Returns
    -------
    float
        Largest violation of the chosen columns before their steps.

    Raises
    ------
    DataError
        If a gradient is not finite.
    """
    columns, rows, violations, terms = working
    order = columns.shuffled(chosen, (descent.seed, aim.number), problem.scale_of(columns.features))
    step = Step(
        problem.n_classes, problem.two_over_n, float(aim.alpha), descent.line_search, float(aim.negligible)
    )
    work = visits.work(order, Crew.of(problem.dtype, problem.width, problem.n_classes))
    go = partial(visits.lead, work, step, Extra(terms.ridges, terms.tilt), rows, violations)
    shared, nnz = columns.nnz_of(chosen, least_shared(problem.width)), columns.nnz_of(chosen)
    assisted = shared * problem.width >= _WORTH_IT and shared >= _LEAST_SHARE * nnz
    if assisted:
        lead_team(problem.engine, work, go)
    else:
        go()
    largest = float(violations[chosen].max(initial=0.0))
    if not np.isfinite(largest):
        raise DataError("a gradient is not finite", "look for huge or non-finite values in the data")
    return largest


def lead_team(engine: Engine, work: Any, lead: Callable[[], None]) -> None:
    """Call a function that goes through columns, with the threads of the engine as assistants.

    Parameters
    ----------
    engine : Engine
        Of this process.
    work : NamedTuple
        See `bigmc.kernels.linear.parallel.team.together`.
    lead : callable
        Calls a kernel with the work.
    """
    n_members = min(engine.n_threads, MOST_PIECES)
    if n_members == 1:
        lead()
        return

    def take_part(member: int) -> None:
        if member:
            assist(work)
            return
        try:
            lead()
        finally:
            close(work.crew.board)

    for_each(engine, take_part, range(n_members))
