"""How a run over chunks of samples divides its memory limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bigmc.budget import Plan
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.memory_plan import SINGLE_PRECISION_TOL, WORKSPACE, Size

#: Shares of what is left: for gradients at least, beside more than one worker of a pass; for a chunk, and for
#: the vectors of the candidates beside it.
_GRADIENT_SHARE, _CHUNK_SHARE, _CANDIDATE_SHARE = 0.3, 0.4, 0.45
#: Chunks are drawn, some larger than others; shards that a chunk has samples of.
_CHUNK_MARGIN, _CHUNK_PIECES = 1.1, 17
#: Candidates, samples of a chunk and bytes of one with fewer of which rounds over chunks come to nothing.
_FEWEST_CANDIDATES, _FEWEST_SAMPLES, _SMALLEST_CHUNK = 16, 64, 1 << 19
#: Most bytes of a shard decoded at once.
_LARGEST_BLOCK = 8 << 20
#: What the allocator keeps between chunks of changing size, in shares of the limit.
_FRAGMENTS = 0.08
#: Compiled kernels, which no dataset makes larger: measured with 2,000 rows of 5,000 numbers at 64 MB.
_KERNELS = 4 << 20
#: Parts that shards are cut into whose scores do not fit. With more classes than this a worker of a pass
#: takes one of these shares of what is left at most, so that there is memory for gradients.
_SHARD_PARTS, _MANY_CLASSES, _PART_SHARES = (2, 4, 8, 16, 32, 64), 512, (0.33, 0.6)


@dataclass(frozen=True)
class ChunkPlan:
    """How a run goes through chunks of the samples, see `bigmc.solvers.sparse.chunk_rounds`.

    Attributes
    ----------
    most_gradients : int
        Features whose gradients a pass over everything keeps, at most.
    most_candidates : int
        Features with a place in the scratch file, at most.
    chunk_bytes, newton_bytes : int
        Most bytes of a chunk, its scores included; and of Newton steps where there is one only.
    fixed_bytes : int
        Of all samples of a chunk, were there one only, without their entries.
    entry_bytes, feature_bytes : int
        Of an entry, and of a candidate's offsets in a chunk.
    n_workers : int
        Most workers of a pass.
    block_bytes, block_columns : int
        Most bytes and columns of a shard a worker decodes at once.
    shard_parts : int
        Parts that a pass cuts each shard into, because the scores of all its rows are too many.
    held_shard_bytes : int
        Decoded columns of such a shard that stay in memory for all its parts, at most.
    """

    most_gradients: int
    most_candidates: int
    chunk_bytes: int
    newton_bytes: int
    fixed_bytes: int
    entry_bytes: int
    feature_bytes: int
    n_workers: int
    block_bytes: int
    block_columns: int
    shard_parts: int = 1
    held_shard_bytes: int = 0

    def n_chunks(self, nnz: int, n_features: int) -> int:
        """Return the number of chunks for candidates of so many entries."""
        room = self.chunk_bytes - self.feature_bytes * n_features
        return max(1, -(-int(_CHUNK_MARGIN * (nnz * self.entry_bytes + self.fixed_bytes)) // max(room, 1)))


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
        If the limit is too small for chunks, with every item.
    """
    score = 8 if size.tol < SINGLE_PRECISION_TOL else 4
    row = score * size.width + 4 * size.most_labels + 24
    entry_bytes = 2 + size.itemsize
    small = size.nnz <= 1 << 20
    items = [
        ("workspace", 1 << 20 if small else WORKSPACE),
        ("share of the allocator", 0 if small else _KERNELS + int(_FRAGMENTS * limit)),
        ("sums per class", Margins.memory(size.n_classes, size.width)),
        ("entries and norms per feature", 20 * size.n_features),
        ("column scale", 4 * size.n_features if size.column_scaled else 0),
        ("sample weights", 8 * size.n_samples if size.weighted else 0),
    ]
    free = Plan.of(limit, items).free
    block_bytes = max(shard_rows * entry_bytes, min(_LARGEST_BLOCK, free // 16))
    wanted = max(size.n_certain, _FEWEST_CANDIDATES)

    def worker_bytes(cut: Cut) -> int:
        larger = 1.3 if cut.parts == 1 else 1.5  # parts are drawn, some larger than others
        scores = int(larger * shard_rows / cut.parts * row)
        # what is held has offsets of its columns; entries of a part are chosen block by block
        more = (block_bytes if cut.parts > 1 else 0) + (8 * size.n_features if cut.held_bytes else 0)
        more += cut.held_bytes + (1 << 18 if small else 2 << 20)
        return 2 * block_bytes + scores + more + 4 * size.n_features

    vectors = wanted * 8 * size.width * 3
    shares = _PART_SHARES if size.n_classes > _MANY_CLASSES else (1.0 - vectors / max(free, 1),)
    most = [int(share * free) for share in shares]
    cut = _cut(worker_bytes, most, size.largest_shard * entry_bytes)
    worker = worker_bytes(cut)
    # a pass holds no chunk, and rounds no shard
    n_workers = max(1, min(n_workers, int((1.0 - _GRADIENT_SHARE) * free) // worker))
    most_gradients = max(free - n_workers * worker, 0) // (8 * size.width * (n_workers + 2))
    most_candidates = min(most_gradients, int(_CANDIDATE_SHARE * free) // (56 * size.width))
    samples = (size.nnz * entry_bytes * _FEWEST_SAMPLES) // max(size.n_samples, 1) + _FEWEST_SAMPLES * row
    chunk_bytes = max(samples, _SMALLEST_CHUNK)
    needed = max(
        worker + vectors,
        int(wanted * 56 * size.width / _CANDIDATE_SHARE),
        int(chunk_bytes / _CHUNK_SHARE),
    )
    if most_candidates < wanted or int(_CHUNK_SHARE * free) < chunk_bytes:
        least = Plan.of(limit, [*items, ("a shard, a chunk, vectors of weights", max(needed, free + 1))])
        least.check("training the sparse learner")
    return ChunkPlan(
        most_gradients=most_gradients,
        most_candidates=most_candidates,
        chunk_bytes=int(_CHUNK_SHARE * free),
        newton_bytes=int(0.2 * free),
        fixed_bytes=size.n_samples * row,
        entry_bytes=entry_bytes,
        feature_bytes=8 * _CHUNK_PIECES * cut.parts,
        n_workers=n_workers,
        block_bytes=block_bytes,
        block_columns=max(1, (4 << 20) // (8 * size.width)),
        shard_parts=cut.parts,
        held_shard_bytes=cut.held_bytes,
    )


def _cut(worker_bytes: Callable[[Cut], int], most: Sequence[int], held: int) -> Cut:
    """Return the fewest parts of shards with which a worker takes at most so many bytes, tried in turn.

    Reading shards once comes first: their columns are held for all parts if they can be. If nothing comes to
    what a worker may take, it is what takes the least.
    """
    once = [Cut(1), *(Cut(n, held) for n in _SHARD_PARTS)]
    again = [Cut(n) for n in _SHARD_PARTS]
    wanted = [(cut, limit) for cuts in (once, again) for limit in most for cut in cuts]
    fitting = (cut for cut, limit in wanted if worker_bytes(cut) <= limit)
    return next(fitting, min(once + again, key=worker_bytes))
