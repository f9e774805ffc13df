"""Weights to start from: stochastic steps along the samples while the shards are read once.

The steps are those of `bigmc.kernels.linear.rows.stochastic`. They take the most frequent features that
memory has space for, and of every shard as many samples as fit, drawn at random. Shards come in a random
order, and so do their samples, which are put into row order some at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.parallel.simd import LANES, padded_classes
from bigmc.kernels.linear.rows import stochastic
from bigmc.kernels.linear.rows.stochastic import Strength, Sums
from bigmc.solvers.sparse.chunks.row_order import ENTRY_BYTES, Part, RowSamples
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients, slabs_of_weights
from bigmc.solvers.sparse.columns import scales_of
from bigmc.solvers.sparse.scratch.shard_blocks import Block
from bigmc.solvers.sparse.scratch.spill import Spill

#: What the first sample that has a feature moves its weights by, where all values are alike and rows have
#: length 1. Larger steps do as well, but for the squared hinge of many classes.
RATE = 1.0
#: A feature of smaller values is taken for one of zeros only: in single precision their squares, times those
#: of the residuals, come to nothing.
_SMALLEST_SIZE = 1e-15


class Started(NamedTuple):
    """What stochastic steps came to.

    Attributes
    ----------
    coef : Coefficients
        Of single precision.
    intercept : float64 array of shape (n_classes,)
    norms : float64 array of shape (n_table,)
        Dual norms of the mean gradients on the way, of every feature that took part.
    """

    coef: Coefficients
    intercept: NDArray[np.float64]
    norms: NDArray[np.float64]


@dataclass(frozen=True)
class ShardSamples(RowSamples):
    """Samples of a shard that take part, whose columns are added block by block.

    Attributes
    ----------
    table : int64 array
        Features that take part, increasing.
    numbers : int32 array of shape (n_rows,)
        Number of each row of the shard among the samples, -1 for none.
    """

    table: NDArray[np.int64]
    numbers: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        spill: Spill,
        s: int,
        table: NDArray[np.int64],
        rows: NDArray[np.int64],
        weights: NDArray[np.float64],
    ) -> ShardSamples:
        """Read some rows of a shard; the spill has labels and scales, and `weights` are of all rows."""
        labels, scale = spill.rows_of_shard(s)
        numbers = np.full(len(scale), -1, np.int32)
        numbers[rows] = np.arange(len(rows), dtype=np.int32)
        counts = np.zeros(len(rows), np.int32)
        samples = cls(counts, labels[rows], scale[rows], weights[rows], [], table, numbers)
        for block in spill.decoded(s):
            samples._add(block)
        return samples

    def _add(self, block: Block) -> None:
        """Take what is needed of a block, which is not kept."""
        lo, hi = np.searchsorted(self.table, [block.lo, block.hi]).tolist()
        positions = self.table[lo:hi] - block.lo
        most = int((block.indptr[positions + 1] - block.indptr[positions]).sum())
        if not most:
            return
        offsets = np.empty(hi - lo + 1, np.int64)
        rows, values = np.empty(most, np.uint16), np.empty(most, block.data.dtype)
        chosen, source = (offsets, rows, values), (block.indptr, block.indices, block.data)
        stochastic.choose_entries(positions, source, self.numbers, chosen, self.counts)
        n = int(offsets[-1])
        if n < most:
            rows, values = rows[:n].copy(), values[:n].copy()
        self.parts.append(Part((offsets, rows, values), lo))


class StochasticSteps:
    """Weights that follow samples one after another.

    Parameters
    ----------
    task : ChunkTask
    table : int64 array
        Features that take part, increasing.
    intercept : float64 array of shape (n_classes,)
        To start from.
    row_bytes : int
        Bytes of the entries that are put into row order together.
    """

    def __init__(
        self, task: ChunkTask, table: NDArray[np.int64], intercept: NDArray[np.float64], row_bytes: int
    ) -> None:
        self._task, self._table, self._intercept = task, table, intercept
        self._most_entries = max(1, row_bytes // ENTRY_BYTES)
        self._column_scale = scales_of(task.dataset.column_scale(), table)
        width = sums_width(task.n_classes)
        self._sums, self._level = _no_sums(len(table), width), _no_sums(int(task.fit_intercept), width)
        self._weight, self._row_entries = 0.0, 0.0

    def follow(self, samples: RowSamples, generator: np.random.Generator) -> None:
        """Go through samples in a random order."""
        task, objective = self._task, self._task.objective
        if not len(samples.counts):
            return
        self._set_rates(samples)
        order = generator.permutation(len(samples.counts))
        for rows in samples.groups(order, self._column_scale, self._most_entries, task.engine):
            self._weight = stochastic.follow(
                (objective.loss_kernels, objective.penalty.kernel),
                rows,
                self._strength(),
                task.n_classes,
                objective.loss.pad_score,
                self._sums,
                (self._intercept.astype(np.float32), self._level),
            )

    def result(self, most: int | None = None) -> Started:
        """Return the weights after the samples so far, and the norms of the mean gradients.

        Of more than `most` features with weights only those with the largest norms keep them.
        """
        task, objective = self._task, self._task.objective
        n, penalty = len(self._table), objective.penalty.kernel
        norms, used = np.zeros(n), np.zeros(n, bool)
        for some in slabs_of_weights(n, task.width):
            sums = Sums(*(array[some] for array in self._sums))
            used[some] = self._weights_of(sums).any(axis=1)
            scale = np.full(len(sums.rates), 1.0 / max(self._weight, 1e-300))
            objective.add_dual_norms(sums.linear, scale, task.n_classes, norms[some])
        kept = np.flatnonzero(used)
        if most is not None and len(kept) > most:
            kept = np.sort(kept[np.argsort(-norms[kept], kind="stable")[:most]])
        rows: NDArray[Any] = np.empty((len(kept), task.width), np.float32)
        for some in slabs_of_weights(*rows.shape):
            rows[some] = self._weights_of(Sums(*(array[kept[some]] for array in self._sums)))
        step = np.zeros((1, task.n_classes))
        if task.fit_intercept:
            stochastic.fill_weights(penalty, Strength(0.0, 0.0, self._weight), self._level, step)
        return Started(Coefficients(self._table[kept], rows), self._intercept + step[0], norms)

    def _weights_of(self, sums: Sums) -> NDArray[np.float32]:
        """Return the weights of some features."""
        rows = np.zeros((len(sums.rates), self._task.width), np.float32)
        stochastic.fill_weights(self._task.objective.penalty.kernel, self._strength(), sums, rows)
        return rows

    def _strength(self) -> Strength:
        return Strength(self._task.alpha, self._task.objective.ridge, self._weight)

    def _set_rates(self, samples: RowSamples) -> None:
        """Set the step sizes of the features that come up for the first time, by the sizes of their values.

        So units do not matter, neither those of a feature nor those of the rows. Stored zeros alone say
        nothing of the size: a feature that has only these in a shard waits for the next.
        """
        self._row_entries = self._row_entries or max(float(samples.counts.mean()), 1.0)
        unit = RATE / np.sqrt(self._row_entries)
        self._level.rates[:] = unit
        for part in samples.parts:
            counts = np.diff(part.columns[0])
            slots = slice(part.slot, part.slot + len(counts))
            squares, rates = np.zeros(len(counts)), self._sums.rates[slots]
            stochastic.add_squares(part.columns, samples.scale[part.first :], squares)
            size = self._column_scale[slots] * np.sqrt(squares / np.maximum(counts, 1))
            new = (rates == 0) & (size > _SMALLEST_SIZE)
            rates[new] = unit / size[new]


def sums_width(n_classes: int) -> int:
    """Return the columns of the sums: padded where there are as many classes as lanes at least."""
    return n_classes if n_classes < LANES else padded_classes(n_classes)


def _no_sums(n_features: int, width: int) -> Sums:
    return Sums(
        np.zeros((n_features, width), np.float32),
        np.zeros(n_features, np.float32),
        np.zeros(n_features, np.float32),
    )
