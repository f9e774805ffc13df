"""Thresholds of scores for label sets: one for all classes, or one for each.

One threshold is best for micro-averaged F1, in which frequent labels count most. For macro-averaged
F1, the mean over the labels, each label has its own (Yang, "A study of thresholding strategies for text
categorization", SIGIR 2001, where it is SCut). With few rows a label's threshold would be chance,
so such labels keep the common one.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FEWEST = 5
"""Minimum rows with a label for a threshold of its own."""

Threshold = float | tuple[float, ...]
"""One threshold for all classes, or one for each."""


class Thresholds(StrEnum):
    """Number of thresholds of a model of label sets, and the figure they maximise."""

    SHARED = "shared"
    EACH = "each"

    @property
    def figure(self) -> str:
        """The figure it maximises, as named by `evaluate`."""
        return "micro_f1" if self is Thresholds.SHARED else "macro_f1"


def choose_threshold(
    thresholds: Thresholds, scores: NDArray[np.float64], is_label: NDArray[np.bool_]
) -> tuple[float, Threshold]:
    """Return the best F1 and its threshold.

    Parameters
    ----------
    scores : float64 array of shape (n_rows, n_classes)
        Scores of rows that training did not see.
    is_label : bool array of shape (n_rows, n_classes)
    """
    micro, shared = best_micro_f1(scores, is_label)
    if thresholds is Thresholds.SHARED:
        return micro, shared
    own = _best_of_each(scores, is_label)
    own = np.where(is_label.sum(axis=0) >= FEWEST, own, shared)
    marked = scores > own
    hits, total = (marked & is_label).sum(axis=0), marked.sum(axis=0) + is_label.sum(axis=0)
    occurring = total > 0
    macro = float((2.0 * hits[occurring] / total[occurring]).mean()) if occurring.any() else 0.0
    return macro, tuple(own.tolist())


def best_micro_f1(scores: NDArray[np.float64], is_label: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the largest micro-averaged F1 and its threshold."""
    flat, marks = scores.reshape(-1, 1), is_label.reshape(-1, 1)
    threshold = float(_best_of_each(flat, marks)[0])
    marked = flat > threshold
    total = int(marked.sum() + marks.sum())
    return 2.0 * int((marked & marks).sum()) / total if total else 0.0, threshold


def _best_of_each(scores: NDArray[np.float64], is_label: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the threshold with the largest F1 of every column, midway between two scores."""
    order = np.argsort(scores, axis=0)[::-1]
    ordered = np.take_along_axis(scores, order, axis=0)
    hits = np.cumsum(np.take_along_axis(is_label, order, axis=0), axis=0)
    f1 = 2.0 * hits / (np.arange(1, len(scores) + 1)[:, None] + hits[-1])
    last = np.append(ordered[1:] < ordered[:-1], np.ones((1, scores.shape[1]), bool), axis=0)
    best = np.argmax(np.where(last, f1, -1.0), axis=0)  # equal scores are on the same side
    columns = np.arange(scores.shape[1])
    below = np.append(ordered, ordered[-1:] - 2.0, axis=0)[best + 1, columns]
    thresholds: NDArray[np.float64] = 0.5 * (ordered[best, columns] + below)
    return thresholds
