"""What a pass over everything says of weights that the scratch file has the columns of.

The dual point is that of the weights but for the samples of some chunks, whose dual variables make it
feasible by what was measured before (`bigmc.solvers.sparse.chunks.dual_point`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import ThreadEngine
from bigmc.solvers.sparse.bounds import DualPoint, Entropies, entropy_scales, lower_bound, next_scale
from bigmc.solvers.sparse.chunks.candidate_gradients import gradient_changes, measured_at
from bigmc.solvers.sparse.chunks.certifying_pass import ShardPart, certifying_pass
from bigmc.solvers.sparse.chunks.column_pass import column_sums
from bigmc.solvers.sparse.chunks.conditions import Conditions, FurtherReadings, Rereading, measure
from bigmc.solvers.sparse.chunks.dual_point import dual_point
from bigmc.solvers.sparse.chunks.feasible_dual import MovedSamples
from bigmc.solvers.sparse.chunks.pass_sums import PassRequest, PassSums
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.row_scales import Norms, RowNorms
from bigmc.solvers.sparse.scratch.shard_blocks import Block, Watch, numbers_of, of_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.store.shard_classes import classes_differ

#: One of so many shards, at least one, says which features are likely to need weights.
_ONE_OF = 8


@dataclass(frozen=True)
class Certified:
    """The sums and bounds of a pass.

    Attributes
    ----------
    sums : PassSums
        Its norms are those of the gradients where these are known, else bounds.
    measured : Conditions
    lower, scale : float
        Lower bound of the optimum, and the scale of the dual point that gives it.
    written : int64 array
        Features whose columns became a layer of the spill on the way.
    chosen : int64 array
        Features whose gradients were kept, increasing.
    moved : list of MovedSamples
        Other weights of some samples.
    """

    sums: PassSums
    measured: Conditions
    lower: float
    scale: float
    written: NDArray[np.int64]
    chosen: NDArray[np.int64]
    moved: list[MovedSamples]


#: Names features worth writing, by estimates of the norms of all gradients, of shape (n_features,).
Likely = Callable[[NDArray[np.float32]], NDArray[np.int64]]
#: Features that a pass is to write the columns of, what names them by some of the shards, or nothing.
Further = NDArray[np.int64] | Likely | None


class Certifier:
    """Makes passes over everything."""

    def __init__(self, task: ChunkTask, plan: ChunkPlan) -> None:
        self._task, self._plan = task, plan

    def certify(
        self,
        spill: Spill,
        point: Evaluated,
        chosen: NDArray[np.int64],
        norms: Norms,
        last_scale: float,
        further: Further = None,
        rereading: Rereading = Rereading.NONE,
    ) -> Certified:
        """Make a pass; its bytes are added to those of the spill.

        It goes through the columns of the spill instead of the shards where no other features occur.

        Parameters
        ----------
        spill : Spill
        point : Evaluated
            Weights, whose columns the spill has.
        chosen : int64 array
            Features whose gradients are kept, increasing.
        norms : Norms
            Of the rows. Where they are rough, the pass finds the exact ones, and no bound but 0.
        last_scale : float
            Of the dual point of the pass before.
        further : int64 array or callable, optional
            Features whose columns become a layer of the spill while shards are read, or what names them by
            the gradients of some shards.
        rereading : Rereading, optional
        """
        task = self._task
        scales = entropy_scales(task.objective, last_scale)
        dual = dual_point(task, self._plan, spill, point)
        moved, candidates = dual.moved, measured_at(task, spill, dual.point)
        del dual  # its gradients would stay beside what the pass adds up
        chosen = np.setdiff1d(chosen, candidates.features, assume_unique=True)
        request, rough = self._request(chosen, scales, candidates.features), norms is Norms.ROUGH
        written = np.empty(0, np.int64)
        by_rows = self._plan.goes_by_rows(len(spill.features))
        if rough or by_rows or self._needs_shards(spill):
            add_up = partial(self._add_up, spill, request, point, moved)
            sums, written = self._shard_sums(spill, add_up, norms, further)
        else:
            sums = column_sums(spill, request, point, moved)
        again = None
        if rereading is not Rereading.NONE and not rough:
            read = partial(self._read_again, spill, point, moved)
            again = FurtherReadings(task, self._plan, rereading, request, spill, point.coef.features, read)
        kept = measure(task, self._plan, sums, chosen, point.coef)
        conditions = Conditions.of(task, sums, kept, candidates, again)
        found = partial(Certified, sums, conditions, written=written, chosen=chosen, moved=moved)
        if rough or (task.fit_intercept and not moved):
            return found(lower=0.0, scale=last_scale)
        bound = self._lower(sums, conditions, scales)
        return found(lower=bound.value + sum(own.left for own in moved), scale=next_scale(bound))

    def _needs_shards(self, spill: Spill) -> bool:
        """Return whether features occur that have no columns."""
        dataset = self._task.dataset
        columns = np.count_nonzero(dataset.column_nnz(spill.features))
        return bool(columns != np.count_nonzero(dataset.column_nnz()))

    def _shard_sums(
        self, spill: Spill, add_up: Callable[..., PassSums], norms: Norms, further: Further
    ) -> tuple[PassSums, NDArray[np.int64]]:
        """Go through all shards; return what they add up to, and the features written on the way."""
        dataset, column_scale = self._task.dataset, self._task.dataset.column_scale()
        watches = []
        if norms is Norms.ROUGH and column_scale is not None:
            watches.append(RowNorms(column_scale, spill.put_scales))
        sums, some, written = None, np.empty(0, np.int64), np.empty(0, np.int64)
        others = np.arange(dataset.n_shards)
        if not callable(further):
            written = written if further is None else further
        elif len(others) > 1:
            some, others = self._shards
            sums = add_up(some, watches)
            written = further(self._estimates(sums))
        writer = spill.writer(written) if len(written) else None
        sums = add_up(others, [*watches, writer] if writer else watches, sums)
        if writer:
            spill.read_columns(writer, some.tolist())
            spill.put(writer)
        spill.n_bytes += sums.n_bytes
        return sums, written

    def estimate(self, spill: Spill, point: Evaluated) -> NDArray[np.float32]:
        """Return estimates of the norms of all gradients by some of the shards, of shape (n_features,).

        Where the classes of the shards differ, some do not speak for the others: all are read.
        """
        n_shards = self._task.dataset.n_shards
        some = np.arange(n_shards) if classes_differ(self._task.dataset) else self._shards[0]
        share = len(some) / n_shards
        every = max(1, min(self._plan.shard_parts, round(share * _ONE_OF)))
        nothing = np.empty(0, np.int64)
        request = replace(self._request(nothing, (), nothing), every=every)
        sums = self._add_up(spill, request, point, (), some, [])
        spill.n_bytes += sums.n_bytes
        return self._estimates(sums)

    @property
    def _shards(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Some shards, evenly spaced, and all others."""
        n_shards = self._task.dataset.n_shards
        n_parts = max(1, n_shards // _ONE_OF)
        some = (np.arange(n_parts) * 2 + 1) * n_shards // (2 * n_parts)
        return some, np.setdiff1d(np.arange(n_shards), some)

    def _estimates(self, sums: PassSums) -> NDArray[np.float32]:
        """Return what the norms that some of the shards add up to come to for all."""
        norms = np.abs(sums.norms)
        norms *= np.float32(self._task.dataset.n_samples / max(sums.n_rows, 1))
        return norms

    def _request(
        self, chosen: NDArray[np.int64], scales: tuple[float, ...], left_out: NDArray[np.int64]
    ) -> PassRequest:
        plan = self._plan
        return PassRequest(
            task=self._task,
            features=chosen,
            scales=scales,
            block_bytes=plan.block_bytes,
            block_columns=plan.block_columns,
            shard_parts=plan.shard_parts,
            held_bytes=plan.held_shard_bytes,
            left_out=left_out,
        )

    def _add_up(
        self,
        spill: Spill,
        request: PassRequest,
        point: Evaluated,
        moved: Sequence[MovedSamples],
        shards: NDArray[np.int64],
        watches: Sequence[Watch],
        to: PassSums | None = None,
    ) -> PassSums:
        """Go through some shards; what they add up to is added to the sums of others."""
        beside = self._plan.beside_workers(*spill.size)
        engine = self._task.engine.at_most(self._plan.n_workers(beside, len(request.features)))

        def problem_of(s: int, number: int, held: Sequence[Block]) -> ShardPart | None:
            return self._shard_part(spill, point, moved, (s, number, request.shard_parts), held)

        return certifying_pass(request, problem_of, engine, shards, watches, to)

    def _read_again(
        self, spill: Spill, point: Evaluated, moved: Sequence[MovedSamples], request: PassRequest
    ) -> PassSums:
        """Go through some columns of all shards; their bytes are added to those of the spill."""
        sums = self._add_up(spill, request, point, moved, np.arange(self._task.dataset.n_shards), ())
        spill.n_bytes += sums.n_bytes
        return sums

    def _shard_part(
        self,
        spill: Spill,
        point: Evaluated,
        moved: Sequence[MovedSamples],
        key: tuple[int, int, int],
        held: Sequence[Block],
    ) -> ShardPart | None:
        """Return a part of a shard with its scores; those of some samples have other weights.

        Without columns `held` of the whole shard, and for these samples, the spill is read.
        """
        task = self._task
        pieces = spill.pieces_of_shard(*key)
        if not pieces:
            return None
        samples, rows = spill.samples_of(pieces)
        if samples.weightless:
            return None
        engine = ThreadEngine(1)
        problem = task.problem_of(samples, engine)
        alone, n_bytes = len(pieces) == 1, 0
        if held:
            problem.rebuild_scores(point.coef, point.intercept, _columns_of_rows(held, rows, point.coef))
            pieces = [piece for piece in pieces if any(piece in own.pieces for own in moved)]
        for piece in pieces:
            chunk = spill.load(piece)
            part = problem  # whose scores are as many as a shard has, twice if there were others
            if not alone:
                part = Problem(chunk.samples, task.objective, task.alpha, None, task.dtype, engine)
            own = next((other for other in moved if piece in other.pieces), point)
            part.rebuild_scores(own.coef, own.intercept, chunk.held)
            if not alone:
                problem.scores[np.searchsorted(rows, chunk.positions[0])] = part.scores
            n_bytes += chunk.n_bytes
        return ShardPart(problem, rows, n_bytes)

    def _lower(self, sums: PassSums, measured: Conditions, scales: tuple[float, ...]) -> DualPoint:
        task, entropies = self._task, Entropies(scales, sums.entropies)
        margins = Margins.of(task.objective.loss, sums.margins)
        return lower_bound(task, task.dtype, margins, measured, entropies)


def _columns_of_rows(held: Sequence[Block], rows: NDArray[np.int64], coef: Coefficients) -> Iterator[Columns]:
    """Yield the columns with weights of some rows of a shard, block by block."""
    place, base = numbers_of(rows), np.array([0, len(rows)])
    for block in held:
        first, stop = np.searchsorted(coef.features, [block.lo, block.hi])
        if stop > first:
            own, features = of_rows(block, place), coef.features[first:stop]
            positions, nnz = features - block.lo, len(own.indices)
            yield Columns(0, features, positions, own.indptr[None], own.indices, own.data, base, nnz)


def with_gradients_of_written(
    task: ChunkTask,
    spill: Spill,
    point: Evaluated,
    before: NDArray[np.int64],
    certified: Certified,
) -> Evaluated:
    """Return a point with the gradients of all features of the spill, those written by a pass too.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
    point : Evaluated
    before : int64 array
        Features whose gradients the point has, in its order.
    certified : Certified
        Of a pass that wrote the others.
    """
    features = spill.features
    order = np.argsort(before)
    place = np.searchsorted(before, features, sorter=order)
    same = place < len(before)
    same[same] = before[order[place[same]]] == features[same]
    known, at = order[place[same]], np.searchsorted(certified.chosen, features[~same])
    gradient = np.empty((len(features), task.width), point.gradient.dtype)
    curvature = np.empty(len(features), point.curvature.dtype)
    gradient[same], curvature[same] = point.gradient[known], point.curvature[known]
    curvature[~same] = certified.sums.curvature[at]
    new = task.objective.loss.unpacked(certified.sums.gradient[at], task.n_classes, task.width)
    if certified.moved:
        new -= gradient_changes(task, spill, point, certified.moved)[~same]
    gradient[~same] = new
    return replace(point, gradient=gradient, curvature=curvature)
