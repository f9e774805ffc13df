# mypy: ignore-errors
"""Any loss with any penalty: optimality and block coordinate steps over columns.

The pair most used, multiclass squared hinge with l1/l2, has kernels of its own in
`squared_hinge`; these serve all others. Codes are those of `losses` and `penalties` in this package.

Equation numbers are those of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale
sparse multiclass classification", Machine Learning 93 (2013). The objective is ``1/n sum w_i loss_i +
alpha * penalty + ridge / 2 ||W||²``. The arrays of a block are those of `bigmc.store.block.Block`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.loss_columns import (
    add_column_step,
    column_curvature,
    column_gradient,
    column_loss_change,
)
from bigmc.kernels.linear.losses import LOG_LOSS, MULTITASK_SQUARED_HINGE, curvature_bound
from bigmc.kernels.linear.penalties import dual_norm, penalty_change, prox, violation

_SIGMA = 0.01  # sufficient decrease of equation (7)
_OMEGA = 0.5
_SMALLEST_CURVATURE = 1e-12
_SMALLEST_PART = 1e-12
#: The local Hessian is worth its use from this many classes squared per entry of the column on.
_MODEL_RATIO = 3
#: That of the log loss has no zeros: an entry costs the square of the classes.
_MODEL_CLASSES, _LOG_MODEL_CLASSES = 128, 16
#: Proximal steps on the local model, and the relative length of a step at which they end.
_MODEL_STEPS = 30
_MODEL_TOLERANCE = 1e-3


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
def gradient_norms(loss, penalty, columns, samples, level, factor, support, out):
    """Dual norm of the gradient and violation of the optimality conditions of columns.

    Parameters
    ----------
    loss : int
        Code.
    penalty : tuple of int and float
        Code, and share of the l1 norm.
    columns, samples, level, factor, support, out
        As in `bigmc.kernels.linear.squared_hinge.gradient_norms`; labels are rows of codes.
    """
    code, ratio = penalty
    order, positions, column_scale, indptr, indices, data, base = columns
    scores, labels, _, _, gain = samples
    n_classes, two_over_n, alpha, ridge = level
    slots, coef = support
    norms, violations, distances = out
    others = np.empty(scores.shape[1], scores.dtype)
    slope = np.empty(n_classes, scores.dtype)
    wide = np.empty((2, scores.shape[1]), np.float64)
    sums = np.empty(n_classes, np.float64)
    work = np.empty(n_classes, np.float64)
    ones = np.ones(n_classes, np.float64)
    zeros = np.zeros(n_classes, np.float64)
    for p in order:
        column_gradient(
            loss, positions[p], indptr, indices, data, base, scores, labels, gain, factor, others, slope,
            wide, sums,
        )  # fmt: skip
        for r in range(n_classes):
            sums[r] *= two_over_n * column_scale[p]
        norms[p] = dual_norm(code, ratio, sums)
        row = zeros if slots[p] < 0 else coef[slots[p]]
        violations[p] = violation(code, ratio, alpha, ridge, row, sums, ones, work)
        distances[p] = 0.0
        if ridge > 0.0 and norms[p] > alpha:
            prox(code, ratio, alpha, sums, ones, work)
            for r in range(n_classes):
                distances[p] += work[r] * work[r]


@njit(cache=True, nogil=True, fastmath=False)
def sweep(loss, penalty, columns, samples, move, extra, coef, violations):
    """One block coordinate step (algorithm 2) for each column in the given order.

    With `line_search` the step goes to the minimiser of a local quadratic model and is halved until
    equation (7) holds: the model has the exact Hessian of the column where that is diagonal (multitask
    squared hinge) or the classes are few for the entries, else twice its diagonal. Otherwise the curvature
    is a constant that bounds the Hessian, see `losses.curvature_bound`. Columns that are zero
    and stay zero cost one gradient.

    Parameters
    ----------
    loss : int
        Code.
    penalty : tuple of int and float
        Code, and share of the l1 norm.
    columns, samples, move, extra, coef, violations
        As in `bigmc.kernels.linear.squared_hinge.sweep`; labels are rows of codes.
    """
    code, ratio = penalty
    order, positions, column_scale, indptr, indices, data, base = columns
    scores, labels, _, row_scale, gain = samples
    n_classes, two_over_n, alpha, line_search, negligible = move
    ridges, tilt = extra
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
        j = positions[p]
        row = coef[p]
        pull = tilt[p] if tilt.shape[0] else level
        ridge = ridges[p]
        scale = two_over_n * column_scale[p]
        zero = True
        for r in range(n_classes):
            zero &= row[r] == 0.0
        if zero or negligible > 0.0:
            column_gradient(
                loss, j, indptr, indices, data, base, scores, labels, gain, none, others, slope, wide, sums
            )
            for r in range(n_classes):
                sums[r] = scale * sums[r] + pull[r]
            violations[p] = violation(code, ratio, alpha, ridge, row, sums, ones, work)
            if violations[p] <= negligible:
                continue
        entries = 0
        for s in range(indptr.shape[0]):
            entries += indptr[s, j + 1] - indptr[s, j]
        full = line_search and size > 0 and n_classes * n_classes <= _MODEL_RATIO * entries
        hessian = whole_hessian if full else no_hessian
        column_curvature(
            loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, none, others, slope, bend,
            sums, diagonal, squares, hessian,
        )  # fmt: skip
        scale_squared = scale * column_scale[p]
        for r in range(n_classes):
            sums[r] = scale * sums[r] + pull[r]
        bound = scale_squared * curvature_bound(loss, squares)
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
            violations[p] = violation(code, ratio, alpha, ridge, row, sums, ones, work)
        _minimise_model(
            code, ratio, alpha, ridge, sums, diagonal, hessian, row, bound, linear, curve, work, new
        )
        decrease = alpha * penalty_change(code, ratio, row, new)
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
            change = column_loss_change(
                loss, j, indptr, indices, data, base, scores, labels, row_scale, gain, others, trial
            )
            change *= 0.5 * two_over_n
            change += part * (along + 0.5 * ridge * part * distance)
            for r in range(n_classes):
                trial[r] = row[r] + part * (new[r] - row[r])
            change += alpha * penalty_change(code, ratio, row, trial)
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
            add_column_step(j, indptr, indices, data, base, scores, row_scale, step)
