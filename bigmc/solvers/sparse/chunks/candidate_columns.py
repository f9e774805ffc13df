"""Which features may get weights in rounds over chunks, and their compressed columns."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.solvers.sparse.chunks.certificate import Certified, Further
from bigmc.solvers.sparse.chunks.conditions import Rereading
from bigmc.solvers.sparse.chunks.damping import RoundKind
from bigmc.solvers.sparse.chunks.evaluation import dual_norms, evaluate_by_columns
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.rare_features import RareFeatures, rare_features
from bigmc.solvers.sparse.chunks.state import ChunkState, joined
from bigmc.solvers.sparse.chunks.stochastic_rounds import Point, evaluate_by_rows
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.feature_sets import most_wanted, union
from bigmc.solvers.sparse.scratch.row_scales import Norms, RowNorms, RowsOf
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated

#: Features are candidates whose gradient is above this share of alpha, or that have weights.
_CANDIDATE = 0.6
#: Share of the candidates of sweeps that have weights after a pass with which there may be more of them, for
#: stochastic steps.
_CROWDED = 0.75
#: Layers of the columns; one more, and they are written anew without those no longer wanted.
_MOST_LAYERS = 8
#: The same for an estimate of the gradient by some of the shards, which its noise makes larger.
_LIKELY = 0.7
#: Share of the candidates that memory has space for which are chosen first.
_FIRST_SHARE = 0.5
#: Violation, in units of the tolerance and of alpha, that features which are no candidates may have.
_MISSING = 0.5
#: Violation of such features together, in units of that of those just written, up to which they can wait.
_CAN_WAIT = 0.5
#: Share of all entries that may be read for those that could wait, so that the next pass is not for them.
_AT_ONCE = 0.25
#: Bytes of a compressed entry, about.
_COMPRESSED = 1.5
#: Readings of the columns, and passes, that are still to come, about.
_READINGS, _PASSES = 6, 2
#: Groups of rare features solved for before a pass, at most; all but one together take this share of it.
_RARE_GROUPS, _RARE_READS = 3, 0.3


class More(NamedTuple):
    """Features and entries for which space is left, in units of those there are."""

    features: float
    entries: float


#: Where candidates are written, where the first are cut, and where only those of use are kept.
_AT_FIRST, _CUT, _AFTER = More(1.0, 1.1), More(2.0, 1.1), More(2.0, 1.25)


class CandidateColumns:
    """The candidates of a run, in layers written one after another; `ChunkState.layers` names them.

    Parameters
    ----------
    task : ChunkTask
    plan : ChunkPlan
        How many candidates there may be, and how much of their columns may stay in memory.
    """

    def __init__(self, task: ChunkTask, plan: ChunkPlan) -> None:
        self._task, self._plan = task, plan
        self._used: NDArray[np.bool_] = task.dataset.column_nnz() > 0
        self._spill: Spill | None = None

    @property
    def spill(self) -> Spill:
        """The columns, once they are written."""
        assert self._spill is not None
        return self._spill

    def close(self) -> None:
        """Give the scratch file back, if there is one."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def complete(self, state: ChunkState) -> bool:
        """Return whether all features that occur are candidates of sweeps: passes need no shards then."""
        everything = np.count_nonzero(self._used[joined(state)]) == np.count_nonzero(self._used)
        return everything and not self.by_rows(state)

    def by_rows(self, state: ChunkState) -> bool:
        """Return whether rounds take stochastic steps (`bigmc.solvers.sparse.chunks.stochastic_rounds`)."""
        return self._plan.goes_by_rows(sum(map(len, state.layers)))

    def round_kind(self, state: ChunkState) -> RoundKind:
        """Return what rounds do."""
        return RoundKind.STOCHASTIC if self.by_rows(state) else RoundKind.SWEEPS

    def evaluate(self, point: Point, rare: RareFeatures | None = None) -> Evaluated:
        """Return objective and gradient of the candidates at some weights; collect rows of rare features."""
        spill = self.spill
        if self._plan.goes_by_rows(len(spill.features)):
            return evaluate_by_rows(self._task, spill, point, self._plan.row_bytes, rare)
        return evaluate_by_columns(self._task, spill, *point, rare)

    def evaluate_trial(self, point: Point, rare: RareFeatures | None = None) -> Evaluated | None:
        """Evaluate weights of a round; None where steps were so long that losses are infinite."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self.evaluate(point, rare)
        except DataError:
            return None

    def choose(self, state: ChunkState, features: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the layers wanted: those there are, and what is new, if all that fits.

        Parameters
        ----------
        state : ChunkState
            With norms of the gradients, or estimates of them.
        features : int64 array of shape (n_known,)
            To choose from, in increasing order.
        """
        most = first = self._plan.most_candidates
        if len(state.coef.features) > (_CROWDED if state.history else 1.0) * most:
            most = first = max(most, self._plan.most_by_rows)
        elif not state.history:
            first = self._most_first
        assert state.norms is not None
        norms = state.norms[features].astype(np.float64)
        rank = np.where(state.coef.slots(features) >= 0, np.inf, norms)
        wanted = rank > _CANDIDATE * self._task.alpha
        if np.count_nonzero(wanted) > most:
            wanted[np.lexsort((-norms, -rank))[first:]] = False
        candidates = features[wanted]
        new = np.setdiff1d(candidates, joined(state))
        total = sum(map(len, state.layers)) + len(new)
        # stochastic steps go along one layer, whose features increase
        if total > most or len(state.layers) >= _MOST_LAYERS or self._plan.goes_by_rows(total):
            return [candidates]
        return [*state.layers, new] if len(new) else state.layers

    def further(self, state: ChunkState) -> Further:
        """Return candidates that a pass is to add, or what names them by some of its shards, if it may.

        Weights move little after the first pass, and its norms are better than an estimate.
        """
        if not self._extensible(state):
            return None
        if state.history and state.norms is not None:
            return self.likely(state, state.norms)
        return partial(self.likely, state)

    def _extensible(self, state: ChunkState) -> bool:
        """Return whether a pass may write a further layer."""
        if self._spill is None or not 0 < len(state.layers) < _MOST_LAYERS or self.by_rows(state):
            return False
        return self._plan.writer_bytes(*self._spill.size) > 0

    def likely(self, state: ChunkState, norms: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return further candidates, increasing: those of the largest norms, or estimates, that fit."""
        rank, before = norms.copy(), joined(state)
        rank[before] = 0.0
        features = np.flatnonzero(rank > np.float32(_LIKELY * self._task.alpha))
        features = features[np.argsort(-rank[features], kind="stable")]
        nnz = np.cumsum(self._entries(features)) + self._entries(before).sum()
        most = bisect.bisect_left(
            range(len(features)), True, key=lambda k: not self._fits(len(before) + k + 1, int(nnz[k]))
        )
        return np.sort(features[:most])

    def _fits(self, n_features: int, nnz: int) -> bool:
        """Return whether so many candidates and entries fit beside what is held, and into the chunks."""
        spill, plan = self.spill, self._plan
        in_chunks = n_features <= plan.most_candidates and plan.n_chunks(nnz, n_features) <= spill.n_chunks
        return in_chunks and plan.holds(spill.held_bytes, n_features, spill.n_chunks)

    def rereading(self, state: ChunkState) -> Rereading:
        """Return which columns a pass reads once more: with many candidates more of them are to be found."""
        if self.by_rows(state):
            return Rereading.ALL_IN_DOUBT
        # at first it is not known what has weights
        return Rereading.DECISIVE if state.history else Rereading.NONE

    def worth_keeping(self, state: ChunkState) -> NDArray[np.int64] | None:
        """Return the candidates that the columns should be written anew for, or None if that does not pay.

        Many of the first are of no use. Without them more of the others, or all, stay in memory, chunks are
        fewer, and the next pass has places for those that it is to write.
        """
        if self._spill is None or state.anchor is None or not state.layers:
            return None
        features, norms = joined(state), dual_norms(self._task, state.anchor, state.layers)
        kept = np.sort(features[self._useful(state, features, norms)])
        nnz, kept_nnz = int(self._entries(features).sum()), int(self._entries(kept).sum())
        in_memory, in_file = self._spill.column_bytes
        n_chunks, most_held = self._room(kept_nnz, len(kept), _AFTER)
        left = max(0, (in_memory + in_file) * kept_nnz // max(nnz, 1) - most_held)
        if self._plan.goes_by_rows(len(features)) and len(kept) <= _CROWDED * self._plan.most_candidates:
            return kept  # sweeps may go on
        new = self.waiting(state)  # what a pass has no place for is written after it, for one more read
        fit = self._fits(len(features) + len(new), nnz + int(self._entries(new).sum()))
        if len(new) and not fit and 0 < len(kept) < len(features):
            return kept
        if not len(kept) or n_chunks > state.n_chunks:
            return None
        cost = in_file + left
        if self.complete(state):  # passes will need the shards
            cost += _PASSES * max(0, self._task.dataset.decoded_bytes - in_file)
        return kept if _READINGS * (in_file - left) > cost else None

    def _useful(
        self, state: ChunkState, features: NDArray[np.int64], norms: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Return which features have weights, or gradients of such norms that they may get some."""
        return np.asarray((state.coef.slots(features) >= 0) | (norms > _CANDIDATE * self._task.alpha))

    def waiting(self, state: ChunkState) -> NDArray[np.int64]:
        """Return features known to have violated in the last pass, where the next may write their columns."""
        if state.norms is None or not self._extensible(state):
            return np.empty(0, np.int64)
        least = np.float32((1.0 + _MISSING * self._task.tol) * self._task.alpha)
        return np.setdiff1d(state.doubted[state.norms[state.doubted] > least], joined(state))

    def few_waiting(self, state: ChunkState) -> NDArray[np.int64]:
        """Return the features that wait, if they fit and little is read to write their columns."""
        new = self.waiting(state)
        wanted, most_read = np.append(joined(state), new), _AT_ONCE * self._task.dataset.nnz
        few = not len(new) or self.spill.most_decoded(new) <= most_read
        return new if few and self._fits(len(wanted), int(self._entries(wanted).sum())) else new[:0]

    def rare_groups(self, state: ChunkState) -> int:
        """Return how many groups of rare features to solve for: none while candidates are missing."""
        if not state.history or len(self.waiting(state)):
            return 0
        n_reads = _RARE_READS * self._task.dataset.decoded_bytes / max(state.round_bytes, 1)
        return max(1, min(_RARE_GROUPS, int(n_reads)))

    def rare(self, state: ChunkState, solved: NDArray[np.int64]) -> RareFeatures | None:
        """Return what solves for features too rare for chunks, but those `solved`, if there are any."""
        spill = self.spill
        if spill.n_chunks == 1 or not state.layers or state.anchor is None:
            return None
        features = joined(state)
        n_bytes = self._plan.bytes_for_rare(len(features), spill.held_bytes, spill.most_pieces)
        nnz = np.where(np.isin(features, solved), n_bytes, self._entries(features))
        chosen = rare_features(self._task, state.anchor, features, nnz, n_bytes)
        return RareFeatures(self._task, chosen) if len(chosen) else None

    def known_after(self, certified: Certified) -> NDArray[np.int64]:
        """Return the features whose norms a pass says, increasing, but for candidates.

        Where norms have signs, so are those of all features: it is those large enough to matter.
        """
        if certified.sums.signed:
            return np.flatnonzero(certified.sums.norms > np.float32(_CANDIDATE * self._task.alpha))
        return union(certified.chosen, certified.measured.doubted)

    def with_doubted(self, state: ChunkState, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return these features, and others of the largest bounds above the penalty, as many as fit.

        Most are rare, all samples of which pull the same way: the bounds are close to the gradients.
        """
        assert state.norms is not None
        norms, alpha = state.norms, np.float32(self._task.alpha)
        wanted = (norms[features] > _CANDIDATE * alpha) | (state.coef.slots(features) >= 0)
        n_free = self._plan.most_candidates - int(np.count_nonzero(wanted))

        def ranks() -> NDArray[np.float32]:
            found: NDArray[np.float32] = norms - alpha
            found[features] = -1.0
            return found

        return union(features, most_wanted(ranks, n_free))

    def missing(self, state: ChunkState, features: NDArray[np.int64], certified: Certified) -> bool:
        """Return whether too many of these features violate optimality and are no candidates.

        The next pass may write them on its way, if they fit: they can wait where those that the last one
        wrote, which are among the candidates, violate more. None waits where norms have signs: all are known
        then, and the bound of the next pass would go by them.
        """
        assert state.norms is not None
        excess = np.maximum(state.norms - np.float32((1.0 + _MISSING * self._task.tol) * self._task.alpha), 0)
        before = joined(state)
        outside = np.setdiff1d(features, before)
        outside = outside[excess[outside] > 0.0]
        left, others = float(excess[outside].sum()), 0.0
        if not certified.sums.signed and len(certified.written):
            kept = before[self._useful(state, before, state.norms[before])]  # others make place, if needed
            nnz = int(self._entries(outside).sum() + self._entries(kept).sum())
            if self._extensible(state) and self._fits(len(kept) + len(outside), nnz):
                others = float(excess[certified.written].sum())
        return left > _CAN_WAIT * others

    def known_features(self, state: ChunkState) -> NDArray[np.int64]:
        """Return the features whose gradients the next pass keeps, in increasing order.

        First come those that may be too large, then those small in the last pass though their bounds were
        not: without gradients there are bounds again. Rounds measure those of the candidates.
        """
        return most_wanted(partial(self._ranks, state), self._most_gradients)

    def _ranks(self, state: ChunkState) -> NDArray[np.float32]:
        """Return how much the gradients of all features are wanted, -1 of those that do not occur."""
        last = self._task.dataset.column_nnz() if state.norms is None else state.norms
        ranks = last.astype(np.float32)
        ranks[~self._used] = -1.0
        ranks[state.doubted] = np.maximum(ranks[state.doubted], np.float32(self._task.alpha))
        ranks[joined(state)] = -1.0
        return ranks

    def write(self, state: ChunkState, first_rows: Callable[[], RowsOf], norms: Norms = Norms.EXACT) -> None:
        """Bring the columns up to the layers of the state, which become one where all is written anew.

        Labels and scales of the samples come from what `first_rows` returns, the first time, and later from
        the scratch file. If they are rough, what is written first finds the exact ones.
        """
        old, features = self._spill, joined(state)
        nnz = int(self._entries(features).sum())
        written = old.layers if old is not None else []
        kept = all(layer.features is new for layer, new in zip(written, state.layers, strict=False))
        fewer = old is not None and bool(np.isin(features, old.features).all())
        cut = not written and len(features) == self._most_first
        n_chunks, most_held = self._room(nnz, len(features), _AFTER if fewer else _CUT if cut else _AT_FIRST)
        if old is not None and fewer:
            n_chunks = min(n_chunks, old.n_chunks)  # they have been in so many
        holds = old is None or self._plan.holds(old.held_bytes, len(features), old.n_chunks)
        if old is None or n_chunks > old.n_chunks or not holds or not kept:
            state.layers = [np.sort(features)] if len(features) else []
            state.n_chunks, state.most_held = n_chunks, most_held
            if old is not None and not fewer:
                old.drop_columns()
            self._spill = self._open(state, first_rows() if old is None else old.rows_of_shard)
            if old is not None and fewer and state.layers:
                self._spill.move(old, state.layers[0])
            if old is not None:
                old.close()
        scale = self._task.dataset.column_scale()
        for number in range(len(self.spill.layers), len(state.layers)):
            rough = scale if norms is Norms.ROUGH and number == 0 else None
            exact = [] if rough is None else [RowNorms(rough, self.spill.put_scales)]
            self.spill.add(state.layers[number], exact)

    def _entries(self, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries of some features."""
        return self._task.dataset.column_nnz(features)

    def _room(self, nnz: int, n_features: int, more: More) -> tuple[int, int]:
        """Return the number of chunks, and the bytes held at most, with space for candidates to come."""
        n_chunks = self._plan.n_chunks(int(more.entries * nnz), int(more.features * n_features))
        return n_chunks, self._plan.most_held(int(more.features * n_features), n_chunks)

    def would_be_held(self, state: ChunkState) -> bool:
        """Return whether all candidates have columns, which are likely to stay in memory."""
        features = joined(state)
        assert state.norms is not None
        if np.count_nonzero(state.norms > _CANDIDATE * self._task.alpha) > self._plan.most_candidates:
            return False
        nnz = int(self._entries(features).sum())
        return nnz * _COMPRESSED <= self._room(nnz, len(features), _AT_FIRST)[1]

    def restore(self, state: ChunkState, rows_of: RowsOf) -> None:
        """Write the columns of an interrupted run anew."""
        self._spill = self._open(state, rows_of)
        for layer in state.layers:
            self._spill.add(layer)

    def _open(self, state: ChunkState, rows_of: RowsOf) -> Spill:
        task = self._task
        return Spill(
            task.dataset,
            task.sample_weight,
            state.n_chunks,
            task.seed,
            task.context.scratch,
            rows_of,
            state.most_held,
            self._plan.shard_parts,
            engine=task.engine,
        )

    @property
    def _most_first(self) -> int:
        """First candidates where more are found than there are places: many of them come to nothing."""
        return int(_FIRST_SHARE * self._plan.most_candidates)

    @property
    def _most_gradients(self) -> int:
        size = self._spill.size if self._spill is not None else (0, 0)
        return self._plan.most_gradients(self._plan.beside_workers(*size))
