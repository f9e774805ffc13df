"""A dual point that is nearly feasible, beside weights that are not optimal yet.

The lower bound of a pass goes by the gradient that is furthest out of the dual ball, and the intercept has no
ball at all. Both are mended by the dual variables of the samples of one chunk, which are those of other
weights, which minimise the loss of the chunk with the gradients of all other samples as linear terms. At
that minimum every gradient of all samples is in its ball. What it costs is quadratic in the violations, where
scaling the whole dual point into the ball costs as much as the largest of them.

Where features add up to nearly the same in every sample, sweeps hardly come closer to that minimum: then what
is out of its ball is taken back (`bigmc.solvers.sparse.steps.projections`), which costs more but ends.

Several small chunks share the violations, which costs less by their number m. With G the gradients of all
samples and D_k what the dual variables of chunk k change in them, each chunk by itself brings ``G + m D_k``
into the balls; these are convex, so that the mean over the chunks, ``G + sum_k D_k``, is in them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.solvers.sparse.chunks.evaluation import relative_norms
from bigmc.solvers.sparse.chunks.movable import Movable
from bigmc.solvers.sparse.chunks.moved_parts import MovedParts, Steps
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.chunk import Chunk
from bigmc.solvers.sparse.scratch.spill import Piece, Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.chunk_parts import (
    Part,
    centred_parts,
    gradients_of,
    plain_parts,
    set_scores,
    shift_of,
    whole_gradients,
)
from bigmc.solvers.sparse.steps.chunk_steps import ChunkSteps
from bigmc.solvers.sparse.steps.intercept import improve_intercept
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.solvers.sparse.weighted_columns import WeightedColumns

#: Newton steps of the intercept that take out its gradient, at most, and what may be left over: in units
#: of the scores' precision and of the margins, and of the margins alone.
_INTERCEPT_STEPS, _ROUNDING, _LEFT_OVER = 20, 16.0, 1e-9
#: Entries that a feature has in the chunk at least; with fewer, its violation in units of alpha is at most
#: this part of the share of its entries that the chunk has.
_FEWEST_ENTRIES, _MADE_UP = 16, 0.3
#: Entries of the samples whose dual variables are moved: of a larger chunk it is some pieces, but no fewer
#: than these.
_MOST_ENTRIES, _FEWEST_PIECES = 1 << 22, 4
#: Chunks that may fail, where several share the violations.
_FAILURES = 2
#: Violation that sweeps over the features beside them end at, in units of alpha and of the tolerance.
_TARGET = 0.25
#: Entries that these visit, and projections after them, in all entries and at least; with more than so many
#: classes, which take the more time for each, accordingly fewer.
_VISITS, _FREE_VISITS, _MANY_CLASSES = 8, 1 << 26, 64


@dataclass(frozen=True)
class MovedSamples:
    """Weights for some samples of a chunk that make the dual point of all samples feasible, or nearly.

    Where there are several, it takes all of them together.

    Attributes
    ----------
    pieces : frozenset of Piece
        Of the samples.
    of_others : Coefficients
        Weights of all other samples.
    features : int64 array of shape (n_changed,)
        Features whose weights are not those.
    rows : float array of shape (n_changed, width)
        Their weights, zeros included.
    intercept : float64 array of shape (n_classes,)
    left : float
        What rounding leaves of the gradient by the intercept, times the intercept.
    """

    pieces: frozenset[Piece]
    of_others: Coefficients
    features: NDArray[np.int64]
    rows: NDArray[np.floating]
    intercept: NDArray[np.float64]
    left: float

    @property
    def coef(self) -> Coefficients:
        """The weights of these samples, made anew: of each of many chunks few change."""
        return self.of_others.updated([(self.features, self.rows)])

    def rounded(self) -> MovedSamples:
        """Return the same with weights of single precision."""
        return replace(self, rows=self.rows.astype(np.float32))

    def read(self, spill: Spill) -> Chunk:
        """Read the samples."""
        return spill.read([piece for piece in spill.pieces if piece in self.pieces])


def nearly_feasible(
    task: ChunkTask,
    spill: Spill,
    anchor: Evaluated,
    most_bytes: int,
    most_features: int | None = None,
) -> list[MovedSamples]:
    """Return a dual point near that of the anchor that is feasible by the intercept and by the candidates.

    Several small chunks are moved together if each of them can make up for its part. Else it is one chunk;
    where the candidates have no minimum with the samples of any, it is feasible by the intercept and by
    nearly constant features, or by the intercept alone. Nothing if there is not even that: all chunks have
    too few positive margins.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
    anchor : Evaluated
        Of the weights that the spill's candidates have.
    most_bytes : int
        What the weights of several chunks may take.
    most_features : int, optional
        Candidates whose weights change, if there are more in the one layer of the spill.
    """
    movable = Movable.of(task, spill, anchor, most_features)
    needed = _needed_entries(task, movable, _MADE_UP)
    together, found = _n_together(task, spill, anchor, most_bytes), list[MovedSamples]()
    for number in range(spill.n_chunks if together > 1 else 0):
        chunk = _MovedChunk(number, together)
        if moved := _moved(task, spill, movable, needed, chunk, [_Attempt.CANDIDATES]):
            found.append(moved)
        if len(found) == together:
            return found
        if number - len(found) > _FAILURES:
            break
    attempts = list(_Attempt)[1 if spill.n_chunks == 1 else 0 :]
    for number in range(spill.n_chunks):
        chunk = _MovedChunk(number, 1)
        if moved := _moved(task, spill, movable, needed, chunk, attempts):
            return [moved]
    return []


def taken_back(
    task: ChunkTask,
    spill: Spill,
    point: Evaluated,
    number: int,
    made_up: float,
    most_features: int | None = None,
) -> MovedSamples | None:
    """Return weights for the samples of a chunk that take gradients back which a dual point leaves outside.

    By projections alone; None if there is no such point.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
    point : Evaluated
        Weights, and the gradients of the dual point, where the chunk has the dual variables of the weights.
    number : int
        Of the chunk.
    made_up : float
        Violation of a feature in units of alpha, in those of the share of its entries that the chunk has, at
        most; those that violate more stay outside if they have few entries.
    most_features : int, optional
        As for `nearly_feasible`.
    """
    movable = Movable.of(task, spill, point, most_features)
    needed = _needed_entries(task, movable, made_up)
    chunk = _MovedChunk(number, 1, Steps.PROJECTIONS)
    return _moved(task, spill, movable, needed, chunk, [_Attempt.CANDIDATES])


class _MovedChunk(NamedTuple):
    """A chunk whose dual variables are moved, the number of chunks that are, and the steps that move them."""

    number: int
    together: int
    steps: Steps = Steps.ALL


def _moved(
    task: ChunkTask,
    spill: Spill,
    movable: Movable,
    needed: Sequence[NDArray[np.float64]],
    moved: _MovedChunk,
    attempts: Sequence[_Attempt],
) -> MovedSamples | None:
    """Return weights for the samples of a chunk that bring its part of the violations to an end, or None."""
    pieces = _some_pieces(task, spill, moved.number)
    (chunk, fixed), anchor = movable.columns_of(spill.read(pieces)), movable.point
    if chunk.samples.weightless:
        return None
    problem, layers = task.problem(chunk), [columns.features for columns in chunk.held]
    for attempt in attempts:
        rows = [anchor.coef.take(features) for features in layers]
        centred = centred_parts(problem, chunk, rows) if task.fit_intercept else []
        parts = [] if attempt is _Attempt.INTERCEPT else list(centred)
        if attempt is _Attempt.CANDIDATES:
            least = [entries / moved.together for entries in needed]
            parts = _movable(plain_parts(problem, chunk, rows, centred), chunk, least) + parts
        problem.rebuild_scores(anchor.coef, anchor.intercept, [*chunk.held, *fixed])
        found = _minimise(task, _Samples(problem, chunk, fixed), anchor, rows, parts, moved)
        if found:
            level, left = found
            for part in parts:
                rows[part.layer][part.places] = part.rows
            features, changed = _changed(anchor.coef, layers, rows)
            with np.errstate(over="ignore"):  # more exact than the scores they are for need not be
                changed = changed.astype(task.dtype)
            if np.isfinite(changed).all():  # steps may have no end
                return MovedSamples(frozenset(pieces), anchor.coef, features, changed, level, left)
    return None


class _Samples(NamedTuple):
    """Samples whose dual variables are moved, and columns of features whose weights stay."""

    problem: Problem
    chunk: Chunk
    fixed: list[Columns]


def _changed(
    before: Coefficients, layers: Sequence[NDArray[np.int64]], rows: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the features whose weights changed, and the weights."""
    if not layers:
        return np.empty(0, np.int64), np.empty((0, before.rows.shape[1]))
    changed = [(own != before.take(features)).any(axis=1) for features, own in zip(layers, rows, strict=True)]
    features = np.concatenate([own[at] for own, at in zip(layers, changed, strict=True)])
    return features, np.concatenate([own[at] for own, at in zip(rows, changed, strict=True)])


def _n_together(task: ChunkTask, spill: Spill, anchor: Evaluated, most_bytes: int) -> int:
    """Return the number of chunks that are moved together."""
    n_entries = int(task.dataset.column_nnz(spill.features).sum())
    by_entries = _MOST_ENTRIES * spill.n_chunks // max(n_entries, 1)
    by_bytes = most_bytes // max(anchor.coef.rows.size * task.dtype.itemsize, 1)
    return max(1, min(spill.n_chunks // 2, by_entries, by_bytes))  # some cannot make up for their part


def _some_pieces(task: ChunkTask, spill: Spill, number: int) -> list[Piece]:
    """Return the pieces of a chunk, or so many of them that sweeps take no more time than passes do."""
    pieces = spill.pieces_of_chunk(number)
    n_entries = int(task.dataset.column_nnz(spill.features).sum())
    n_rows = sum(piece.n_rows for piece in pieces)
    share = _MOST_ENTRIES / max(1, n_entries * n_rows // max(task.dataset.n_samples, 1))
    n_chosen = min(len(pieces), max(_FEWEST_PIECES, math.ceil(share * len(pieces))))
    return [pieces[k * len(pieces) // n_chosen] for k in range(n_chosen)]


def _needed_entries(task: ChunkTask, movable: Movable, made_up: float) -> list[NDArray[np.float64]]:
    """Return the entries of each feature that a chunk must have to make up for its violation."""
    layers = movable.layers
    if not layers:
        return []
    excess = np.maximum(relative_norms(task, movable.point, layers) - 1.0, 0.0)
    needed = excess / made_up * task.dataset.column_nnz(np.concatenate(layers))
    return np.split(np.clip(needed, 1.0, _FEWEST_ENTRIES), np.cumsum([len(f) for f in layers])[:-1])


def _movable(parts: Sequence[Part], chunk: Chunk, needed: Sequence[NDArray[np.float64]]) -> list[Part]:
    """Return parts whose sweeps leave out features with too few entries to make up for all other samples."""
    for part, counts, least in zip(parts, chunk.counts(), needed, strict=True):
        part.active = part.active[counts[part.active] >= least[part.active]]
    return list(parts)


class _Attempt(Enum):
    """What a dual point is to be feasible by, beside the intercept."""

    CANDIDATES = auto()
    NEARLY_CONSTANT = auto()
    INTERCEPT = auto()


def _minimise(
    task: ChunkTask,
    samples: _Samples,
    anchor: Evaluated,
    rows: Sequence[NDArray[np.float64]],
    parts: Sequence[Part],
    chunks: _MovedChunk,
) -> tuple[NDArray[np.float64], float] | None:
    """Move the weights of some parts; return the intercept, if any, and what is left of its gradient.

    The scores of the problem are those of the anchor. Its samples stand for those of all chunks that are
    moved together.
    """
    problem, chunk, fixed = samples
    together = chunks.together
    own, share = problem.margins(), together * problem.weight_sum / task.weight_sum
    others = task.weight_sum / (2.0 * together) * anchor.intercept_gradient - own.intercept_gradient
    of_level = Terms(problem.padded(problem.two_over_n * others), np.zeros(1))
    problem.fill_residuals()
    ridge = task.objective.ridge / share
    terms = [Terms(_of_others(part, chunk, anchor, share), np.full(len(part.rows), ridge)) for part in parts]
    centred = [part for part in parts if part.means is not None]
    level = anchor.intercept + shift_of(centred, task.n_classes)
    alpha = task.alpha / share

    def set_all() -> None:
        kept = WeightedColumns.of(anchor.coef, fixed)
        set_scores(problem, chunk, rows, centred, level, kept)

    steps = ChunkSteps.of(task.descent, problem, alpha, set_all)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # where there is no such point, steps never end
            most_visits = max(_FREE_VISITS, _VISITS * task.dataset.nnz) // together
            most_visits = most_visits * _MANY_CLASSES // max(_MANY_CLASSES, task.width)
            moved = MovedParts(steps, parts, terms, level, of_level if task.fit_intercept else None)
            moved.move(_TARGET * task.tol * alpha, most_visits, chunks.steps)
            steps.end()
            now = problem.margins()
            if task.fit_intercept:
                now = improve_intercept(problem, level, _INTERCEPT_STEPS, of_level)
    except DataError:
        return None
    # steps that never end give a point whose bound is below zero, and in the end no numbers at all
    if not now.total_loss <= anchor.objective * task.weight_sum:
        return None
    if not task.fit_intercept:
        return level, 0.0
    left = others + now.intercept_gradient
    noise = max(_ROUNDING * float(np.finfo(task.dtype).eps), _LEFT_OVER)
    if not np.abs(left).max() <= noise * now.total_residual * together / share:
        return None
    level -= shift_of(centred, task.n_classes)
    return level, float(left @ anchor.intercept) / (task.weight_sum / 2.0)


def _of_others(part: Part, chunk: Chunk, anchor: Evaluated, share: float) -> NDArray[np.float64]:
    """Return the gradients by the columns of a part that other samples have, in units of a chunk's."""
    gradients = whole_gradients(part, chunk, anchor)
    gradients /= share
    gradients -= gradients_of(part.problem, part.columns)[0]
    return gradients
