# mypy: ignore-errors
"""Log loss by columns, where the derivatives of every sample are computed once and kept.

`columns.composite` takes a sample's scores at every visit, which are exponentials of all classes for each
entry. Here they are taken once for each sample (`rows.log_rows`): sums over columns are products with a
matrix of residuals (`columns.log_sums`), and steps lower the quadratic model of the losses at the scores that
the residuals were computed from,

    sum over i of <g_i, t_i> + 1/2 t_i' (diag(p_i) - p_i p_i') t_i

for the changes t_i of a sample's scores: equation (12) of Blondel, Seki, Uehara, "Block coordinate descent
algorithms for large-scale sparse multiclass classification", Machine Learning 93 (2013), to second order. The
residuals move along with the steps: they are the derivatives of the model. Friedman, Hastie, Tibshirani,
"Regularization paths for generalized linear models via coordinate descent", Journal of Statistical Software
33 (2010), go through columns in the same way.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.linear.columns.composite import Model, Scratch, minimise_model, move_back, move_row
from bigmc.kernels.linear.columns.log_sums import curvature, gradient
from bigmc.kernels.linear.parallel.simd import LANES
from bigmc.kernels.linear.parallel.team import CURVATURE, GRADIENT, HESSIAN, MOVE, WHOLE, sums_of, together
from bigmc.kernels.linear.penalties.formulas import violation
from bigmc.kernels.linear.penalties.optimality import measure
from bigmc.kernels.linear.penalties.projections import along, fill_excess, further_part, projection_part


@kernel
def gradient_norms(penalty, columns, samples, level, support, out):
    """Measure columns as `columns.composite.gradient_norms`, by residuals instead of scores."""
    n_classes, two_over_n, _, _ = level
    slots, coef = support
    total = np.empty(max(n_classes, samples.scores.shape[1]), np.float64)
    sums, zeros = np.zeros(n_classes, np.float64), np.zeros(n_classes, np.float64)
    work = np.ones((2, n_classes), np.float64)
    for p in columns.order:
        gradient(columns.positions[p], WHOLE, columns.entries, samples, total)
        for r in range(n_classes):
            sums[r] = two_over_n * columns.scale[p] * total[r]
        row = zeros if slots[p] < 0 else coef[slots[p]]
        measure(penalty, level, sums, row, p, work, out)


@kernel
def add_gradients(places, entries, samples, n_classes, sums, largest):
    """`columns.loss_columns.add_gradients` of samples whose scores are replaced by residuals."""
    wide = np.empty((2, max(n_classes, samples.scores.shape[1])), np.float64)
    for j in range(places.shape[0]):
        place = places[j]
        if place < 0:
            continue
        curvature(j, WHOLE, entries, samples, wide)
        measured = 0.0
        for r in range(n_classes):
            sums.gradients[place, r] += wide[0, r]
            measured = max(measured, wide[1, r]) if largest else measured + wide[1, r] / n_classes
        sums.curvatures[place] += measured


@kernel
def sweep(penalty, team, move, extra, coef, violations):
    """One block coordinate step (algorithm 2) on the quadratic model for each column in the given order.

    With few classes the step goes to the minimum of the model. With more of them it is one with twice the
    diagonal of the Hessian, which is at least the Hessian (a weighted Laplacian of the classes; with two
    classes they are equal where it matters). So the quadratic model never grows, and there is no line
    search. Columns that violate the conditions of optimality by no more than is negligible cost one gradient.

    Parameters
    ----------
    penalty : Norm
    team : ResidualWork
        Columns, and samples with residuals instead of scores, which are changed in place.
    move, extra, coef, violations
        As in `columns.composite.sweep`.
    """
    n_classes, two_over_n, alpha, _, negligible = move
    columns, samples, _, crew = team
    width = max(n_classes, samples.scores.shape[1])
    coupled = n_classes if 2 < n_classes <= LANES else 0
    hessian = np.empty((coupled, coupled), np.float64)
    whole = sums_of(team, 0)
    rows = np.empty((4, n_classes), np.float64)
    scratch = Scratch(rows[0], rows[1], rows[2], np.ones(n_classes, np.float64), np.zeros(width, np.float64))
    new = rows[3]
    total, sums, diagonal = whole.total, np.empty(n_classes), np.empty(n_classes)
    step = crew.step[:n_classes]
    none = np.zeros(width, np.float64)
    for p in columns.order:
        j, row = columns.positions[p], coef[p]
        pull = extra.tilt[p] if extra.tilt.shape[0] else none
        scale = two_over_n * columns.scale[p]
        together(team, GRADIENT, j, whole)
        for r in range(n_classes):
            sums[r] = scale * total[r] + pull[r]
        violations[p] = violation(penalty, alpha, extra.ridges[p], row, sums, scratch.ones, scratch.work)
        if violations[p] <= negligible:
            continue
        factor = scale * columns.scale[p]  # twice that of half the Hessian
        if coupled:
            together(team, HESSIAN, j, whole)
            _fill_laplacian(0.5 * factor, whole.products, hessian, diagonal)
        else:
            together(team, CURVATURE, j, whole)
            for r in range(n_classes):
                diagonal[r] = factor * total[r]
        model = Model(sums, diagonal, hessian, np.inf, extra.ridges[p])
        minimise_model(penalty, alpha, model, row, scratch, new)
        if move_row(1.0, new, columns.scale[p], row, step):
            together(team, MOVE, j, whole)


@kernel
def project(penalty, team, move, extra, coef, violations):
    """`columns.composite.project` on the quadratic model, by residuals that move along."""
    n_classes, two_over_n, alpha, _, negligible = move
    columns, samples, _, crew = team
    whole, step = sums_of(team, 0), crew.step[:n_classes]
    total, none = whole.total, np.zeros(max(n_classes, samples.scores.shape[1]), np.float64)
    ones = np.ones(n_classes, np.float64)
    rows = np.empty((3, n_classes), np.float64)
    sums, excess, diagonal = rows[0], rows[1], rows[2]
    for p in columns.order:
        j, row = columns.positions[p], coef[p]
        pull = extra.tilt[p] if extra.tilt.shape[0] else none
        scale = two_over_n * columns.scale[p]
        together(team, GRADIENT, j, whole)
        copy_to(total[:n_classes], sums)
        violations[p] = fill_excess(penalty, alpha, scale, (sums, pull, ones), excess)
        if violations[p] <= negligible:
            continue
        before = along(excess, total)
        together(team, CURVATURE, j, whole)
        copy_to(total[:n_classes], diagonal)
        # residuals are half derivatives, variances the whole Hessian
        part = projection_part(0.5 * scale * columns.scale[p], diagonal, excess)
        if not (part > 0.0 and move_back(part, excess, columns.scale[p], row, step)):
            continue
        together(team, MOVE, j, whole)
        together(team, GRADIENT, j, whole)
        part *= further_part(violations[p], scale * (before - along(excess, total)))
        if move_back(part, excess, columns.scale[p], row, step):
            together(team, MOVE, j, whole)


@inner_kernel
def _fill_laplacian(factor, products, hessian, diagonal):
    """Fill in the Hessian that products of probabilities make: its rows add up to zero, as they do to 1."""
    for r in range(hessian.shape[0]):
        diagonal[r] = 0.0
        for q in range(hessian.shape[0]):
            if q != r:
                hessian[r, q] = -factor * products[r, q]
                diagonal[r] -= hessian[r, q]
        hessian[r, r] = diagonal[r]
