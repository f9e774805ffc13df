"""Preconditioner of the conjugate gradients of a Newton step: an approximate inverse of the Hessian.

Where many features are in nearly every sample, as the letters of texts are, their columns are far from
orthogonal, and the diagonal says little of the Hessian. With the diagonal alone, steps along what these
columns have in common came last, although the lower bound depends on them: on character n-grams of package
descriptions the gap was .75 after 12 passes, and is 1e-3 with the block.

Over the features with the most entries and the intercept the Hessian ``2/n sum_i x_i x_i' (x) L_i`` is taken
for ``C (x) L``: second moments of a few thousand samples times the mean curvature of the loss by the scores.
Their eigenvectors give the inverse, the penalty included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import Rows
from bigmc.solvers.sparse.coefficients import slabs
from bigmc.solvers.sparse.margins import PairMargins
from bigmc.solvers.sparse.problem import Problem

#: Features of the block at most; each is in at least one of so many samples.
_MOST_FEATURES, _RAREST = 256, 10
#: Samples their second moments are taken from, about, so many of them together.
_SAMPLES, _TOGETHER = 4096, 512
#: Entries looked at together: 512 samples of a dense table have millions, and each takes some 40 bytes.
_ENTRIES = 1 << 17


@dataclass(frozen=True)
class Preconditioner:
    """An approximate inverse: of a block of features as a Kronecker product, else of the diagonal.

    Attributes
    ----------
    diagonal : float64 array of shape (n_features, width)
        Inverse; 0 in rows of the block.
    block : int64 array of shape (n_block,)
        Positions of the block's features.
    free : bool array of shape (n_block, n_classes)
        Weights of the block that may move.
    left : float64 array of shape (n_block, n_block)
        Eigenvectors over the features, rows scaled by one over the root of the damping.
    right : float64 array of shape (n_classes, n_classes) or None
        Eigenvectors over the classes; None where there are too many and the curvature is taken for diagonal.
    inverse : float64 array of shape (n_block, n_classes)
        Of the eigenvalues.
    """

    diagonal: NDArray[np.float64]
    block: NDArray[np.int64]
    free: NDArray[np.bool_]
    left: NDArray[np.float64]
    right: NDArray[np.float64] | None
    inverse: NDArray[np.float64]

    def over_block(self, residual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the block's rows of the product with a residual, shape (n_block, n_classes)."""
        own = self.left.T @ np.where(self.free, residual[self.block, : self.free.shape[1]], 0.0)
        right = self.right
        turned = own * self.inverse if right is None else ((own @ right) * self.inverse) @ right.T
        return np.where(self.free, self.left @ turned, 0.0)


def block_bytes(n_features: int, n_classes: int) -> int:
    """Return the bytes of a preconditioner of a step over so many features, excluding its diagonal."""
    block = min(n_features, _MOST_FEATURES)
    return 8 * block * (4 * block + _TOGETHER + 3 * n_classes)


def preconditioner(
    problem: Problem,
    rows: Rows,
    scale: NDArray[np.float64],
    diagonal: NDArray[np.float64],
    damping: NDArray[np.float64],
    free: NDArray[np.bool_],
) -> Preconditioner:
    """Make the preconditioner of a Newton step.

    Parameters
    ----------
    rows : Rows
        Samples, with the features of the step only.
    scale : float64 array of shape (n_features,)
        Factors of the columns.
    diagonal : float64 array of shape (n_features, width)
        Of the whole Hessian, positive.
    damping : float64 array of shape (n_features,)
        What penalty and ridge add to it, positive.
    free : bool array of shape (n_features, width)
        Weights that may move.
    """
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=free)
    block = _most_frequent(rows, len(scale), problem.n_samples)
    n_classes = problem.n_classes
    margins = problem.margins()
    shrink = 1.0 / np.sqrt(damping[block])
    moments = _second_moments(problem, rows, scale, block) * shrink[:, None] * shrink
    lengths, left = np.linalg.eigh(moments)
    if isinstance(margins, PairMargins):
        curvatures, right = np.linalg.eigh(problem.two_over_n * margins.intercept_hessian())
    else:
        curvatures, right = problem.two_over_n * margins.intercept_curvatures, None
    eigenvalues = np.maximum(lengths, 0.0)[:, None] * np.maximum(curvatures, 0.0) + 1.0
    inverse[block] = 0.0
    return Preconditioner(
        inverse, block, free[block, :n_classes], left * shrink[:, None], right, 1.0 / eigenvalues
    )


def _most_frequent(rows: Rows, n_features: int, n_samples: int) -> NDArray[np.int64]:
    """Return the positions of the features with the most entries, increasing, and of the intercept."""
    counts = np.zeros(n_features, np.int64)
    for some in slabs(len(rows.slots), _ENTRIES):
        counts += np.bincount(rows.slots[some], minlength=n_features)
    if rows.constant:
        counts[-1] = n_samples
    most = np.argsort(-counts, kind="stable")[:_MOST_FEATURES]
    return np.sort(most[counts[most] * _RAREST >= n_samples])


def _second_moments(
    problem: Problem, rows: Rows, scale: NDArray[np.float64], block: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the mean of x x' over some samples, by their weights, for the features of a block."""
    place = np.full(len(scale), -1)
    place[block] = np.arange(len(block))
    total, weight = np.zeros((len(block), len(block))), 0.0
    n_parts = max(1, min(_SAMPLES, problem.n_samples) // _TOGETHER)
    for first in np.linspace(0, max(problem.n_samples - _TOGETHER, 0), n_parts).astype(np.int64):
        last = min(first + _TOGETHER, problem.n_samples)
        dense = np.zeros((last - first, len(block)))
        for lo, hi in _row_spans(rows.indptr, first, last):
            span = slice(rows.indptr[lo], rows.indptr[hi])
            to = place[rows.slots[span]]
            sample = np.repeat(np.arange(lo, hi), np.diff(rows.indptr[lo : hi + 1]))
            there = to >= 0
            to, sample = to[there], sample[there]
            values = rows.values[span][there] * problem.row_scale[sample]
            dense[sample - first, to] = values * scale[block[to]]
        if rows.constant and place[-1] >= 0:
            dense[:, place[-1]] = 1.0
        weights = problem.weights[first:last] if len(problem.weights) else np.ones(last - first)
        total += (dense * weights[:, None]).T @ dense
        weight += float(weights.sum())
    return total / max(weight, 1e-300)


def _row_spans(indptr: NDArray[np.int64], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut samples into spans of at most `_ENTRIES` entries, but one sample at least."""
    while first < last:
        end = int(np.searchsorted(indptr, indptr[first] + _ENTRIES, side="right")) - 1
        end = min(max(end, first + 1), last)
        yield first, end
        first = end
