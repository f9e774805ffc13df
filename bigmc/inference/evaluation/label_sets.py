"""Evaluate predicted label sets, and the ranking of their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bigmc.inference.evaluation.labelled import LabelledPart
from bigmc.inference.evaluation.propensities import weighted_sums
from bigmc.inference.evaluation.saved_sums import FieldSums
from bigmc.inference.evaluation.top_labels import RANKS, top_classes, top_sums
from bigmc.kernels.linear.scoring.ranking import count_above
from bigmc.model import Model
from bigmc.store.shards.label_sets import pairs_of


@dataclass
class SetCounts(FieldSums):
    """Counts over samples; counts of parts can be added.

    Of each label: the samples that have it and for which it is predicted (`right`), that have it, and for
    which it is predicted. `exact` counts samples whose set is predicted exactly; `ranking_loss` and
    `precision` are sums over the samples, see `figures`. `top` and `weighted`, of shape (2, len(RANKS)),
    are the sums of precision@k and nDCG@k, and the weights of the hits among the first k with their
    maximum; 0 without propensities.
    """

    right: NDArray[np.int64]
    support: NDArray[np.int64]
    predicted: NDArray[np.int64]
    exact: int = 0
    ranking_loss: float = 0.0
    precision: float = 0.0
    top: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, len(RANKS))))
    weighted: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, len(RANKS))))

    @classmethod
    def zeros(cls, n_labels: int) -> SetCounts:
        """Return the counts of no samples."""
        return cls(*np.zeros((3, n_labels), np.int64))

    def figures(self, n_samples: int) -> dict[str, float]:
        """Return the figures that scikit-learn has by these names, over all labels.

        ``accuracy`` is the share of sets that are right as a whole, ``micro_f1`` counts pairs of sample and
        label; ``ranking_loss`` is the share of pairs of a label and another class in which the label does not
        have the larger score (`sklearn.metrics.label_ranking_loss`), ``ranking_precision`` the mean, over the
        labels of a sample, of the share of labels among the classes that score at least as high
        (`sklearn.metrics.label_ranking_average_precision_score`), both for the classes of the model.
        ``precision_at_k`` and ``ndcg_at_k`` (`sklearn.metrics.ndcg_score`) are of the k best classes, and so
        is ``psp_at_k`` with propensities: precision weighted by them, as a share of the largest possible.
        """
        total = int(self.support.sum() + self.predicted.sum())
        gained, most = self.weighted
        return {
            "accuracy": self.exact / n_samples,
            "micro_f1": 2.0 * int(self.right.sum()) / total if total else 0.0,
            "ranking_loss": self.ranking_loss / n_samples,
            "ranking_precision": self.precision / n_samples,
            **{f"precision_at_{k}": float(self.top[0, i]) / n_samples for i, k in enumerate(RANKS)},
            **{f"ndcg_at_{k}": float(self.top[1, i]) / n_samples for i, k in enumerate(RANKS)},
            **{f"psp_at_{k}": float(gained[i] / most[i]) for i, k in enumerate(RANKS) if most[i]},
        }


@dataclass(frozen=True)
class Places:
    """Positions of the classes of dataset and model among the labels of both, and the number of these."""

    of_truth: NDArray[np.intp]
    of_model: NDArray[np.intp]
    n_labels: int


def count_sets(
    part: LabelledPart, model: Model, places: Places, inverse: NDArray[np.float64] | None = None
) -> SetCounts:
    """Count the label sets of a part; `inverse` has the inverse propensity of each class of the model."""
    column, n_classes = part.labels, model.n_classes
    n_rows, n_labels = len(column), places.n_labels
    rows, codes = pairs_of(column)
    truth = rows * n_labels + places.of_truth[codes]
    predicted_rows, predicted_codes = pairs_of(part.sets())
    predicted = predicted_rows * n_labels + places.of_model[predicted_codes]
    both = np.intersect1d(truth, predicted, assume_unique=True)
    exact = np.ones(n_rows, bool)
    exact[np.setxor1d(truth, predicted, assume_unique=True) // n_labels] = False
    right, support, marked = (
        np.bincount(pairs % n_labels, minlength=n_labels) for pairs in (both, truth, predicted)
    )
    of_model = np.full(n_labels, -1)
    of_model[places.of_model] = np.arange(n_classes)
    ours = of_model[places.of_truth[codes]]
    known = ours >= 0
    loss, precision = _ranking(rows[known], ours[known], n_rows, n_classes, part.tiles)
    top = top_classes(part.tiles(), n_rows, max(RANKS))
    sums = top_sums(top, rows[known], ours[known], n_classes)
    counts = SetCounts(right, support, marked, int(exact.sum()), loss, precision, sums)
    if inverse is not None:
        counts.weighted = weighted_sums(top, rows[known], ours[known], inverse)
    return counts


def _ranking(
    rows: NDArray[np.int64],
    codes: NDArray[np.int64],
    n_rows: int,
    n_classes: int,
    tiles: Callable[[], Iterator[tuple[int, NDArray[np.float64]]]],
) -> tuple[float, float]:
    """Return the sums over samples of ranking loss and average precision.

    `rows`, increasing, and `codes` have one element for every label. `tiles` gives the scores of some
    classes at a time, after the first of these, as often as it is called.
    """
    starts = np.searchsorted(rows, np.arange(n_rows + 1))
    own, above = np.empty(len(codes)), np.zeros(len(codes), np.int64)
    for lo, scores in tiles():
        inside = (codes >= lo) & (codes < lo + scores.shape[1])
        own[inside] = scores[rows[inside], codes[inside] - lo]
    for _, scores in tiles():
        count_above(scores, starts, own, above)
    # Labels of a row from the largest score on; of equal ones each counts all.
    order = np.lexsort((-own, rows))
    row, score = rows[order], own[order]
    last = np.append((row[1:] != row[:-1]) | (score[1:] != score[:-1]), True)[: len(row)]
    ends = np.flatnonzero(last)
    labels_above = np.empty(len(order), np.int64)
    labels_above[order] = ends[np.searchsorted(ends, np.arange(len(order)))] - starts[row] + 1
    sizes = np.diff(starts)
    ranked = (sizes > 0) & (sizes < n_classes)
    pairs = sizes * (n_classes - sizes)
    wrong = np.bincount(rows, above - labels_above, n_rows)
    precision = np.bincount(rows, labels_above / np.maximum(above, 1), n_rows)
    return (
        float((wrong[ranked] / pairs[ranked]).sum()),
        float((precision[ranked] / sizes[ranked]).sum() + np.count_nonzero(~ranked)),
    )
