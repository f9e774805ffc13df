"""Parts of a chunk's columns whose weights move until the dual variables of the chunk are nearly feasible.

Sweeps go towards the minimum of the chunk's loss with the penalty, which is the best dual point. A few
features that nearly all samples have are far from it, and every step for another feature does something to
them; so between two sweeps there are some over the worst alone. Without these most of the way is left to
the projections at the end (`bigmc.solvers.sparse.steps.projections`). They take gradients back to their
balls, but shorten those of many other features, each of which costs the bound in proportion to its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.steps.chunk_parts import Part
from bigmc.solvers.sparse.steps.chunk_steps import ChunkSteps
from bigmc.solvers.sparse.steps.projections import Projections
from bigmc.solvers.sparse.steps.proximal_terms import Terms

#: Sweeps at most, and the share that is left of the largest violation from one sweep over everything to the
#: next where they come to nothing.
_MOST_SWEEPS, _STALLED = 200, 0.7
#: One sweep of so many is over everything; between two, so many over the features that violate most.
_SWEEPS_OVER_SOME, _SWEEPS_OVER_WORST, _WORST = 10, 10, 16


class Steps(Enum):
    """Steps that move dual variables: sweeps towards the minimum and then projections, or these alone."""

    ALL = auto()
    PROJECTIONS = auto()


@dataclass(frozen=True)
class MovedParts:
    """Parts of a chunk's columns, and the intercept, that are moved together.

    Attributes
    ----------
    steps : ChunkSteps
    parts : sequence of Part
    terms : sequence of Terms
        What the loss of the chunk has beside, for each part.
    level : float64 array of shape (n_classes,)
        The intercept, with what features that are nearly constant add to it; changed in place.
    of_level : Terms, optional
        The same for the intercept, if there is one.
    """

    steps: ChunkSteps
    parts: Sequence[Part]
    terms: Sequence[Terms]
    level: NDArray[np.float64]
    of_level: Terms | None

    def move(self, target: float, most_visits: int, steps: Steps) -> None:
        """Sweep over all, and take gradients that are still out of their balls back."""
        every = [part.active for part in self.parts]
        if steps is Steps.ALL:
            self._sweep(target, most_visits)
        self._activate(every)
        # with a ridge gradients belong into the ball together with its own
        fixed = [
            Terms(more.tilt + more.ridges[:, None] * part.rows, more.ridges) if more.ridges.any() else more
            for more, part in zip(self.terms, self.parts, strict=True)
        ]
        Projections(self.steps, self.parts, fixed, (self.level, self.of_level), target).run(most_visits)

    def _activate(self, features: Sequence[NDArray[np.int64]]) -> None:
        for part, active in zip(self.parts, features, strict=True):
            part.active = active

    def _sweep(self, target: float, most_visits: int) -> None:
        """Sweep until the target is reached, violations come down no further, or about so much is visited.

        Sweeps over what has weights or violated at its last visit follow one over everything; after some of
        them, or when they are done, everything is looked at again. Between two sweeps there are some over the
        worst alone: features that nearly all samples have, to which every other step does something.
        """
        every, whole, before = [part.active for part in self.parts], True, np.inf
        for sweep in range(_MOST_SWEEPS if self.parts else 0):
            most_visits -= self._entries()
            if most_visits < 0:
                return
            self.steps.begin_sweep()
            violations = self._sweep_once(sweep, target)
            largest = _largest(violations)
            if whole and (largest <= target or largest > _STALLED * before):
                return
            before = largest if whole else before
            whole = largest <= target or (sweep + 1) % _SWEEPS_OVER_SOME == 0
            some = every if whole else self._worth_visits(violations)
            most_visits -= self._sweep_worst(violations, sweep, target)
            self._activate(some)

    def _sweep_worst(self, violations: Sequence[NDArray[np.float64]], sweep: int, target: float) -> int:
        """Sweep over the features that violated most until they do not; return the entries visited."""
        flat, n_visits = np.concatenate(violations), 0
        least = max(target, float(np.partition(flat, -_WORST)[-_WORST]) if len(flat) > _WORST else 0.0)
        self._activate([np.flatnonzero(own >= least) for own in violations])
        for k in range(_SWEEPS_OVER_WORST):
            n_visits += self._entries()
            found = self._sweep_once(_MOST_SWEEPS + sweep * _SWEEPS_OVER_WORST + k, target)
            if _largest(found) <= target:
                break
        return n_visits

    def _sweep_once(self, number: int, target: float) -> list[NDArray[np.float64]]:
        """Visit the intercept and the active features; return the violations of these, 0 for others."""
        if self.of_level is not None:
            self.steps.move_level(self.level, self.of_level)
        found = []
        for part, more in zip(self.parts, self.terms, strict=True):
            violations = np.zeros(len(part.rows))
            visited = part.active
            if len(visited):
                violations[visited] = self.steps.move_columns(part, more, number, 0.1 * target)[visited]
            found.append(violations)
        return found

    def _worth_visits(self, violations: Sequence[NDArray[np.float64]]) -> list[NDArray[np.int64]]:
        """Return the active features that have weights or violated."""
        wanted = [part.rows.any(axis=1) | (own > 0) for part, own in zip(self.parts, violations, strict=True)]
        return [part.active[own[part.active]] for part, own in zip(self.parts, wanted, strict=True)]

    def _entries(self) -> int:
        """Return the entries of the active features."""
        return sum(int(part.columns.sizes()[part.active].sum()) for part in self.parts)


def _largest(found: Sequence[NDArray[np.float64]]) -> float:
    return max((float(own.max(initial=0.0)) for own in found), default=0.0)
