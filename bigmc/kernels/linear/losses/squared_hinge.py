# mypy: ignore-errors
"""Squared hinge over pairs of a label p and a class r that is none: ``max(1 - s_p + s_r, 0)²``.

With one label per sample it is equation (2) of Blondel, Seki, Uehara, "Block coordinate descent algorithms
for large-scale sparse multiclass classification", Machine Learning 93 (2013), with sets of labels the ranking
loss of their section 4.7. A visit of a sample costs ``O(|Y| n_classes)``.

The loss is piecewise quadratic. With the margins ``m_ir = 1 - s_iy + s_ir`` and ``t = D'x_i`` for a direction
D of the weights, its Hessian takes D to the sum over the samples of

    2 / n  x_i u_i',   u_ir = [m_ir > 0] (t_r - t_y) for r != y,   u_iy = -sum over r != y of u_ir

Samples without a positive margin are passed over in Newton steps, and with one label each so are groups of
classes without one: near the optimum that is most of the work.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.copies import copy_to
from bigmc.kernels.linear.losses.interface import LossKernels
from bigmc.kernels.linear.losses.samples import hide_labels, squares_change
from bigmc.kernels.linear.parallel.products import EVERY_GROUP, LAST_BIT, groups_of
from bigmc.kernels.linear.parallel.simd import (
    LANES,
    lanes_active,
    lanes_change,
    lanes_curvature,
    lanes_gradient,
    lanes_margins,
)

_EIGHT = np.uint64(LANES)
_ONE = np.uint64(1)


class SquaredHinge(LossKernels):
    """Of any number of labels; the Newton steps of one label per sample."""

    def residuals(self, scores, i, labels, factor, others, residual):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        hide_labels(scores, i, labels, others)
        residual[:] = zero
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = one - scores[i, c]
            total = zero
            for r in range(residual.shape[0]):
                margin = max(shift + others[r], zero)
                if factor.shape[0]:
                    margin *= factor[c, r]
                residual[r] += margin
                total += margin
            residual[c] = -total

    def curvatures(self, scores, i, labels, others, residual, curvature):
        curvature[:] = 0
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = scores.dtype.type(1) - scores[i, c]
            count = residual.dtype.type(0)
            for r in range(residual.shape[0]):
                active = shift + others[r] > 0
                curvature[r] += active
                count += active
            curvature[c] = count

    def add_coupling(self, scores, i, labels, others, residual, square, hessian):
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = scores.dtype.type(1) - scores[i, c]
            for r in range(hessian.shape[0]):
                hessian[c, r] -= square * (shift + others[r] > 0)

    def change(self, scores, i, labels, others, value, step):
        hide_labels(scores, i, labels, others)
        total = 0.0
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = 1.0 - scores[i, c]
            for r in range(step.shape[0]):
                total += squares_change(shift + others[r], value * (step[r] - step[c]))
        return total

    def add_squares(self, labels, i, square, squares):
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            squares[c] += square

    def curvature_bound(self, squares):
        # With sums of squares per label, s_1 and s_2 the largest and S their sum, half the Hessian is at most
        # S + (m - 1) s_1 + s_2: for v that adds up to 0 the pairs of a set of a labels have a curvature of
        # at most a ||v||² + m sum over p in Y of v_p², and for a = 1 by that.
        first = second = total = 0.0
        for r in range(squares.shape[0]):
            total += squares[r]
            if squares[r] > first:
                second = first
                first = squares[r]
            else:
                second = max(second, squares[r])
        return total + ((squares.shape[0] - 1) * first + second)

    def adds_by_lanes(self):
        return True

    def add_gradient(self, scores, i, labels, value, wide):
        # all classes are taken for others, and the own ones are put right afterwards
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        width = np.uint64(scores.shape[1])
        most = labels.shape[1]
        for t in range(most):
            c = labels[i, t]
            if c < 0:
                break
            shift = one - scores[i, c]
            total = zero
            for q in range(width // _EIGHT):
                lane = q * _EIGHT
                total += lanes_gradient(scores, i * width + lane, shift, value, wide, lane)
            for u in range(most):  # a label with itself goes into both sums
                q = labels[i, u]
                if q < 0:
                    break
                if u != t:
                    margin = max(shift + scores[i, q], zero)
                    wide[0, q] -= value * margin
                    total -= margin
            wide[1, c] += value * total

    def add_curvature(self, scores, i, labels, factors, wide):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        value, square = factors
        width = np.uint64(scores.shape[1])
        most = labels.shape[1]
        for t in range(most):
            c = labels[i, t]
            if c < 0:
                break
            shift = one - scores[i, c]
            total = active = zero
            for q in range(width // _EIGHT):
                lane = q * _EIGHT
                offsets = (i * width + lane, lane, width + width + lane)
                margins, count = lanes_curvature(scores, wide, wide, offsets, shift, factors)
                total += margins
                active += count  # an active margin adds to the curvature of the own class too
            active -= one + one  # the own class itself, in its lane and in the count
            for u in range(most):  # a label with itself goes into both sums
                q = labels[i, u]
                if q < 0:
                    break
                if u != t:
                    margin = max(shift + scores[i, q], zero)
                    wide[0, q] -= value * margin
                    total -= margin
                    wide[2, q] -= square * scores.dtype.type(margin > zero)
                    active -= scores.dtype.type(margin > zero)
            wide[1, c] += value * total
            wide[2, c] += square * active

    def add_class_sums(self, scores, i, labels, weight, work, sums):
        residuals, values, curvatures = sums
        others = work[1]
        hide_labels(scores, i, labels, others)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = scores.dtype.type(1) - scores[i, c]
            for r in range(residuals.shape[0]):
                margin = np.float64(shift + others[r])
                if margin > 0:
                    residuals[c, r] += weight * margin
                    values[c, r] += weight * margin * margin
                    curvatures[c, r] += weight

    def add_class_totals(self, scores, i, labels, weight, work, totals):
        residuals, curvatures, numbers = totals
        others = work[1]
        hide_labels(scores, i, labels, others)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            shift = scores.dtype.type(1) - scores[i, c]
            total = squares = count = 0.0
            for r in range(residuals.shape[0]):
                margin = np.float64(shift + others[r])
                if margin > 0:
                    residuals[r] += weight * margin
                    curvatures[r] += weight
                    total += margin
                    squares += margin * margin
                    count += 1.0
            residuals[c] -= weight * total
            curvatures[c] += weight * count
            numbers[0] += weight * total
            numbers[1] += weight * squares

    def row_residuals(self, samples, i, kept, work):
        # kept: a bit for every group with a positive margin and for that of the own class, 0 if there is none
        scores = samples.scores
        number = scores.dtype.type
        width = np.uint64(scores.shape[1])
        c = np.uint64(samples.labels[i, 0])
        own = c // _EIGHT
        shift = number(1) - scores[i, c]
        mask = np.uint64(0)
        total = number(0)
        for q in range(width // _EIGHT):
            at = q * _EIGHT
            some = lanes_margins(scores, i * width + at, shift, work.residual, at)
            if q == own:
                work.residual[c] = number(0)
                some = number(0)
                for r in range(at, at + _EIGHT):
                    some += work.residual[r]
            if some > 0:
                mask |= _ONE << min(q, LAST_BIT)
                total += some
        if mask == 0:
            kept[i] = 0
            return np.uint64(0)
        mask |= _ONE << min(own, LAST_BIT)
        kept[i] = mask
        used = groups_of(mask, width // _EIGHT, work.groups)
        count = number(0)
        for u in range(used):
            for r in range(work.groups[u], work.groups[u] + _EIGHT):
                work.curvature[r] = number(1) if work.residual[r] > 0 else number(0)
                count += work.curvature[r]
        work.residual[c] = -total
        work.curvature[c] = count
        return used

    def row_turn(self, samples, i, kept, used, work):
        scores, move = samples.scores, work.move
        width = np.uint64(scores.shape[1])
        c = np.uint64(samples.labels[i, 0])
        shift = scores.dtype.type(1) - scores[i, c]
        own = move[c]
        total = scores.dtype.type(0)
        for u in range(used):
            at = work.groups[u]
            total += lanes_active(scores, i * width + at, shift, move, own, at)
        move[c] = -total
        return move

    def row_change(self, samples, i, part, used, work):
        scores, wide = samples.scores, work.wide
        width = np.uint64(scores.shape[1])
        c = np.uint64(samples.labels[i, 0])
        shift = scores.dtype.type(1) - scores[i, c]
        own = wide[c]
        total = 0.0
        for u in range(used):
            at = work.groups[u]
            total += lanes_change(scores, wide, (i * width + at, at), shift, part, own)
        return total


class SquaredHingeOfSets(SquaredHinge):
    """With the Newton steps of any number of labels."""

    def row_residuals(self, samples, i, kept, work):
        # kept: every bit if any margin is positive, else 0
        scores, labels = samples.scores, samples.labels
        residual, curvature, others, margins = work.residual, work.curvature, work.others, work.margins
        width = np.uint64(scores.shape[1])
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        hide_labels(scores, i, labels, others)
        residual[:] = zero
        curvature[:] = zero
        any_positive = False
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            total = zero
            for q in range(width // _EIGHT):
                total += lanes_margins(others, q * _EIGHT, behind, margins, q * _EIGHT)
            residual[c] = -total
            if total > zero:
                any_positive = True
                count = zero
                for r in range(width):
                    above = one if margins[r] > zero else zero
                    residual[r] += margins[r]
                    curvature[r] += above
                    count += above
                curvature[c] = count
        kept[i] = EVERY_GROUP if any_positive else np.uint64(0)
        return groups_of(kept[i], width // _EIGHT, work.groups)

    def row_turn(self, samples, i, kept, used, work):
        scores, labels, move = samples.scores, samples.labels, work.move
        others, turn, moved = work.others, work.residual, work.margins
        width = np.uint64(scores.shape[1])
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        hide_labels(scores, i, labels, others)
        turn[:] = zero
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            copy_to(move, moved)
            total = zero
            for q in range(width // _EIGHT):
                total += lanes_active(others, q * _EIGHT, behind, moved, move[c], q * _EIGHT)
            for r in range(width):
                turn[r] += moved[r]
            turn[c] -= total
        return turn

    def row_change(self, samples, i, part, used, work):
        scores, labels, others, wide = samples.scores, samples.labels, work.others, work.wide
        width = np.uint64(scores.shape[1])
        one = scores.dtype.type(1)
        hide_labels(scores, i, labels, others)
        total = 0.0
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            for q in range(width // _EIGHT):
                lane = q * _EIGHT
                total += lanes_change(others, wide, (lane, lane), behind, part, wide[c])
        return total
