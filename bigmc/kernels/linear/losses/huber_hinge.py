# mypy: ignore-errors
"""Huberised hinge over pairs of the label y and another class r: ``h(1 - s_y + s_r)``.

``h(m) = u (2 m - u)`` with ``u = min(max(m, 0), 1)`` is the squared hinge up to the margin 1 and a straight
line beyond, so that a sample that is far off counts for less (Rosset and Zhu, "Piecewise linear regularized
solution paths", Annals of Statistics 35, 2007). Half its derivative is u, its Hessian that of the squared
hinge with the margins from 0 to 1 only. For one label per sample.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel
from bigmc.kernels.linear.losses.squared_hinge import SquaredHinge
from bigmc.kernels.linear.parallel.products import EVERY_GROUP, groups_of
from bigmc.kernels.linear.parallel.simd import LANES

_EIGHT = np.uint64(LANES)


@inner_kernel
def _change(margin, move):
    """Return ``h(margin + move) - h(margin)``; a small one keeps its digits."""
    before = min(max(margin, 0.0), 1.0)
    after = min(max(margin + move, 0.0), 1.0)
    return 2.0 * after * move + (after - before) * (2.0 * margin - after - before)


class HuberHinge(SquaredHinge):
    """Bounds on the curvature are those of the squared hinge."""

    def residuals(self, scores, i, labels, factor, others, residual):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        c = labels[i, 0]
        shift = one - scores[i, c]
        total = zero
        for r in range(residual.shape[0]):
            bounded = min(max(shift + scores[i, r], zero), one) if r != c else zero
            if factor.shape[0]:
                bounded *= factor[c, r]
            residual[r] = bounded
            total += bounded
        residual[c] = -total

    def curvatures(self, scores, i, labels, others, residual, curvature):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        c = labels[i, 0]
        shift = one - scores[i, c]
        count = zero
        for r in range(residual.shape[0]):
            margin = shift + scores[i, r]
            curved = one if r != c and zero < margin <= one else zero
            curvature[r] = curved
            count += curved
        curvature[c] = count

    def add_coupling(self, scores, i, labels, others, residual, square, hessian):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        c = labels[i, 0]
        shift = one - scores[i, c]
        for r in range(hessian.shape[0]):
            if r != c and zero < shift + scores[i, r] <= one:
                hessian[c, r] -= square

    def change(self, scores, i, labels, others, value, step):
        c = labels[i, 0]
        shift = 1.0 - scores[i, c]
        total = 0.0
        for r in range(step.shape[0]):
            if r != c:
                total += _change(shift + scores[i, r], value * (step[r] - step[c]))
        return total

    def adds_by_lanes(self):
        return False

    def add_class_sums(self, scores, i, labels, weight, work, sums):
        # the values beside the diagonal are squares of u, as the dual needs them; the rest is on the diagonal
        c = labels[i, 0]
        shift = scores.dtype.type(1) - scores[i, c]
        for r in range(sums[0].shape[0]):
            margin = np.float64(shift + scores[i, r])
            if r == c or margin <= 0.0:
                continue
            bounded = min(margin, 1.0)
            sums[0][c, r] += weight * bounded
            sums[1][c, r] += weight * bounded * bounded
            sums[1][c, c] += weight * 2.0 * bounded * (margin - bounded)
            sums[2][c, r] += weight if margin <= 1.0 else 0.0

    def add_class_totals(self, scores, i, labels, weight, work, totals):
        residuals, curvatures, numbers = totals
        c = labels[i, 0]
        shift = scores.dtype.type(1) - scores[i, c]
        for r in range(residuals.shape[0]):
            margin = np.float64(shift + scores[i, r])
            if r == c or margin <= 0.0:
                continue
            bounded = min(margin, 1.0)
            curved = weight if margin <= 1.0 else 0.0
            residuals[r] += weight * bounded
            residuals[c] -= weight * bounded
            curvatures[r] += curved
            curvatures[c] += curved
            numbers[0] += weight * bounded
            numbers[1] += weight * bounded * bounded
            numbers[2] += weight * 2.0 * bounded * (margin - bounded)

    def row_residuals(self, samples, i, kept, work):
        # kept: every bit if any margin is positive, else 0
        scores, labels, residual, curvature = samples.scores, samples.labels, work.residual, work.curvature
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        c = labels[i, 0]
        shift = one - scores[i, c]
        total = count = zero
        for r in range(residual.shape[0]):
            margin = shift + scores[i, r]
            residual[r] = min(max(margin, zero), one) if r != c else zero
            curvature[r] = one if r != c and zero < margin <= one else zero
            total += residual[r]
            count += curvature[r]
        residual[c] = -total
        curvature[c] = count
        kept[i] = EVERY_GROUP if total > zero else np.uint64(0)
        return groups_of(kept[i], np.uint64(residual.shape[0]) // _EIGHT, work.groups)

    def row_turn(self, samples, i, kept, used, work):
        scores, move = samples.scores, work.move
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        c = samples.labels[i, 0]
        shift = one - scores[i, c]
        own = move[c]
        total = zero
        for r in range(move.shape[0]):
            curved = r != c and zero < shift + scores[i, r] <= one
            move[r] = move[r] - own if curved else zero
            total += move[r]
        move[c] = -total
        return move

    def row_change(self, samples, i, part, used, work):
        scores, wide = samples.scores, work.wide
        c = samples.labels[i, 0]
        shift = scores.dtype.type(1) - scores[i, c]
        total = 0.0
        for r in range(wide.shape[0]):
            if r != c:
                total += _change(np.float64(shift + scores[i, r]), part * (wide[r] - wide[c]))
        return total
