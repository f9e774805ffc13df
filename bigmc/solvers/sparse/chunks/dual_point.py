"""The dual point of a certificate: that of the weights, but for the samples of some chunks.

First one chunk, or a few that share it, make up for what is out of the balls (`feasible_dual`). A chunk can
do that for features of which it has enough entries; of the others a few stay outside, and the whole point
is scaled by the worst of them. So other chunks take these back, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import give_back_free_pages
from bigmc.solvers.sparse.chunks.candidate_gradients import gradient_changes
from bigmc.solvers.sparse.chunks.evaluation import relative_norms
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples, nearly_feasible, taken_back
from bigmc.solvers.sparse.chunks.feasible_intercept import feasible_by_intercept
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.stochastic_rounds import Point, gradient_changes_by_rows
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated

#: Chunks that take back what the first leave, at most, and in a row without success; and what may be left, in
#: units of the tolerance.
_MOST_FURTHER, _IN_VAIN, _LEFT = 24, 5, 0.5
#: Bytes that weights of moved samples may take: this part of what is free, or so many. Half of it is for the
#: chunks that share the violations: m of them take 1/m of what one takes from the bound.
_MOVED, _MOVED_BYTES = 8, 2 << 20
#: What samples of a chunk may make up for, in units of their share of a feature's entries and of alpha; where
#: a chunk leaves more than half, it is features too rare for that, and the next may do so much more.
_MADE_UP, _MORE = 1.0, 4.0


@dataclass(frozen=True)
class ChunkDual:
    """A dual point.

    Attributes
    ----------
    moved : list of MovedSamples
        Samples whose dual variables are not those of the weights.
    point : Evaluated
        The weights, with the gradients by the candidates at the dual point.
    """

    moved: list[MovedSamples]
    point: Evaluated


def dual_point(task: ChunkTask, plan: ChunkPlan, spill: Spill, point: Evaluated) -> ChunkDual:
    """Return a dual point that is feasible by the intercept, if there is one, and nearly by the candidates.

    The spill has the columns of the weights of the point.
    """
    dual = ChunkDual([], point)
    if not task.fit_intercept and spill.n_chunks == 1:
        return dual
    chunks = _Chunks(task, plan, spill)
    few = chunks.has_memory_for(point)
    moved = chunks.nearly_feasible(point) if few else []
    if task.fit_intercept and not moved:  # without the intercept there is no bound at all
        moved = feasible_by_intercept(task, spill, point)
    dual = chunks.with_samples(dual, moved)
    # with a ridge the bound counts what is left by its square, without scaling
    return dual if task.objective.ridge > 0 or not moved or not few else chunks.take_back(dual)


class _Excess(NamedTuple):
    """By how much gradients are out of their balls, in units of alpha: at most, and in sum."""

    largest: float
    total: float


class _Chunks:
    """Chunks whose samples are moved, where sweeps have memory for all candidates and where not."""

    def __init__(self, task: ChunkTask, plan: ChunkPlan, spill: Spill) -> None:
        self._task, self._plan, self._spill = task, plan, spill
        self._by_rows = plan.goes_by_rows(len(spill.features))
        self._most_features = plan.most_moved(len(spill.features)) if self._by_rows else None
        self._most_bytes = max(plan.free_bytes // _MOVED, _MOVED_BYTES)

    def has_memory_for(self, point: Evaluated) -> bool:
        """Return whether sweeps of two or three chunks have memory for all candidates out of their balls."""
        n_out = int(np.count_nonzero(self._norms(point) > 1.0))
        return not self._by_rows or n_out <= 2 * self._plan.most_candidates

    def with_samples(self, dual: ChunkDual, moved: list[MovedSamples]) -> ChunkDual:
        """Return a dual point with other weights of more samples."""
        task, spill, point = self._task, self._spill, dual.point
        if self._by_rows:
            give_back_free_pages()  # steps leave 8 MB of them: arrays too small to be pages of their own
        if not moved:
            return dual
        if self._by_rows:
            weights = Point(point.coef, point.intercept)
            changed = gradient_changes_by_rows(task, spill, weights, moved, self._plan.row_bytes)
        else:
            changed = gradient_changes(task, spill, point, moved)
        gradient = np.add(changed, point.gradient, out=changed).astype(point.gradient.dtype)
        return ChunkDual([*dual.moved, *moved], replace(point, gradient=gradient))

    def nearly_feasible(self, point: Evaluated) -> list[MovedSamples]:
        """Return weights for the samples of one chunk, or a few, see `feasible_dual.nearly_feasible`."""
        found = nearly_feasible(self._task, self._spill, point, self._most_bytes // 2, self._most_features)
        return self._kept(found)

    def _taken_back(self, point: Evaluated, number: int, made_up: float) -> list[MovedSamples]:
        """Return weights for the samples of one chunk, see `feasible_dual.taken_back`, or nothing."""
        features = self._most_features
        give_back_free_pages()
        found = taken_back(self._task, self._spill, point, number, made_up, most_features=features)
        return self._kept([found] if found else [])

    def _kept(self, found: list[MovedSamples]) -> list[MovedSamples]:
        """Return the same, in single precision where sweeps have no memory for all candidates."""
        return [own.rounded() for own in found] if self._by_rows else found

    def take_back(self, dual: ChunkDual) -> ChunkDual:
        """Let chunks whose dual variables were not moved take back what is still out of the balls."""
        task, spill = self._task, self._spill
        moved = {piece.chunk for own in dual.moved for piece in own.pieces}
        others = [number for number in range(spill.n_chunks) if number not in moved]
        out, made_up, in_vain = self._excess(dual.point), _MADE_UP, 0
        for number in others[:_MOST_FURTHER]:
            n_bytes = sum(own.rows.nbytes for own in dual.moved)
            if out.largest <= _LEFT * task.tol or in_vain == _IN_VAIN or n_bytes > self._most_bytes:
                break
            level = np.zeros_like(dual.point.intercept_gradient)  # what is left of it has been counted
            point = replace(dual.point, intercept_gradient=level)
            more = self._taken_back(point, number, made_up)
            better = self.with_samples(dual, more) if more else dual
            left = self._excess(better.point)
            if left.largest > 0.5 * out.largest:
                made_up *= _MORE
            in_vain += 1
            if left.largest <= out.largest and left.total < out.total:
                dual, out, in_vain = better, left, 0
            del point, better  # the gradients of the one that is not taken
        return dual

    def _excess(self, point: Evaluated) -> _Excess:
        """Return how far the gradients of the candidates are out of their balls."""
        excess = np.maximum(self._norms(point) - 1.0, 0.0)
        return _Excess(float(excess.max(initial=0.0)), float(excess.sum()))

    def _norms(self, point: Evaluated) -> NDArray[np.float64]:
        """Return the dual norms of the gradients of all candidates, in units of alpha."""
        return relative_norms(self._task, point, self._spill.features_by_layer)
