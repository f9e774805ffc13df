"""A start of the weights by stochastic steps: once through the samples of all chunks, one after another.

It comes near the optimum while each chunk is read once: see `bigmc.kernels.linear.stochastic` for the steps.
Samples follow each other in a random order, in groups that are put into row order together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear import stochastic
from bigmc.kernels.linear.simd import LANES
from bigmc.kernels.linear.stochastic import SparseRows, Strength, Sums
from bigmc.solvers.sparse.chunk import Chunk
from bigmc.solvers.sparse.chunk_loss import Weights
from bigmc.solvers.sparse.chunk_task import ChunkTask

#: What the first sample that has a feature moves its weights by, where all values are alike and rows have
#: length 1. Larger steps do as well, but for the squared hinge of many classes.
_RATE = 1.0
#: Bytes of an entry in row order.
ENTRY_BYTES = 8


class StochasticStart:
    """Weights that follow the samples of one chunk after another.

    Parameters
    ----------
    task : ChunkTask
    layers : sequence of int64 arrays
        The candidates.
    intercept : float64 array of shape (n_classes,)
        To start from.
    row_bytes : int
        Bytes of the samples that are put into row order together.
    """

    def __init__(
        self,
        task: ChunkTask,
        layers: Sequence[NDArray[np.int64]],
        intercept: NDArray[np.float64],
        row_bytes: int,
    ) -> None:
        self._task, self._layers, self._intercept, self._row_bytes = task, layers, intercept, row_bytes
        width = task.n_classes if task.n_classes < LANES else task.width
        self._sums = _no_sums(sum(map(len, layers)), width)
        self._level = _no_sums(int(task.fit_intercept), width)
        self._weight, self._row_entries = 0.0, 0.0

    def follow(self, chunk: Chunk, generator: np.random.Generator) -> None:
        """Go through the samples of a chunk in a random order."""
        task, objective = self._task, self._task.objective
        counts = np.zeros(chunk.samples.n_samples, np.int32)
        for columns in chunk.held:
            stochastic.count_entries(columns.positions, columns.entries, counts)
        self._set_rates(chunk, float(counts.mean()))
        kernels = objective.loss.set_kernels if objective.sets else objective.loss.kernels
        for rows in self._groups(chunk, generator.permutation(len(counts)), counts):
            self._weight = stochastic.follow(
                (kernels, objective.penalty.kernel),
                rows,
                Strength(task.alpha, objective.ridge, self._weight),
                task.n_classes,
                objective.loss.pad_score,
                self._sums,
                (self._intercept.astype(np.float32), self._level),
            )

    def weights(self) -> Weights:
        """Return the weights after the samples so far."""
        task, penalty = self._task, self._task.objective.penalty.kernel
        rows, step = np.zeros((len(self._sums.rates), task.width)), np.zeros((1, task.n_classes))
        strength = Strength(task.alpha, task.objective.ridge, self._weight)
        stochastic.fill_weights(penalty, strength, self._sums, rows)
        if task.fit_intercept:
            stochastic.fill_weights(penalty, Strength(0.0, 0.0, self._weight), self._level, step)
        cuts = np.cumsum([len(layer) for layer in self._layers])[:-1]
        return Weights(self._layers, np.split(rows, cuts), self._intercept + step[0])

    def _set_rates(self, chunk: Chunk, row_entries: float) -> None:
        """Set the step sizes of the features that come up for the first time, by the sizes of their values.

        So units do not matter, neither those of a feature nor those of the rows.
        """
        self._row_entries = self._row_entries or max(row_entries, 1.0)
        unit, start = _RATE / np.sqrt(self._row_entries), 0
        self._level.rates[:] = unit
        for columns, counts in zip(chunk.held, chunk.counts(), strict=True):
            squares, rates = np.zeros(len(counts)), self._sums.rates[start : start + len(counts)]
            scale = _column_scale(chunk, columns.features)
            stochastic.add_squares(
                columns.positions, columns.entries, chunk.samples.row_scale(None), squares
            )
            size = scale * np.sqrt(squares / np.maximum(counts, 1))
            new = (rates == 0) & (size > 0)
            rates[new] = unit / size[new]
            start += len(counts)

    def _groups(
        self, chunk: Chunk, order: NDArray[np.int64], counts: NDArray[np.int32]
    ) -> Iterator[SparseRows]:
        """Put samples into row order, some at a time."""
        samples, ends = chunk.samples, np.cumsum(counts[order], dtype=np.int64)
        most = max(1, self._row_bytes // ENTRY_BYTES)
        labels, start = samples.label_sets(), 0
        while start < len(order):
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
            chosen = order[start:stop]
            indptr = np.concatenate([[done], ends[start:stop]]) - done
            n, nnz = len(chosen), int(indptr[-1])
            weights = np.ones(n) if samples.weights is None else samples.weights[chosen]
            slots, values = np.empty(nnz, np.int32), np.empty(nnz, np.float32)
            rows = SparseRows(indptr, slots, values, labels[chosen], weights)
            places = np.full(len(order), -1, np.int32)
            places[chosen] = np.arange(n, dtype=np.int32)
            self._fill(chunk, places, rows)
            yield rows
            start = stop

    def _fill(self, chunk: Chunk, places: NDArray[np.int32], rows: SparseRows) -> None:
        ends, first = rows.indptr[:-1].copy(), 0
        for columns in chunk.held:
            scales = (chunk.samples.row_scale(None), _column_scale(chunk, columns.features))
            stochastic.fill_rows(columns.positions, columns.entries, scales, places, first, ends, rows)
            first += len(columns.features)


def _no_sums(n_features: int, width: int) -> Sums:
    return Sums(
        np.zeros((n_features, width), np.float32),
        np.zeros(n_features, np.float32),
        np.zeros(n_features, np.float32),
    )


def _column_scale(chunk: Chunk, features: NDArray[np.int64]) -> NDArray[np.float32]:
    scale = chunk.samples.column_scale()
    return np.ones(len(features), np.float32) if scale is None else scale[features]
