# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Scores of a boosted model from the codes of its features."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel


@kernel
def add_learners(codes, trees, scores):
    """Add ``w h`` of every learner to the scores of its class.

    Parameters
    ----------
    codes : uint8 array of shape (n_features, n_rows)
    trees : ScoredTrees
    scores : float64 array of shape (n_classes, n_rows)
    """
    feature, low, high, leaf = trees.feature, trees.low, trees.high, trees.leaf
    classes, weights = trees.classes, trees.weights
    n_nodes = feature.shape[1]
    for t in range(feature.shape[0]):
        if not 0 <= classes[t] < scores.shape[0]:
            continue
        out = scores[classes[t]]
        if n_nodes == 1:
            column, lo, hi = codes[feature[t, 0]], low[t, 0], high[t, 0]
            below, above = weights[t] * leaf[t, 0], weights[t] * leaf[t, 1]
            for i in range(out.shape[0]):
                out[i] += above if (column[i] >= lo) & (column[i] <= hi) else below
            continue
        for i in range(out.shape[0]):
            k = np.int64(0)
            while k < n_nodes:
                code = codes[feature[t, k], i]
                k = 2 * k + 1 + np.int64((code >= low[t, k]) & (code <= high[t, k]))
            out[i] += weights[t] * leaf[t, k - n_nodes]
