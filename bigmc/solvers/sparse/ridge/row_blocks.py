"""Ridge problems larger than memory: dual coordinates, one block of samples after the other.

Yu, Hsieh, Chang and Lin, "Large linear classification when data cannot fit in memory", KDD 2010, algorithm 1:
the dual variables of the samples in a block are improved a few times while it is in memory, and the weights,
which stay there, are changed with them. Dual variables that do not fit into memory lie in a scratch file. A
read of everything so does the work of several; a handful of them reach a gap of some per cent. As in memory
(`bigmc.solvers.sparse.ridge.dual_descent`) the loss is the squared hinge of each class against the rest, and
the intercept is shrunk like the weights; the bound is of the problem in which it is not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import give_back_free_pages
from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.progress import Progress
from bigmc.solvers import loop
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Figures, Packed
from bigmc.solvers.sparse.coefficients import Coefficients, slabs
from bigmc.solvers.sparse.ridge.block_plan import SCORED_AT_ONCE, BlockPlan
from bigmc.solvers.sparse.ridge.block_reader import BlockReader, RowBlock
from bigmc.solvers.sparse.ridge.duals import (
    Excess,
    Weighed,
    add_up,
    diagonal_of,
    dual_value,
    excess_of,
    half_norm,
    hinge_losses,
    samples_in_pieces,
    scores_of,
    visit_once,
)
from bigmc.solvers.sparse.run import SparseRun, Trained
from bigmc.solvers.sparse.state import State
from bigmc.store.files.file_array import file_array, give_back_pages

#: Times through a block while it is in memory, and through one of this number of classes or more, where a
#: time through a block costs more than reading it. On 1.3 million short texts of twelve classes a gap of .05
#: took 12 CPU seconds and five reads with three of them, 11 and six with two, 14 and four with five. On 3.6
#: million words of 18 classes models as good took 87, 74 and 90 seconds with three, two and one, on 1.9
#: million texts of 46 classes 48, 40 and 29, with as many reads.
_SWEEPS, _MANY_CLASSES, _SWEEPS_OF_MANY = 2, 32, 1
#: Shares of the tolerance that the estimated gap reaches before a read is spent on a proof, one after the
#: other; but no less than what single precision is good for.
_SHARES, _LEAST = (0.7, 0.35, 0.1), 1e-4
#: A proof whose gap is more than this share of the one before is the last: what is left is due to the
#: intercept, or to single precision.
_GAINED = 0.7
_UNKNOWN = Certificate(0.0, math.inf, 1.0)


def is_unfinished(saved: Packed) -> bool:
    """Return whether a saved state is that of a descent through blocks."""
    return bool(saved.meta.get("row_blocks"))


def descend_blocks(run: SparseRun, plan: BlockPlan, saved: Packed | None) -> Trained:
    """Train through blocks; where the gap is not below the tolerance in the end, other ways go on from there.

    It resumes from what such a descent `saved`, if given.
    """
    descent = RowBlockDescent(run, plan)
    try:
        outcome = loop.run(descent, run.context, run.fingerprint, saved)
        return Trained(descent.state(), outcome.certificate, descent.column_scale)
    finally:
        descent.close()


class _Block(NamedTuple):
    """Samples of blocks in memory: places of their dual variables, those with weight, weights, entries."""

    places: slice
    visited: NDArray[np.int64]
    weights: NDArray[np.float64]
    samples: Weighed


class RowBlockDescent:
    """A `bigmc.solvers.loop.Method`: an epoch through all blocks improves, a read of all of them certifies.

    Parameters
    ----------
    run : SparseRun
        With a ridge alone.

    Attributes
    ----------
    column_scale : float32 array of shape (n_features,) or None
        Scale of the columns that the weights belong to.
    """

    def __init__(self, run: SparseRun, plan: BlockPlan) -> None:
        self._run, self._plan = run, plan
        self._dataset, self._engine = run.task.dataset, run.context.local_engine
        constant, folder = run.descent.fit_intercept, run.context.scratch
        self._reader = BlockReader(
            self._dataset, plan.features, self._engine, constant, plan.blocks, folder, plan.turned_bytes
        )
        self.column_scale = self._reader.column_scale
        self._ridge = run.task.objective.ridge
        self._n_sweeps = _SWEEPS_OF_MANY if self._dataset.n_classes >= _MANY_CLASSES else _SWEEPS
        starts = np.cumsum([0, *(sum(block.n_samples for block in group) for group in plan.groups)]).tolist()
        # those of samples that are in memory together lie together, whatever the samples do
        self._places = {group[0].start: first for group, first in zip(plan.groups, starts, strict=False)}
        self._forget()

    def _forget(self) -> None:
        n_classes, n_samples = self._dataset.n_classes, self._dataset.n_samples
        self._duals = np.zeros((0, n_classes), np.float32)  # before others take their place
        if self._plan.duals_in_file:
            self._duals = file_array((n_samples, n_classes), np.float32, self._run.context.scratch)
        else:
            self._duals = np.zeros((n_samples, n_classes), np.float32)
        self._coef = np.zeros((len(self._plan.features) + 1, padded_classes(n_classes)), np.float32)
        self._history: list[Figures] = []
        self._n_epochs, self._n_proofs, self._bytes_read = 0, 0, 0
        self._dual, self._gap, self._epoch_seconds = 0.0, 1.0, 0.0

    @property
    def _n_groups(self) -> int:
        """Groups of mixed samples; 0 where dual variables are in the order of the samples."""
        return max(len(self._plan.cuts) - 1, 0)

    @property
    def _n_passes(self) -> int:
        """Reads of all blocks, whatever a read of dual variables or of shards in parts adds to the bytes."""
        return self._n_epochs + self._n_proofs

    def _ends_after(self, n_reads: int) -> bool:
        """Return whether the number of passes is reached before so many further reads of all blocks."""
        return self._n_passes + n_reads > self._run.limits.max_passes

    @property
    def _has_time(self) -> bool:
        """Whether another epoch, and a proof after it, would end in time; a proof takes no longer."""
        return self._run.context.has_time(2.0 * self._epoch_seconds)

    def _count(self, times: int) -> None:
        """Count what was read since the last time, when dual variables were read or written so many times."""
        n_bytes = self._reader.n_bytes
        n_bytes += times * self._duals.nbytes if self._plan.duals_in_file else 0
        self._reader.n_bytes, self._reader.resumed = 0, False
        self._bytes_read += n_bytes

    def close(self) -> None:
        """Give scratch files back."""
        self._reader.close()

    @property
    def history(self) -> list[Figures]:
        """Figures of every certificate."""
        return self._history

    def start(self) -> None:
        """Begin with weights of zero."""
        self._forget()

    def resume(self, saved: Packed) -> None:
        """Resume from a saved state; begin anew if its dual variables are in another order."""
        meta, arrays = saved
        if meta.get("n_groups", 0) != self._n_groups:
            self.start()
            return
        self._duals, self._coef = arrays["duals"], arrays["coef"]
        self._history = list(meta["history"])
        self._n_epochs, self._n_proofs = meta["n_epochs"], meta["n_proofs"]
        self._bytes_read = meta["bytes_read"]
        self._reader.resumed = self._bytes_read > 0
        self._dual, self._gap = meta["dual"], meta["gap"]

    def pack(self) -> Packed:
        """Return the dual variables, the weights and the counts."""
        meta = {
            "row_blocks": True,
            "n_groups": self._n_groups,
            "history": self._history,
            "n_epochs": self._n_epochs,
            "n_proofs": self._n_proofs,
            "bytes_read": self._bytes_read,
            "dual": self._dual,
            "gap": self._gap,
        }
        return Packed(meta, {"duals": self._duals, "coef": self._coef})

    def certify(self) -> tuple[Certificate, Figures | None]:
        """Prove how good the weights are, if the estimated gap says that this is worth a read."""
        last = self._ends_after(2) or (self._n_epochs > 0 and not self._has_time)
        wanted = max(_SHARES[self._n_proofs] * self._run.limits.tol, _LEAST)
        if self._gap > wanted and not last:
            return _UNKNOWN, None
        give_back_free_pages()  # of blocks that were put into row order, beside the weights of the proof
        certificate = Certificate.of(*self._bounds())
        give_back_free_pages()
        self._n_proofs += 1
        dataset = self._dataset
        figures = {
            "n_passes": float(self._n_passes),
            "n_iter": float(self._n_epochs * self._n_sweeps),
            "objective": certificate.upper,
            "lower": certificate.lower,
            "gap": certificate.gap,
            "n_nonzero": float(np.count_nonzero(self._coef[:-1, : dataset.n_classes].any(axis=1))),
            "bytes_read": float(self._bytes_read),
        }
        return certificate, figures

    def message(self, figures: Figures) -> Progress:
        """Return the passes made so far, and the figures."""
        return loop.pass_progress(figures, self._run.limits.max_passes)

    def reason_to_stop(self, certificate: Certificate) -> str | None:
        """Stop at the tolerance, after the number of passes, or where dual coordinates lead no further."""
        if certificate.gap <= self._run.limits.tol:
            return "tol"
        if self._ends_after(1):
            return "max_passes"
        gaps = [figures["gap"] for figures in self._history]
        stalls = len(gaps) > 1 and gaps[-1] > _GAINED * gaps[-2]
        return "no further" if stalls or self._n_proofs == len(_SHARES) else None

    def improve(self) -> None:
        """Go through all blocks in random order, and a few times through each."""
        losses, began = 0.0, time.monotonic()
        groups = self._plan.groups
        order = self._generator(0).permutation(len(groups)).tolist()
        for done, number in enumerate(order):
            self._run.context.progress(Progress("epoch", done, len(order), "blocks"))
            losses += self._improve_blocks(number, groups[number])
        self._n_epochs += 1
        self._epoch_seconds = time.monotonic() - began
        self._count(2)
        upper = losses + self._half_norm(self._coef)
        self._gap = (upper - self._dual) / upper if upper > 0 else 0.0

    def _improve_blocks(self, number: int, group: Sequence[RowBlock]) -> float:
        """Go through blocks a few times; return the sum of their losses, each when it was visited first."""
        block = self._read(*group)
        duals, losses = self._padded(block.places), 0.0
        for sweep in range(self._n_sweeps):
            visited = self._generator(1 + number, sweep).permutation(block.visited)
            visit = visit_once(
                visited, block.samples, duals, self._coef, self._dataset.n_classes, self._engine
            )
            losses += visit.losses if sweep == 0 else 0.0
            self._dual += visit.gains
        self._duals[block.places] = duals[:, : self._dataset.n_classes]
        give_back_pages(self._duals[block.places])
        return losses

    def state(self) -> State:
        """Return the weights as a state that other ways can go on from; dual variables are forgotten."""
        n_classes = self._dataset.n_classes
        self._duals = np.zeros((0, n_classes), np.float32)
        used = np.flatnonzero(self._coef[:-1, :n_classes].any(axis=1))
        rows: NDArray[Any] = np.zeros((len(used), self._run.task.width), np.float32)
        for some in slabs(len(used), SCORED_AT_ONCE):
            rows[some, :n_classes] = self._coef[used[some], :n_classes]
        intercept = self._coef[-1, :n_classes].astype(np.float64)
        state = State(Coefficients(self._plan.features[used], rows), intercept)
        state.history, state.n_iter = self._history, self._n_epochs * self._n_sweeps
        state.nnz_read, state.bytes_read = self._n_passes * self._dataset.nnz, self._bytes_read
        state.lower = self._history[-1]["lower"]
        return state

    def _generator(self, *what: int) -> np.random.Generator:
        return np.random.default_rng([self._run.descent.seed, self._n_epochs, *what])

    def _read(self, *blocks: RowBlock) -> _Block:
        rows, squares, labels = self._reader.read(*blocks)
        n_samples, first = len(labels), self._places[blocks[0].start]
        own = self._run.task.sample_weight
        ones = np.ones(n_samples)
        weights = ones if own is None else np.concatenate([own[block.samples] for block in blocks])
        diagonal = diagonal_of(weights, self._run.task.weight_sum, self._ridge)
        samples = Weighed(rows, labels, squares, diagonal, np.zeros(n_samples, np.float32))
        return _Block(slice(first, first + n_samples), np.flatnonzero(weights > 0), weights, samples)

    def _padded(self, places: slice) -> NDArray[np.float32]:
        some = self._duals[places]
        padded = np.zeros((len(some), self._coef.shape[1]), np.float32)
        padded[:, : some.shape[1]] = some
        give_back_pages(some)
        return padded

    def _half_norm(self, coef: NDArray[np.float32]) -> float:
        return half_norm(coef, self._dataset.n_classes)

    def _bounds(self) -> tuple[float, float]:
        """Return a lower bound of the optimum and the objective of the weights, by a read of everything."""
        excess = excess_of(self._duals) if self._run.descent.fit_intercept else None
        weights = np.zeros_like(self._coef)  # of the dual variables that the bound is of
        losses = value = 0.0
        groups = self._plan.groups
        for done, group in enumerate(groups):
            self._run.context.progress(Progress("certificate", done, len(groups), "blocks"))
            lost, added = self._measure_blocks(group, excess, weights)
            losses, value = losses + lost, value + added
        self._count(1 if excess is None else 2)
        weights[-1] = 0.0
        squares, n = self._half_norm(weights), self._dataset.n_samples
        # A sum of n terms in single precision is off by some sqrt(n) roundings.
        rounding = float(np.finfo(np.float32).eps) * (4.0 * abs(value) + 2.0 * (4.0 + math.sqrt(n)) * squares)
        lower = self._ridge * (value - squares - rounding)
        upper = losses / self._run.task.weight_sum + self._ridge * self._half_norm(self._coef[:-1])
        return max([lower, 0.0, *(figures["lower"] for figures in self._history)]), upper

    def _measure_blocks(
        self, group: Sequence[RowBlock], excess: Excess | None, weights: NDArray[np.float32]
    ) -> tuple[float, float]:
        """Return the losses of blocks, and what their feasible dual variables add to the dual objective.

        Their products with the samples are added to `weights`.
        """
        n_classes, own = self._dataset.n_classes, self._run.task.sample_weight
        block = self._read(*group)
        duals = self._padded(block.places)
        if excess is not None:
            excess.take_off(duals[:, :n_classes])
        add_up(block.visited, block.samples.rows, duals, weights, self._engine)
        losses = value = 0.0
        for some in samples_in_pieces(block.visited, self._coef.shape[1], SCORED_AT_ONCE):
            value += dual_value(duals[some, :n_classes], block.samples.diagonal[some])
            scores = scores_of(some, block.samples.rows, self._coef, self._engine)
            each = hinge_losses(scores[:, :n_classes].astype(np.float64), block.samples.targets[some])
            losses += float(each.sum() if own is None else block.weights[some] @ each)
        return losses, value
