"""Exact steps for features that few samples have, beside rounds over chunks.

A chunk has hardly any entries of such a feature, so that its step is damped, the more the fewer they are. But
nothing of the loss depends on it except the scores of the samples that have it. These are collected while all
chunks are read; sweeps over them move the features to their optimum, all other weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.measures import measures_of
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.scratch.chunk import Chunk, Samples
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.proximal_terms import Terms
from bigmc.solvers.sparse.steps.sweeps import Corrections, Course, Sweeper

#: Features that violate the conditions of optimality by this share of alpha are worth a step.
_WORTH = 5e-3
#: Bytes of an entry while they are sorted, and of a sample beside its scores (twice) and labels.
_ENTRY_BYTES, _ROW_BYTES = 40, 40
#: Sweeps end at this violation in units of alpha, or after so many.
_TARGET, _MOST_SWEEPS = 1e-3, 100
#: Rows of a piece of columns.
PIECE_ROWS = 1 << 16


def rare_features(
    task: ChunkTask, point: Evaluated, features: NDArray[np.int64], nnz: NDArray[np.int64], n_bytes: int
) -> NDArray[np.int64]:
    """Return which features to solve for exactly, those with the fewest entries first.

    Parameters
    ----------
    task : ChunkTask
    point : Evaluated
        Weights near those that the step starts from, with the gradients of `features`.
    features : int64 array
    nnz : int64 array of the same shape
        Entries of each.
    n_bytes : int
        What their samples and entries may take.

    Returns
    -------
    int64 array
        Increasing.
    """
    found = measures_of(task.objective, task.alpha, task.n_classes, point.coef, point.gradient, [features])
    worth = np.flatnonzero(found.violations > _WORTH * task.alpha)
    order = worth[np.argsort(nnz[worth], kind="stable")]
    row_bytes = 2 * task.width * task.dtype.itemsize + 4 * task.dataset.most_labels() + _ROW_BYTES
    needed = np.cumsum(nnz[order]) * (row_bytes + _ENTRY_BYTES)
    return np.sort(features[order[needed <= n_bytes]])


@dataclass
class _Collected:
    """Samples of a chunk that have rare features: their scores, and their entries by feature."""

    scores: NDArray[Any]
    labels: NDArray[np.int32]
    scale: NDArray[np.float32]
    weights: NDArray[np.float64] | None
    columns: NDArray[np.int32]
    rows: NDArray[np.int32]
    values: NDArray[Any]


class RareFeatures:
    """Collects the samples of some features, chunk by chunk, and solves for these features.

    Parameters
    ----------
    task : ChunkTask
    features : int64 array
        Increasing.

    Attributes
    ----------
    features : int64 array
    """

    def __init__(self, task: ChunkTask, features: NDArray[np.int64]) -> None:
        self._task, self.features = task, features
        self._collected: list[_Collected] = []

    def add(self, chunk: Chunk, scores_of: Callable[[NDArray[np.int64]], NDArray[Any]]) -> None:
        """Collect the samples of a chunk, given what returns the scores of some of them."""
        entries = [self._entries(columns) for columns in chunk.held]
        columns, rows, values = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
        used, rows = np.unique(rows, return_inverse=True)
        weights = chunk.samples.weights
        self._collected.append(
            _Collected(
                scores_of(used),
                chunk.samples.label_sets()[used],
                chunk.samples.row_scale(None)[used].astype(np.float32, copy=False),
                None if weights is None else weights[used],
                columns,
                rows.astype(np.int32),
                values,
            )
        )

    def _entries(self, columns: Columns) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[Any]]:
        """Return feature numbers, rows of the chunk and values of the entries in some columns."""
        chosen = np.flatnonzero(np.isin(columns.features, self.features))
        own = columns.choose(chosen).gathered()
        numbers = np.searchsorted(self.features, own.features).astype(np.int32)
        counts = np.diff(own.indptr, axis=1)
        rows = own.indices.astype(np.int64) + np.repeat(own.base[:-1], counts.sum(axis=1))
        return np.repeat(np.tile(numbers, len(counts)), counts.ravel()), rows, own.data

    def solve(self, coef: Coefficients, n_iter: int) -> Coefficients:
        """Return the weights, in their precision, with those of the features at their optimum.

        Parameters
        ----------
        coef : Coefficients
            Of which the scores are.
        n_iter : int
            Number of the first sweep, for its shuffle.
        """
        task, problem = self._task, self._problem()
        if problem is None:
            return coef
        columns = self._columns(problem.n_samples)
        share = problem.weight_sum / task.weight_sum
        alpha, ridge = task.alpha / share, task.objective.ridge / share
        terms = [Terms.ridge(ridge, len(self.features), task.width)]
        sweeper = Sweeper(problem, replace(task.descent, fit_intercept=False), 1 << 62, 0)
        target = _TARGET * alpha
        unused = np.zeros(task.n_classes)
        course = Course(alpha, target, _MOST_SWEEPS, n_iter)
        changes, _ = sweeper.sweep_until([columns], coef, unused, course, Corrections(terms))
        # stochastic steps have weights of single precision
        return coef.updated([(some, rows.astype(coef.rows.dtype, copy=False)) for some, rows in changes])

    def _problem(self) -> Problem | None:
        """Return the problem of the samples, if any has a weight."""
        task, collected = self._task, self._collected
        weights = [c.weights for c in collected if c.weights is not None]
        most = max(c.labels.shape[1] for c in collected)
        labels = [
            np.pad(c.labels, ((0, 0), (0, most - c.labels.shape[1])), constant_values=-1) for c in collected
        ]
        samples = Samples(
            task.dataset,
            np.concatenate(labels),
            np.concatenate([c.scale for c in collected]),
            np.concatenate(weights) if weights else None,
            task.dataset.column_scale(),
        )
        if samples.weightless or not samples.n_samples:
            return None
        problem = task.problem_of(samples)
        start = 0
        for part in collected:
            problem.scores[start : start + len(part.scores)] = part.scores
            start += len(part.scores)
            part.scores = np.empty_like(problem.scores, shape=(0, task.width))  # a view would keep them
        return problem

    def _columns(self, n_samples: int) -> Columns:
        """Return the entries of all chunks by feature."""
        collected, n_columns = self._collected, len(self.features)
        firsts = np.cumsum([0, *(len(c.labels) for c in collected)])
        rows = np.concatenate([c.rows + first for c, first in zip(collected, firsts, strict=False)])
        columns = np.concatenate([c.columns for c in collected])
        base = np.append(np.arange(0, n_samples, PIECE_ROWS), n_samples)
        cell = (rows // PIECE_ROWS) * n_columns + columns
        order = np.lexsort((rows, cell))
        ends = np.cumsum(np.bincount(cell, minlength=(len(base) - 1) * n_columns))
        ends = ends.reshape(len(base) - 1, n_columns)
        starts = np.concatenate([[0], ends[:-1, -1]])
        return Columns(
            0,
            self.features,
            np.arange(n_columns),
            np.column_stack([starts, ends]),
            (rows % PIECE_ROWS)[order].astype(np.uint16),
            np.concatenate([c.values for c in collected])[order],
            base,
            len(rows),
        )
