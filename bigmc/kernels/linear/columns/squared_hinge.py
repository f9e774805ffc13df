# mypy: ignore-errors
"""Multiclass squared hinge with an l1/l2 penalty: optimality and block coordinate steps over columns.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013); equation numbers below are theirs. The pair has kernels of its
own beside those of `columns.composite`, because its local model has a minimum in closed form up to one
number, and its margins are worked on without a branch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.columns.composite import move_back, move_row
from bigmc.kernels.linear.columns.hinge_columns import balanced_gradient, gradient
from bigmc.kernels.linear.parallel.team import (
    CHANGE,
    CURVATURE,
    GRADIENT,
    HESSIAN,
    MATRIX_CLASSES,
    MOVE,
    WHOLE,
    count_entries,
    sums_of,
    together,
)
from bigmc.kernels.linear.penalties.group_model import minimise_group_model
from bigmc.kernels.linear.penalties.projections import further_part, projection_part

_SIGMA = 0.01  # sufficient decrease of equation (7)
_OMEGA = 0.5
_SMALLEST_CURVATURE = 1e-12
_SMALLEST_PART = 1e-12
#: The local Hessian is worth its factorisation from this many classes squared per entry of the column on.
_MODEL_RATIO = 3


class _Terms(NamedTuple):
    """What the objective at a row of weights has beside the losses.

    Attributes
    ----------
    alpha, ridge : float
    pull : float64 array of shape (width,)
        Linear term.
    scale, column_scale : float
        Factors of the gradient by the row, and of the column's values.
    length : float
        Of the row.
    """

    alpha: float
    ridge: float
    pull: NDArray[np.float64]
    scale: float
    column_scale: float
    length: float


class _Curvature(NamedTuple):
    """Bounds of the Hessian along a row: of all of it, and the curvature a proximal step uses."""

    bound: float
    largest: float


@inner_kernel
def _directional_derivative(gradient, row, new, alpha):
    """Bound of equation (7) on the decrease: ``G'(new - row) + alpha (||new|| - ||row||)``."""
    derivative = before = after = 0.0
    for r in range(row.shape[0]):
        derivative += gradient[r] * (new[r] - row[r])
        before += row[r] ** 2
        after += new[r] ** 2
    return derivative + alpha * (np.sqrt(after) - np.sqrt(before))


@kernel
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
    _, two_over_n, alpha, ridge = level
    slots, coef = support
    norms, violations, distances = out
    width = samples.scores.shape[1]
    sums = np.empty(width, np.float64)
    own = np.empty(width, np.float64)
    for p in columns.order:
        j = columns.positions[p]
        if factor.shape[0]:
            balanced_gradient(j, columns.entries, samples, factor, sums, own)
        else:
            gradient(j, WHOLE, columns.entries, samples, sums, own)
        scale = two_over_n * columns.scale[p]
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


@inner_kernel
def _violation_before(row, terms, work):
    """Return the violation of the optimality conditions of a row whose gradient was just summed up."""
    alpha, ridge, pull, scale, _, length = terms
    norm = 0.0
    for r in range(row.shape[0]):
        shrunk = alpha * row[r] / length + ridge * row[r] if length > 0.0 else 0.0
        norm += (scale * (work.sums[r] - work.own[r]) + pull[r] + shrunk) ** 2
    return np.sqrt(norm) if length > 0.0 else max(np.sqrt(norm) - alpha, 0.0)


@inner_kernel
def _is_model_worth(j, entries, move):
    """Return whether a column has enough entries for its local Hessian."""
    count = count_entries(j, entries)
    n_classes = move.n_classes
    return move.line_search and n_classes <= MATRIX_CLASSES and n_classes * n_classes <= _MODEL_RATIO * count


@inner_kernel
def _fill_hessian(terms, work, hessian):
    """Fill the local Hessian, a weighted Laplacian and the ridge, and half its diagonal without the ridge."""
    curve = terms.scale * terms.column_scale
    curvatures, edges = work.curvatures, work.edges
    n_classes = hessian.shape[0]
    for r in range(n_classes):
        hessian[r, r] = 0.0
    for r in range(n_classes):
        for c in range(r):
            weight = curve * (edges[r, c] + edges[c, r])
            hessian[r, c] = hessian[c, r] = -weight
            hessian[r, r] += weight
            hessian[c, c] += weight
    curvatures[:] = 0.0
    for r in range(n_classes):
        curvatures[r] = hessian[r, r] / curve if curve > 0.0 else 0.0
        hessian[r, r] += terms.ridge


@inner_kernel
def _complete_gradient(row, terms, move, work):
    """Turn the sums into the gradient of all smooth terms; returns the curvature and the violation."""
    alpha, ridge, pull, scale, column_scale, length = terms
    sums, own, curvatures, squares, _, _ = work
    first = second = total = largest = violation = 0.0
    for r in range(row.shape[0]):
        sums[r] = scale * (sums[r] - own[r]) + pull[r] + ridge * row[r]
        total += squares[r]
        largest = max(largest, curvatures[r])
        if squares[r] > first:
            second = first
            first = squares[r]
        else:
            second = max(second, squares[r])
        if length > 0.0:
            violation += (sums[r] + alpha * row[r] / length) ** 2
    bound = scale * column_scale * (total + (move.n_classes - 1) * first + second) + ridge
    if not move.line_search:
        largest = max(bound, _SMALLEST_CURVATURE)
    else:
        largest = max(scale * column_scale * largest + ridge, _SMALLEST_CURVATURE)
    return _Curvature(bound, largest), np.sqrt(violation)


@inner_kernel
def _proximal_step(gradient, row, alpha, largest, new):
    """Fill `new` with the proximal point of equation (4); returns the bound of equation (7)."""
    norm = 0.0
    for r in range(row.shape[0]):
        new[r] = row[r] - gradient[r] / largest
        norm += new[r] * new[r]
    norm = np.sqrt(norm)
    shrink = 0.0 if norm == 0.0 else max(1.0 - alpha / largest / norm, 0.0)
    for r in range(row.shape[0]):
        new[r] *= shrink
    return _directional_derivative(gradient, row, new, alpha)


@inner_kernel
def _search_line(j, team, move, terms, bound, line):
    """Return the part of the step that is taken: halved until equation (7) holds.

    `line` is the row, the new one, the bound of equation (7) and the sums of the team's first piece.
    """
    alpha, ridge, pull, _, column_scale, length = terms
    row, new, derivative, work = line
    trial = team.crew.trial
    distance = along = 0.0
    for r in range(row.shape[0]):
        distance += (new[r] - row[r]) ** 2
        along += (pull[r] + ridge * row[r]) * (new[r] - row[r])
    part = 1.0
    # Up to this part of the step the bound on the Hessian alone gives equation (7), and no rounding
    # error of the losses can reject it.
    certain = np.inf
    if bound * distance > 0.0:
        certain = 2.0 * (1.0 - _SIGMA) * max(-derivative, 0.0) / (bound * distance)
    while move.line_search and part > certain and part > _SMALLEST_PART:
        moved = 0.0
        for r in range(row.shape[0]):
            to = row[r] + part * (new[r] - row[r])
            moved += to * to
            trial[r] = column_scale * part * (new[r] - row[r])
        together(team, CHANGE, j, work)
        change = 0.5 * move.two_over_n * work.change[0]
        change += part * (along + 0.5 * ridge * part * distance)
        if change + alpha * (np.sqrt(moved) - length) <= _SIGMA * part * derivative:
            break
        part *= _OMEGA
    return part


@kernel
def sweep(team, move, extra, coef, violations):
    """One block coordinate step (algorithm 2) for each column in the given order.

    With `line_search` the step goes to the minimiser of the local quadratic model with the full Hessian of
    the column, or, where the classes are many and the entries few, to ``prox(W_j - G_j / L)`` with ``L``
    the largest entry of equation (6); it is halved until equation (7) holds. Otherwise ``L`` is the
    constant ``2 / n (S + (m - 1) s_1 + s_2)`` of the sums of squares per class, which bounds the Hessian.
    Columns that are zero and stay zero (``|G_j| <= alpha``) cost one gradient.

    Parameters
    ----------
    team : HingeWork
        Columns, and samples with labels of shape (n_samples,); the scores move along.
    move : Step
    extra : Extra
    coef : float64 array of shape (n_columns, width)
        Weights of each position; updated.
    violations : float64 array of shape (n_columns,)
        Violation of each visited position before its step; filled.
    """
    alpha, negligible = move.alpha, move.negligible
    columns, samples, crew = team
    width = samples.scores.shape[1]
    work, step = sums_of(team, 0), crew.step
    new = np.empty(width, np.float64)
    level = np.zeros(width, np.float64)
    size = work.edges.shape[0]
    hessian = np.zeros((size, size), np.float64)
    factor = np.zeros((size, size), np.float64)
    for p in columns.order:
        j = columns.positions[p]
        row = coef[p]
        length = 0.0
        for r in range(width):
            length += row[r] * row[r]
        length = np.sqrt(length)
        pull = extra.tilt[p] if extra.tilt.shape[0] else level
        scale = move.two_over_n * columns.scale[p]
        terms = _Terms(alpha, extra.ridges[p], pull, scale, columns.scale[p], length)
        if length == 0.0 or negligible > 0.0:
            together(team, GRADIENT, j, work)
            violations[p] = _violation_before(row, terms, work)
            if violations[p] <= negligible:
                continue
        model = _is_model_worth(j, columns.entries, move)
        if model:
            together(team, HESSIAN, j, work)
            _fill_hessian(terms, work, hessian)
        else:
            together(team, CURVATURE, j, work)
        curve, violation = _complete_gradient(row, terms, move, work)
        if length > 0.0:
            violations[p] = violation
        derivative = 0.0
        if model:
            minimise_group_model(work.sums, hessian, row, alpha, curve.largest, factor, new)
            derivative = _directional_derivative(work.sums, row, new, alpha)
        if not derivative < 0.0:
            derivative = _proximal_step(work.sums, row, alpha, curve.largest, new)
        line = (row, new, derivative, work)
        part = _search_line(j, team, move, terms, curve.bound, line)
        if move_row(part, new, columns.scale[p], row, step):
            together(team, MOVE, j, work)


@kernel
def project(team, move, extra, coef, violations):
    """Take the gradient of each column back to the ball it left; see `composite.project`."""
    columns, samples, crew = team
    alpha, width = move.alpha, samples.scores.shape[1]
    work, step = sums_of(team, 0), crew.step
    excess, level = np.empty(width, np.float64), np.zeros(width, np.float64)
    for p in columns.order:
        j, row = columns.positions[p], coef[p]
        pull = extra.tilt[p] if extra.tilt.shape[0] else level
        scale = move.two_over_n * columns.scale[p]
        together(team, GRADIENT, j, work)
        total = 0.0
        for r in range(width):
            excess[r] = scale * (work.sums[r] - work.own[r]) + pull[r]
            total += excess[r] ** 2
        norm = np.sqrt(total)
        violations[p] = max(norm - alpha, 0.0)
        if violations[p] <= move.negligible:
            continue
        for r in range(width):
            excess[r] *= 1.0 - alpha / norm
        together(team, CURVATURE, j, work)
        part = projection_part(scale * columns.scale[p], work.curvatures, excess)
        before = _along(excess, work)
        if not (part > 0.0 and move_back(part, excess, columns.scale[p], row, step)):
            continue
        together(team, MOVE, j, work)
        together(team, GRADIENT, j, work)
        part *= further_part(violations[p], scale * (before - _along(excess, work)))
        if move_back(part, excess, columns.scale[p], row, step):
            together(team, MOVE, j, work)


@inner_kernel
def _along(direction, work):
    """Return the derivative along a direction, before the scale."""
    total = 0.0
    for r in range(direction.shape[0]):
        total += direction[r] * (work.sums[r] - work.own[r])
    return total
