# mypy: ignore-errors
"""Variance-reduced stochastic steps, and the gradients of all samples that they need.

From an anchor, weights V with the mean gradient G of all samples, feature j follows a sample i by

    z_j += x_ij (s_i(W) - s_i(V)) + G_j,

where ``s_i`` are the residuals of its loss by the scores, and the minimiser of

    <z_j, w> + t (alpha * penalty(w) + ridge / 2 ||w||²) + c_j / 2 ||w - V_j||²

after samples of total weight t are its weights. What a sample adds to G has mean zero and vanishes at the
optimum: Johnson, Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NIPS
2013, in the form of Xiao's dual averaging (Journal of Machine Learning Research 11, 2010), whose sums need
not be touched for the features that a sample does not have: G is added when a feature comes up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.linear.losses.interface import residuals
from bigmc.kernels.linear.parallel.simd import LANES
from bigmc.kernels.linear.rows.stochastic import Strength, add_scores, find_factors, longest


class Anchor(NamedTuple):
    """Weights from which steps start, and the gradient of the mean loss there.

    Attributes
    ----------
    weights, gradient : float32 arrays of shape (n_features, width of the sums)
    added : float64 array of shape (n_features,)
        Weight of the samples for which the gradient was added already; changed in place.
    """

    weights: NDArray[np.float32]
    gradient: NDArray[np.float32]
    added: NDArray[np.float64]


class RowSums(NamedTuple):
    """What samples add up to; changed in place.

    Attributes
    ----------
    gradient : float array of shape (n_features, width of the scores)
        Of the mean loss.
    squares, sizes : float64 arrays of shape (n_features,)
        Squared norms of the gradients of the samples, and their squared values.
    counts : int64 array of shape (n_features,)
        Their entries.
    """

    gradient: NDArray[np.floating]
    squares: NDArray[np.float64]
    sizes: NDArray[np.float64]
    counts: NDArray[np.int64]


@kernel
def add_row_scores(rows, weights, scores):
    """Add products of samples in row order and weights, (n_features, any width), to the scores."""
    number = scores.dtype.type
    for i in range(scores.shape[0]):
        for k in range(rows.indptr[i], rows.indptr[i + 1]):
            value, j = number(rows.values[k]), rows.slots[k]
            for r in range(weights.shape[1]):
                scores[i, r] += value * weights[j, r]


@kernel
def add_row_gradients(loss, rows, scores, factor, n_classes, sums):
    """Add samples in row order to the sums.

    Parameters
    ----------
    loss : LossKernels
    rows : SparseRows
    scores : float array of shape (n_rows, width)
    factor : float
        Of the gradients.
    n_classes : int
    sums : RowSums

    Returns
    -------
    float
        Squared norms of the gradients by an intercept, added up.
    """
    others, residual = np.empty(scores.shape[1], scores.dtype), np.zeros(n_classes, scores.dtype)
    none, total = np.empty((0, 0), scores.dtype), 0.0
    for i in range(scores.shape[0]):
        weight = 2.0 * rows.weights[i]
        if weight == 0.0:
            continue
        residuals(loss, scores, i, rows.labels, none, others, residual)
        square = 0.0
        for r in range(n_classes):
            square += (weight * residual[r]) ** 2
            residual[r] *= weight * factor
        total += square
        for k in range(rows.indptr[i], rows.indptr[i + 1]):
            value, j = scores.dtype.type(rows.values[k]), rows.slots[k]
            size = np.float64(value) * value
            sums.squares[j] += size * square
            sums.sizes[j] += size
            sums.counts[j] += 1
            if square > 0.0:
                for r in range(n_classes):
                    sums.gradient[j, r] += value * residual[r]
    return total


@kernel
def follow(pair, rows, strength, n_classes, pad_score, intercept, sums, anchors):
    """Go through samples in row order, and let the sums follow each of them.

    Parameters
    ----------
    pair : Pair
    rows : SparseRows
    strength : Strength
    n_classes : int
    pad_score : float
    intercept : float32 array of shape (n_classes,)
        Of the anchor.
    sums : tuple of Sums
        Of the features, and of what is added to the intercept, which has one row, or none. Their squares and
        rates say what ``c_j`` is, and stay.
    anchors : tuple of Anchor
        Of both.

    Returns
    -------
    float
        Weight of all samples so far.
    """
    loss, penalty = pair
    own, moving = sums
    anchor, level = anchors
    scores = np.full((2, -(-n_classes // LANES) * LANES), pad_score, np.float32)
    others, none = np.empty(scores.shape[1], np.float32), np.empty((0, 0), np.float32)
    gradient, before = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.float32)
    labels = np.empty((2, rows.labels.shape[1]), rows.labels.dtype)
    factors, factor = np.empty((2, longest(rows.indptr)), np.float32), np.empty((2, 1), np.float32)
    weight = strength.weight
    for i in range(rows.labels.shape[0]):
        if rows.weights[i] == 0.0:
            continue
        past, weight = weight, weight + rows.weights[i]
        scores[0, :n_classes] = intercept
        scores[1, :n_classes] = intercept
        for j in range(moving.squares.shape[0]):
            _catch_up(j, past, moving, level)
            find_factors(penalty, Strength(0.0, 0.0, weight), j, moving, factor, 0)
            add_scores(penalty.code, np.float32(1), j, moving, factor, 0, scores, n_classes)
        start, stop = rows.indptr[i], rows.indptr[i + 1]
        now = Strength(strength.alpha, strength.ridge, weight)
        for k in range(start, stop):
            value, j = rows.values[k], rows.slots[k]
            _catch_up(j, past, own, anchor)
            find_factors(penalty, now, j, own, factors, k - start)
            add_scores(penalty.code, value, j, own, factors, k - start, scores, n_classes)
            for r in range(n_classes):
                scores[1, r] += value * anchor.weights[j, r]
        labels[:] = rows.labels[i]
        residuals(loss, scores, 0, labels, none, others, gradient)
        residuals(loss, scores, 1, labels, none, others, before)
        for r in range(n_classes):
            gradient[r] = np.float32(2.0 * rows.weights[i]) * (gradient[r] - before[r])
        for k in range(start, stop):
            for r in range(n_classes):
                own.linear[rows.slots[k], r] += rows.values[k] * gradient[r]
        for j in range(moving.squares.shape[0]):
            for r in range(n_classes):
                moving.linear[j, r] += gradient[r]
    return weight


@kernel
def catch_up(weight, sums, anchor):
    """Add the gradient of the anchor to all sums, up to samples of that weight."""
    for j in range(sums.squares.shape[0]):
        _catch_up(j, weight, sums, anchor)


@inlined_kernel
def _catch_up(j, weight, sums, anchor):
    gap = np.float32(weight - anchor.added[j])
    anchor.added[j] = weight
    if gap > 0:
        for r in range(sums.linear.shape[1]):
            sums.linear[j, r] += gap * anchor.gradient[j, r]
