# mypy: ignore-errors
"""Multiclass squared hinge with an l1/l2 penalty: gradients and block coordinate steps over columns.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013); equation numbers below are theirs.

Scores are kept row-major, ``scores[i, r] = s_ir``, with the classes padded to a multiple of `LANES`;
pads hold `PAD_SCORE`, so that their margin ``1 - s_iy + s_ir`` is never positive. All classes of an
entry are worked on at once, without a branch: the own class has the margin 1 and is taken out of the
sums afterwards. Sums are float64.

The arrays of a block are those of `bigmc.store.block.Block`. Value of an entry = ``data[k] * row_scale[i]``
times the scale of its column, which is applied once per column.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.simd import (
    lanes_add,
    lanes_balanced,
    lanes_change,
    lanes_curvature,
    lanes_gradient,
    prefetch,
)  # fmt: skip

PAD_SCORE = -1e30

#: Entries the rows of scores are fetched ahead, when a row takes more than one cache line.
_AHEAD = np.uint64(16)
_EIGHT = np.uint64(8)
_SIXTEEN = np.uint64(16)

_SIGMA = 0.01  # sufficient decrease of equation (7)
_OMEGA = 0.5
_SMALLEST_CURVATURE = 1e-12
#: Sums of products of finite numbers may be reordered so that they vectorise.
_REORDER = {"reassoc", "contract"}
_SMALLEST_PART = 1e-12
_MODEL_STEPS = 40
#: The local Hessian is worth its factorisation from this many classes squared per entry of the column on.
_MODEL_RATIO = 3
_MODEL_CLASSES = 128


@njit(cache=True, nogil=True, fastmath=False)
def _gradient(column, indptr, indices, data, base, scores, labels, gain, sums, own):
    """Fill `sums` and `own` so that equation (5) is ``2 / n * (sums - own)``."""
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    sums[:] = 0.0
    own[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start = np.uint64(indptr[s, column])
        stop = np.uint64(indptr[s, column + 1])
        for k in range(start, stop):
            if groups > 1 and k + _AHEAD < stop:
                coming = (first + np.uint64(indices[k + _AHEAD])) * width
                for line in range(np.uint64(0), width, _SIXTEEN):
                    prefetch(scores, coming + line)
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            shift = one - scores[i, c]
            at = i * width
            total = number(0)
            for q in range(groups):
                total += lanes_gradient(scores, at + q * _EIGHT, shift, value, sums, q * _EIGHT)
            own[c] += value * total


@njit(cache=True, nogil=True, fastmath=False)
def _balanced_gradient(column, indptr, indices, data, base, scores, labels, gain, factor, sums, own):
    """`_gradient` with the margins of class ``c`` multiplied by ``factor[c]``."""
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    sums[:] = 0.0
    own[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, column]), np.uint64(indptr[s, column + 1])):
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            shift = one - scores[i, c]
            at = i * width
            total = number(0)
            for q in range(groups):
                lane = q * _EIGHT
                total += lanes_balanced(scores, at + lane, shift, value, factor, c * width + lane, sums, lane)
            own[c] += value * total


@njit(cache=True, nogil=True, fastmath=False)
def _curvature(
    column, indptr, indices, data, base, scores, labels, row_scale, gain, sums, own, curvature, squares
):
    """`_gradient`, equation (6) as ``2 / n * curvature``, and the weighted squares of each class."""
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    sums[:] = 0.0
    own[:] = 0.0
    curvature[:] = 0.0
    squares[:] = 0.0
    own_curvature = np.zeros(scores.shape[1], np.float64)
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        start = np.uint64(indptr[s, column])
        stop = np.uint64(indptr[s, column + 1])
        for k in range(start, stop):
            if groups > 1 and k + _AHEAD < stop:
                coming = (first + np.uint64(indices[k + _AHEAD])) * width
                for line in range(np.uint64(0), width, _SIXTEEN):
                    prefetch(scores, coming + line)
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            shift = one - scores[i, c]
            at = i * width
            total = number(0)
            active = number(0)
            for q in range(groups):
                lane = q * _EIGHT
                margins, count = lanes_curvature(
                    scores, at + lane, shift, value, square, sums, lane, curvature, lane
                )
                total += margins
                active += count
            own[c] += value * total
            # the own class was counted once in its own lane and once in `active`
            own_curvature[c] += square * (active - number(2))
            squares[c] += square
    for r in range(curvature.shape[0]):
        curvature[r] += own_curvature[r]


@njit(cache=True, nogil=True, fastmath=False)
def _edges(column, indptr, indices, data, base, scores, labels, row_scale, gain, sums, own, edges, squares):
    """`_gradient`, and the local Hessian as weights of edges between own class (row) and other class."""
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    sums[:] = 0.0
    own[:] = 0.0
    edges[:] = 0.0
    squares[:] = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        stop = np.uint64(indptr[s, column + 1])
        for k in range(np.uint64(indptr[s, column]), stop):
            if width > _EIGHT and k + _AHEAD < stop:
                coming = (first + np.uint64(indices[k + _AHEAD])) * width
                for line in range(np.uint64(0), width, _SIXTEEN):
                    prefetch(scores, coming + line)
            i = first + np.uint64(indices[k])
            c = np.uint64(labels[i])
            value = number(data[k]) * gain[i]
            square = value * (number(data[k]) * row_scale[i])
            shift = number(1) - scores[i, c]
            total = number(0)
            for q in range(width // _EIGHT):
                lane = q * _EIGHT
                margins, _ = lanes_curvature(
                    scores, i * width + lane, shift, value, square, sums, lane, edges, c * width + lane
                )
                total += margins
            own[c] += value * total
            squares[c] += square


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _solve_shifted(hessian, shift, factor, right):
    """Overwrite `right` by ``(hessian + shift I)^-1 right``; `factor` gets the Cholesky factor."""
    size = hessian.shape[0]
    for r in range(size):
        for c in range(r + 1):
            total = hessian[r, c] + (shift if r == c else 0.0)
            for k in range(c):
                total -= factor[r, k] * factor[c, k]
            factor[r, c] = np.sqrt(max(total, 1e-300)) if r == c else total / factor[c, c]
    _solve_factored(factor, right)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _solve_factored(factor, right):
    size = factor.shape[0]
    for r in range(size):
        for k in range(r):
            right[r] -= factor[r, k] * right[k]
        right[r] /= factor[r, r]
    for r in range(size - 1, -1, -1):
        right[r] /= factor[r, r]
        for k in range(r):
            right[k] -= factor[r, k] * right[r]


@njit(cache=True, nogil=True, fastmath=False)
def _minimise_model(gradient, hessian, row, alpha, largest, factor, new):
    """Fill `new` with the minimiser u of ``g'(u - w) + (u - w)'H(u - w) / 2 + alpha ||u||``.

    A ridge term is part of gradient and Hessian.

    With ``b = Hw - g`` it is 0 if ``||b|| <= alpha``, else ``(H + nu I) u = b`` with ``nu = alpha / ||u||``;
    Newton's method on ``1 / ||u(nu)|| = nu / alpha``, kept between bounds, finds nu.
    """
    size = hessian.shape[0]
    right = np.empty(size, np.float64)
    again = np.empty(size, np.float64)
    norm = length = 0.0
    for r in range(size):
        right[r] = -gradient[r]
        for k in range(size):
            right[r] += hessian[r, k] * row[k]
        norm += right[r] ** 2
        length += row[r] ** 2
    norm = np.sqrt(norm)
    new[:] = 0.0
    if norm <= alpha:
        return
    if alpha == 0.0:
        new[:size] = right
        _solve_shifted(hessian, 0.0, factor, new[:size])
        return
    low = 0.0
    high = 2.0 * alpha * largest / (norm - alpha)
    nu = alpha / np.sqrt(length) if length > 0.0 else 0.5 * high
    for _ in range(_MODEL_STEPS):
        if not low < nu < high:
            nu = 0.5 * (low + high)
        new[:size] = right
        _solve_shifted(hessian, nu, factor, new[:size])
        again[:] = new[:size]
        _solve_factored(factor, again)
        length = slope = 0.0
        for r in range(size):
            length += new[r] ** 2
            slope += new[r] * again[r]
        length = np.sqrt(length)
        if nu * length > alpha:
            high = nu
        else:
            low = nu
        if abs(nu * length - alpha) <= 1e-10 * alpha:
            return
        nu -= (1.0 / length - nu / alpha) / (slope / length**3 - 1.0 / alpha)


@njit(cache=True, nogil=True, fastmath=False)
def _loss_change(column, indptr, indices, data, base, scores, labels, row_scale, gain, step):
    """Return the change of the sum of weighted losses when ``row_scale * data * step`` joins the scores."""
    width = np.uint64(scores.shape[1])
    groups = width // _EIGHT
    number = scores.dtype.type
    one = number(1)
    change = 0.0
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, column]), np.uint64(indptr[s, column + 1])):
            i = first + np.uint64(indices[k])
            if row_scale[i] == 0:
                continue
            c = np.uint64(labels[i])
            value = np.float64(number(data[k]) * row_scale[i])
            shift = one - scores[i, c]
            at = i * width
            total = 0.0
            for q in range(groups):
                lane = q * _EIGHT
                total += lanes_change(scores, at + lane, shift, value, step, lane, step[c])
            change += total * (gain[i] / row_scale[i])
    return change


@njit(cache=True, nogil=True, fastmath=False)
def _add_step(column, indptr, indices, data, base, scores, row_scale, step):
    """Add ``row_scale * data * step`` to the scores of the column's samples."""
    width = np.uint64(scores.shape[1])
    number = scores.dtype.type
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for k in range(np.uint64(indptr[s, column]), np.uint64(indptr[s, column + 1])):
            i = first + np.uint64(indices[k])
            value = number(data[k]) * row_scale[i]
            for q in range(width // _EIGHT):
                lanes_add(scores, i * width + q * _EIGHT, value, step, q * _EIGHT)


@njit(cache=True, nogil=True, fastmath=False)
def _slope(gradient, row, new, alpha):
    """Bound of equation (7) on the decrease: ``G'(new - row) + alpha (||new|| - ||row||)``."""
    slope = before = after = 0.0
    for r in range(row.shape[0]):
        slope += gradient[r] * (new[r] - row[r])
        before += row[r] ** 2
        after += new[r] ** 2
    return slope + alpha * (np.sqrt(after) - np.sqrt(before))


@njit(cache=True, nogil=True, fastmath=False)
def gradient_norms(columns, samples, level, factor, support, out):
    """Norm of the gradient and violation of the optimality conditions of columns.

    Parameters
    ----------
    columns : Columns
    samples : Samples
        Their labels of shape (n_samples,).
    level : Level
    factor : array of shape (n_classes, width), or of no rows
        Factors of the margins that make the dual feasible for the intercept, see `objectives.balancing`.
    support : Support
    out : Measures
    """
    order, positions, column_scale, indptr, indices, data, base = columns
    scores, labels, _, _, gain = samples
    _, two_over_n, alpha, ridge = level
    slots, coef = support
    norms, violations, distances = out
    width = scores.shape[1]
    sums = np.empty(width, np.float64)
    own = np.empty(width, np.float64)
    for p in order:
        j = positions[p]
        if factor.shape[0]:
            _balanced_gradient(j, indptr, indices, data, base, scores, labels, gain, factor, sums, own)
        else:
            _gradient(j, indptr, indices, data, base, scores, labels, gain, sums, own)
        scale = two_over_n * column_scale[p]
        total = 0.0
        for r in range(width):
            sums[r] = scale * (sums[r] - own[r])
            total += sums[r] * sums[r]
        norm = np.sqrt(total)
        norms[p] = norm
        distances[p] = max(norm - alpha, 0.0) ** 2 if ridge > 0.0 else 0.0
        if slots[p] < 0:
            violations[p] = max(norm - alpha, 0.0)
            continue
        row = coef[slots[p]]
        length = 0.0
        for r in range(width):
            length += row[r] * row[r]
        shrink = ridge
        if length > 0.0:  # without a penalty weights can be so small that their squares vanish
            shrink += alpha / np.sqrt(length)
        total = 0.0
        for r in range(width):
            total += (sums[r] + shrink * row[r]) ** 2
        violations[p] = np.sqrt(total)


@njit(cache=True, nogil=True, fastmath=False)
def sweep(columns, samples, move, extra, coef, violations):
    """One block coordinate step (algorithm 2) for each column in the given order.

    With `line_search` the step goes to the minimiser of the local quadratic model with the full Hessian of
    the column, or, where the classes are many and the entries few, to ``prox(W_j - G_j / L)`` with ``L``
    the largest entry of equation (6); it is halved until equation (7) holds. Otherwise ``L`` is the
    constant ``2 / n (S + (m - 1) s_1 + s_2)`` of the sums of squares per class, which bounds the Hessian.
    Columns that are zero and stay zero (``|G_j| <= alpha``) cost one gradient.

    Parameters
    ----------
    columns : Columns
    samples : Samples
        Their labels of shape (n_samples,); the scores move along.
    move : Step
    extra : Extra
    coef : float64 array of shape (n_columns, width)
        Weights of each position; updated.
    violations : float64 array of shape (n_columns,)
        Violation of each visited position before its step; filled.
    """
    order, positions, column_scale, indptr, indices, data, base = columns
    scores, labels, _, row_scale, gain = samples
    n_classes, two_over_n, alpha, line_search, negligible = move
    ridges, tilt = extra
    width = scores.shape[1]
    sums = np.empty(width, np.float64)
    own = np.empty(width, np.float64)
    curvature = np.empty(width, np.float64)
    squares = np.empty(width, np.float64)
    new = np.empty(width, np.float64)
    step = np.empty(width, scores.dtype)
    trial = np.empty(width, np.float64)
    level = np.zeros(width, np.float64)
    most = _MODEL_CLASSES
    size = n_classes if n_classes <= most else 0
    edges = np.zeros((size, width), np.float64)
    hessian = np.zeros((size, size), np.float64)
    factor = np.zeros((size, size), np.float64)
    for p in order:
        j = positions[p]
        row = coef[p]
        pull = tilt[p] if tilt.shape[0] else level
        ridge = ridges[p]
        scale = two_over_n * column_scale[p]
        length = 0.0
        for r in range(width):
            length += row[r] * row[r]
        length = np.sqrt(length)
        if length == 0.0 or negligible > 0.0:
            _gradient(j, indptr, indices, data, base, scores, labels, gain, sums, own)
            norm = 0.0
            for r in range(width):
                shrunk = alpha * row[r] / length + ridge * row[r] if length > 0.0 else 0.0
                norm += (scale * (sums[r] - own[r]) + pull[r] + shrunk) ** 2
            violations[p] = np.sqrt(norm) if length > 0.0 else max(np.sqrt(norm) - alpha, 0.0)
            if violations[p] <= negligible:
                continue
        entries = 0
        for s in range(indptr.shape[0]):
            entries += indptr[s, j + 1] - indptr[s, j]
        model = line_search and n_classes <= most and n_classes * n_classes <= _MODEL_RATIO * entries
        if model:
            _edges(j, indptr, indices, data, base, scores, labels, row_scale, gain, sums, own, edges, squares)
            curve = scale * column_scale[p]
            for r in range(n_classes):
                hessian[r, r] = 0.0
            for r in range(n_classes):
                for c in range(r):
                    weight = curve * (edges[r, c] + edges[c, r])
                    hessian[r, c] = hessian[c, r] = -weight
                    hessian[r, r] += weight
                    hessian[c, c] += weight
            curvature[:] = 0.0
            for r in range(n_classes):
                curvature[r] = hessian[r, r] / curve if curve > 0.0 else 0.0
                hessian[r, r] += ridge
        else:
            _curvature(
                j, indptr, indices, data, base, scores, labels, row_scale, gain, sums, own, curvature, squares
            )
        first = second = total = largest = violation = 0.0
        for r in range(width):
            sums[r] = scale * (sums[r] - own[r]) + pull[r] + ridge * row[r]
            total += squares[r]
            largest = max(largest, curvature[r])
            if squares[r] > first:
                second = first
                first = squares[r]
            else:
                second = max(second, squares[r])
            if length > 0.0:
                violation += (sums[r] + alpha * row[r] / length) ** 2
        if length > 0.0:
            violations[p] = np.sqrt(violation)
        bound = scale * column_scale[p] * (total + (n_classes - 1) * first + second) + ridge
        if not line_search:
            largest = max(bound, _SMALLEST_CURVATURE)
        else:
            largest = max(scale * column_scale[p] * largest + ridge, _SMALLEST_CURVATURE)

        slope = 0.0
        if model:
            _minimise_model(sums, hessian, row, alpha, largest, factor, new)
            slope = _slope(sums, row, new, alpha)
        if not slope < 0.0:
            # proximal step, equation (4)
            norm = 0.0
            for r in range(width):
                new[r] = row[r] - sums[r] / largest
                norm += new[r] * new[r]
            norm = np.sqrt(norm)
            shrink = 0.0 if norm == 0.0 else max(1.0 - alpha / largest / norm, 0.0)
            for r in range(width):
                new[r] *= shrink
            slope = _slope(sums, row, new, alpha)
        distance = along = 0.0
        for r in range(width):
            distance += (new[r] - row[r]) ** 2
            along += (pull[r] + ridge * row[r]) * (new[r] - row[r])

        part = 1.0
        # Up to this part of the step the bound on the Hessian alone gives equation (7), and no rounding
        # error of the losses can reject it.
        certain = np.inf
        if bound * distance > 0.0:
            certain = 2.0 * (1.0 - _SIGMA) * max(-slope, 0.0) / (bound * distance)
        while line_search and part > certain and part > _SMALLEST_PART:
            moved = 0.0
            for r in range(width):
                to = row[r] + part * (new[r] - row[r])
                moved += to * to
                trial[r] = column_scale[p] * part * (new[r] - row[r])
            change = (
                0.5
                * two_over_n
                * _loss_change(j, indptr, indices, data, base, scores, labels, row_scale, gain, trial)
            )
            change += part * (along + 0.5 * ridge * part * distance)
            if change + alpha * (np.sqrt(moved) - length) <= _SIGMA * part * slope:
                break
            part *= _OMEGA
        changed = False
        for r in range(width):
            to = new[r] if part == 1.0 else row[r] + part * (new[r] - row[r])
            step[r] = column_scale[p] * (to - row[r])
            changed |= step[r] != 0
            row[r] = to
        if changed:
            _add_step(j, indptr, indices, data, base, scores, row_scale, step)
