"""Precision@k and nDCG@k."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

RANKS = (1, 3, 5)
"""The k of precision@k and nDCG@k."""


def top_classes(tiles: Iterable[tuple[int, NDArray[np.float64]]], n_rows: int, k: int) -> NDArray[np.int64]:
    """Return the codes of the `k` largest scores of each row, shape (n_rows, k), the largest first.

    Of equal scores the lower code comes first; missing classes are -1. `tiles` has the first of some
    classes and their scores, for classes in rising order.
    """
    best = np.full((n_rows, k), -np.inf)
    codes = np.full((n_rows, k), -1)
    for first, scores in tiles:
        every = np.concatenate([best, scores], axis=1)
        names = np.broadcast_to(np.arange(first, first + scores.shape[1]), scores.shape)
        every_code = np.concatenate([codes, names], axis=1)
        order = np.argsort(-every, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(every, order, axis=1)
        codes = np.take_along_axis(every_code, order, axis=1)
    return codes


def hits(
    top: NDArray[np.int64], rows: NDArray[np.int64], codes: NDArray[np.int64], n_classes: int
) -> NDArray[np.bool_]:
    """Return which classes in the result of `top_classes` are labels; parameters as of `top_sums`."""
    pairs = np.arange(len(top))[:, None] * n_classes + top
    return np.isin(pairs, rows * n_classes + codes) & (top >= 0)


def top_sums(
    top: NDArray[np.int64], rows: NDArray[np.int64], codes: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64]:
    """Return the sums over samples of precision@k, and of nDCG@k, shape (2, len(RANKS)).

    A sample without labels adds 0. The gain of a label at rank ``i``, from 0, is ``1 / log2(i + 2)``;
    nDCG is the sum of the gains over that of the best order. `top` is the result of `top_classes`; `rows`
    and `codes` have one element for every label.
    """
    is_label = hits(top, rows, codes, n_classes)
    n_labels = np.bincount(rows, minlength=len(top))
    gains = 1.0 / np.log2(np.arange(top.shape[1]) + 2.0)
    most = np.concatenate([[0.0], np.cumsum(gains)])
    sums = np.empty((2, len(RANKS)))
    for place, k in enumerate(RANKS):
        among = is_label[:, :k]
        ideal = most[np.minimum(n_labels, k)]
        gained = among @ gains[:k]
        sums[0, place] = among.sum() / k
        sums[1, place] = np.divide(gained, ideal, out=np.zeros(len(top)), where=ideal > 0).sum()
    return sums
