# mypy: ignore-errors
"""Log loss by columns, where the derivatives of every sample are computed once and kept.

`bigmc.kernels.linear.composite` takes a sample's scores at every visit, which are exponentials of all classes
for each entry. Here they are taken once for each sample: sums over columns are products with a matrix of
slopes, and steps lower the quadratic model of the losses at the scores that the slopes were computed from,

    sum over i of <g_i, t_i> + 1/2 t_i' (diag(p_i) - p_i p_i') t_i

for the changes t_i of a sample's scores: equation (12) of Blondel, Seki, Uehara, "Block coordinate descent
algorithms for large-scale sparse multiclass classification", Machine Learning 93 (2013), to second order. The
slopes move along with the steps: they are the derivatives of the model. Friedman, Hastie, Tibshirani,
"Regularization paths for generalized linear models via coordinate descent", Journal of Statistical Software
33 (2010), go through columns in the same way.

Slopes are half derivatives, so that ``2 / n`` is the factor of all gradients; those of pads are 0. Two
classes are one margin: arrays of slopes that have one column hold those of the second class, which are minus
those of the first, and their shares are the product of both probabilities.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.composite import Model, Scratch, minimise_model, move_row
from bigmc.kernels.linear.exponentials import lanes_curve, lanes_dot, lanes_turn, lanes_variance
from bigmc.kernels.linear.losses.interface import slopes as slopes_of
from bigmc.kernels.linear.losses.log import LogLoss
from bigmc.kernels.linear.losses.samples import pair_loss, pair_odds, sample_odds
from bigmc.kernels.linear.optimality import measure
from bigmc.kernels.linear.penalties import violation
from bigmc.kernels.linear.simd import LANES, lanes_add

_EIGHT = np.uint64(LANES)


@njit(cache=True, nogil=True, fastmath=False)
def fill_slopes(scores, labels, slopes, shares):
    """Take half the derivatives of the losses of samples.

    Parameters
    ----------
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, 1)
    slopes : array of the shape of the scores, or with one column for two classes
        Filled; it may be the scores themselves.
    shares : array of the shape of the slopes, or of no rows
        Filled with the probabilities.
    """
    number = scores.dtype.type
    width = scores.shape[1]
    odds = np.empty(width, scores.dtype)
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if slopes.shape[1] == 1:
            mine, other, _ = pair_odds(scores, i, c)
            own_share, other_share = mine / (mine + other), other / (mine + other)
            slopes[i, 0] = 0.5 * other_share if c == 0 else -0.5 * other_share
            if shares.shape[0]:
                shares[i, 0] = own_share * other_share
            continue
        own, others, _ = sample_odds(scores, i, c, odds)
        part = number(1) / (own + others)
        half = number(0.5) * part
        for r in range(width):
            slopes[i, r] = odds[r] * half
        # what the others have is more precise than 1 less a probability near 1
        slopes[i, c] = -others * half
        if shares.shape[0]:
            for r in range(width):
                shares[i, r] = odds[r] * part
            shares[i, c] = own * part


@njit(cache=True, nogil=True, fastmath=False)
def total_loss(n_classes, scores, labels, weights):
    """Return the weighted sum of the losses of samples.

    Parameters
    ----------
    n_classes : int
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, 1)
    weights : float64 array of shape (n_samples,), or empty for ones
    """
    odds = np.empty(scores.shape[1], scores.dtype)
    weight = 1.0
    total = 0.0
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if weights.shape[0]:
            weight = weights[i]
        if n_classes == 2:
            total += weight * pair_loss(scores, i, c)
            continue
        own, others, top = sample_odds(scores, i, c, odds)
        # where the own class is likely, what the others have is more precise than the sum of all
        if own > others:
            total += weight * np.log1p(np.float64(others) / np.float64(own))
        else:
            sum_of_all = np.float64(own) + np.float64(others)
            total += weight * (np.log(sum_of_all) + np.float64(top) - np.float64(scores[i, c]))
    return total


@njit(cache=True, nogil=True, fastmath=False)
def balanced_slopes(scores, labels, factor, out):
    """Fill `out` with half the derivatives of samples whose dual variables are multiplied by factors.

    Parameters
    ----------
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, 1)
    factor : array of shape (n_classes, width)
        See `bigmc.solvers.certificate.balance_classes`.
    out : array of the shape of the scores, or with one column for two classes
    """
    n_classes = factor.shape[0]
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    for i in range(scores.shape[0]):
        slopes_of(LogLoss(), scores, i, labels, factor, others, slope)
        if out.shape[1] == 1:
            out[i, 0] = slope[1]
            continue
        out[i, :n_classes] = slope
        out[i, n_classes:] = 0


@njit(cache=True, nogil=True, fastmath=False)
def gradient_norms(penalty, columns, samples, level, support, out):
    """Measure columns as `bigmc.kernels.linear.composite.gradient_norms`, by slopes instead of scores."""
    n_classes, two_over_n, _, _ = level
    slots, coef = support
    total = np.empty(max(n_classes, samples.scores.shape[1]), np.float64)
    sums, zeros = np.zeros((2, n_classes), np.float64)
    work = np.ones((2, n_classes), np.float64)
    for p in columns.order:
        _gradient(columns.positions[p], columns.entries, samples, total)
        for r in range(n_classes):
            sums[r] = two_over_n * columns.scale[p] * total[r]
        row = zeros if slots[p] < 0 else coef[slots[p]]
        measure(penalty, level, sums, row, p, work, out)


@njit(cache=True, nogil=True, fastmath=False)
def add_gradients(places, entries, samples, n_classes, sums, largest):
    """`bigmc.kernels.linear.loss_columns.add_gradients` of samples whose scores are replaced by slopes."""
    indptr, indices, data, base = entries
    slopes, _, _, row_scale, gain = samples
    number = slopes.dtype.type
    width = np.uint64(slopes.shape[1])
    wide = np.empty((2, slopes.shape[1]), np.float64)
    for j in range(places.shape[0]):
        place = places[j]
        if place < 0:
            continue
        if slopes.shape[1] == 1:
            slope, bend = _margin_sums(j, entries, samples)
            sums.gradients[place, 0] -= slope
            sums.gradients[place, 1] += slope
            sums.curvatures[place] += bend
            continue
        wide[:] = 0.0
        for s in range(indptr.shape[0]):
            first = np.uint64(base[s])
            for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
                i = first + np.uint64(indices[k])
                value = number(data[k]) * gain[i]
                factors = (value, value * (number(data[k]) * row_scale[i]))
                for q in range(np.uint64(0), width, _EIGHT):
                    lanes_curve(slopes, i * width + q, factors, wide, (q, width + q))
        curvature = 0.0
        for r in range(n_classes):
            sums.gradients[place, r] += wide[0, r]
            curvature = max(curvature, wide[1, r]) if largest else curvature + wide[1, r] / n_classes
        sums.curvatures[place] += curvature


@njit(cache=True, nogil=True, fastmath=False)
def _margin_sums(j, entries, samples):
    """Return half the gradient of the second of two classes by column j, and half the curvature."""
    indptr, indices, data, base = entries
    slopes, row_scale, gain = samples.scores, samples.row_scale, samples.gain
    number = slopes.dtype.type
    slope = bend = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            size = abs(slopes[i, 0])
            slope += value * slopes[i, 0]
            bend += (value * (number(data[k]) * row_scale[i])) * (size * (number(1) - (size + size)))
    return slope, bend


@njit(cache=True, nogil=True, fastmath=False)
def _margin_gradient(j, entries, samples):
    """Return half the gradient of the second of two classes by column j."""
    indptr, indices, data, base = entries
    slopes, gain = samples.scores, samples.gain
    number = slopes.dtype.type
    slope = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            slope += (number(data[k]) * gain[i]) * slopes[i, 0]
    return slope


@njit(cache=True, nogil=True, fastmath=False)
def _margin_variance(j, entries, samples, shares):
    """Return the curvature of either of two classes by column j."""
    indptr, indices, data, base = entries
    row_scale, gain = samples.row_scale, samples.gain
    number = shares.dtype.type
    variance = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            variance += (number(data[k]) * gain[i]) * (number(data[k]) * row_scale[i]) * shares[i, 0]
    return variance


@njit(cache=True, nogil=True, fastmath=False)
def _gradient(j, entries, samples, total):
    """Fill `total` with half the gradient by column j."""
    indptr, indices, data, base = entries
    slopes, gain = samples.scores, samples.gain
    if slopes.shape[1] == 1:
        total[1] = _margin_gradient(j, entries, samples)
        total[0] = -total[1]
        return
    number = slopes.dtype.type
    width = np.uint64(slopes.shape[1])
    total[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            for q in range(np.uint64(0), width, _EIGHT):
                lanes_add(total, q, value, slopes, i * width + q)


@njit(cache=True, nogil=True, fastmath=False)
def _variances(j, entries, samples, shares, total):
    """Fill `total` with the diagonal of the Hessian by column j."""
    if shares.shape[1] == 1:
        total[:] = _margin_variance(j, entries, samples, shares)
        return
    indptr, indices, data, base = entries
    row_scale, gain = samples.row_scale, samples.gain
    number = shares.dtype.type
    width = np.uint64(shares.shape[1])
    total[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            square = (number(data[k]) * gain[i]) * (number(data[k]) * row_scale[i])
            for q in range(np.uint64(0), width, _EIGHT):
                lanes_variance(shares, i * width + q, square, total, q)


@njit(cache=True, nogil=True, fastmath=False)
def _products(j, entries, samples, shares, total):
    """Fill `total`, of shape (n_classes, width), with the sums of ``p p'`` times the squares of column j."""
    indptr, indices, data, base = entries
    row_scale, gain = samples.row_scale, samples.gain
    number = shares.dtype.type
    width = np.uint64(shares.shape[1])
    total[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            square = (number(data[k]) * gain[i]) * (number(data[k]) * row_scale[i])
            for r in range(np.uint64(total.shape[0])):
                lanes_add(total, r * width, square * shares[i, r], shares, i * width)


@njit(cache=True, nogil=True, fastmath=False)
def _fill_laplacian(factor, products, hessian, diagonal):
    """Fill in the Hessian that products of probabilities make: its rows add up to zero, as they do to 1."""
    for r in range(hessian.shape[0]):
        diagonal[r] = 0.0
        for q in range(hessian.shape[0]):
            if q != r:
                hessian[r, q] = -factor * products[r, q]
                diagonal[r] -= hessian[r, q]
        hessian[r, r] = diagonal[r]


@njit(cache=True, nogil=True, forceinline=True)
def _turn(slopes, shares, i, value, step):
    """Move the slopes of a sample by those of the model, where ``value * step`` joins its scores."""
    number = slopes.dtype.type
    width = np.uint64(slopes.shape[1])
    if width == 1:
        slopes[i, 0] += number(0.5) * value * shares[i, 0] * (step[1] - step[0])
        return
    at = np.uint64(i) * width
    mean = number(0)
    for q in range(np.uint64(0), width, _EIGHT):
        mean += lanes_dot(shares, at + q, step, q)
    for q in range(np.uint64(0), width, _EIGHT):
        lanes_turn(slopes, shares, at + q, number(0.5) * value, step, mean, q)


@njit(cache=True, nogil=True, fastmath=False)
def _add_column_step(j, entries, samples, shares, step):
    """Move the slopes by a step of the weights of column j."""
    indptr, indices, data, base = entries
    slopes, row_scale = samples.scores, samples.row_scale
    number = slopes.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            _turn(slopes, shares, i, number(data[k]) * row_scale[i], step)


@njit(cache=True, nogil=True, fastmath=False)
def shift(samples, shares, step):
    """Move the slopes by a step of the intercept, of shape (width,)."""
    slopes = samples.scores
    for i in range(slopes.shape[0]):
        _turn(slopes, shares, i, slopes.dtype.type(1), step)


@njit(cache=True, nogil=True, fastmath=False)
def sweep(penalty, columns, samples, shares, move, extra, coef, violations):
    """One block coordinate step (algorithm 2) on the quadratic model for each column in the given order.

    With few classes the step goes to the minimum of the model. With more of them it is one with twice the
    diagonal of the Hessian, which is at least the Hessian (a weighted Laplacian of the classes; with two
    classes they are equal where it matters). So the quadratic model never grows, and there is no line
    search. Columns that violate the conditions of optimality by no more than is negligible cost one gradient.

    Parameters
    ----------
    penalty : Norm
    columns : Columns
    samples : Samples
        Slopes instead of scores; changed in place.
    shares : array of the shape of the slopes
        Probabilities at the scores that the slopes were computed from.
    move, extra, coef, violations
        As in `bigmc.kernels.linear.composite.sweep`.
    """
    n_classes, two_over_n, alpha, _, negligible = move
    width = max(n_classes, samples.scores.shape[1])
    coupled = n_classes if 2 < n_classes <= LANES else 0
    hessian, products = np.empty((coupled, coupled), np.float64), np.empty((coupled, width), np.float64)
    room = np.empty((4, n_classes), np.float64)
    scratch = Scratch(room[0], room[1], room[2], np.ones(n_classes, np.float64), np.zeros(width, np.float64))
    new = room[3]
    total, sums, diagonal = np.empty(width), np.empty(n_classes), np.empty(n_classes)
    wide_step = np.zeros(width, samples.scores.dtype)
    step = wide_step[:n_classes]
    none = np.zeros(width, np.float64)
    for p in columns.order:
        j, row = columns.positions[p], coef[p]
        pull = extra.tilt[p] if extra.tilt.shape[0] else none
        scale = two_over_n * columns.scale[p]
        _gradient(j, columns.entries, samples, total)
        for r in range(n_classes):
            sums[r] = scale * total[r] + pull[r]
        violations[p] = violation(penalty, alpha, extra.ridges[p], row, sums, scratch.ones, scratch.work)
        if violations[p] <= negligible:
            continue
        factor = scale * columns.scale[p]  # twice that of half the Hessian
        if coupled:
            _products(j, columns.entries, samples, shares, products)
            _fill_laplacian(0.5 * factor, products, hessian, diagonal)
        else:
            _variances(j, columns.entries, samples, shares, total)
            for r in range(n_classes):
                diagonal[r] = factor * total[r]
        model = Model(sums, diagonal, hessian, np.inf, extra.ridges[p])
        minimise_model(penalty, alpha, model, row, scratch, new)
        if move_row(1.0, new, columns.scale[p], row, step):
            _add_column_step(j, columns.entries, samples, shares, wide_step)


@njit(cache=True, nogil=True, fastmath=False)
def add_level(samples, shares, slope, variance, products):
    """Add up the derivatives of the model by an intercept.

    Parameters
    ----------
    samples : Samples
        Slopes instead of scores.
    shares : array of the shape of the slopes
    slope, variance : float64 arrays of shape (at least n_classes,)
        Added to: half the gradient, and the diagonal of the Hessian.
    products : float64 array of shape (n_classes, n_classes), or of no rows
        Added to: the sums of ``p p'``.
    """
    slopes, weights = samples.scores, samples.weights
    number = slopes.dtype.type
    width = np.uint64(slopes.shape[1])
    weight = number(1)
    for i in range(np.uint64(slopes.shape[0])):
        if weights.shape[0]:
            weight = number(weights[i])
        if width == 1:
            slope[0] -= weight * slopes[i, 0]
            slope[1] += weight * slopes[i, 0]
            _add_to_both(variance, products, weight * shares[i, 0])
            continue
        for q in range(np.uint64(0), width, _EIGHT):
            lanes_add(slope, q, weight, slopes, i * width + q)
            lanes_variance(shares, i * width + q, weight, variance, q)
        for r in range(products.shape[0]):
            part = np.float64(weight * shares[i, r])
            for q in range(products.shape[0]):
                products[r, q] += part * shares[i, q]


@njit(cache=True, nogil=True, forceinline=True)
def _add_to_both(variance, products, product):
    """Add the product of the probabilities of two classes to what an intercept's Hessian is made of."""
    for r in range(2):
        variance[r] += product
        if products.shape[0]:
            products[r, 1 - r] += product
