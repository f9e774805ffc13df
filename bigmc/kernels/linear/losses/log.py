# mypy: ignore-errors
"""Log loss: ``log(1 + sum over r != y of exp(s_r - s_y))``.

Equation (12) of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013); for one label per sample. With the probabilities ``p_ir`` and
``t = D'x_i`` for a direction D of the weights, its Hessian takes D to the sum over the samples of

    1 / n  x_i u_i',   u_ir = p_ir (t_r - sum over q of p_iq t_q)

Newton steps keep the probabilities, so that a product takes no exponentials.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.linear.losses.interface import LossKernels, residuals
from bigmc.kernels.linear.losses.samples import pair_loss, pair_odds, sample_odds
from bigmc.kernels.linear.parallel.exponentials import LARGEST_FALL, lanes_dot, lanes_growth, lanes_hessian
from bigmc.kernels.linear.parallel.products import EVERY_GROUP, groups_of
from bigmc.kernels.linear.parallel.simd import LANES

_EIGHT = np.uint64(LANES)


class LogLoss(LossKernels):
    """Of one label per sample."""

    def residuals(self, scores, i, labels, factor, others, residual):
        number = scores.dtype.type
        c = labels[i, 0]
        if residual.shape[0] == 2:
            own, other, _ = pair_odds(scores, i, c)
            part = number(0.5 * other / (own + other))
            if factor.shape[0]:
                part *= factor[c, 1 - c]
            residual[c], residual[1 - c] = -part, part
            return
        own, total, _ = sample_odds(scores, i, c, others)
        half = number(0.5) / (own + total)
        for r in range(residual.shape[0]):
            residual[r] = others[r] * half
        residual[c] = -total * half
        if factor.shape[0]:
            total = number(0)
            for r in range(residual.shape[0]):
                residual[r] *= factor[c, r] if r != c else number(0)
                total += residual[r]
            residual[c] = -total

    def curvatures(self, scores, i, labels, others, residual, curvature):
        # half of p (1 - p); residuals are p / 2, and (p - 1) / 2 of the own class
        for r in range(residual.shape[0]):
            curvature[r] = abs(residual[r]) * (1 - 2 * abs(residual[r]))

    def add_coupling(self, scores, i, labels, others, residual, square, hessian):
        # minus half of p p', without its diagonal
        if hessian.shape[0]:
            residual[labels[i, 0]] += scores.dtype.type(0.5)
            for r in range(residual.shape[0]):
                part = 2 * square * residual[r]
                for q in range(r):
                    hessian[r, q] -= part * residual[q]

    def most_model_classes(self):
        return 16  # the Hessian has no zeros: an entry costs the square of the classes

    def change(self, scores, i, labels, others, value, step):
        # log(sum p exp(d)), with differences to the own class
        c = labels[i, 0]
        own, rest, _ = sample_odds(scores, i, c, others)
        total = 0.0
        for q in range(np.uint64(step.shape[0]) // _EIGHT):
            total += lanes_growth(others, q * _EIGHT, value, step, q * _EIGHT, step[c])
        total /= own + rest
        if total < LARGEST_FALL:  # where the probability of the label is lost in rounding
            total = LARGEST_FALL
        return np.log1p(total)

    def curvature_bound(self, squares):
        total = 0.0
        for r in range(squares.shape[0]):
            total += squares[r]
        return 0.25 * total

    def add_class_sums(self, scores, i, labels, weight, work, sums):
        none, others, residual, wide = work
        n_classes = residual.shape[0]
        c = labels[i, 0]
        if n_classes == 2:
            own, other, _ = pair_odds(scores, i, c)
            p, q = own / (own + other), other / (own + other)
            sums[1][c, c] += weight * pair_loss(scores, i, c)
            sums[0][c, 1 - c] += weight * q
            sums[2][c, c] += weight * p * p
            sums[2][1 - c, 1 - c] += weight * q * q
            sums[2][0, 1] += weight * p * q
            sums[2][1, 0] += weight * p * q
            return
        residuals(self, scores, i, labels, none, others, residual)
        for r in range(scores.shape[1]):
            wide[0, r] = scores[i, r]
        own, total, top = sample_odds(wide, 0, c, wide[1])
        sums[1][c, c] += weight * (np.log(own + total) + (top - wide[0, c]))
        for r in range(n_classes):
            sums[0][c, r] += weight * 2.0 * residual[r] if r != c else 0.0
        residual[c] += scores.dtype.type(0.5)
        for r in range(n_classes):
            for q in range(n_classes):
                sums[2][r, q] += 4.0 * weight * residual[r] * residual[q]

    def add_class_totals(self, scores, i, labels, weight, work, totals):
        none, others, residual, wide = work
        sums, curvatures, numbers = totals
        residuals(self, scores, i, labels, none, others, residual)
        c = labels[i, 0]
        for r in range(scores.shape[1]):
            wide[0, r] = scores[i, r]
        own, total, top = sample_odds(wide, 0, c, wide[1])
        numbers[1] += weight * (np.log(own + total) + (top - wide[0, c]))
        others_residual = 0.0
        for r in range(residual.shape[0]):
            half = np.float64(residual[r])
            curvatures[r] += weight * abs(half) * (1.0 - 2.0 * abs(half))
            if r != c:
                sums[r] += weight * half
                others_residual += half
        sums[c] -= weight * others_residual
        numbers[0] += weight * 2.0 * others_residual

    def row_residuals(self, samples, i, kept, work):
        # kept: the probabilities
        scores, residual, curvature = samples.scores, work.residual, work.curvature
        number = scores.dtype.type
        half = number(0.5)
        c = np.uint64(samples.labels[i, 0])
        own, others, _ = sample_odds(scores, i, c, work.others)
        total = number(1) / (own + others)
        for r in range(residual.shape[0]):
            p = work.others[r] * total
            kept[i, r] = p
            residual[r] = half * p
            curvature[r] = half * p * (number(1) - p)
        # what the others have is more precise than 1 less a probability near 1
        kept[i, c] = own * total
        residual[c] = -half * others * total
        curvature[c] = half * own * total * others * total
        return groups_of(EVERY_GROUP, np.uint64(residual.shape[0]) // _EIGHT, work.groups)

    def row_groups(self, kept, i, work):
        return groups_of(EVERY_GROUP, np.uint64(work.groups.shape[0] - 1), work.groups)

    def row_turn(self, samples, i, kept, used, work):
        move = work.move
        width = np.uint64(samples.scores.shape[1])
        number = samples.scores.dtype.type
        mean = number(0)
        for q in range(width // _EIGHT):
            mean += lanes_dot(kept, i * width + q * _EIGHT, move, q * _EIGHT)
        for q in range(width // _EIGHT):
            lanes_hessian(kept, i * width + q * _EIGHT, number(0.5), move, mean, q * _EIGHT)
        return move

    def row_change(self, samples, i, part, used, work):
        # log(sum p exp(d - d_y)) for the changes d of the scores; a small one keeps its digits
        c = np.uint64(samples.labels[i, 0])
        wide = work.wide
        own, others, _ = sample_odds(samples.scores, i, c, work.others)
        total = 0.0
        for q in range(np.uint64(wide.shape[0]) // _EIGHT):
            total += lanes_growth(work.others, q * _EIGHT, part, wide, q * _EIGHT, wide[c])
        total /= own + others
        if total < LARGEST_FALL:  # where the probability of the label is lost in rounding
            total = LARGEST_FALL
        return np.log1p(total)
