# mypy: ignore-errors
"""Stochastic steps: weights that follow one sample after another.

After samples of total weight t the weights of feature j minimise

    <z_j, w> + t (alpha * penalty(w) + ridge / 2 ||w||²) + sqrt(q_j) / (2 eta_j) ||w||²,

where q_j adds up the squared norms of the gradients g_j of the samples' losses by the weights of the feature,
and z_j adds up ``g_j - (change of sqrt(q_j)) / eta_j * w``: algorithm 1 of McMahan et al., "Ad click
prediction: a view from the trenches", KDD 2013, with one step size for all classes of a feature, and with
penalties that grow with the number of samples, as in Xiao, "Dual averaging methods for regularized stochastic
learning and online optimization", Journal of Machine Learning Research 11 (2010), so that they are those of
the mean loss. The minimiser is computed when a sample has the feature, and at no other time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inlined_kernel, inner_kernel, kernel
from bigmc.kernels.linear.losses.interface import residuals
from bigmc.kernels.linear.parallel.exponentials import lanes_dot
from bigmc.kernels.linear.parallel.simd import LANES
from bigmc.kernels.linear.penalties.formulas import LARGEST

_EIGHT = np.uint64(LANES)
#: Steps of the search for a threshold, which ends after as many as there are classes.
_ROOT_STEPS = 60


class Sums(NamedTuple):
    """What the weights of some features follow from; changed in place.

    Attributes
    ----------
    linear : float32 array of shape (n_features, n_classes), or padded to whole vectors
        z above.
    squares : float32 array of shape (n_features,)
        q.
    rates : float32 array of shape (n_features,)
        eta, 0 where the weights stay what they are: nothing but zeros has been seen.
    """

    linear: NDArray[np.float32]
    squares: NDArray[np.float32]
    rates: NDArray[np.float32]


class Strength(NamedTuple):
    """Weights of the regulariser, and of the samples so far."""

    alpha: float
    ridge: float
    weight: float


class SparseRows(NamedTuple):
    """Samples in row order.

    Attributes
    ----------
    indptr : int64 array of shape (n_rows + 1,)
    slots : int32 array
        Place of the feature of each entry.
    values : float32 array
        Scaled.
    labels : int32 array of shape (n_rows, most labels)
    weights : float64 array of shape (n_rows,)
    """

    indptr: NDArray[np.int64]
    slots: NDArray[np.int32]
    values: NDArray[np.float32]
    labels: NDArray[np.int32]
    weights: NDArray[np.float64]


@kernel
def choose_entries(positions, block, numbers, chosen, counts):
    """Choose some columns of a block, and some rows of these.

    Parameters
    ----------
    positions : int64 array of shape (n_columns,)
        Of the columns in the block.
    block : tuple
        Offsets, rows and values of its columns.
    numbers : int32 array of shape (n_rows,)
        What each row becomes, -1 for none.
    chosen : tuple
        Arrays for offsets, of shape (n_columns + 1,), and for rows and values; overwritten.
    counts : int32 array
        The entries of what each row becomes are added.
    """
    indptr, indices, data = block
    offsets, rows, values = chosen
    n = 0
    offsets[0] = 0
    for p in range(positions.shape[0]):
        for k in range(indptr[positions[p]], indptr[positions[p] + 1]):
            number = numbers[indices[k]]
            if number >= 0:
                rows[n] = number
                values[n] = data[k]
                counts[number] += 1
                n += 1
        offsets[p + 1] = n


@kernel
def add_squares(columns, row_scale, squares):
    """Add the squared values of every column, row scales included, to `squares`."""
    offsets, rows, values = columns
    for p in range(squares.shape[0]):
        for k in range(offsets[p], offsets[p + 1]):
            value = np.float64(values[k]) * row_scale[rows[k]]
            squares[p] += value * value


@kernel
def fill_rows(columns, scales, places, first_slot, ends, samples):
    """Put the entries of some columns into row order.

    Parameters
    ----------
    columns : tuple
        Offsets, rows and values.
    scales : tuple
        Scale of every row and of every column.
    places : int32 array of shape (n_rows,)
        Sample that a row is to become, -1 for none.
    first_slot : int
        Slot of the first column; those of the others follow.
    ends : int64 array of shape (n_samples,)
        Where the next entry of each sample goes; changed in place.
    samples : SparseRows
        Slots and values are filled.
    """
    offsets, rows, values = columns
    row_scale, column_scale = scales
    for p in range(offsets.shape[0] - 1):
        for k in range(offsets[p], offsets[p + 1]):
            place = places[rows[k]]
            if place >= 0:
                at = ends[place]
                ends[place] += 1
                samples.slots[at] = first_slot + p
                samples.values[at] = values[k] * row_scale[rows[k]] * column_scale[p]


@kernel
def follow(pair, rows, strength, n_classes, pad_score, sums, level):
    """Go through samples in row order, and let the sums follow each of them.

    Parameters
    ----------
    pair : Pair
    rows : SparseRows
    strength : Strength
    n_classes : int
    pad_score : float
    sums : Sums
    level : tuple
        Intercept to start from, of shape (n_classes,), and the `Sums` of what is added to it, which have one
        row, or none where there is no intercept.

    Returns
    -------
    float
        Weight of all samples so far.
    """
    loss, penalty = pair
    intercept, moving = level
    width = sums.linear.shape[1]
    scores = np.full((1, -(-n_classes // LANES) * LANES), pad_score, np.float32)
    others = np.empty(scores.shape[1], np.float32)
    gradient, none = np.zeros(width, np.float32), np.empty((0, 0), np.float32)
    residual = gradient[:n_classes]
    factors = np.empty((2, longest(rows.indptr)), np.float32)
    factor = np.empty((2, 1), np.float32)
    weight = strength.weight
    for i in range(rows.labels.shape[0]):
        if rows.weights[i] == 0.0:
            continue
        weight += rows.weights[i]
        copy_to(intercept, scores[0])
        for j in range(moving.squares.shape[0]):
            find_factors(penalty, Strength(0.0, 0.0, weight), j, moving, factor, 0)
            add_scores(penalty.code, np.float32(1), j, moving, factor, 0, scores, n_classes)
        start, stop = rows.indptr[i], rows.indptr[i + 1]
        now = Strength(strength.alpha, strength.ridge, weight)
        for k in range(start, stop):
            find_factors(penalty, now, rows.slots[k], sums, factors, k - start)
            add_scores(
                penalty.code, rows.values[k], rows.slots[k], sums, factors, k - start, scores, n_classes
            )
        residuals(loss, scores, 0, rows.labels[i : i + 1], none, others, residual)
        square = np.float32(0)
        for r in range(n_classes):
            residual[r] *= np.float32(2.0 * rows.weights[i])
            square += residual[r] * residual[r]
        if square == 0:
            continue
        for k in range(start, stop):
            _move(penalty.code, rows.values[k], rows.slots[k], gradient, square, factors, k - start, sums)
        for j in range(moving.squares.shape[0]):
            _move(penalty.code, np.float32(1), j, gradient, square, factor, 0, moving)
    return weight


@kernel
def fill_weights(penalty, strength, sums, coef):
    """Fill the weights that follow from the sums, into an array of at least as many columns as classes."""
    factors = np.empty((2, 1), np.float32)
    for j in range(coef.shape[0]):
        find_factors(penalty, strength, j, sums, factors, 0)
        for r in range(min(coef.shape[1], sums.linear.shape[1])):
            coef[j, r] = _weight(penalty.code, sums.linear[j, r], factors[0, 0], factors[1, 0])


@inner_kernel
def longest(indptr):
    """Return the largest number of entries of a row."""
    longest = 1
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return longest


@inlined_kernel
def _weight(code, linear, factor, limit):
    """Return a weight: `factor` times what is above the limit, or what is below it for the largest weight."""
    size = abs(linear)
    size = min(size, limit) if code == LARGEST else max(size - limit, np.float32(0))
    return factor * (size if linear > 0 else -size)


@inlined_kernel
def add_scores(code, value, j, sums, factors, k, scores, n_classes):
    """Add a value times the weights of feature j to the scores."""
    factor, limit = factors[0, k] * value, factors[1, k]
    if factor == 0:
        return
    if code != LARGEST and limit == 0:
        for r in range(n_classes):
            scores[0, r] += factor * sums.linear[j, r]
        return
    for r in range(n_classes):
        scores[0, r] += _weight(code, sums.linear[j, r], factor, limit)


@inlined_kernel
def _move(code, value, j, gradient, square, factors, k, sums):
    """Add the gradient of a sample that has `value` of feature j, unless that has no step size."""
    if sums.rates[j] == 0:
        return
    before = sums.squares[j]
    after = before + value * value * square
    sums.squares[j] = after
    pull = (np.sqrt(after) - np.sqrt(before)) / sums.rates[j]
    factor, limit = factors[0, k] * pull, factors[1, k]
    if factor == 0:
        for r in range(gradient.shape[0]):
            sums.linear[j, r] += value * gradient[r]
    elif code != LARGEST and limit == 0:
        keep = np.float32(1) - factor
        for r in range(gradient.shape[0]):
            sums.linear[j, r] = keep * sums.linear[j, r] + value * gradient[r]
    else:
        for r in range(gradient.shape[0]):
            linear = sums.linear[j, r]
            sums.linear[j, r] += value * gradient[r] - _weight(code, linear, factor, limit)


@inlined_kernel
def find_factors(penalty, strength, j, sums, factors, k):
    """Find what `_weight` takes for feature j: 0 where all its weights are."""
    code, ratio = penalty
    factors[0, k], factors[1, k] = 0, 0
    if sums.squares[j] == 0:
        return
    alpha = np.float32(strength.alpha * strength.weight)
    curve = np.sqrt(sums.squares[j]) / sums.rates[j] + np.float32(strength.ridge * strength.weight)
    if code == LARGEST:
        factors[1, k] = _ceiling(alpha, sums.linear[j])
        factors[0, k] = np.float32(-1) / curve if factors[1, k] > 0 else np.float32(0)
        return
    limit, group = np.float32(ratio) * alpha, np.float32(1.0 - ratio) * alpha
    length = np.sqrt(_squares_above(limit, j, sums.linear))
    if length > group:
        factors[0, k], factors[1, k] = -(np.float32(1) - group / length) / curve, limit


@inlined_kernel
def _squares_above(limit, j, linear):
    """Return the sum of squares of what a row has above the limit."""
    width = np.uint64(linear.shape[1])
    total = np.float32(0)
    if limit == 0 and width % _EIGHT == 0:
        at = np.uint64(j) * width
        for q in range(width // _EIGHT):
            total += lanes_dot(linear, at + q * _EIGHT, linear, at + q * _EIGHT)
        return total
    for r in range(linear.shape[1]):
        above = max(abs(linear[j, r]) - limit, np.float32(0))
        total += above * above
    return total


@inner_kernel
def _ceiling(alpha, row):
    """Return the ceiling above which the sizes of a row add up to alpha: 0 if all of them do not.

    The excess falls with the ceiling and is convex: Newton's method from 0 climbs to the root.
    """
    ceiling = np.float32(0)
    for _ in range(_ROOT_STEPS):
        above, count = -alpha, np.float32(0)
        for r in range(row.shape[0]):
            if abs(row[r]) > ceiling:
                above += abs(row[r]) - ceiling
                count += np.float32(1)
        if count == 0 or above <= np.float32(1e-6) * alpha:
            break
        ceiling += above / count
    return ceiling
