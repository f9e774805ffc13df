# mypy: ignore-errors
"""What several losses need of a sample's scores."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel
from bigmc.kernels.linear.parallel.exponentials import lanes_exp, lanes_largest

_EIGHT = np.uint64(8)


@inner_kernel
def hide_labels(scores, i, labels, others):
    """Fill `others` with the scores of a sample, minus infinity at its labels: they have no margins."""
    for r in range(others.shape[0]):
        others[r] = scores[i, r]
    for t in range(labels.shape[1]):
        if labels[i, t] < 0:
            break
        others[labels[i, t]] = -np.inf


@inner_kernel
def sample_odds(scores, i, c, others):
    """Fill `others` with exponentials of a sample's scores, 0 for its label c.

    Returns that of the label, the sum of the others, and the largest score, to which all are relative: the
    sum of all is from 1 to the number of classes.
    """
    width = np.uint64(scores.shape[1])
    at = np.uint64(i) * width
    top = scores[i, c]
    for q in range(width // _EIGHT):
        top = max(top, lanes_largest(scores, at + q * _EIGHT))
    total = scores.dtype.type(0)
    own = top
    for q in range(width // _EIGHT):
        lane = q * _EIGHT
        some = lanes_exp(scores, at + lane, top, others, lane)
        if q == np.uint64(c) // _EIGHT:
            own = others[c]
            others[c] = 0
            some = scores.dtype.type(0)
            for r in range(lane, lane + _EIGHT):
                some += others[r]
        total += some
    return own, total, top


@inner_kernel
def pair_odds(scores, i, c):
    """Return what `sample_odds` does of two classes: exponentials of the label c and the other, their top.

    They are in double precision, and the larger one is 1.
    """
    own, other = np.float64(scores[i, c]), np.float64(scores[i, 1 - c])
    odds = np.exp(-abs(own - other))
    return (1.0, odds, own) if own > other else (odds, 1.0, other)


@inner_kernel
def pair_loss(scores, i, c):
    """Return the log loss of a sample of two classes, label c."""
    own, other, top = pair_odds(scores, i, c)
    return np.log1p(min(own, other)) + (top - np.float64(scores[i, c]))


@inner_kernel
def squares_change(margin, move):
    """Return ``max(margin + move, 0)² - max(margin, 0)²``."""
    before = max(margin, 0.0)
    after = max(margin + move, 0.0)
    return (after - before) * (after + before)
