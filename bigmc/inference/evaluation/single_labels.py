"""Accuracy and F1 of single labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.inference.evaluation.label_sets import Places
from bigmc.inference.results import ByLabel, Confusion
from bigmc.options.inference import EvaluateOptions

Pairs = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]
"""True code, predicted code, and their joint count."""


class ConfusionSums:
    """Counts of pairs of true and predicted labels; counts of parts can be added.

    They are kept by pairs that occur, in order, since a matrix of thousands of labels is mostly zeros. To
    import scipy.sparse for it took a tenth of the processor time of a fit of some hundred rows.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._pairs, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, other: Pairs) -> None:
        """Add counts of pairs of true and predicted code."""
        truth, predicted, counts = other
        at = self._places.of_truth[truth] * self._places.n_labels + self._places.of_model[predicted]
        self._pairs, places = np.unique(np.concatenate([self._pairs, at]), return_inverse=True)
        self._counts = _sums(places, np.concatenate([self._counts, counts]), len(self._pairs))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the non-zero counts, with their rows and columns."""
        truth, predicted = self._places_of_pairs
        return {"truth": truth, "predicted": predicted, "counts": self._counts}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the result of `arrays`."""
        pairs = arrays["truth"].astype(np.int64) * self._places.n_labels + arrays["predicted"]
        order = np.argsort(pairs)
        self._pairs, self._counts = pairs[order], arrays["counts"][order]

    @property
    def _places_of_pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.divmod(self._pairs, max(self._places.n_labels, 1))

    @property
    def counts(self) -> LabelCounts:
        """The counts of each label in the confusion matrix."""
        truth, predicted = self._places_of_pairs
        same, counts, n_labels = truth == predicted, self._counts, self._places.n_labels
        right = _sums(truth[same], counts[same], n_labels)
        return LabelCounts(right, _sums(truth, counts, n_labels), _sums(predicted, counts, n_labels))

    def figures(self, labels: list[Any]) -> Confusion:
        """Return the confusion of the labels that occur or are predicted."""
        occurring = self.counts.occurring  # in order, and with the labels of all pairs
        at = tuple(np.searchsorted(occurring, codes) for codes in self._places_of_pairs)
        matrix = np.zeros((len(occurring), len(occurring)), np.int64)
        matrix[at] = self._counts
        return {"labels": [labels[c] for c in occurring.tolist()], "matrix": matrix.tolist()}


@dataclass(frozen=True)
class LabelCounts:
    """Counts of correct predictions, occurrences and predictions of each label."""

    right: NDArray[np.int64]
    support: NDArray[np.int64]
    predicted: NDArray[np.int64]

    @property
    def occurring(self) -> NDArray[np.intp]:
        """Labels that occur or are predicted."""
        return np.flatnonzero(self.support + self.predicted)

    def figures(self, labels: list[Any], of_model: NDArray[np.intp], options: EvaluateOptions) -> ByLabel:
        """Return the figures of labels; `of_model` has the positions of labels that the model knows."""
        occurring = self.occurring
        f1 = _ratio(2 * self.right, self.support + self.predicted)
        known = np.isin(np.arange(len(labels)), of_model)
        result: ByLabel = {
            "macro_f1": float(f1[occurring].mean()) if len(occurring) else 0.0,
            "n_unknown_labels": int(self.support[~known].sum()),
        }
        if options.per_class:
            precision, recall = _ratio(self.right, self.predicted), _ratio(self.right, self.support)
            result["per_class"] = {
                labels[c]: {
                    "precision": float(precision[c]),
                    "recall": float(recall[c]),
                    "f1": float(f1[c]),
                    "support": int(self.support[c]),
                }
                for c in occurring.tolist()
            }
        return result


def count_labels(labels: NDArray[np.int32], predicted: NDArray[np.int32], n_classes: int) -> Pairs:
    """Return the pairs of true and predicted code in a part, and their counts.

    Codes are those of the classes of the samples, and of the `n_classes` of the model.
    """
    pairs = labels.astype(np.int64) * n_classes + predicted
    different, counts = np.unique(pairs, return_counts=True)
    true_codes, predicted_codes = np.divmod(different, n_classes)
    return true_codes.astype(np.int32), predicted_codes.astype(np.int32), counts.astype(np.int64)


def _sums(places: NDArray[np.int64], counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the sum of the counts of each of ``n`` places."""
    return np.bincount(places, counts, n).astype(np.int64)  # sums of integers below 2**53 are exact


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
