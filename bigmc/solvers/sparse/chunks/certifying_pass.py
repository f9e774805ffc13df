"""Passes over all entries of all shards, in the memory of one: objective, gradients, and bounds of them.

Gradients are kept for chosen features only. Of every other feature the norms of its gradients over single
shards are added up, which is at least the norm of their sum: mostly enough to show that it needs no weights,
in one number a feature instead of one for every class. Where one class says what the other's gradient is, as
with two classes, the norms are added up with their signs, which comes to the gradient itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.linear.arguments import Entries, GradientSums
from bigmc.objectives import Curvature
from bigmc.solvers.sparse.chunks.pass_sums import PassRequest, PassSums
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.shard_blocks import Block, Watch, decoded_blocks, numbers_of, of_rows
from bigmc.store.feature_titles import gradient_not_finite

#: Shards are added up in at most so many parts, whatever the number of workers.
_MOST_PARTS = 16
#: Samples whose norms are taken at once.
_ROWS_AT_ONCE = 1 << 11
#: Features whose offsets are looked at together.
PIECE_FEATURES = 1 << 16


class ShardPart(NamedTuple):
    """Samples of a shard whose scores are in memory together.

    Attributes
    ----------
    problem : Problem
        Its scores set.
    rows : int64 array of shape (n_samples,)
        Places of the samples in the shard, increasing.
    n_bytes : int
        Read for them.
    """

    problem: Problem
    rows: NDArray[np.int64]
    n_bytes: int


#: Makes the part of a shard with a number, or None where its samples have no weight: from the columns of the
#: whole shard, where these are in memory, else from the scratch file.
ShardProblem = Callable[[int, int, Sequence[Block]], ShardPart | None]


def certifying_pass(
    request: PassRequest,
    problem_of: ShardProblem,
    engine: Engine,
    shards: NDArray[np.int64],
    watches: Sequence[Watch] = (),
    to: PassSums | None = None,
) -> PassSums:
    """Add up losses and gradients of the samples of some shards.

    Parameters
    ----------
    request : PassRequest
    problem_of : callable
    engine : Engine
        Threads of this process; any number gives the same bits.
    shards : int64 array
        Their numbers.
    watches : sequence of Watch
        See all columns on the way.
    to : PassSums, optional
        Of other shards, to which these are added.

    Raises
    ------
    DataError
        If a gradient is not finite.
    """
    # all in one part where no more is wanted than some gradients: there is no memory for copies of them
    parts = np.array_split(shards, 1 if request.only else min(_MOST_PARTS, len(shards)))
    made = engine.map(_add_up, parts, request, problem_of, watches)
    if request.only:
        _, total = next(iter(made))
    else:
        total = to or PassSums.zeros(request)
        for _, sums in made:
            total.add(sums)
            del sums  # else it stays beside the sums of the next part
    bad = np.flatnonzero(~np.isfinite(total.norms))
    bad = np.union1d(bad, request.features[~np.isfinite(total.gradient).all(axis=1)])
    if len(bad):
        raise gradient_not_finite(request.task.dataset, int(bad[0]))
    return total


def _add_up(
    part: NDArray[np.int64], request: PassRequest, problem_of: ShardProblem, watches: Sequence[Watch]
) -> PassSums:
    sums = PassSums.zeros(request)
    for s in part.tolist():
        part_of = partial(problem_of, s)
        blocks = _decoded(s, request, sums, watches)
        if request.shard_parts > 1:
            _add_parts(part_of, blocks, request, sums)
        else:
            sums.largest += _add_part(part_of(0, ()), blocks, request, sums)
            for _ in blocks if watches else ():
                pass  # samples without weight: who watches sees their columns all the same
    return sums


def _add_parts(
    part_of: Callable[[int, Sequence[Block]], ShardPart | None],
    blocks: Iterable[Block],
    request: PassRequest,
    sums: PassSums,
) -> None:
    """Add losses and gradients of a shard part by part.

    Its columns are read once. Where all of them are held together, scores are computed from them; else,
    for as many as are, the scores of every part are computed anew from the columns in the scratch file.
    """
    largest = np.zeros(request.shard_parts)
    for number, held in enumerate(_batches(blocks, request)):
        add = _add_gradients if number else _add_part
        for k in range(request.every // 2, request.shard_parts, request.every):
            part = part_of(k, held.blocks if held.with_weights else ())
            largest[k] = max(largest[k], add(part, held.blocks, request, sums))
    sums.largest += float(largest.sum())


class _Batch(NamedTuple):
    """Columns of a shard that are held together, and whether those of all weights are among them."""

    blocks: list[Block]
    with_weights: bool


def _batches(blocks: Iterable[Block], request: PassRequest) -> Iterator[_Batch]:
    """Yield copies of the blocks of a shard, as many at a time as may be held, but one at least."""
    held: list[Block] = []
    n_bytes, with_weights = 0, request.decodes_weights
    for block in blocks:
        if request.only:
            own = _of_features(block, request.decoded)
        else:
            own = block._replace(indices=block.indices.copy(), data=block.data.copy())
        more = own.indptr[1:].nbytes + own.indices.nbytes + own.data.nbytes  # as the plan counts a shard
        if held and n_bytes + more > request.held_bytes:
            with_weights = False
            yield _Batch(held, with_weights)
            held, n_bytes = [], 0
        held.append(own)
        n_bytes += more
    yield _Batch(held, with_weights)


def _of_features(block: Block, features: NDArray[np.int64]) -> Block:
    """Return a copy with the entries of some features only, which increase."""
    wanted = np.zeros(block.hi - block.lo, bool)
    wanted[features[slice(*np.searchsorted(features, [block.lo, block.hi]))] - block.lo] = True
    counts = np.diff(block.indptr)
    kept = np.repeat(wanted, counts)
    indptr = np.concatenate([[0], np.cumsum(np.where(wanted, counts, 0))])
    return Block(block.lo, block.hi, indptr, block.indices[kept], block.data[kept])


def _add_part(part: ShardPart | None, blocks: Iterable[Block], request: PassRequest, sums: PassSums) -> float:
    """Add losses and gradients of some samples of a shard; return what `_add_gradients` does."""
    if part is not None:
        sums.n_parts += 1
        sums.add_losses(part.problem, request.scales)
    return _add_gradients(part, blocks, request, sums)


def _add_gradients(
    part: ShardPart | None, blocks: Iterable[Block], request: PassRequest, sums: PassSums
) -> float:
    """Add gradients of some columns of samples of a shard; return `_PartGradients.largest` of them."""
    if part is None:
        return 0.0
    problem = part.problem
    sums.n_bytes += part.n_bytes
    problem.fill_residuals()
    gradients = _PartGradients(problem, request, sums)
    if request.shard_parts == 1:
        for block in blocks:
            gradients.add(block)
    else:
        place = numbers_of(part.rows)
        for block in blocks:
            gradients.add(of_rows(block, place))
    return gradients.largest


class _PartGradients:
    """Adds the gradients of columns of samples of one shard.

    A column with one entry has the gradient of its sample, of which the norm is taken once for all columns:
    most columns of words and their pairs are such, and with thousands of classes they were half of a pass.

    Attributes
    ----------
    largest : float
        Largest norm of those of the sums that have signs, so far, of a feature whose gradient is not kept.
    """

    def __init__(self, problem: Problem, request: PassRequest, sums: PassSums) -> None:
        self._problem, self._request, self._sums = problem, request, sums
        self._factor = 2.0 / request.task.weight_sum
        self._row_norms: NDArray[np.float64] | None = None
        self.largest = 0.0

    def add(self, block: Block) -> None:
        """Add the gradients of some columns."""
        request, counts = self._request, np.diff(block.indptr)
        first, last = np.searchsorted(request.features, [block.lo, block.hi])
        wanted = request.features[first:last] - block.lo
        start, stop = np.searchsorted(request.left_out, [block.lo, block.hi])
        counts[request.left_out[start:stop] - block.lo] = 0
        if request.only:
            others = np.ones(len(counts), bool)
            others[wanted] = False
            counts[others] = 0
        single = counts == 1
        single[wanted] = False
        if single.any():
            self._add_single(np.flatnonzero(single), block)
            counts[single] = 0
        used = np.flatnonzero(counts)
        gradient, curvature, scale = self._gradients(used, block)
        counts[wanted] = 0
        if not request.only:
            self._add_norms(used, block, gradient, scale, counts[used] > 0)
        places = np.full(block.hi - block.lo, -1)
        places[used] = np.arange(len(used))
        at = places[wanted]
        to, at = first + np.flatnonzero(at >= 0), at[at >= 0]
        sums, n_classes = self._sums, self._problem.n_classes
        kept = slice(n_classes - sums.gradient.shape[1], n_classes)
        sums.gradient[to] += gradient[at, kept] * (self._factor * scale[at])[:, None]
        sums.curvature[to] += curvature[at] * (self._factor * scale[at] ** 2)

    def _gradients(
        self, used: NDArray[np.int64], block: Block
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return half gradients, half curvatures, and scales of columns."""
        problem, task = self._problem, self._request.task
        places = np.full(block.hi - block.lo, -1)
        places[used] = np.arange(len(used))
        gradient, curvature = np.zeros((len(used), task.width)), np.zeros(len(used))
        entries = Entries(block.indptr[None], block.indices, block.data, np.array([0, problem.n_samples]))
        added = GradientSums(gradient, curvature)
        samples, n_classes = problem.residual_samples, problem.n_classes
        task.objective.add_gradients(places, entries, samples, n_classes, added, Curvature.LARGEST)
        return gradient, curvature, problem.scale_of(used + block.lo)

    def _add_norms(
        self,
        used: NDArray[np.int64],
        block: Block,
        gradient: NDArray[np.float64],
        scale: NDArray[np.float64],
        others: NDArray[np.bool_],
    ) -> None:
        """Add the norms of half gradients of columns; those of `others` are not kept themselves."""
        norms = self._norms(gradient, self._factor * scale)
        self._sums.norms[used + block.lo] += norms.astype(np.float32)
        if self._sums.signed:
            self.largest = max(self.largest, float(np.abs(norms[others]).max(initial=0.0)))

    def _add_single(self, single: NDArray[np.int64], block: Block) -> None:
        """Add the norms of the gradients of columns with one entry each."""
        if self._row_norms is None:
            self._row_norms = self._norms_of_rows(block.data.dtype)
        at = block.indptr[single]
        rows = block.indices[at]
        values = block.data[at] * self._problem.gain[rows].astype(np.float64)
        norms = self._factor * self._problem.scale_of(single + block.lo) * values * self._row_norms[rows]
        if self._sums.signed:
            self.largest = max(self.largest, float(np.abs(norms).max(initial=0.0)))
        else:
            np.abs(norms, out=norms)
        self._sums.norms[single + block.lo] += norms.astype(np.float32)

    def _norms(self, gradient: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the dual norms of scaled gradients, with the sign of the class if one is kept."""
        norms, n_classes = np.zeros(len(gradient)), self._problem.n_classes
        self._request.task.objective.add_dual_norms(gradient, scale, n_classes, norms)
        return np.copysign(norms, gradient[:, n_classes - 1]) if self._sums.signed else norms

    def _norms_of_rows(self, dtype: np.dtype[Any]) -> NDArray[np.float64]:
        """Return the dual norms of the residuals of all samples, without their scales and weights.

        They are those of columns of one 1 each, of the stored type: kernels are compiled for that anyway.
        """
        problem, task, n = self._problem, self._request.task, self._problem.n_samples
        norms, ones = np.zeros(n), np.ones(n, problem.dtype)
        samples = problem.residual_samples._replace(row_scale=ones, gain=ones)
        for lo in range(0, n, _ROWS_AT_ONCE):
            rows = np.arange(lo, min(lo + _ROWS_AT_ONCE, n))
            starts, values = np.arange(len(rows) + 1)[None], np.ones(len(rows), dtype)
            entries = Entries(starts, rows.astype(np.uint16), values, np.array([0, n]))
            added = GradientSums(np.zeros((len(rows), task.width)), np.zeros(len(rows)))
            task.objective.add_gradients(rows - lo, entries, samples, problem.n_classes, added)
            norms[rows] = self._norms(added.gradients, np.ones(len(rows)))
        return norms


def _decoded(s: int, request: PassRequest, sums: PassSums, watches: Sequence[Watch]) -> Iterator[Block]:
    """Decode the columns of a shard, count the bytes, and let others look at them."""
    dataset, features = request.task.dataset, request.decoded if request.only else None
    shard, n_entries = dataset.shards[s], request.block_bytes // dataset.entry_bytes
    n_columns = min(PIECE_FEATURES, max(1, request.block_columns))
    seen_by = [watch.of_shard(s, shard.n_rows) for watch in watches]
    for block in decoded_blocks(dataset, shard, n_entries, n_columns, features):
        for watch in seen_by:
            watch.add(block)
        sums.n_bytes += len(block.indices) * dataset.entry_bytes
        yield block
    for watch in seen_by:
        watch.finish()
