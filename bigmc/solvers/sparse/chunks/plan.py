"""How a run over chunks of samples divides its memory limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import Plan
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.memory_plan import SINGLE_PRECISION_TOL, WORKSPACE, Size
from bigmc.solvers.sparse.steps.chunk_parts import bytes_of_centred

#: Shares of what is left: for gradients at least, beside more than one worker of a pass; for a chunk, and for
#: the vectors of the candidates beside it.
_GRADIENT_SHARE, _CHUNK_SHARE, _CANDIDATE_SHARE = 0.3, 0.4, 0.45
#: Chunks are drawn, some larger than others; shards that a chunk has samples of.
_CHUNK_MARGIN, _CHUNK_PIECES = 1.1, 17
#: Bytes of the vectors of a candidate for every class, and what is left for candidates to come: in units of
#: those there are, and as a share of what is left.
_CANDIDATE_COST, _MORE_CANDIDATES, _MORE_SHARE = 56, 1.25, 0.04
#: The same for rounds of stochastic steps, of single precision but for the sums of a gradient; and the share
#: of what is left for them. Their chunks have no scores, which are most of the bytes with many classes.
_BY_ROWS_COST, _BY_ROWS_SHARE = 24, 0.66
#: The same for a dual point: of a candidate its weights, gradient, and gradient at the dual point; and of one
#: whose weights the samples of a chunk change.
_DUAL_COST, _MOVED_COST = 12, 40
#: Share of a chunk that may be in row order at once, beside its columns.
_ROW_ORDER = 0.25
#: Share of what is left up to which columns are held. With all of it a run at 146 MB took 182.
_HELD_SHARE = 0.75
#: Share of what is left beside all that for samples of rare features.
_RARE_SHARE = 0.6
#: Candidates, samples of a chunk and bytes of one with fewer of which rounds over chunks come to nothing.
_FEWEST_CANDIDATES, _FEWEST_SAMPLES, _SMALLEST_CHUNK = 16, 64, 1 << 19
#: Workers of a pass that gradients leave memory for if that is possible; more work where some is left.
_PLANNED_WORKERS = 2
#: Bytes of a worker that writes columns while it reads a shard, and share of the gradients that it may cost.
_WRITER_BYTES, _WRITER_SHARE = 3 << 20, 0.75
#: Bytes of a candidate in a pass for every class, its gradient and weights; and candidates for each gradient
#: of another feature, at most.
_IN_PASS, _CANDIDATES_PER_GRADIENT = 8, 4
#: Entries and norms of a feature, and what is made of them between passes.
_FEATURE_BYTES = 10
#: Numbers that are kept of a gradient beside it and its curvature: number of the feature, norms, distance.
_MEASURES = 5
#: Most bytes of a shard decoded at once, and parts of what is left that they take, tried in turn.
_LARGEST_BLOCK, _BLOCK_PARTS = 8 << 20, (16, 64)
#: The same where columns are read once more; features for which that is done at least.
_READ_AT_ONCE, _FEWEST_READ = 1 << 19, 16
#: What the allocator keeps between chunks of changing size, in shares of the limit.
_FRAGMENTS = 0.08
#: Compiled kernels, which no dataset makes larger: measured with 2,000 rows of 5,000 numbers at 64 MB.
_KERNELS = 4 << 20
#: Parts that shards are cut into whose scores do not fit. With more classes than this a worker of a pass
#: takes one of these shares of what is left at most, so that there is memory for gradients.
_SHARD_PARTS, _MANY_CLASSES, _PART_SHARES = (2, 4, 8, 16, 32, 64), 512, (0.33, 0.6)


@dataclass(frozen=True)
class ChunkPlan:
    """How a run goes through chunks of the samples, see `bigmc.solvers.sparse.chunks.rounds`.

    Attributes
    ----------
    free_bytes : int
        What is left for all of the following.
    width : int
        Padded number of classes.
    n_kept : int
        Classes whose gradients say what all are.
    most_candidates : int
        Features whose columns are kept for rounds, at most.
    chunk_bytes, newton_bytes : int
        Most bytes of a chunk, its scores included; and of Newton steps where there is one only.
    fixed_bytes : int
        Of all samples of a chunk, were there one only, without their entries.
    entry_bytes, feature_bytes : int
        Of an entry, and of a candidate's offsets in a chunk.
    most_workers, worker_bytes : int
        Most workers of a pass, and what each of them takes.
    block_bytes, block_columns : int
        Most bytes and columns of a shard a worker decodes at once.
    shard_parts : int
        Parts that a pass cuts each shard into, because the scores of all its rows are too many.
    held_shard_bytes : int
        Decoded columns of such a shard that are in memory for all its parts together, at most.
    longest_column : int
        Bytes of a column at most.
    """

    free_bytes: int
    width: int
    n_kept: int
    most_candidates: int
    chunk_bytes: int
    newton_bytes: int
    fixed_bytes: int
    entry_bytes: int
    feature_bytes: int
    most_workers: int
    worker_bytes: int
    block_bytes: int
    block_columns: int
    shard_parts: int = 1
    held_shard_bytes: int = 0
    longest_column: int = 0

    @property
    def most_by_rows(self) -> int:
        """Features whose columns are kept for rounds of stochastic steps, at most."""
        offsets = self.chunk_bytes // (2 * self.feature_bytes)
        return min(int(_BY_ROWS_SHARE * self.free_bytes) // (_BY_ROWS_COST * self.width), offsets)

    def most_moved(self, n_candidates: int) -> int:
        """Return the number of features whose weights the samples of a chunk may change, of so many.

        Beside the chunk, and weights and gradients of all candidates.
        """
        left = self.free_bytes - self.chunk_bytes - _DUAL_COST * self.width * n_candidates
        most = max(left // (_MOVED_COST * self.width), _FEWEST_CANDIDATES)
        return min(most, self.most_candidates)

    def goes_by_rows(self, n_candidates: int) -> bool:
        """Return whether rounds take stochastic steps: sweeps have no memory for so many candidates."""
        return n_candidates > self.most_candidates

    @property
    def row_bytes(self) -> int:
        """Bytes of the entries of a chunk that are in row order together."""
        return int(_ROW_ORDER * self.chunk_bytes)

    def n_workers(self, held: int, n_gradients: int) -> int:
        """Return the number of workers of a pass beside `held` bytes of columns and so many gradients."""
        n_workers = self._planned_workers(held)
        while n_workers < self.most_workers:
            more = (n_workers + 1) * (self.worker_bytes + _WRITER_BYTES)
            if more + n_gradients * gradient_bytes(self.n_kept, n_workers + 1) > self.free_bytes - held:
                break
            n_workers += 1
        return min(n_workers, self.most_workers)

    def most_gradients(self, held: int) -> int:
        """Return the number of features whose gradients a pass keeps, beside `held` bytes of columns.

        Candidates depend on it, and no model may depend on the number of workers.
        """
        n_workers = self._planned_workers(held)
        free = self.free_bytes - held - n_workers * self.worker_bytes
        return max(free, 0) // gradient_bytes(self.n_kept, n_workers)

    def reading(self, held: int, n_candidates: int, n_gradients: int, finer: int = 1) -> Reading:
        """Return how one more reading goes, by one worker, after a pass that kept so many gradients.

        Beside `held` bytes of columns of the candidates. Parts of shards are smaller by the factor `finer`.
        """
        block_bytes = min(self.block_bytes, max(self.longest_column, _READ_AT_ONCE))
        worker = self.worker_bytes - 2 * (self.block_bytes - block_bytes)
        if self.shard_parts > 1:
            worker -= self.held_shard_bytes + self.block_bytes - block_bytes
        scores = 4 * self.width * self.longest_column // (self.entry_bytes * self.shard_parts)
        taken = held + self._in_pass(n_candidates) + worker - (scores - scores // finer)
        taken += 8 * (self.n_kept + 1 + _MEASURES) * n_gradients
        entry_bytes = self.entry_bytes if self.shard_parts > 1 else 0
        feature_bytes = 4 * self.n_kept + 8 * (1 + _MEASURES)
        return Reading(max(self.free_bytes - taken, 0), block_bytes, feature_bytes, entry_bytes)

    def _planned_workers(self, held: int) -> int:
        """Return the number of workers that gradients leave memory for, however many there are."""
        share = int((1.0 - _GRADIENT_SHARE) * (self.free_bytes - held))
        return max(1, min(_PLANNED_WORKERS, share // self.worker_bytes))

    def writer_bytes(self, held: int, n_candidates: int) -> int:
        """Return what it takes to write more columns during a pass; 0 if there is no memory for that."""
        own = held + self._in_pass(n_candidates)
        needed = _WRITER_BYTES * self._planned_workers(own)
        fits = self.most_gradients(own + needed) > (1.0 - _WRITER_SHARE) * self.most_gradients(own)
        return needed if n_candidates and fits else 0

    def beside_workers(self, held: int, n_candidates: int) -> int:
        """Return what a pass has in memory beside its workers and gradients of other features."""
        return held + self._in_pass(n_candidates) + self.writer_bytes(held, n_candidates)

    def _in_pass(self, n_candidates: int) -> int:
        return _IN_PASS * self.width * n_candidates

    def most_held(self, n_features: int, n_chunks: int) -> int:
        """Return how many bytes of compressed columns of so many candidates may stay in memory.

        It leaves space for candidates to come.
        """
        more = int(_MORE_CANDIDATES * n_features)
        more += int(_MORE_SHARE * self.free_bytes) // (_CANDIDATE_COST * self.width)
        return max(0, self._left_beside(more, n_chunks))

    def holds(self, held: int, n_features: int, n_chunks: int) -> bool:
        """Return whether so many bytes of columns may stay in memory beside so many candidates."""
        return held == 0 or held <= self._left_beside(n_features, n_chunks)

    def _left_beside(self, n_features: int, n_chunks: int) -> int:
        in_rounds = self.chunk_bytes + _CANDIDATE_COST * self.width * n_features
        in_rounds += self.newton_bytes if n_chunks == 1 else 0
        in_passes = self.worker_bytes + gradient_bytes(self.n_kept, 1) * n_features
        return int(_HELD_SHARE * self.free_bytes) - max(in_rounds, in_passes)

    def most_rare(self, n_features: int, held: int) -> int:
        """Return the bytes for samples of rare features, beside a chunk, candidates and what is held."""
        taken = held + self.chunk_bytes + _CANDIDATE_COST * self.width * n_features
        return max(0, int(_RARE_SHARE * (self.free_bytes - taken)))

    def bytes_for_rare(self, n_features: int, held: int, n_pieces: int) -> int:
        """Return the same, or what stochastic steps leave: a chunk, of so many pieces, has no scores."""
        if not self.goes_by_rows(n_features):
            return self.most_rare(n_features, held)
        taken = held + self.row_bytes + (8 * n_pieces + _BY_ROWS_COST * self.width) * n_features
        return max(0, int(_RARE_SHARE * (self.free_bytes - taken)))

    def n_chunks(self, nnz: int, n_features: int) -> int:
        """Return the number of chunks for candidates of so many entries."""
        free = self.chunk_bytes - self.feature_bytes * n_features
        return max(1, -(-int(_CHUNK_MARGIN * (nnz * self.entry_bytes + self.fixed_bytes)) // max(free, 1)))


def gradient_bytes(n_kept: int, n_workers: int) -> int:
    """Return the bytes of a gradient that a pass keeps: sums, those of every worker, and measures."""
    return 8 * ((n_kept + 1) * (n_workers + 1) + _MEASURES)


class Reading(NamedTuple):
    """One more reading of the columns of some features after a pass.

    Attributes
    ----------
    free_bytes : int
        What is left for the following.
    block_bytes : int
        Of columns decoded at once.
    feature_bytes, entry_bytes : int
        Of the gradient of a feature, and of an entry that it has in one shard, if these are in memory for all
        parts of the shard together.
    """

    free_bytes: int
    block_bytes: int
    feature_bytes: int
    entry_bytes: int

    @property
    def most_features(self) -> int:
        """Features at most, had they no entries."""
        return self.free_bytes // self.feature_bytes

    def fitting(self, nnz: NDArray[np.floating]) -> int:
        """Return how many features fit, the first ones, with so many entries in a shard."""
        needed = np.cumsum(self.feature_bytes + self.entry_bytes * nnz)
        return max(int(np.searchsorted(needed, self.free_bytes, side="right")), min(len(nnz), _FEWEST_READ))

    def held_bytes(self, n_features: int) -> int:
        """Return the bytes of columns that are in memory beside the gradients of so many features."""
        return max(0, self.free_bytes - self.feature_bytes * n_features)


class Cut(NamedTuple):
    """Parts of a shard that passes go through, and the bytes of its columns that are held for all of them."""

    parts: int
    held_bytes: int = 0


def plan_chunks(limit: int, n_workers: int, shard_rows: int, size: Size) -> ChunkPlan:
    """Divide the memory limit for chunks of samples.

    Parameters
    ----------
    limit : int
        Bytes of the whole run.
    n_workers : int
        Workers wanted.
    shard_rows : int
        Rows of the largest shard.
    size : Size

    Raises
    ------
    MemoryLimitError
        If the limit is too small, with every item.
    """
    score = 8 if size.tol < SINGLE_PRECISION_TOL else 4
    row = score * size.width + 4 * size.most_labels + 24
    in_chunk = row + bytes_of_centred(size.n_frequent) + score * size.n_beside
    entry_bytes = size.entry_bytes
    small = size.nnz <= 1 << 20
    items = [
        ("workspace", 1 << 20 if small else WORKSPACE),
        ("share of the allocator", 0 if small else _KERNELS + int(_FRAGMENTS * limit)),
        ("sums per class", Margins.memory(size.n_classes, size.width)),
        ("entries and norms per feature", _FEATURE_BYTES * size.n_features),
        ("column scale", 4 * size.n_features if size.column_scaled else 0),
        ("sample weights", 8 * size.n_samples if size.weighted else 0),
    ]
    free = Plan.of(limit, items).free
    wanted = max(size.n_certain, _FEWEST_CANDIDATES)

    def worker_bytes(cut: Cut, block_bytes: int) -> int:
        larger = 1.3 if cut.parts == 1 else 1.5  # parts are drawn, some larger than others
        scores = int(larger * shard_rows / cut.parts * row)
        # entries of a part are chosen block by block
        more = cut.held_bytes + (block_bytes if cut.parts > 1 else 0) + (1 << 18 if small else 2 << 20)
        return 2 * block_bytes + scores + more + 4 * size.n_features

    n_kept = size.n_kept or size.n_classes
    most_candidates = int(_CANDIDATE_SHARE * free) // (_CANDIDATE_COST * size.width)
    vectors = wanted * gradient_bytes(n_kept, 1)
    # if not all features can be candidates: gradients of others, and what writes their columns
    others = max(0, min(most_candidates, size.n_features - most_candidates)) * gradient_bytes(n_kept, 1)
    most = [free - vectors - others // 2 - (_WRITER_BYTES if others else 0), free - vectors]
    if size.n_classes > _MANY_CLASSES:
        most = [int(share * free) for share in _PART_SHARES]
    shard = size.largest_shard * entry_bytes + 8 * size.n_features  # entries, and offsets of columns
    blocks = [max(shard_rows * entry_bytes, min(_LARGEST_BLOCK, free // part)) for part in _BLOCK_PARTS]
    cuts = [(_cut(partial(worker_bytes, block_bytes=own), most, shard, own), own) for own in blocks]
    # whole shards in smaller blocks before parts of them in larger ones, which leave less for candidates
    fitting = (own for own in cuts if worker_bytes(Cut(1), own[1]) <= most[0])
    cut, block_bytes = next(fitting, next((own for own in reversed(cuts) if own[0].parts == 1), cuts[0]))
    worker = worker_bytes(cut, block_bytes)
    # a pass holds no chunk, and rounds no shard
    entries = (size.nnz * entry_bytes * _FEWEST_SAMPLES) // max(size.n_samples, 1)
    chunk_bytes = max(entries + _FEWEST_SAMPLES * in_chunk, _SMALLEST_CHUNK)
    in_rounds = int(wanted * _CANDIDATE_COST * size.width / _CANDIDATE_SHARE)
    needed = max(worker + vectors, in_rounds, int(chunk_bytes / _CHUNK_SHARE))
    plan = ChunkPlan(
        free_bytes=free,
        width=size.width,
        n_kept=n_kept,
        most_candidates=most_candidates,
        chunk_bytes=int(_CHUNK_SHARE * free),
        newton_bytes=int(0.2 * free),
        fixed_bytes=size.n_samples * in_chunk,
        entry_bytes=entry_bytes,
        feature_bytes=8 * _CHUNK_PIECES * cut.parts,
        most_workers=n_workers,
        worker_bytes=worker,
        block_bytes=block_bytes,
        block_columns=max(1, (4 << 20) // (8 * size.width)),
        shard_parts=cut.parts,
        held_shard_bytes=cut.held_bytes,
        longest_column=shard_rows * entry_bytes,
    )
    # offsets of columns take half of a chunk at most: the rest is for entries
    offsets = plan.chunk_bytes // (2 * plan.feature_bytes)
    in_pass = _IN_PASS * size.width + gradient_bytes(n_kept, 1) // _CANDIDATES_PER_GRADIENT
    most_candidates = min(plan.most_candidates, (free - worker) // in_pass, offsets)
    if most_candidates < wanted or int(_CHUNK_SHARE * free) < chunk_bytes:
        least = Plan.of(limit, [*items, ("a shard, a chunk, vectors of weights", max(needed, free + 1))])
        least.check("training the sparse learner")
    return replace(plan, most_candidates=most_candidates)


def _cut(worker_bytes: Callable[[Cut], int], most: Sequence[int], shard: int, block: int) -> Cut:
    """Return the fewest parts of shards with which a worker takes at most so many bytes, tried in turn.

    At best all columns of a shard, of `shard` bytes, are held for all its parts; else it is a block of them,
    and the scores of the parts are computed anew for every block. If nothing comes to what a worker may take,
    it is what takes the least.
    """
    whole = [Cut(1), *(Cut(n, shard) for n in _SHARD_PARTS)]
    blocks = [Cut(n, block) for n in _SHARD_PARTS]
    wanted = [(cut, limit) for cuts in (whole, blocks) for limit in most for cut in cuts]
    fitting = (cut for cut, limit in wanted if worker_bytes(cut) <= limit)
    return next(fitting, min(whole + blocks, key=worker_bytes))
