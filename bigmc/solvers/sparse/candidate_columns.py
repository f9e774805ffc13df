"""Which features may get weights in rounds over chunks, and their compressed columns."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunk_plan import ChunkPlan
from bigmc.solvers.sparse.chunk_task import ChunkTask
from bigmc.solvers.sparse.row_scales import RowNorms, RowsOf
from bigmc.solvers.sparse.spill import Spill
from bigmc.solvers.sparse.state import State

#: Features are candidates whose gradient is above this share of alpha, or that have weights.
_CANDIDATE = 0.6
#: Layers of the columns; one more, and they are written anew without those no longer wanted.
_MOST_LAYERS = 8
#: The same for an estimate of the gradient by some of the shards, which its noise makes larger.
_LIKELY = 0.7
#: Share of the candidates that memory has space for which are chosen first.
_FIRST_SHARE = 0.75
#: Entries of candidates to come, for which chunks leave space.
_MORE_ENTRIES = 1.1
#: Violation, in units of the tolerance and of alpha, that features which are no candidates may have.
_MISSING = 0.5
#: Features of the layers keep their gradients in every pass while they are at most this share of all that do.
_KEPT = 0.7


class CandidateColumns:
    """The candidates of a run, in layers written one after another; `State.layers` names them.

    Parameters
    ----------
    task : ChunkTask
    plan : ChunkPlan
        How many candidates there may be, and how much of their columns may stay in memory.

    Attributes
    ----------
    column_nnz : int64 array of shape (n_features,)
        Entries of every feature.
    """

    def __init__(self, task: ChunkTask, plan: ChunkPlan) -> None:
        self._task, self._plan = task, plan
        self.column_nnz = task.dataset.column_nnz()
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

    def choose(
        self, state: State, features: NDArray[np.int64], norms: NDArray[np.float64]
    ) -> list[NDArray[np.int64]]:
        """Return the layers wanted: those there are, and what is new, if all that fits.

        Parameters
        ----------
        state : State
        features : int64 array of shape (n_known,)
            In increasing order.
        norms : float64 array of shape (n_known,)
            Of their gradients of a sample, in units of the dual norm of the penalty.

        Returns
        -------
        list of int64 arrays
        """
        most = self._plan.most_candidates
        rank = np.where(state.coef.slots(features) >= 0, np.inf, norms)
        wanted = rank > _CANDIDATE * self._task.alpha
        if np.count_nonzero(wanted) > most:
            # at weights of zero: many of them come to nothing, and others come later
            kept = most if state.history else int(_FIRST_SHARE * most)
            wanted[np.argsort(-rank, kind="stable")[kept:]] = False
        candidates = features[wanted]
        new = np.setdiff1d(candidates, _joined(state))
        full = sum(map(len, state.layers)) + len(new) > most
        if full or len(state.layers) >= _MOST_LAYERS or not self._keeps_layers(state):
            return [candidates]
        return [*state.layers, new] if len(new) else state.layers

    def extensible(self, state: State) -> bool:
        """Return whether a pass may write a further layer."""
        if self._spill is None or not 0 < len(state.layers) < _MOST_LAYERS:
            return False
        return self._keeps_layers(state) and self._plan.writer_bytes(*self._spill.size) > 0

    def likely(self, state: State, norms: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return further candidates, increasing, by estimates of the norms of all gradients.

        What the last pass found counts too: estimates of rare features are rough. Those with the largest
        gradients come first, as many as there is memory for.
        """
        rank = norms.copy()
        if state.history and state.norms is not None:
            np.maximum(rank, state.norms, out=rank)
        joined = _joined(state)
        rank[joined] = 0.0
        features = np.flatnonzero(rank > np.float32(_LIKELY * self._task.alpha))
        features = features[np.argsort(-rank[features], kind="stable")]
        nnz = np.cumsum(self.column_nnz[features]) + self.column_nnz[joined].sum()
        most = bisect.bisect_left(
            range(len(features)), True, key=lambda k: not self._fits(len(joined) + k + 1, int(nnz[k]))
        )
        return np.sort(features[:most])

    def _fits(self, n_features: int, nnz: int) -> bool:
        """Return whether so many candidates and entries fit beside what is held, and into the chunks."""
        spill, plan = self.spill, self._plan
        in_chunks = n_features <= plan.most_candidates and plan.n_chunks(nnz, n_features) <= spill.n_chunks
        return in_chunks and plan.holds(spill.held_bytes, n_features, spill.n_chunks)

    def missing(self, state: State, norms: NDArray[np.float32]) -> bool:
        """Return whether features that are no candidates violate the conditions of optimality."""
        others = norms > np.float32((1.0 + _MISSING * self._task.tol) * self._task.alpha)
        others[_joined(state)] = False
        return bool(others.any())

    def known_features(self, state: State) -> NDArray[np.int64]:
        """Return the features whose gradients the next pass keeps, in increasing order."""
        last = self.column_nnz if state.norms is None else state.norms
        wanted = last.astype(np.float32)  # one number a feature at a time: there are many
        wanted[self.column_nnz == 0] = -1.0
        for layer in state.layers if self._keeps_layers(state) else []:
            wanted[layer] = np.inf
        wanted[state.coef.features] = np.inf
        most = min(self._most_gradients, int(np.count_nonzero(wanted >= 0)))
        np.negative(wanted, out=wanted)
        return np.sort(np.argpartition(wanted, most - 1)[:most]) if most else np.empty(0, np.int64)

    def write(self, state: State, first_rows: Callable[[], RowsOf], rough: bool = False) -> None:
        """Bring the columns up to the layers of the state, which become one where all is written anew.

        Labels and scales of the samples come from what `first_rows` returns, the first time, and later from
        the scratch file. If they are rough, what is written first finds the exact ones.
        """
        old, features = self._spill, _joined(state)
        nnz = int(_MORE_ENTRIES * self.column_nnz[features].sum())
        n_chunks = self._plan.n_chunks(nnz, len(features))
        written = old.layers if old is not None else []
        kept = all(layer.features is new for layer, new in zip(written, state.layers, strict=False))
        most_held = self._plan.most_held(len(features), n_chunks)
        holds = old is None or self._plan.holds(old.held_bytes, len(features), old.n_chunks)
        if old is None or n_chunks > old.n_chunks or not holds or not kept:
            state.layers = [np.sort(features)] if len(features) else []
            state.n_chunks, state.most_held = n_chunks, most_held
            if old is not None:
                old.drop_columns()
            self._spill = self._open(state, first_rows() if old is None else old.rows_of_shard)
            if old is not None:
                old.close()
        scale = self._task.dataset.column_scale()
        for number in range(len(self.spill.layers), len(state.layers)):
            exact = (
                [RowNorms(scale, self.spill.put_scales)] if rough and scale is not None and not number else []
            )
            self.spill.add(state.layers[number], exact)

    def restore(self, state: State, rows_of: RowsOf) -> None:
        """Write the columns of an interrupted run anew."""
        self._spill = self._open(state, rows_of)
        for layer in state.layers:
            self._spill.add(layer)

    def _open(self, state: State, rows_of: RowsOf) -> Spill:
        task = self._task
        return Spill(
            task.dataset,
            task.sample_weight,
            state.n_chunks,
            task.seed,
            task.scratch,
            rows_of,
            state.most_held,
            self._plan.shard_parts,
        )

    def _keeps_layers(self, state: State) -> bool:
        """Return whether the layers leave other features a chance of a gradient."""
        return sum(map(len, state.layers)) <= _KEPT * self._most_gradients

    @property
    def _most_gradients(self) -> int:
        held, n_candidates = self._spill.size if self._spill is not None else (0, 0)
        return self._plan.most_gradients(held + self._plan.writer_bytes(held, n_candidates))


def _joined(state: State) -> NDArray[np.int64]:
    """Return the features of all layers, layer by layer."""
    return np.concatenate([np.empty(0, np.int64), *state.layers])
