# mypy: ignore-errors
"""Ranks of a sample's labels among the scores of all classes."""

from __future__ import annotations

from bigmc.kernels.decorators import kernel


@kernel
def count_above(scores, starts, own, above):
    """Add to each label the number of classes whose score is at least its own.

    Parameters
    ----------
    scores : float64 array of shape (n_rows, n_classes)
        Of all classes, or of some of them.
    starts : int64 array of shape (n_rows + 1,)
        Row ``i`` has the labels ``starts[i]:starts[i + 1]``.
    own : float64 array of shape (n_labels,)
        Score of each.
    above : int64 array of shape (n_labels,)
        Added to.
    """
    for i in range(scores.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            count = 0
            for r in range(scores.shape[1]):
                count += scores[i, r] >= own[k]
            above[k] += count
