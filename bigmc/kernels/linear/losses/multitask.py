# mypy: ignore-errors
"""Multitask squared hinge, every class against the rest: ``sum over r of max(1 - Y_r s_r, 0)²``.

Equation (11) of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse
multiclass classification", Machine Learning 93 (2013), with its derivative (13); with sets of labels
``Y_r = 1`` for each of them. Its Hessian has a diagonal only.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.copies import copy_to
from bigmc.kernels.linear.losses.interface import LossKernels, residuals
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


class MultitaskSquaredHinge(LossKernels):
    """Of any number of labels; the Newton steps of one label per sample."""

    def residuals(self, scores, i, labels, factor, others, residual):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        n_classes = residual.shape[0]
        for r in range(n_classes):
            residual[r] = max(one + scores[i, r], zero)
            if factor.shape[0]:  # the same in all rows but the class's own
                residual[r] *= factor[(r + 1) % n_classes, r]
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            residual[c] = -max(one - scores[i, c], zero)
            if factor.shape[0]:
                residual[c] *= factor[c, c]

    def curvatures(self, scores, i, labels, others, residual, curvature):
        for r in range(residual.shape[0]):
            curvature[r] = residual[r] != 0

    def couples_classes(self):
        return False

    def change(self, scores, i, labels, others, value, step):
        total = 0.0
        for r in range(step.shape[0]):
            total += squares_change(1.0 + scores[i, r], value * step[r])
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            total -= squares_change(1.0 + scores[i, c], value * step[c])
            total += squares_change(1.0 - scores[i, c], -value * step[c])
        return total

    def curvature_bound(self, squares):
        total = 0.0
        for r in range(squares.shape[0]):
            total += squares[r]
        return total

    def adds_by_lanes(self):
        return True

    def add_gradient(self, scores, i, labels, value, wide):
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        width = np.uint64(scores.shape[1])
        for q in range(width // _EIGHT):
            lanes_gradient(scores, i * width + q * _EIGHT, one, value, wide, q * _EIGHT)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            score = scores[i, c]
            wide[1, c] += value * (max(one + score, zero) + max(one - score, zero))

    def add_curvature(self, scores, i, labels, factors, wide):
        number = scores.dtype.type
        zero, one = number(0), number(1)
        value, square = factors
        width = np.uint64(scores.shape[1])
        for q in range(width // _EIGHT):
            lane = q * _EIGHT
            lanes_curvature(scores, wide, wide, (i * width + lane, lane, width + width + lane), one, factors)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            score = scores[i, c]
            wide[1, c] += value * (max(one + score, zero) + max(one - score, zero))
            wide[2, c] += square * (number(score < one) - number(score > -one))

    def add_class_sums(self, scores, i, labels, weight, work, sums):
        none, others, residual, _ = work
        n_classes = residual.shape[0]
        residuals(self, scores, i, labels, none, others, residual)
        for r in range(n_classes):
            row = r if residual[r] < 0 else (r + 1) % n_classes
            margin = abs(np.float64(residual[r]))
            sums[0][row, r] += weight * margin
            sums[1][row, r] += weight * margin * margin
            sums[2][row, r] += weight * (margin > 0)

    def add_class_totals(self, scores, i, labels, weight, work, totals):
        none, others, residual, _ = work
        sums, curvatures, numbers = totals
        residuals(self, scores, i, labels, none, others, residual)
        for r in range(residual.shape[0]):
            wide = np.float64(residual[r])
            sums[r] += weight * wide
            curvatures[r] += weight * (wide != 0)
            numbers[0] += weight * abs(wide)
            numbers[1] += weight * wide * wide

    def row_residuals(self, samples, i, kept, work):
        # kept: a bit for every group with a positive margin and for that of the own class, 0 if there is none
        scores = samples.scores
        number = scores.dtype.type
        width = np.uint64(scores.shape[1])
        c = np.uint64(samples.labels[i, 0])
        own = c // _EIGHT
        behind = number(1) - scores[i, c]
        mask = np.uint64(0)
        for q in range(width // _EIGHT):
            at = q * _EIGHT
            some = lanes_margins(scores, i * width + at, number(1), work.residual, at)
            if q == own:
                work.residual[c] = number(0)
                some = number(0)
                for r in range(at, at + _EIGHT):
                    some += work.residual[r]
            if some > 0:
                mask |= _ONE << min(q, LAST_BIT)
        if mask == 0 and not behind > 0:
            kept[i] = 0
            return np.uint64(0)
        mask |= _ONE << min(own, LAST_BIT)
        kept[i] = mask
        used = groups_of(mask, width // _EIGHT, work.groups)
        for u in range(used):
            for r in range(work.groups[u], work.groups[u] + _EIGHT):
                work.curvature[r] = number(1) if work.residual[r] > 0 else number(0)
        work.residual[c] = -max(behind, number(0))
        work.curvature[c] = number(behind > 0)
        return used

    def row_turn(self, samples, i, kept, used, work):
        scores, move = samples.scores, work.move
        number = scores.dtype.type
        width = np.uint64(scores.shape[1])
        c = np.uint64(samples.labels[i, 0])
        own = move[c]
        for u in range(used):
            at = work.groups[u]
            lanes_active(scores, i * width + at, number(1), move, number(0), at)
        move[c] = own if number(1) - scores[i, c] > 0 else number(0)
        return move

    def row_change(self, samples, i, part, used, work):
        scores, wide = samples.scores, work.wide
        number = scores.dtype.type
        width = np.uint64(scores.shape[1])
        c = np.uint64(samples.labels[i, 0])
        before = np.float64(number(1) - scores[i, c])
        after = max(before - part * wide[c], 0.0)
        before = max(before, 0.0)
        total = (after - before) * (after + before)
        wide[c] = 0.0  # the own class is none of the rest: it does not move there
        for u in range(used):
            at = work.groups[u]
            total += lanes_change(scores, wide, (i * width + at, at), number(1), part, 0.0)
        return total


class MultitaskSquaredHingeOfSets(MultitaskSquaredHinge):
    """With the Newton steps of any number of labels."""

    def row_residuals(self, samples, i, kept, work):
        # kept: every bit if any margin is positive, else 0
        scores, labels = samples.scores, samples.labels
        residual, curvature, others = work.residual, work.curvature, work.others
        number = scores.dtype.type
        width = np.uint64(scores.shape[1])
        zero, one = number(0), number(1)
        hide_labels(scores, i, labels, others)
        any_positive = False
        for q in range(width // _EIGHT):
            any_positive |= lanes_margins(others, q * _EIGHT, one, residual, q * _EIGHT) > zero
        for r in range(width):
            curvature[r] = one if residual[r] > zero else zero
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            behind = one - scores[i, c]
            residual[c] = -max(behind, zero)
            curvature[c] = number(behind > zero)
            any_positive |= behind > zero
        kept[i] = EVERY_GROUP if any_positive else np.uint64(0)
        return groups_of(kept[i], width // _EIGHT, work.groups)

    def row_turn(self, samples, i, kept, used, work):
        scores, labels, move = samples.scores, samples.labels, work.move
        others, turn = work.others, work.residual
        width = np.uint64(scores.shape[1])
        zero, one = scores.dtype.type(0), scores.dtype.type(1)
        hide_labels(scores, i, labels, others)
        copy_to(move, turn)
        for q in range(width // _EIGHT):
            lanes_active(others, q * _EIGHT, one, turn, zero, q * _EIGHT)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            turn[c] = move[c] if one - scores[i, c] > zero else zero
        return turn

    def row_change(self, samples, i, part, used, work):
        scores, labels, others, wide = samples.scores, samples.labels, work.others, work.wide
        width = np.uint64(scores.shape[1])
        one = scores.dtype.type(1)
        hide_labels(scores, i, labels, others)
        total = 0.0
        for q in range(width // _EIGHT):
            lane = q * _EIGHT
            total += lanes_change(others, wide, (lane, lane), one, part, 0.0)
        for t in range(labels.shape[1]):
            c = labels[i, t]
            if c < 0:
                break
            before = np.float64(one - scores[i, c])
            after = max(before - part * wide[c], 0.0)
            before = max(before, 0.0)
            total += (after - before) * (after + before)
        return total
