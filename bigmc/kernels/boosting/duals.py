# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""The matrix of the dual weights: made of scores, seen by one class, changed back (Lin et al. 2012, 15, 20).

Row ``i`` of u holds ``-v_i mu_iy`` for the other classes and, when it is made, ``+v_i sum_y mu_iy`` for the
own one, with ``mu_iy = exp(-gamma_iy)`` and the weight v of the sample; the classes are padded with 0.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel


@kernel
def gather(c, u, labels, t, before):
    """Read what class `c` sees: t of every sample, into `t` and `before`; what is beyond them is kept."""
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
    """Write the changes of t back; the sums at the own class are left for the next `gather`."""
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
    """Make u of the scores (15), and what bounds and validation need.

    Parameters
    ----------
    scores : float64 array of shape (n_classes, at least n_rows)
    labels : int32 array of shape (n_rows,)
    weights : float64 array of shape (n_rows,)
        Weight of each sample; those of a negative one are held out.
    u : float array of shape (n_rows, width)
        Overwritten.

    Returns
    -------
    tuple of float
        ``sum v mu`` and ``sum v mu gamma`` over all pairs; of the samples held out the sum of
        ``log(1 + sum_y mu)``, the number of wrong ones and their number.
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
def add_ray(scores, step, labels, weights, longest, out):
    """Add ``sum v exp(-(gamma + a delta))`` over all pairs to `out`, at 0 and at lengths that double.

    Parameters
    ----------
    scores, step : float64 arrays of shape (n_classes, at least n_rows)
        Scores and how they change along the ray; gamma and delta are their margins.
    labels : int32 array of shape (n_rows,)
    weights : float64 array of shape (n_rows,)
    longest : float
    out : float64 array of shape (n_points,)
        Of 0, and of ``longest 2^-k``.
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
                # Twice the length squares the factor.
                factor = np.exp(shortest * (step[c, i] - step[y, i]))
                for k in range(n, 0, -1):
                    out[k] += mu * factor
                    factor *= factor
