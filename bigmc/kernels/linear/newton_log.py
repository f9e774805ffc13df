# mypy: ignore-errors
"""Newton steps of the log loss over samples in row order.

With the probabilities ``p_ir`` of the loss of Blondel, Seki, Uehara (2013), equation (12), and ``t = D'x_i``
for a direction D of the weights, its Hessian takes D to the sum over the samples of

    1 / n  x_i u_i',   u_ir = p_ir (t_r - sum over q of p_iq t_q)

As with all losses the factor left out is ``2 / n``. The probabilities are kept, so that a product takes no
exponentials.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.linear.exponentials import LARGEST_FALL, lanes_bend, lanes_dot, lanes_growth
from bigmc.kernels.linear.losses import sample_odds
from bigmc.kernels.linear.products import (
    EVERY_GROUP,
    add_groups,
    groups_of,
    row_outer,
    row_outer_square,
    row_product,
)
from bigmc.kernels.linear.simd import LANES

_EIGHT = np.uint64(LANES)
_ONE = np.uint64(1)


@njit(cache=True, nogil=True, fastmath=False)
def gradient_rows(span, rows, samples, probabilities, out, curvature):
    """Add the gradient and the diagonal of the Hessian of the rows of a span, without ``2 / n``.

    Parameters
    ----------
    probabilities : array of shape (n_samples, width)
        Filled; of the type of the scores.
    span, rows, samples, out, curvature
        As in `bigmc.kernels.linear.newton_hinges.gradient_rows`.
    """
    indptr, constant = rows.indptr, rows.constant
    scores, labels, weights, row_scale, gain = samples
    width = np.uint64(scores.shape[1])
    size = out.shape[0] - 1  # row of the intercept
    n_groups = width // _EIGHT
    number = scores.dtype.type
    half = number(0.5)
    odds, slope, bend = np.empty((3, width), scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, n_groups, groups)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if start == stop and not constant:
            continue
        c = np.uint64(labels[i, 0])
        own, others, _ = sample_odds(scores, i, c, odds)
        total = number(1) / (own + others)
        for r in range(width):
            p = odds[r] * total
            probabilities[i, r] = p
            slope[r] = half * p
            bend[r] = half * p * (number(1) - p)
        # what the others have is more precise than 1 less a probability near 1
        probabilities[i, c] = own * total
        slope[c] = -half * others * total
        bend[c] = half * own * total * others * total
        row_outer(rows, i, gain[i], slope, groups, used, out)
        row_outer_square(rows, i, gain[i] * row_scale[i], bend, groups, used, curvature)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else number(1)
            add_groups(weight, slope, groups, used, out[size])
            add_groups(weight, bend, groups, used, curvature[size])


@njit(cache=True, nogil=True, fastmath=False)
def hessian_rows(span, rows, samples, probabilities, direction, out):
    """Add the product of the Hessian of the rows of a span, without ``2 / n``, and a direction.

    Parameters as for `gradient_rows`, which has filled `probabilities`; `direction` and `out` have the shape
    (n_slots, width).
    """
    indptr, constant = rows.indptr, rows.constant
    scores, _, weights, row_scale, gain = samples
    width = np.uint64(scores.shape[1])
    size = direction.shape[0] - 1  # row of the intercept
    n_groups = width // _EIGHT
    number = scores.dtype.type
    half = number(0.5)
    move = np.empty(width, scores.dtype)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, n_groups, groups)
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if start == stop and not constant:
            continue
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        mean = number(0)
        for q in range(n_groups):
            mean += lanes_dot(probabilities, i * width + q * _EIGHT, move, q * _EIGHT)
        for q in range(n_groups):
            lanes_bend(probabilities, i * width + q * _EIGHT, half, move, mean, q * _EIGHT)
        row_outer(rows, i, gain[i], move, groups, used, out)
        if constant:
            weight = number(weights[i]) if weights.shape[0] else number(1)
            add_groups(weight, move, groups, used, out[size])


@njit(cache=True, nogil=True, fastmath=False)
def losses_along(span, rows, samples, direction, part):
    """Return the change of the losses of the rows of a span for the step ``part * direction``.

    It is ``log(sum over r of p_r exp(d_r - d_y))`` for the changes d of a sample's scores; a small one keeps
    its digits.
    """
    indptr, constant = rows.indptr, rows.constant
    scores, labels, weights, row_scale, _ = samples
    width = np.uint64(scores.shape[1])
    n_groups = width // _EIGHT
    odds, move = np.empty((2, width), scores.dtype)
    wide = np.empty(width, np.float64)
    groups = np.empty(n_groups + _ONE, np.uint64)
    used = groups_of(EVERY_GROUP, n_groups, groups)
    change = 0.0
    for i in range(np.uint64(span[0]), np.uint64(span[1])):
        start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + _ONE])
        if not constant and (start == stop or row_scale[i] == 0):
            continue
        row_product(rows, i, row_scale[i], direction, groups, used, move)
        wide[:] = move
        c = np.uint64(labels[i, 0])
        own, others, _ = sample_odds(scores, i, c, odds)
        total = 0.0
        for q in range(n_groups):
            total += lanes_growth(odds, q * _EIGHT, part, wide, q * _EIGHT, wide[c])
        total /= own + others
        if total < LARGEST_FALL:  # where the probability of the label is lost in rounding
            total = LARGEST_FALL
        total = np.log1p(total)
        change += weights[i] * total if weights.shape[0] else total
    return change
