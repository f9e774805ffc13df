"""Gradients taken back to the ball of the penalty one by one, with the dual variables of their samples.

Successive projections (Bregman, "Finding the common point of convex sets by the method of successive
projections", 1965): each gradient goes the shortest way, which takes some others out again, less and less.
Most are never out. A few that nearly all samples have come last: what is done to one of them undoes part of
what was done to the others. So between two sweeps there are some over the worst alone.

A feasible point is all that is looked for. The minimum of the loss with the penalty is one too, and a better
one, but steps towards it must also bring weights and gradients together: where features add up to nearly the
same in every sample, all of these move along for hundreds of sweeps, their gradients out of the ball.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.steps.chunk_parts import Part
from bigmc.solvers.sparse.steps.chunk_steps import ChunkSteps
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: What a gradient has beyond the ball is negligible at this share of the largest allowed.
_NEGLIGIBLE = 0.3
#: Sweeps at most; one of so many, at least, is over everything.
_MOST_SWEEPS, _SWEEPS_OVER_SOME = 200, 10
#: What is left of the visits for the last sweep over everything, in entries of all.
_RESERVED = 2
#: Where a sweep over everything finds more than this share of what the one before found, the samples cannot
#: take all gradients back. The rarer half of those that are out is left alone then, so many times at most,
#: but only columns with this share of the entries that the most frequent of them has.
_STALLED, _MOST_GIVEN_UP, _RARE = 0.7, 3, 0.25
#: Gradients furthest out after a sweep, at most, and sweeps over these alone.
_WORST, _SWEEPS_OVER_WORST = 16, 20


class Projections:
    """Sweeps that take the gradients of some columns back to the ball.

    Parameters
    ----------
    parts : sequence of Part
        Their weights move.
    terms : sequence of Terms
        What the gradients of each part have beside those of its problem; the ridges are not used.
    level : (float64 array of shape (n_classes,), Terms or None)
        Intercept, which has no ball: it takes a step before each sweep, unless there are no terms for it.
    allowed : float
        What a gradient may have beyond the ball.
    """

    def __init__(
        self,
        steps: ChunkSteps,
        parts: Sequence[Part],
        terms: Sequence[Terms],
        level: tuple[NDArray[np.float64], Terms | None],
        allowed: float,
    ) -> None:
        self._steps, self._parts, self._terms = steps, parts, terms
        self._level, self._allowed = level, allowed
        self._number = 0
        # the columns that parts visit, their entries, and what the last visits found beyond the ball
        self._every = [part.active for part in parts]
        self._entries = [part.columns.sizes() for part in parts]
        self._excess = [np.zeros(len(part.rows)) for part in parts]

    def run(self, most_visits: int) -> None:
        """Sweep until no gradient is further out than allowed, or about so many entries were visited.

        A sweep over everything is followed by sweeps over the columns that were out; when these are done,
        after some of them, or before visits run out, everything is looked at again. It also ends if the
        gradients come no closer.
        """
        n_entries = sum(int(own[some].sum()) for own, some in zip(self._entries, self._every, strict=True))
        chosen, whole, since, before, given_up = self._every, True, 0, np.inf, 0
        for _ in range(_MOST_SWEEPS if self._parts else 0):
            if most_visits < 0:
                break
            self._steps.begin_sweep()
            most_visits -= self._sweep(chosen)
            largest = self._largest(chosen)
            if whole and largest <= self._allowed:
                break
            since = 0 if whole else since + 1
            if whole:
                if largest > _STALLED * before:
                    if given_up == _MOST_GIVEN_UP or not self._give_up():
                        break
                    given_up, largest = given_up + 1, np.inf
                before = largest
                chosen = self._out(0.0)
            most_visits -= self._sweep_worst(chosen)
            ending = since == _SWEEPS_OVER_SOME - 1 or most_visits < _RESERVED * n_entries
            whole = largest <= self._allowed or ending
            if whole:
                chosen = self._every

    def _out(self, by: float) -> list[NDArray[np.int64]]:
        """Return the columns that their last visits found beyond the ball by more than this."""
        return [own[excess[own] > by] for own, excess in zip(self._every, self._excess, strict=True)]

    def _give_up(self) -> bool:
        """Leave out the rarest of the columns that are out; return whether there are such."""
        out = self._out(self._allowed)
        counts = np.concatenate([own[some] for own, some in zip(self._entries, out, strict=True)])
        most = min(float(np.median(counts)), _RARE * float(counts.max())) if len(counts) else 0.0
        rare = [some[own[some] <= most] for own, some in zip(self._entries, out, strict=True)]
        for k, left_out in enumerate(rare):
            self._every[k] = np.setdiff1d(self._every[k], left_out, assume_unique=True)
        return any(map(len, rare))

    def _sweep_worst(self, chosen: Sequence[NDArray[np.int64]]) -> int:
        """Sweep over the columns furthest out until they are not; return the entries visited."""
        excess = np.concatenate([own[some] for own, some in zip(self._excess, chosen, strict=True)])
        least, n_visits = self._allowed, 0
        if len(excess) > _WORST:
            least = max(least, float(np.partition(excess, -_WORST)[-_WORST]))
        worst = [some[own[some] >= least] for own, some in zip(self._excess, chosen, strict=True)]
        for _ in range(_SWEEPS_OVER_WORST):
            if not self._largest(worst) > self._allowed:
                break
            n_visits += self._sweep(worst)
        return n_visits

    def _sweep(self, chosen: Sequence[NDArray[np.int64]]) -> int:
        """Take the gradients of some columns back to the ball; return the entries visited.

        The intercept moves first, also before sweeps over a few: nearly all samples have these, so that what
        brings one of them back is mostly undone by a gradient of the intercept that is not zero.
        """
        n_visits, (level, terms) = 0, self._level
        if terms:
            self._steps.move_level(level, terms)
        for k, (part, more, some) in enumerate(zip(self._parts, self._terms, chosen, strict=True)):
            if len(some):
                part.active = some
                found = self._steps.project(part, more, self._number, _NEGLIGIBLE * self._allowed)
                self._excess[k][some] = found[some]
                n_visits += int(self._entries[k][some].sum())
        self._number += 1
        return n_visits

    def _largest(self, chosen: Sequence[NDArray[np.int64]]) -> float:
        """Return the largest excess over the ball that the last visits of some columns found."""
        found = (own[some].max(initial=0.0) for own, some in zip(self._excess, chosen, strict=True))
        return max(map(float, found), default=0.0)
