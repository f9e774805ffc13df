"""Sweeps: one coordinate step for each of some columns in memory, in a random order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.newton import Support
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.solvers.sparse.steps.visits import Aim, Visits, WorkingColumns, visit

#: A column is not worth a step if its violation is below this share of the one aimed at, and of alpha.
#: Near the optimum hardly any column is, and a sweep then costs one gradient: measured 2 to 3 times faster.
_NEGLIGIBLE = 0.3
_NEGLIGIBLE_OF_ALPHA = 0.1
#: Aiming at less than this share of alpha, as gaps of 1e-6 and below need, every column is moved: there
#: the steps are near the rounding error, and leaving some out was measured to stall ill-conditioned data.
_FINEST_OF_ALPHA = 1e-4
#: Products with the Hessian a Newton step may take after the first sweep, how many more after each further
#: one, and at most: far from the optimum the model is not worth more.
_PRODUCTS = 20
_MORE_PRODUCTS = 5
_MOST_PRODUCTS = 100
#: The damping of Newton steps grows and shrinks by this factor, from this value on, after steps of which only
#: a short part was good; it stays between the last two of these, or is none. With it texts of 45 classes
#: (WordNet's glosses) take 3.1 times as long to a certificate of 1e-3 as to an objective that good, and 5.2
#: times where the damping begins anew after every pass and knows mean curvatures only.
_DAMPING, _DAMPING_FACTOR, _LEAST_DAMPING, _MOST_DAMPING = 1e-2, 4.0, 1e-4, 1e6
_SHORT_STEP = 0.25
#: With fewer entries a sweep costs less than what a Newton step begins with: so many sweeps come first.
_NEWTON_ENTRIES = 10_000
_SWEEPS_FIRST = 10
#: Sweeps at the end over the columns that still violate: mostly a few that nearly all samples have, to which
#: every other step does something, and by which the lower bound goes. They move the objective hardly at all,
#: so that together they look at no more than twice the entries of all columns.
_LAST_SWEEPS, _LAST_VISITS = 10, 2


class Corrections(NamedTuple):
    """Terms of the objective beside its loss and penalty, instead of the ridge.

    Attributes
    ----------
    columns : sequence of Terms
        Of every group of columns held.
    intercept : Terms or None
        Of the intercept, as one feature.
    """

    columns: Sequence[Terms]
    intercept: Terms | None = None


class Course(NamedTuple):
    """What sweeps aim at, and how they begin and end.

    Attributes
    ----------
    alpha : float
        Weight of the penalty.
    target : float
        Largest violation of the conditions of optimality that may be left.
    first_sweep : int
        Number of the first sweep, for its shuffle.
    most_steps : int or None
        Newton steps at most; the sweep after the last one is followed by some over columns that still
        violate.
    damping : float
        Of the first Newton step.
    """

    alpha: float
    target: float
    most_sweeps: int
    first_sweep: int
    most_steps: int | None = None
    damping: float = 0.0


def shuffled(numbers: Sequence[int], seed: tuple[int, int]) -> list[int]:
    """Return the numbers of blocks in a random order."""
    generator = np.random.default_rng(seed)
    return [numbers[k] for k in generator.permutation(len(numbers))]


class Sweeper:
    """Sweeps over the columns of a problem.

    Parameters
    ----------
    problem : Problem
        Its scores move along.
    descent : Descent
        With an intercept there is a Newton step of it before every sweep. Every shuffle is drawn from
        ``default_rng([seed, sweep, block])``.
    most_visits : int
        `sweep_until` ends after looking at this many entries.
    newton_bytes : int
        Memory for the samples in row order; where they do not fit there are no Newton steps.
    ends : float, optional
        Time of `time.monotonic` after which neither a Newton step nor a sweep but the first begins, and that
        one leaves the blocks that are left.

    Attributes
    ----------
    damping : float
        Of the Newton step that comes next.
    """

    def __init__(
        self,
        problem: Problem,
        descent: Descent,
        most_visits: int,
        newton_bytes: int,
        ends: float = math.inf,
    ) -> None:
        self._ends = ends
        self._newton_bytes = newton_bytes if descent.line_search and problem.objective.newton else 0
        self._problem = problem
        self.descent = descent
        self.fit_intercept = descent.fit_intercept
        self._most_visits = most_visits
        self.damping = 0.0

    def sweep_until(
        self,
        held: list[Columns],
        coef: Coefficients,
        intercept: NDArray[np.float64],
        course: Course,
        corrections: Corrections | None = None,
        watch: Callable[[int, float, int], None] | None = None,
    ) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.float64]]], int]:
        """Sweep over columns in memory until none violates optimality by more than the target.

        A sweep over all columns is followed by sweeps over those that have weights or violated at their
        last visit; when these are done, all are looked at again. Between two sweeps there is a Newton step
        over the columns with weights.

        Parameters
        ----------
        held : list of Columns
        coef : Coefficients
            Where to start.
        intercept : float64 array of shape (n_classes,)
            Changed in place.
        corrections : Corrections, optional
            By default the ridge of the objective.
        watch : callable, optional
            Called after every Newton step with the number of sweeps, the objective (of which the scores are
            as they have moved along) and the number of features with weights.

        Returns
        -------
        changes : list of (features, rows)
            New weights of all the columns.
        n_sweeps : int
        """
        ridge, width = self._problem.objective.ridge, self._problem.width
        if corrections is None:
            corrections = Corrections([Terms.ridge(ridge, len(columns.features), width) for columns in held])
        working = [
            WorkingColumns(columns, coef.take(columns.features), np.zeros(len(columns.features)), terms)
            for columns, terms in zip(held, corrections.columns, strict=True)
        ]
        everything = [np.arange(len(w.rows)) for w in working]
        active = everything
        alpha, target = course.alpha, course.target
        negligible = min(_NEGLIGIBLE * target, _NEGLIGIBLE_OF_ALPHA * alpha)
        if target < _FINEST_OF_ALPHA * alpha:
            negligible = 0.0
        visits = n_sweeps = n_steps = 0
        self.damping = course.damping

        def sweep(chosen: list[NDArray[np.int64]]) -> float:
            nonlocal n_sweeps
            aim = Aim(course.first_sweep + n_sweeps, alpha, negligible)
            n_sweeps += 1
            return self._sweep_blocks(working, chosen, intercept, aim)

        while n_sweeps < course.most_sweeps and visits <= self._most_visits:
            visits += sum(columns.nnz for columns in held)
            if self.fit_intercept:
                improve_intercept(self._problem, intercept, 1, corrections.intercept)
            largest = sweep(active)
            if largest <= target:
                if active is everything:
                    break
                active = everything
                continue
            if self._time_is_over:
                break
            if n_steps == course.most_steps:
                worst = [c[w.violations[c] > target] for c, w in zip(active, working, strict=True)]
                nnz = sum(columns.nnz_of(c) for columns, c in zip(held, worst, strict=True))
                entries = _LAST_VISITS * sum(columns.nnz for columns in held)
                for _ in range(min(_LAST_SWEEPS, entries // max(nnz, 1))):
                    if sweep(worst) <= target:
                        break
                break
            if self._newton_step(working, intercept, corrections.intercept, course, n_sweeps):
                n_steps += 1
                if watch:
                    n_nonzero = sum(int(np.count_nonzero(w.rows.any(axis=1))) for w in working)
                    watch(n_sweeps, self._problem.value([w.rows for w in working]), n_nonzero)
            active = [np.flatnonzero(w.rows.any(axis=1) | (w.violations > 0)) for w in working]
        return [(w.columns.features, w.rows) for w in working], n_sweeps

    @property
    def _time_is_over(self) -> bool:
        return time.monotonic() >= self._ends

    def _sweep_blocks(
        self,
        working: list[WorkingColumns],
        chosen: list[NDArray[np.int64]],
        intercept: NDArray[np.float64],
        aim: Aim,
    ) -> float:
        """Take a step for each chosen column of all blocks; return the largest violation before."""
        visits = Visits.on_loss(self._problem, self._problem.objective.sweep)
        return self._visit_blocks(visits, working, chosen, aim)

    def _visit_blocks(
        self,
        visits: Visits,
        working: list[WorkingColumns],
        chosen: list[NDArray[np.int64]],
        aim: Aim,
    ) -> float:
        """Go through the chosen columns of all blocks; return the largest violation before."""
        largest = 0.0
        for b in shuffled(range(len(working)), (self.descent.seed, aim.number)):
            largest = max(largest, visit(self._problem, visits, working[b], chosen[b], aim, self.descent))
            if self._time_is_over:
                break
        return largest

    def _newton_step(
        self,
        working: list[WorkingColumns],
        intercept: NDArray[np.float64],
        intercept_terms: Terms | None,
        course: Course,
        n_sweeps: int,
    ) -> bool:
        """Take a Newton step over the columns with weights, if it fits into memory and is worth it."""
        problem = self._problem
        held, rows = [w.columns for w in working], [w.rows for w in working]
        chosen = [np.flatnonzero(r.any(axis=1)) for r in rows]
        n_columns = sum(len(c) for c in chosen)
        nnz = sum(columns.nnz_of(c) for columns, c in zip(held, chosen, strict=True))
        needed = Support.memory(problem, nnz, held[0].data.dtype, n_columns)
        if (
            n_columns == 0
            or needed > self._newton_bytes
            or (nnz < _NEWTON_ENTRIES and course.first_sweep + n_sweeps < _SWEEPS_FIRST)
        ):
            return False
        products = min(_PRODUCTS + _MORE_PRODUCTS * (n_sweeps - 1), _MOST_PRODUCTS)
        together = [r[c] for r, c in zip(rows, chosen, strict=True)]
        if self.fit_intercept:
            together.append(problem.padded(intercept))
        moved = np.concatenate(together)
        support = Support(problem, held, chosen, self.fit_intercept)
        picked = [w.terms.take(c) for w, c in zip(working, chosen, strict=True)]
        if self.fit_intercept and intercept_terms:
            picked.append(intercept_terms)
        part = support.newton_step(moved, course.alpha, Terms.joined(picked), products, self.damping)
        if part == 1.0:
            self.damping = self.damping / _DAMPING_FACTOR if self.damping > _LEAST_DAMPING else 0.0
        elif part < _SHORT_STEP:
            self.damping = min(max(_DAMPING, self.damping * _DAMPING_FACTOR), _MOST_DAMPING)
        if part == 0.0:
            return False
        if self.fit_intercept:
            intercept[:] = moved[-1, : len(intercept)]
        start = 0
        for r, c in zip(rows, chosen, strict=True):
            r[c] = moved[start : start + len(c)]
            start += len(c)
        return True
