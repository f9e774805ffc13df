# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""The matrix of the dual weights: from scores, for one class, and updated (Lin et al. 2012, 15, 20).

Row ``i`` of u holds ``-v_i mu_iy`` for the other classes and, when it is computed, ``+v_i sum_y mu_iy`` for
the sample's own, with ``mu_iy = exp(-gamma_iy)`` and the weight v of the sample; the classes are padded with
0.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel


@kernel
def gather(c, u, labels, t, before):
    """Write t of every sample for class `c` into `t` and `before`; elements beyond the samples are kept."""
    n_classes = u.shape[1]
    for i in range(u.shape[0]):
        if labels[i] == c:
            total = 0.0
            for y in range(n_classes):
                if y != c:
                    total -= u[i, y]
            t[i] = total
        else:
            t[i] = -u[i, c]
        before[i] = t[i]


@kernel
def fold(c, t, before, labels, u):
    """Write the changes of t to u; the sums at the sample's class are left for the next `gather`."""
    n_classes = u.shape[1]
    for i in range(u.shape[0]):
        if labels[i] != c:
            u[i, c] = -t[i]
        elif before[i] > 0 and t[i] != before[i]:
            factor = t[i] / before[i]
            for y in range(n_classes):
                if y != c:
                    u[i, y] *= factor


@kernel
def weigh(scores, labels, weights, u):
    """Compute u from the scores (15), and sums for bounds and validation.

    `scores` is float64 of shape (n_classes, at least n_rows); samples with a negative weight are held
    out; `u`, of shape (n_rows, width), is overwritten. Returns ``sum v mu`` and ``sum v mu gamma`` over
    all pairs; and of the samples held out the sum of ``log(1 + sum_y mu)``, the number of errors and
    their number.
    """
    n_classes = scores.shape[0]
    total = loaded = held_loss = 0.0
    wrong = held = 0
    for i in range(labels.shape[0]):
        y = labels[i]
        for c in range(u.shape[1]):
            u[i, c] = 0.0
        own = 0.0
        inside = 0.0
        best = 0
        for c in range(n_classes):
            if scores[c, i] > scores[best, i]:
                best = c
            if c != y:
                margin = scores[y, i] - scores[c, i]
                mu = np.exp(-margin)
                own += mu
                inside += mu * margin
                u[i, c] = -weights[i] * mu
        if weights[i] >= 0.0:
            total += weights[i] * own
            loaded += weights[i] * inside
            u[i, y] = weights[i] * own
        else:
            held += 1
            held_loss += np.log1p(own)
            wrong += best != y
            for c in range(n_classes):
                u[i, c] = 0.0
    return total, loaded, held_loss, wrong, held


@kernel
def weigh_by_log_loss(scores, labels, weights, u):
    """Compute u as `weigh` does, for the loss ``log(1 + sum_y mu)``.

    Every row of u is divided by ``1 + sum_y mu``, which makes it the gradient of that loss: rows that stay
    wrong, as mislabelled ones do, weigh at most v. With u kept so, exponentials bound the loss from above,
    and descending on them lowers it. Returns its sum; the sum of ``v p gamma`` over all pairs, with
    ``p = mu / (1 + sum_y mu)``; and the same figures of the samples held out.
    """
    total = loaded = held_loss = 0.0
    wrong = held = 0
    for i in range(labels.shape[0]):
        y = labels[i]
        best = 0
        least = 0.0  # the largest exponent, subtracted from all: none overflows
        for c in range(scores.shape[0]):
            if scores[c, i] > scores[best, i]:
                best = c
            least = max(least, scores[c, i] - scores[y, i])
        own = 0.0
        inside = 0.0
        for c in range(scores.shape[0]):
            if c != y:
                margin = scores[y, i] - scores[c, i]
                mu = np.exp(-margin - least)
                own += mu
                inside += mu * margin
        whole = np.exp(-least) + own
        loss = least + np.log(whole)
        for c in range(u.shape[1]):
            u[i, c] = 0.0
        if weights[i] >= 0.0:
            for c in range(scores.shape[0]):
                u[i, c] = -weights[i] * np.exp(scores[c, i] - scores[y, i] - least) / whole
            u[i, y] = weights[i] * own / whole
            total += weights[i] * loss
            loaded += weights[i] * inside / whole
        else:
            held += 1
            held_loss += loss
            wrong += best != y
    return total, loaded, held_loss, wrong, held


@kernel
def add_ray(scores, step, labels, weights, longest, out):
    """Add ``sum v exp(-(gamma + a delta))`` over all pairs to `out`, for ``a`` of 0 and of ``longest 2^-k``.

    `scores` and `step`, float64 of shape (n_classes, at least n_rows), are the scores and their change
    along the ray; gamma and delta are their margins. `out` is float64 of shape (n_points,).
    """
    n = out.shape[0] - 1
    shortest = longest * 2.0 ** -(n - 1)
    for i in range(labels.shape[0]):
        y = labels[i]
        if weights[i] <= 0.0:
            continue
        for c in range(scores.shape[0]):
            if c != y:
                mu = weights[i] * np.exp(scores[c, i] - scores[y, i])
                out[0] += mu
                # Doubling the length squares the factor.
                factor = np.exp(shortest * (step[c, i] - step[y, i]))
                for k in range(n, 0, -1):
                    out[k] += mu * factor
                    factor *= factor
