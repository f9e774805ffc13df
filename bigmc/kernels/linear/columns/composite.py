# mypy: ignore-errors
"""Any loss with any penalty: optimality and block coordinate steps over columns.

The pair most used, multiclass squared hinge with l1/l2, has kernels of its own in
`squared_hinge`; these serve all others.

Equation numbers are those of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale
sparse multiclass classification", Machine Learning 93 (2013). The objective is ``1/n sum w_i loss_i +
alpha * penalty + ridge / 2 ||W||²``. The arrays of a block are those of `bigmc.store.block.Block`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.columns.loss_columns import column_gradient, column_work
from bigmc.kernels.linear.losses.interface import couples_classes, curvature_bound, most_model_classes
from bigmc.kernels.linear.parallel.team import (
    CHANGE,
    CURVATURE,
    GRADIENT,
    HESSIAN,
    MOVE,
    WHOLE,
    count_entries,
    sums_of,
    together,
)
from bigmc.kernels.linear.penalties.formulas import penalty_change, prox, violation
from bigmc.kernels.linear.penalties.optimality import measure
from bigmc.kernels.linear.penalties.projections import along, fill_excess, further_part, projection_part

_SIGMA = 0.01  # sufficient decrease of equation (7)
_OMEGA = 0.5
_SMALLEST_CURVATURE = 1e-12
_SMALLEST_PART = 1e-12
#: The local Hessian is worth its use from this many classes squared per entry of the column on.
_MODEL_RATIO = 3
#: Proximal steps on the local model, and the relative length of a step at which they end.
_MODEL_STEPS = 30
_MODEL_TOLERANCE = 1e-3


class Model(NamedTuple):
    """Local model of the objective at a row of weights.

    Attributes
    ----------
    gradient, diagonal : float64 arrays of shape (n_classes,)
        Of the losses, and of their Hessian.
    hessian : float64 array of shape (n_classes, n_classes), or of no rows
        All of the Hessian, where it is used.
    bound, ridge : float
        The Hessian of the losses is at most `bound`; weight of the ridge.
    """

    gradient: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    hessian: NDArray[np.float64]
    bound: float
    ridge: float


class Scratch(NamedTuple):
    """What a step is computed in: float64 arrays of shape (n_classes,); `trial` is as wide as the scores."""

    linear: NDArray[np.float64]
    curve: NDArray[np.float64]
    work: NDArray[np.float64]
    ones: NDArray[np.float64]
    trial: NDArray[np.float64]


class _Line(NamedTuple):
    """A step along which the objective is searched.

    Attributes
    ----------
    row, new : float64 arrays of shape (n_classes,)
        Weights before and after the whole step.
    decrease : float
        Bound of equation (7) on the decrease of the objective for the whole step; negative.
    along, distance : float
        Derivative of the terms beside loss and penalty, and the squared length of the step.
    """

    row: NDArray[np.float64]
    new: NDArray[np.float64]
    decrease: float
    along: float
    distance: float


@inner_kernel
def minimise_model(penalty, alpha, model, row, scratch, new):
    """Fill `new` with the minimiser u of the local model of the objective at `row`.

    The model has the given gradient and Hessian of the losses. A diagonal Hessian, and one of which only
    the diagonal is known, takes one step; else proximal steps follow each other, with twice the diagonal,
    which bounds the Hessians of the multiclass losses (weighted Laplacians), and never more than the bound.
    """
    gradient, diagonal, hessian, bound, ridge = model
    linear, curve, old, _, _ = scratch
    n_classes = gradient.shape[0]
    full = hessian.shape[0] > 0
    for r in range(n_classes):
        new[r] = row[r]
        curve[r] = min(2.0 * diagonal[r], bound) if full else diagonal[r]
        curve[r] = max(curve[r], _SMALLEST_CURVATURE) + ridge
    for _ in range(_MODEL_STEPS if full else 1):
        for r in range(n_classes):
            derivative = gradient[r] + ridge * new[r]
            if full:
                for q in range(n_classes):
                    derivative += hessian[r, q] * (new[q] - row[q])
            linear[r] = curve[r] * new[r] - derivative
            old[r] = new[r]
        prox(penalty, alpha, linear, curve, new)
        moved = way = 0.0
        for r in range(n_classes):
            moved += (new[r] - old[r]) ** 2
            way += (new[r] - row[r]) ** 2
        if moved <= _MODEL_TOLERANCE**2 * way:
            break


@kernel
def gradient_norms(pair, columns, samples, level, factor, support, out):
    """Dual norm of the gradient and violation of the optimality conditions of columns.

    Parameters
    ----------
    pair : Pair
    columns, samples, level, factor, support, out
        As in `columns.squared_hinge.gradient_norms`; labels are rows of codes.
    """
    loss, penalty = pair
    n_classes, two_over_n, _, _ = level
    slots, coef = support
    column = column_work(samples.scores, n_classes)
    sums = column.sums
    work = np.ones((2, n_classes), np.float64)
    zeros = np.zeros(n_classes, np.float64)
    for p in columns.order:
        column_gradient(loss, columns.positions[p], WHOLE, columns.entries, samples, factor, column)
        for r in range(n_classes):
            sums[r] *= two_over_n * columns.scale[p]
        row = zeros if slots[p] < 0 else coef[slots[p]]
        measure(penalty, level, sums, row, p, work, out)


@inner_kernel
def _scale_model(loss, move, scale, column_scale, column, hessian):
    """Scale the Hessian of a column to that of the mean loss; returns the bound on its eigenvalues.

    Without line search the bound stands for the diagonal; where the losses couple the classes and the
    Hessian has no size, twice the diagonal bounds it.
    """
    diagonal, n_classes = column.diagonal, move.n_classes
    coupled = couples_classes(loss)
    full = hessian.shape[0] > 0
    scale_squared = scale * column_scale
    bound = scale_squared * curvature_bound(loss, column.squares)
    for r in range(n_classes):
        if not move.line_search:
            diagonal[r] = bound
        elif full or not coupled:
            diagonal[r] *= scale_squared
        else:
            diagonal[r] = min(2.0 * scale_squared * diagonal[r], bound)
    for r in range(hessian.shape[0]):
        for q in range(n_classes):
            hessian[r, q] *= scale_squared
    return bound


@inner_kernel
def _search_line(penalty, j, team, move, search):
    """Return the part of the step that is taken: halved until equation (7) holds.

    `search` is the line, the sums of the team's first piece, the scale of the column, and the part of the
    step up to which the bound on the Hessian alone gives equation (7).
    """
    line, whole, column_scale, ridge, certain = search
    row, new, decrease, along, distance = line
    trial = team.crew.trial
    part = 1.0
    while part > certain and part > _SMALLEST_PART:
        for r in range(move.n_classes):
            trial[r] = column_scale * part * (new[r] - row[r])
        together(team, CHANGE, j, whole)
        change = 0.5 * move.two_over_n * whole.change[0]
        change += part * (along + 0.5 * ridge * part * distance)
        for r in range(move.n_classes):
            trial[r] = row[r] + part * (new[r] - row[r])
        change += move.alpha * penalty_change(penalty, row, trial)
        if change <= _SIGMA * part * decrease:
            break
        part *= _OMEGA
    return part


@inner_kernel
def _line_to(penalty, move, model, pull, row, new):
    """Return the step from `row` to `new`, without its classes that are pads."""
    decrease = move.alpha * penalty_change(penalty, row, new)
    distance = along = 0.0
    for r in range(move.n_classes):
        way = new[r] - row[r]
        decrease += (model.gradient[r] + model.ridge * row[r]) * way
        along += (pull[r] + model.ridge * row[r]) * way
        distance += way * way
    return _Line(row, new, decrease, along, distance)


@kernel
def sweep(penalty, team, move, extra, coef, violations):
    """One block coordinate step (algorithm 2) for each column in the given order.

    With `line_search` the step goes to the minimiser of a local quadratic model and is halved until
    equation (7) holds: the model has the exact Hessian of the column where that is diagonal (multitask
    squared hinge) or the classes are few for the entries, else twice its diagonal. Otherwise the curvature
    is a constant that bounds the Hessian, see the loss's `curvature_bound`. Columns that are zero
    and stay zero cost one gradient.

    Parameters
    ----------
    penalty : Norm
    team : LossWork
        Columns, and samples with rows of codes as labels; the scores move along.
    move, extra, coef, violations
        As in `columns.squared_hinge.sweep`.
    """
    loss, columns, samples, crew, _ = team
    n_classes, two_over_n, alpha, line_search, negligible = move
    whole = sums_of(team, 0)
    column, sums, no_hessian = whole.work, whole.work.sums, whole.hessian[:0]
    step = crew.step[:n_classes]
    rows = np.empty((4, n_classes), np.float64)
    scratch = Scratch(rows[0], rows[1], rows[2], np.ones(n_classes, np.float64), crew.trial)
    new = rows[3]
    level = np.zeros(samples.scores.shape[1], np.float64)
    has_model = line_search and couples_classes(loss) and n_classes <= most_model_classes(loss)
    has_model &= n_classes <= whole.hessian.shape[0]
    for p in columns.order:
        j = columns.positions[p]
        row = coef[p]
        pull = extra.tilt[p] if extra.tilt.shape[0] else level
        ridge = extra.ridges[p]
        scale = two_over_n * columns.scale[p]
        zero = True
        for r in range(n_classes):
            zero &= row[r] == 0.0
        if zero or negligible > 0.0:
            together(team, GRADIENT, j, whole)
            for r in range(n_classes):
                sums[r] = scale * sums[r] + pull[r]
            violations[p] = violation(penalty, alpha, ridge, row, sums, scratch.ones, scratch.work)
            if violations[p] <= negligible:
                continue
        full = has_model and n_classes * n_classes <= _MODEL_RATIO * count_entries(j, columns.entries)
        hessian = whole.hessian if full else no_hessian
        together(team, HESSIAN if full else CURVATURE, j, whole)
        for r in range(n_classes):
            sums[r] = scale * sums[r] + pull[r]
        bound = _scale_model(loss, move, scale, columns.scale[p], column, hessian)
        if not zero:
            violations[p] = violation(penalty, alpha, ridge, row, sums, scratch.ones, scratch.work)
        model = Model(sums, column.diagonal, hessian, bound, ridge)
        minimise_model(penalty, alpha, model, row, scratch, new)
        line = _line_to(penalty, move, model, pull, row, new)
        if not line.decrease < 0.0:
            continue
        part = 1.0
        if line_search:
            # Up to this part of the step the bound on the Hessian alone gives equation (7), and no rounding
            # error of the losses can reject it.
            certain = np.inf
            if (bound + ridge) * line.distance > 0.0:
                certain = 2.0 * (1.0 - _SIGMA) * -line.decrease / ((bound + ridge) * line.distance)
            search = (line, whole, columns.scale[p], ridge, certain)
            part = _search_line(penalty, j, team, move, search)
        if move_row(part, new, columns.scale[p], row, step):
            together(team, MOVE, j, whole)


@kernel
def project(penalty, team, move, extra, coef, violations):
    """Take the gradient of each column back to the ball it left, by the shortest way of the dual variables.

    What a gradient has beyond the ball of the penalty is its excess E. A step ``-t E`` of the column's
    weights moves the dual variables of its samples along the normal of the ball; t follows from the curvature
    of the losses along E, as the gradients at both ends of a first step tell. Columns in the ball stay as
    they are, whatever their weights. This is the method of successive projections (Bregman, "The method of
    successive projection for finding a common point of convex sets", Soviet Mathematics Doklady 6, 1965): it
    finds a feasible dual point nearby in a few sweeps, where `sweep` goes to the best in many.

    Parameters
    ----------
    penalty, team, move, extra
        As in `sweep`; the ridges are not used.
    coef : float64 array of shape (n_columns, width)
        The steps are added to it.
    violations : float64 array of shape (n_columns,)
        Length of each excess before the step; filled.
    """
    _, columns, samples, crew, _ = team
    n_classes, two_over_n, alpha, _, negligible = move
    whole, step = sums_of(team, 0), crew.step[:n_classes]
    column, sums, ones = whole.work, whole.work.sums, np.ones(n_classes, np.float64)
    excess = np.empty(n_classes, np.float64)
    level = np.zeros(samples.scores.shape[1], np.float64)
    for p in columns.order:
        j, row = columns.positions[p], coef[p]
        pull = extra.tilt[p] if extra.tilt.shape[0] else level
        scale = two_over_n * columns.scale[p]
        together(team, GRADIENT, j, whole)
        violations[p] = fill_excess(penalty, alpha, scale, (sums, pull, ones), excess)
        if violations[p] <= negligible:
            continue
        # it takes the sums anew, without scale and pull
        together(team, CURVATURE, j, whole)
        part = projection_part(scale * columns.scale[p], column.diagonal, excess)
        before = along(excess, sums)
        if not (part > 0.0 and move_back(part, excess, columns.scale[p], row, step)):
            continue
        together(team, MOVE, j, whole)
        together(team, GRADIENT, j, whole)
        part *= further_part(violations[p], scale * (before - along(excess, sums)))
        if move_back(part, excess, columns.scale[p], row, step):
            together(team, MOVE, j, whole)


@inner_kernel
def move_row(part, new, column_scale, row, step):
    """Move a row of weights part of the way to `new` and fill `step`; returns whether it is not all zero."""
    changed = False
    for r in range(step.shape[0]):
        to = new[r] if part == 1.0 else row[r] + part * (new[r] - row[r])
        step[r] = column_scale * (to - row[r])
        changed |= step[r] != 0
        row[r] = to
    return changed


@inner_kernel
def move_back(part, excess, column_scale, row, step):
    """Move a row of weights by ``-part * excess`` and fill `step`; returns whether it is not all zero."""
    changed = False
    for r in range(step.shape[0]):
        to = row[r] - part * excess[r]
        step[r] = column_scale * (to - row[r])
        changed |= step[r] != 0
        row[r] = to
    return changed
