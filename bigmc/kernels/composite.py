# mypy: ignore-errors
"""Any loss with any penalty: gradients and block coordinate steps over columns.

The pair most used, multiclass squared hinge with l1/l2, has kernels of its own in
`bigmc.kernels.squared_hinge`; these serve all others. Losses and penalties are integer codes:

========================== ==========================================================================
`SQUARED_HINGE`            ``sum over p in Y, r not in Y of max(1 - s_p + s_r, 0)²``, equation (2) where
                           the sets Y have one label, that of section 4.7 where they have any number
`MULTITASK_SQUARED_HINGE`  ``sum over r of max(1 - Y_r s_r, 0)²``, equation (11)
`LOG_LOSS`                 ``log(1 + sum over r != y of exp(s_r - s_y))``, equation (12)
`SPARSE_GROUP`             ``ratio ||W_j||_1 + (1 - ratio) ||W_j||_2``: l1/l2 and l1 at its ends
`LARGEST`                  ``||W_j||_inf``
========================== ==========================================================================

Equation numbers are those of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale
sparse multiclass classification", Machine Learning 93 (2013). The objective is ``1/n sum w_i loss_i +
alpha * penalty + ridge / 2 ||W||²``; a slope is half a derivative of the loss, so that ``2 / n`` is the
factor of all gradients. The arrays of a block are those of `bigmc.store.block.Block`. Sums are float64.

The labels of a sample are a row of codes, increasing, -1 after the last; the log loss knows one only. A
visit of a sample costs ``O(|Y| n_classes)`` with `SQUARED_HINGE`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.exponentials import lanes_exp, lanes_growth, lanes_largest
from bigmc.kernels.lanes import lanes_curvature, lanes_gradient

SQUARED_HINGE = 0
MULTITASK_SQUARED_HINGE = 1
LOG_LOSS = 2

SPARSE_GROUP = 0
LARGEST = 1

_SIGMA = 0.01  # sufficient decrease of equation (7)
_OMEGA = 0.5
_SMALLEST_CURVATURE = 1e-12
_SMALLEST_PART = 1e-12
#: The sum of a sample's exponentials shrinks to no less than 1 plus this of itself in a step.
_LARGEST_FALL = -1.0 + 1e-15
#: Iterations of the one-dimensional searches, which converge quadratically, and where they stop.
_ROOT_STEPS = 60
_ROOT_TOLERANCE = 1e-13
#: Weights this close to the largest count as equal to it in the subgradient of ``||.||_inf``.
_TIE = 1e-9
#: The local Hessian is worth its use from this many classes squared per entry of the column on.
_MODEL_RATIO = 3
#: That of the log loss has no zeros: an entry costs the square of the classes.
_MODEL_CLASSES, _LOG_MODEL_CLASSES = 128, 16
#: Proximal steps on the local model, and the relative length of a step at which they end.
_MODEL_STEPS = 30
_MODEL_TOLERANCE = 1e-3

_EIGHT = np.uint64(8)


@njit(cache=True, nogil=True, fastmath=False)
def _hide_labels(scores, i, labels, others):
    """Fill `others` with the scores of a sample, minus infinity at its labels: they have no margins."""
    for r in range(others.shape[0]):
        others[r] = scores[i, r]
    for t in range(labels.shape[1]):
        if labels[i, t] < 0:
            break
        others[labels[i, t]] = -np.inf


@njit(cache=True, nogil=True, fastmath=False)
def _odds(scores, i, c, others):
    """Fill `others` with exponentials of a sample's scores, 0 for its label c.

    Returns that of the label, the sum of the others, and the largest score, to which all are relative: the
    sum of all is from 1 to the number of classes.
    """
    width = np.uint64(scores.shape[1])
    at = np.uint64(i) * width
    top = scores[i, c]
    for q in range(width // _EIGHT):
        top = max(top, lanes_largest(scores, at + q * _EIGHT))
    total = scores.dtype.type(0)
    own = top
    for q in range(width // _EIGHT):
        lane = q * _EIGHT
        some = lanes_exp(scores, at + lane, top, others, lane)
        if q == np.uint64(c) // _EIGHT:
            own = others[c]
            others[c] = 0
            some = scores.dtype.type(0)
            for r in range(lane, lane + _EIGHT):
                some += others[r]
        total += some
    return own, total, top


@njit(cache=True, nogil=True, fastmath=False)
def _slopes(loss, scores, i, labels, factor, others, slope):
    """Fill `slope` with half the derivative of a sample's loss by its scores, times the factors if any.

    `others` is room of the width of the scores, filled by `_hide_labels` or `_odds`.
    """
    number = scores.dtype.type
    zero, one = number(0), number(1)
    n_classes = slope.shape[0]
    if loss == LOG_LOSS:
        c = labels[i, 0]
        own, total, _ = _odds(scores, i, c, others)
        half = number(0.5) / (own + total)
        for r in range(n_classes):
            slope[r] = others[r] * half
        slope[c] = -total * half
        if factor.shape[0]:
            total = zero
            for r in range(n_classes):
                slope[r] *= factor[c, r] if r != c else zero
                total += slope[r]
            slope[c] = -total
    elif loss == SQUARED_HINGE:
        _hide_labels(scores, i, labels, others)
        slope[:] = zero
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = one - scores[i, c]
            total = zero
            for r in range(n_classes):
                margin = max(shift + others[r], zero)
                if factor.shape[0]:
                    margin *= factor[c, r]
                slope[r] += margin
                total += margin
            slope[c] = -total
    else:
        for r in range(n_classes):
            slope[r] = max(one + scores[i, r], zero)
            if factor.shape[0]:  # the same in all rows but the class's own
                slope[r] *= factor[(r + 1) % n_classes, r]
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            slope[c] = -max(one - scores[i, c], zero)
            if factor.shape[0]:
                slope[c] *= factor[c, c]


@njit(cache=True, nogil=True, fastmath=False)
def _bends(loss, scores, i, labels, others, slope, bend):
    """Fill `bend` with half the diagonal of the Hessian of a sample's loss, after `_slopes`."""
    n_classes = slope.shape[0]
    if loss == LOG_LOSS:
        # half of p (1 - p); slopes are p / 2, and (p - 1) / 2 of the own class
        for r in range(n_classes):
            bend[r] = abs(slope[r]) * (1 - 2 * abs(slope[r]))
    elif loss == SQUARED_HINGE:
        bend[:] = 0
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = scores.dtype.type(1) - scores[i, c]
            count = slope.dtype.type(0)
            for r in range(n_classes):
                active = shift + others[r] > 0
                bend[r] += active
                count += active
            bend[c] = count
    else:
        for r in range(n_classes):
            bend[r] = slope[r] != 0


@njit(cache=True, nogil=True, fastmath=False)
def _hinge_gradient(loss, j, indptr, indices, data, base, scores, labels, gain, wide, sums):
    """`_gradient` of the hinge losses, by vector instructions.

    All classes are taken for others, and the own ones are put right afterwards. `wide` is room for two rows
    of the width of the scores.
    """
    number = scores.dtype.type
    zero, one = number(0), number(1)
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    most = labels.shape[1]
    others, own = wide[0], wide[1]
    wide[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            if loss == MULTITASK_SQUARED_HINGE:
                for q in range(groups):
                    lanes_gradient(scores, i * width + q * _EIGHT, one, value, others, q * _EIGHT)
            for t in range(most):
                c = labels[i, t]
                if c < 0:
                    break
                score = scores[i, c]
                if loss == MULTITASK_SQUARED_HINGE:
                    own[c] += value * (max(one + score, zero) + max(one - score, zero))
                    continue
                shift = one - score
                total = zero
                for q in range(groups):
                    lane = q * _EIGHT
                    total += lanes_gradient(scores, i * width + lane, shift, value, others, lane)
                for u in range(most):  # a label with itself goes into both sums
                    q = labels[i, u]
                    if q < 0:
                        break
                    if u != t:
                        margin = max(shift + scores[i, q], zero)
                        others[q] -= value * margin
                        total -= margin
                own[c] += value * total
    for r in range(sums.shape[0]):
        sums[r] = others[r] - own[r]


@njit(cache=True, nogil=True, fastmath=False)
def _gradient(loss, j, indptr, indices, data, base, scores, labels, gain, factor, others, slope, wide, sums):
    """Fill `sums` so that the gradient of the losses is ``2 / n * sums``."""
    if loss != LOG_LOSS and factor.shape[0] == 0:
        _hinge_gradient(loss, j, indptr, indices, data, base, scores, labels, gain, wide, sums)
        return
    number = scores.dtype.type
    sums[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            _slopes(loss, scores, i, labels, factor, others, slope)
            value = number(data[k]) * gain[i]
            for r in range(slope.shape[0]):
                sums[r] += value * slope[r]


@njit(cache=True, nogil=True, fastmath=False)
def _curvature(
    loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, factor, others, slope, bend, sums,
    diagonal, squares, hessian,
):  # fmt: skip
    """`_gradient`, squares of each class, the diagonal of the Hessian, and all of it where it has a size.

    The squares of `SQUARED_HINGE` are added up for every label; those of the other losses once.
    """
    number = scores.dtype.type
    sums[:] = 0.0
    diagonal[:] = 0.0
    squares[:] = 0.0
    hessian[:] = 0.0
    n_classes = slope.shape[0]
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            _slopes(loss, scores, i, labels, factor, others, slope)
            _bends(loss, scores, i, labels, others, slope, bend)
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            for r in range(n_classes):
                sums[r] += value * slope[r]
                diagonal[r] += square * bend[r]
            if loss != SQUARED_HINGE:
                squares[0] += square
            for t in range(labels.shape[1] if loss == SQUARED_HINGE else 0):
                c = labels[i, t]
                if c < 0:
                    break
                squares[c] += square
                shift = number(1) - scores[i, c]
                for r in range(hessian.shape[0]):
                    hessian[c, r] -= square * (shift + others[r] > 0)
            if loss == LOG_LOSS and hessian.shape[0]:  # minus half of p p', without its diagonal
                slope[labels[i, 0]] += number(0.5)
                for r in range(n_classes):
                    part = 2 * square * slope[r]
                    for q in range(r):
                        hessian[r, q] -= part * slope[q]
    for r in range(hessian.shape[0]):
        for q in range(r):
            hessian[r, q] += hessian[q, r]
            hessian[q, r] = hessian[r, q]
        hessian[r, r] = diagonal[r]


@njit(cache=True, nogil=True, fastmath=False)
def _loss_change(loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, others, step):
    """Return the change of the sum of weighted losses when ``row_scale * data * step`` joins the scores.

    The step has the width of the scores.
    """
    number = scores.dtype.type
    n_classes = step.shape[0]
    change = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            if row_scale[i] == 0:
                continue
            value = np.float64(number(data[k]) * row_scale[i])
            total = 0.0
            if loss == LOG_LOSS:
                # log(sum p exp(d)), with differences to the own class
                c = labels[i, 0]
                own, rest, _ = _odds(scores, i, c, others)
                for q in range(np.uint64(n_classes) // _EIGHT):
                    total += lanes_growth(others, q * _EIGHT, value, step, q * _EIGHT, step[c])
                total /= own + rest
                if total < _LARGEST_FALL:  # where the probability of the label is lost in rounding
                    total = _LARGEST_FALL
                total = np.log1p(total)
            elif loss == SQUARED_HINGE:
                _hide_labels(scores, i, labels, others)
                for t in range(labels.shape[1]):
                    c = labels[i, t]
                    if c < 0:
                        break
                    shift = 1.0 - scores[i, c]
                    for r in range(n_classes):
                        total += _squares_change(shift + others[r], value * (step[r] - step[c]))
            else:
                for r in range(n_classes):
                    total += _squares_change(1.0 + scores[i, r], value * step[r])
                for t in range(labels.shape[1]):
                    c = labels[i, t]
                    if c < 0:
                        break
                    total -= _squares_change(1.0 + scores[i, c], value * step[c])
                    total += _squares_change(1.0 - scores[i, c], -value * step[c])
            change += total * (gain[i] / row_scale[i])
    return change


@njit(cache=True, nogil=True, fastmath=False)
def _squares_change(margin, move):
    """Return ``max(margin + move, 0)² - max(margin, 0)²``."""
    before = max(margin, 0.0)
    after = max(margin + move, 0.0)
    return (after - before) * (after + before)


@njit(cache=True, nogil=True, fastmath=False)
def _add_step(j, indptr, indices, data, base, scores, row_scale, step):
    """Add ``row_scale * data * step`` to the scores of the column's samples."""
    number = scores.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * row_scale[i]
            for r in range(step.shape[0]):
                scores[i, r] += value * step[r]


@njit(cache=True, nogil=True, fastmath=False)
def _penalty_change(penalty, ratio, row, new):
    """Return the penalty of `new` less that of `row`, before the factor alpha.

    Near the optimum the change is tiny beside the penalty: no difference of two sums is taken.
    """
    total = squares = change = 0.0
    old_squares = largest = old_largest = 0.0
    for r in range(new.shape[0]):
        total += abs(new[r]) - abs(row[r])
        change += (new[r] - row[r]) * (new[r] + row[r])
        squares += new[r] * new[r]
        old_squares += row[r] * row[r]
        largest = max(largest, abs(new[r]))
        old_largest = max(old_largest, abs(row[r]))
    if penalty == LARGEST:
        return largest - old_largest
    length = np.sqrt(squares) + np.sqrt(old_squares)
    return ratio * total + ((1.0 - ratio) * change / length if length > 0.0 else 0.0)


@njit(cache=True, nogil=True, fastmath=False)
def dual_norm(penalty, ratio, gradient):
    """Return the smallest ``nu`` with ``gradient`` in ``nu`` times the subdifferential at 0.

    For sparse groups it solves ``||soft(g, ratio nu)||_2 = (1 - ratio) nu``; the difference of both sides
    is convex and falls, so that Newton's method from 0 climbs to the root.
    """
    total = squares = largest = 0.0
    for r in range(gradient.shape[0]):
        total += abs(gradient[r])
        squares += gradient[r] ** 2
        largest = max(largest, abs(gradient[r]))
    if penalty == LARGEST or not np.isfinite(total):
        return total
    if ratio == 0.0:
        return np.sqrt(squares)
    if ratio == 1.0 or largest == 0.0:
        return largest
    nu = 0.0
    for _ in range(_ROOT_STEPS):
        total = squares = 0.0
        for r in range(gradient.shape[0]):
            left = max(abs(gradient[r]) - ratio * nu, 0.0)
            total += left
            squares += left * left
        length = np.sqrt(squares)
        excess = length - (1.0 - ratio) * nu
        if excess <= _ROOT_TOLERANCE * nu:
            break
        nu += excess / (ratio * total / length + 1.0 - ratio)
    return nu


@njit(cache=True, nogil=True, fastmath=False)
def prox(penalty, ratio, alpha, linear, curve, new):
    """Fill `new` with the minimiser u of ``sum(curve u² / 2 - linear u) + alpha * penalty(u)``.

    Sparse groups: the soft threshold of `linear`, then ``u = linear / (curve + nu)`` with ``nu ||u|| =
    (1 - ratio) alpha``, found by Newton's method on ``1 / ||u(nu)||``, kept between bounds. Largest
    weight: ``|u| = min(|linear| / curve, theta)`` with ``sum max(|linear| - curve theta, 0) = alpha``,
    convex and falling in theta, so that Newton's method from 0 ends after finitely many steps. With equal
    curves these are the operators of section 4.7.

    Parameters
    ----------
    penalty : int
    ratio, alpha : float
    linear, curve, new : float64 arrays of shape (n_classes,)
        `curve` is positive.
    """
    n_classes = linear.shape[0]
    if alpha == 0.0:
        for r in range(n_classes):
            new[r] = linear[r] / curve[r]
        return
    if penalty == LARGEST:
        theta = -1.0
        coming = 0.0
        while coming > theta:
            theta = coming
            above = -alpha
            slope = 0.0
            for r in range(n_classes):
                if abs(linear[r]) > curve[r] * theta:
                    above += abs(linear[r])
                    slope += curve[r]
            coming = above / slope if slope > 0.0 else theta
        for r in range(n_classes):
            size = min(abs(linear[r]) / curve[r], theta)
            new[r] = size if linear[r] > 0.0 else -size
        return
    sparse = ratio * alpha
    group = (1.0 - ratio) * alpha
    norm = largest = 0.0
    for r in range(n_classes):
        new[r] = max(abs(linear[r]) - sparse, 0.0)
        norm += new[r] * new[r]
        largest = max(largest, curve[r])
    norm = np.sqrt(norm)
    if norm <= group:
        new[:] = 0.0
        return
    nu = 0.0
    if group > 0.0:
        low = 0.0
        high = group * largest / (norm - group)
        nu = 0.5 * high
        for _ in range(_ROOT_STEPS):
            length = slope = 0.0
            for r in range(n_classes):
                size = new[r] / (curve[r] + nu)
                length += size * size
                slope += size * size / (curve[r] + nu)
            length = np.sqrt(length)
            if abs(nu * length - group) <= _ROOT_TOLERANCE * group:
                break
            if nu * length > group:
                high = nu
            else:
                low = nu
            nu -= (1.0 / length - nu / group) / (slope / length**3 - 1.0 / group)
            if not low < nu < high:
                nu = 0.5 * (low + high)
    for r in range(n_classes):
        size = new[r] / (curve[r] + nu)
        new[r] = size if linear[r] > 0.0 else -size


@njit(cache=True, nogil=True, fastmath=False)
def violation(penalty, ratio, alpha, ridge, row, gradient, ones, work):
    """Return the norm of the smallest subgradient of the objective by one row of weights.

    Parameters
    ----------
    penalty : int
    ratio, alpha, ridge : float
    row : float64 array of shape (at least n_classes,)
    gradient : float64 array of shape (n_classes,)
        Of the losses.
    ones, work : float64 arrays of shape (n_classes,)
        Ones, and room for the computation.
    """
    n_classes = gradient.shape[0]
    largest = 0.0
    for r in range(n_classes):
        largest = max(largest, abs(row[r]))
    if largest == 0.0:
        prox(penalty, ratio, alpha, gradient, ones, work)
        total = 0.0
        for r in range(n_classes):
            total += work[r] * work[r]
        return np.sqrt(total)
    total = 0.0
    if penalty == LARGEST:
        # -G of the largest weights, signs taken off, less its projection on the simplex of size alpha
        tied = 0
        for r in range(n_classes):
            slope = gradient[r] + ridge * row[r]
            if abs(row[r]) >= (1.0 - _TIE) * largest:
                work[tied] = -slope if row[r] > 0.0 else slope
                tied += 1
            else:
                total += slope * slope
        theta = -np.inf
        for r in range(tied):
            theta = max(theta, work[r])
        theta -= alpha  # the root lies above: the largest alone would give at least alpha there
        for _ in range(_ROOT_STEPS):
            above = -alpha
            count = 0
            for r in range(tied):
                if work[r] > theta:
                    above += work[r]
                    count += 1
            coming = above / count if count else theta
            if not coming > theta:
                break
            theta = coming
        for r in range(tied):
            total += min(work[r], theta) ** 2
        return np.sqrt(total)
    squares = 0.0
    for r in range(n_classes):
        squares += (row[r] / largest) ** 2  # without a penalty weights can be so small that squares vanish
    length = largest * np.sqrt(squares)
    for r in range(n_classes):
        if row[r] != 0.0:
            slope = gradient[r] + ridge * row[r] + (1.0 - ratio) * alpha * row[r] / length
            slope += ratio * alpha if row[r] > 0.0 else -ratio * alpha
        else:
            slope = max(abs(gradient[r]) - ratio * alpha, 0.0)
        total += slope * slope
    return np.sqrt(total)


@njit(cache=True, nogil=True, fastmath=False)
def gradient_norms(
    loss, penalty, ratio, first, last, indptr, indices, data, base, scores, labels, gain, column_scale,
    n_classes, two_over_n, alpha, ridge, factor, slots, coef, norms, violations, distances,
):  # fmt: skip
    """Dual norm of the gradient and violation of the optimality conditions of columns ``first`` to ``last``.

    Parameters
    ----------
    loss, penalty : int
        Codes.
    ratio : float
    first, last, indptr, indices, data, base, scores, labels, gain, column_scale, n_classes, two_over_n
    alpha, ridge, factor, slots, coef, norms, violations, distances
        As in `bigmc.kernels.squared_hinge.gradient_norms`.
    """
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    sums = np.empty(n_classes, np.float64)
    work = np.empty(n_classes, np.float64)
    ones = np.ones(n_classes, np.float64)
    zeros = np.zeros(n_classes, np.float64)
    for j in range(first, last):
        _gradient(
            loss, j, indptr, indices, data, base, scores, labels, gain, factor, others, slope, wide, sums
        )
        for r in range(n_classes):
            sums[r] *= two_over_n * column_scale[j]
        norms[j] = dual_norm(penalty, ratio, sums)
        row = zeros if slots[j] < 0 else coef[slots[j]]
        violations[j] = violation(penalty, ratio, alpha, ridge, row, sums, ones, work)
        distances[j] = 0.0
        if ridge > 0.0 and norms[j] > alpha:
            prox(penalty, ratio, alpha, sums, ones, work)
            for r in range(n_classes):
                distances[j] += work[r] * work[r]


@njit(cache=True, nogil=True, fastmath=False)
def _minimise_model(
    penalty, ratio, alpha, ridge, gradient, diagonal, hessian, row, bound, linear, curve, old, new
):  # fmt: skip
    """Fill `new` with the minimiser u of the local model of the objective at `row`.

    The model has the given gradient and Hessian of the losses. A diagonal Hessian, and one of which only
    the diagonal is known, takes one step; else proximal steps follow each other, with twice the diagonal,
    which bounds the Hessians of the multiclass losses (weighted Laplacians), and never more than `bound`.
    """
    n_classes = gradient.shape[0]
    full = hessian.shape[0] > 0
    for r in range(n_classes):
        new[r] = row[r]
        curve[r] = min(2.0 * diagonal[r], bound) if full else diagonal[r]
        curve[r] = max(curve[r], _SMALLEST_CURVATURE) + ridge
    for _ in range(_MODEL_STEPS if full else 1):
        for r in range(n_classes):
            slope = gradient[r] + ridge * new[r]
            if full:
                for q in range(n_classes):
                    slope += hessian[r, q] * (new[q] - row[q])
            linear[r] = curve[r] * new[r] - slope
            old[r] = new[r]
        prox(penalty, ratio, alpha, linear, curve, new)
        moved = way = 0.0
        for r in range(n_classes):
            moved += (new[r] - old[r]) ** 2
            way += (new[r] - row[r]) ** 2
        if moved <= _MODEL_TOLERANCE**2 * way:
            break


@njit(cache=True, nogil=True, fastmath=False)
def _hinge_curvature(loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, wide, sums):
    """`_hinge_gradient`; returns half the trace of the Hessian. `wide` is room for three rows."""
    number = scores.dtype.type
    zero, one = number(0), number(1)
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    most = labels.shape[1]
    others, own, unused = wide[0], wide[1], wide[2]
    wide[:] = 0.0
    trace = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, j]), np.uint64(indptr[s, j + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            active = zero
            if loss == MULTITASK_SQUARED_HINGE:
                for q in range(groups):
                    lane = q * _EIGHT
                    _, count = lanes_curvature(
                        scores, i * width + lane, one, value, square, others, lane, unused, lane
                    )
                    active += count
            for t in range(most):
                c = labels[i, t]
                if c < 0:
                    break
                score = scores[i, c]
                if loss == MULTITASK_SQUARED_HINGE:
                    own[c] += value * (max(one + score, zero) + max(one - score, zero))
                    active += number(score < one) - number(score > -one)
                    continue
                shift = one - score
                total = zero
                for q in range(groups):
                    lane = q * _EIGHT
                    margins, count = lanes_curvature(
                        scores, i * width + lane, shift, value, square, others, lane, unused, lane
                    )
                    total += margins
                    active += number(2) * count  # an active margin bends the own class too
                active -= number(2)
                for u in range(most):  # a label with itself goes into both sums
                    q = labels[i, u]
                    if q < 0:
                        break
                    if u != t:
                        margin = max(shift + scores[i, q], zero)
                        others[q] -= value * margin
                        total -= margin
                        active -= number(2) * number(margin > zero)
                own[c] += value * total
            trace += square * active
    for r in range(sums.shape[0]):
        sums[r] = others[r] - own[r]
    return trace


@njit(cache=True, nogil=True, fastmath=False)
def add_gradients(
    loss, places, indptr, indices, data, base, scores, labels, row_scale, gain, n_classes, gradients,
    curvatures,
):  # fmt: skip
    """Add half the gradient of the sum of losses, equation (5), of each column, and its mean curvature (6).

    Parameters
    ----------
    loss : int
        Code.
    places : int64 array of shape (columns of the block,)
        Row of the sums of each column, -1 where it is not wanted.
    indptr, indices, data, base, scores, labels, row_scale, gain, n_classes
        As in `bigmc.kernels.squared_hinge.sweep`; nothing is multiplied by the scale of the columns.
    gradients : float64 array of shape (n_sums, width)
    curvatures : float64 array of shape (n_sums,)
        Half the diagonal of the Hessian, its mean over the classes.
    """
    none = np.empty((0, 0), scores.dtype)
    no_hessian = np.empty((0, 0), np.float64)
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    bend = np.empty(n_classes, scores.dtype)
    wide = np.empty((3, scores.shape[1]), np.float64)
    room = np.empty((3, n_classes), np.float64)
    sums, diagonal, squares = room
    for j in range(places.shape[0]):
        place = places[j]
        if place < 0:
            continue
        if loss == LOG_LOSS:
            _curvature(
                loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, none, others, slope,
                bend, sums, diagonal, squares, no_hessian,
            )  # fmt: skip
            trace = diagonal.sum()
        else:
            trace = _hinge_curvature(
                loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, wide, sums
            )
        for r in range(n_classes):
            gradients[place, r] += sums[r]
        curvatures[place] += trace / n_classes


@njit(cache=True, nogil=True, fastmath=False)
def sweep(
    loss, penalty, ratio, order, columns, indptr, indices, data, base, scores, labels, row_scale, gain,
    column_scale, n_classes, two_over_n, alpha, ridges, tilt, line_search, negligible, coef, violations,
):  # fmt: skip
    """One block coordinate step (algorithm 2) for each column in the given order.

    With `line_search` the step goes to the minimiser of a local quadratic model and is halved until
    equation (7) holds: the model has the exact Hessian of the column where that is diagonal (multitask
    squared hinge) or the classes are few for the entries, else twice its diagonal. Otherwise the curvature
    is a constant that bounds the Hessian: ``2 / n (S + (m - 1) s_1 + s_2)`` of the sums of squares per
    label, S their sum and s_1, s_2 the largest, for the squared hinge; of the sum S of all squares
    ``2 S / n`` for the multitask one, ``S / (2n)`` for the log loss. (For v that adds up to 0 the pairs of a
    set of ``a`` labels bend by at most ``a ||v||² + m sum over p in Y of v_p²``, and for ``a = 1`` by that.)
    Columns that are zero and stay zero cost one gradient.

    Parameters
    ----------
    loss, penalty : int
        Codes.
    ratio : float
    order, columns, indptr, indices, data, base, scores, labels, row_scale, gain, column_scale, n_classes
    two_over_n, alpha, ridges, tilt, line_search, negligible, coef, violations
        As in `bigmc.kernels.squared_hinge.sweep`.
    """
    none = np.empty((0, 0), scores.dtype)
    no_hessian = np.empty((0, 0), np.float64)
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    bend = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    step = np.empty(n_classes, scores.dtype)
    room = np.empty((7, n_classes), np.float64)
    sums, diagonal, squares, linear, curve, work, new = room
    trial = np.zeros(scores.shape[1], np.float64)
    ones = np.ones(n_classes, np.float64)
    level = np.zeros(scores.shape[1], np.float64)
    coupled = loss != MULTITASK_SQUARED_HINGE
    most = _LOG_MODEL_CLASSES if loss == LOG_LOSS else _MODEL_CLASSES
    size = n_classes if coupled and n_classes <= most else 0
    whole_hessian = np.empty((size, size), np.float64)
    for p in order:
        j = columns[p]
        row = coef[p]
        pull = tilt[p] if tilt.shape[0] else level
        ridge = ridges[p]
        scale = two_over_n * column_scale[p]
        zero = True
        for r in range(n_classes):
            zero &= row[r] == 0.0
        if zero or negligible > 0.0:
            _gradient(
                loss, j, indptr, indices, data, base, scores, labels, gain, none, others, slope, wide, sums
            )
            for r in range(n_classes):
                sums[r] = scale * sums[r] + pull[r]
            violations[p] = violation(penalty, ratio, alpha, ridge, row, sums, ones, work)
            if violations[p] <= negligible:
                continue
        entries = 0
        for s in range(indptr.shape[0]):
            entries += indptr[s, j + 1] - indptr[s, j]
        full = line_search and size > 0 and n_classes * n_classes <= _MODEL_RATIO * entries
        hessian = whole_hessian if full else no_hessian
        _curvature(
            loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, none, others, slope, bend,
            sums, diagonal, squares, hessian,
        )  # fmt: skip
        scale_squared = scale * column_scale[p]
        first = second = bound = 0.0
        for r in range(n_classes):
            sums[r] = scale * sums[r] + pull[r]
            bound += squares[r]
            if squares[r] > first:
                second = first
                first = squares[r]
            else:
                second = max(second, squares[r])
        if loss == SQUARED_HINGE:
            bound += (n_classes - 1) * first + second
        elif loss == LOG_LOSS:
            bound *= 0.25
        bound *= scale_squared
        for r in range(n_classes):
            if not line_search:
                diagonal[r] = bound
            elif full or not coupled:
                diagonal[r] *= scale_squared
            else:
                diagonal[r] = min(2.0 * scale_squared * diagonal[r], bound)
        for r in range(hessian.shape[0]):
            for q in range(n_classes):
                hessian[r, q] *= scale_squared
        if not zero:
            violations[p] = violation(penalty, ratio, alpha, ridge, row, sums, ones, work)
        _minimise_model(
            penalty, ratio, alpha, ridge, sums, diagonal, hessian, row, bound, linear, curve, work, new
        )
        decrease = alpha * _penalty_change(penalty, ratio, row, new)
        distance = along = 0.0
        for r in range(n_classes):
            way = new[r] - row[r]
            decrease += (sums[r] + ridge * row[r]) * way
            along += (pull[r] + ridge * row[r]) * way
            distance += way * way
        if not decrease < 0.0:
            continue
        part = 1.0
        # Up to this part of the step the bound on the Hessian alone gives equation (7), and no rounding
        # error of the losses can reject it.
        certain = np.inf
        if (bound + ridge) * distance > 0.0:
            certain = 2.0 * (1.0 - _SIGMA) * -decrease / ((bound + ridge) * distance)
        while line_search and part > certain and part > _SMALLEST_PART:
            for r in range(n_classes):
                trial[r] = column_scale[p] * part * (new[r] - row[r])
            change = _loss_change(
                loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, others, trial
            )
            change *= 0.5 * two_over_n
            change += part * (along + 0.5 * ridge * part * distance)
            for r in range(n_classes):
                trial[r] = row[r] + part * (new[r] - row[r])
            change += alpha * _penalty_change(penalty, ratio, row, trial)
            if change <= _SIGMA * part * decrease:
                break
            part *= _OMEGA
        changed = False
        for r in range(n_classes):
            to = new[r] if part == 1.0 else row[r] + part * (new[r] - row[r])
            step[r] = column_scale[p] * (to - row[r])
            changed |= step[r] != 0
            row[r] = to
        if changed:
            _add_step(j, indptr, indices, data, base, scores, row_scale, step)


@njit(cache=True, nogil=True, fastmath=False)
def class_sums(loss, scores, labels, weights, slopes, values, curvatures):
    """Add up what the value of the loss and a step of the intercept need, by own and other class.

    Parameters
    ----------
    loss : int
        Code.
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, most labels)
    weights : float64 array of shape (n_samples,), or empty for ones
    slopes, values, curvatures : float64 arrays of shape (n_classes, n_classes)
        Added to, by own class (row) and other class (column). Hinges: the positive margins, their squares,
        and their number; the multitask one has those of labels on the diagonal, and those of a class that is
        no label in the row after its own, since they have no other class. Log loss: the probabilities of
        other classes; the loss, on the diagonal; and the sums of ``p p'`` over all samples.
    """
    n_classes = slopes.shape[0]
    none = np.empty((0, 0), scores.dtype)
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    one = scores.dtype.type(1)
    weight = 1.0
    for i in range(scores.shape[0]):
        if weights.shape[0]:
            weight = weights[i]
        if loss == SQUARED_HINGE:
            _hide_labels(scores, i, labels, others)
            for t in range(labels.shape[1]):
                c = labels[i, t]
                if c < 0:
                    break
                shift = one - scores[i, c]
                for r in range(n_classes):
                    margin = np.float64(shift + others[r])
                    if margin > 0:
                        slopes[c, r] += weight * margin
                        values[c, r] += weight * margin * margin
                        curvatures[c, r] += weight
            continue
        _slopes(loss, scores, i, labels, none, others, slope)
        if loss == LOG_LOSS:
            c = labels[i, 0]
            for r in range(scores.shape[1]):
                wide[0, r] = scores[i, r]
            own, total, top = _odds(wide, 0, c, wide[1])
            values[c, c] += weight * (np.log(own + total) + (top - wide[0, c]))
            for r in range(n_classes):
                slopes[c, r] += weight * 2.0 * slope[r] if r != c else 0.0
            slope[c] += scores.dtype.type(0.5)
            for r in range(n_classes):
                for q in range(n_classes):
                    curvatures[r, q] += 4.0 * weight * slope[r] * slope[q]
            continue
        for r in range(n_classes):
            row = r if slope[r] < 0 else (r + 1) % n_classes
            margin = abs(np.float64(slope[r]))
            slopes[row, r] += weight * margin
            values[row, r] += weight * margin * margin
            curvatures[row, r] += weight * (margin > 0)


@njit(cache=True, nogil=True, fastmath=False)
def entropy(scores, labels, weights, factor, scale):
    """Return the weighted sum of entropies of the probabilities, moved towards the own class.

    The probability of another class is multiplied by ``scale * factor[c, r]``, at most 1 (`factor` without
    rows stands for ones); what is missing goes to the own class. It is the conjugate of the log loss.
    """
    n_classes = factor.shape[1]
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    weight = 1.0
    total = 0.0
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if weights.shape[0]:
            weight = weights[i]
        _slopes(LOG_LOSS, scores, i, labels, factor, others, slope)
        own = 1.0 + 2.0 * scale * slope[c]
        here = -own * np.log(own) if own > 0.0 else 0.0
        for r in range(n_classes):
            p = 2.0 * scale * slope[r]
            if r != c and p > 0.0:
                here -= p * np.log(p)
        total += weight * here
    return total
