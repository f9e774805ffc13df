"""Propensity-scored precision@k, in which hits of rare labels count more.

Annotators overlook labels, rare ones more often. Jain, Prabhu and Varma, "Extreme multi-label loss
functions for recommendation, tagging, ranking and other missing label applications", KDD 2016: the
probability that a relevant label was given, its propensity, is a sigmoid of the logarithm of how many of
``N`` samples have the label, ``p = 1 / (1 + C exp(-A log(N_l + B)))`` with ``C = (log N - 1) (B + 1)^A``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.inference.evaluation.top_labels import RANKS, hits

A, B = 0.55, 1.5
"""Constants of the sigmoid that the authors use for data sets without measurements."""


def inverse_propensities(counts: NDArray[np.int64], n_samples: int) -> NDArray[np.float64]:
    """Return the weight of a hit of each label, at least 1, from its number of samples."""
    scale = max(0.0, np.log(max(n_samples, 1)) - 1.0) * (B + 1.0) ** A
    weights: NDArray[np.float64] = 1.0 + scale * (counts + B) ** -A
    return weights


def weighted_sums(
    top: NDArray[np.int64], rows: NDArray[np.int64], codes: NDArray[np.int64], inverse: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sums over samples of the weights of hits among the first k, and of their maximum.

    `top` is the result of `top_classes`; `rows` and `codes` have one element for every label, `inverse` the
    weight of a hit of each class. The sums have the shape (2, len(RANKS)).
    """
    gained = np.where(hits(top, rows, codes, len(inverse)), inverse[top], 0.0).sum(axis=0).cumsum()
    order = np.lexsort((-inverse[codes], rows))
    starts = np.searchsorted(rows[order], np.arange(len(top)))
    rank = np.arange(len(order)) - starts[rows[order]]
    most = np.bincount(rank, inverse[codes][order], minlength=max(RANKS)).cumsum()
    places = np.array(RANKS) - 1
    return np.stack([gained[places], most[places]])
