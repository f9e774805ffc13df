# mypy: ignore-errors
"""Scores of a boosted model from the codes of its features.

A tree is evaluated for 64 samples at once: a word for each node has a bit for each sample that reaches it.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.boosting.descent import LANES, WORD, add_lanes
from bigmc.kernels.boosting.predictions import range_word
from bigmc.kernels.decorators import inlined_kernel, inner_kernel, kernel

_ROWS = 1024
"""Samples whose codes and scores stay in the nearest cache while all trees are evaluated for them."""
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@kernel
def add_learners(codes, trees, scores):
    """Add ``w h`` of every learner to the scores of its class.

    Parameters
    ----------
    codes : uint8 array of shape (n_features, n_rows)
    trees : ScoredTrees
    scores : float64 array of shape (n_classes, n_rows)
    """
    classes = trees.classes
    n_rows, n_classes = scores.shape[1], scores.shape[0]
    reached, in_a_row = np.empty(2 * trees.feature.shape[1] + 1, np.uint64), codes.reshape(codes.size)
    for first in range(0, n_rows, _ROWS):
        stop = min(first + _ROWS, n_rows)
        whole = stop - (stop - first) % WORD
        for t in range(classes.shape[0]):
            if 0 <= classes[t] < n_classes:
                out = scores[classes[t]]
                for i in range(first, whole, WORD):
                    _add_word(in_a_row, n_rows, i, trees, t, reached, out)
                for i in range(whole, stop):
                    _add_one(codes, i, trees, t, out)


@inlined_kernel
def _add_word(codes, n_rows, i, trees, t, reached, out):
    """Add the responses of tree t to the scores of `WORD` samples from sample i on.

    `reached`, of shape (2 * n_nodes + 1,), is for the words of nodes, then of leaves.
    """
    feature, low, high, leaf = trees.feature, trees.low, trees.high, trees.leaf
    n_nodes = feature.shape[1]
    reached[0] = _ALL
    for k in range(n_nodes):
        above = reached[k] & range_word(codes, feature[t, k] * n_rows + i, low[t, k], high[t, k])
        reached[2 * k + 1] = reached[k] ^ above
        reached[2 * k + 2] = above
    positive = negative = np.uint64(0)
    for k in range(n_nodes + 1):
        if leaf[t, k] > 0:
            positive |= reached[n_nodes + k]
        elif leaf[t, k] < 0:
            negative |= reached[n_nodes + k]
    for lane in range(0, WORD, LANES):
        shift = np.uint64(lane)
        add_lanes(out, i + lane, positive >> shift, trees.weights[t], 0.0)
        add_lanes(out, i + lane, negative >> shift, -trees.weights[t], 0.0)


@inner_kernel
def _add_one(codes, i, trees, t, out):
    """Add the response of tree t to the score of sample i."""
    feature, low, high = trees.feature, trees.low, trees.high
    n_nodes = feature.shape[1]
    k = np.int64(0)
    while k < n_nodes:
        code = codes[feature[t, k], i]
        k = 2 * k + 1 + np.int64((code >= low[t, k]) & (code <= high[t, k]))
    out[i] += trees.weights[t] * trees.leaf[t, k - n_nodes]
