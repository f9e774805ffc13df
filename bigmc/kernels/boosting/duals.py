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
def turn(c, t, before, labels):
    """Change t, with two classes, as `fold` of class `c` and `gather` of the other one do, without u.

    Both classes see the same pairs. The results are equal to the last bit.
    """
    for i in range(labels.shape[0]):
        old, new = before[i], t[i]
        if labels[i] == c:
            new = old * (new / old) if old > 0 and new != old else old
        t[i] = before[i] = new


@kernel
def weigh(log_loss, label_noise, scores, labels, weights, u):
    """Compute u from the scores (15), and sums for bounds and validation.

    For the log loss, ``log(1 + sum_y mu)``, every row of u is divided by ``1 + sum_y mu``: it is the gradient
    of the loss, and no sample weighs more than v, however wrong it is. With label noise ε the probability p
    of a sample's label becomes ``q = (1 - ε) p + ε / n_classes``, the loss ``-log q``, and its gradient has
    the further factor ``(1 - ε) p / q``: a sample whose label is improbable without noise hardly weighs.

    Parameters
    ----------
    log_loss : bool
        Whether that is the loss; else it is ``sum_y mu``.
    label_noise : float
        Share of labels that are drawn at random; 0 unless it is the log loss.
    scores : float64 array of shape (n_classes, at least n_rows)
    labels : int32 array of shape (n_rows,)
    weights : float64 array of shape (n_rows,)
        Samples with a negative weight are held out.
    u : array of shape (n_rows, width)
        Overwritten.

    Returns
    -------
    float, float, float, int, int
        Sums of ``v loss``, and of ``v mu gamma`` over all pairs, mu with the factors of u; and of the samples
        held out the sum of the log loss, the number of errors, and their number.
    """
    n_classes = scores.shape[0]
    total = loaded = held_loss = 0.0
    wrong = held = 0
    for i in range(labels.shape[0]):
        y = labels[i]
        for c in range(u.shape[1]):
            u[i, c] = 0.0
        top = 0.0  # of the log loss the largest exponent, which is subtracted from all: none overflows
        if log_loss:
            for c in range(n_classes):
                top = max(top, scores[c, i] - scores[y, i])
        own = 0.0
        inside = 0.0
        best = 0
        for c in range(n_classes):
            if scores[c, i] > scores[best, i]:
                best = c
            if c != y:
                margin = scores[y, i] - scores[c, i]
                mu = np.exp(-margin - top)
                own += mu
                inside += mu * margin
                u[i, c] = -weights[i] * mu
        whole = np.exp(-top) + own
        row_loss = top + np.log(whole) if log_loss else np.log1p(own)
        factor = 1.0 / whole if log_loss else 1.0
        if label_noise > 0.0:
            clean = (1.0 - label_noise) * np.exp(-row_loss)
            q = clean + label_noise / n_classes
            row_loss = -np.log(q)
            factor *= clean / q
        if weights[i] >= 0.0:
            u[i, y] = weights[i] * own
            if log_loss:
                for c in range(n_classes):
                    u[i, c] *= factor
            total += weights[i] * (row_loss if log_loss else own)
            loaded += weights[i] * inside * factor
        else:
            held += 1
            held_loss += row_loss
            wrong += best != y
            for c in range(n_classes):
                u[i, c] = 0.0
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
