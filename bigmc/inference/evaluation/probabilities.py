"""Evaluate probabilities: log loss, Brier score, calibration, ROC AUC and top-k accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.inference.evaluation.saved_sums import FieldSums

N_BINS = 15
"""Number of bins of the confidence, of equal width, as in Guo et al. (2017)."""
TOP_K = 5
"""Number of top classes that count in ``top_5_accuracy``."""
_LEAST = float(np.finfo(np.float64).tiny)


@dataclass
class ProbabilitySums(FieldSums):
    """Sums over samples whose label the model knows; sums of parts can be added.

    By bin of the confidence: number of samples, sum of their largest probabilities, and number of right
    ones. For two classes, `second` has the probabilities of the second; else empty arrays.
    """

    n: int = 0
    log_loss: float = 0.0
    brier: float = 0.0
    in_top_k: float = 0.0
    bin_counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N_BINS))
    bin_confidence: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N_BINS))
    bin_right: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N_BINS))
    second: list[NDArray[np.float64]] = field(default_factory=lambda: [np.empty(0)])
    is_second: list[NDArray[np.bool_]] = field(default_factory=lambda: [np.empty(0, bool)])

    @classmethod
    def of(cls, chances: NDArray[np.float64], codes: NDArray[np.int64]) -> ProbabilitySums:
        """Return the sums of samples with these probabilities and classes, without unknown labels (-1)."""
        chances, codes = chances[codes >= 0], codes[codes >= 0]
        n, n_classes = chances.shape
        own = chances[np.arange(n), codes]
        best = chances.max(axis=1, initial=0.0)
        right = np.argmax(chances, axis=1) == codes if n else np.empty(0, bool)
        bins = np.minimum((best * N_BINS).astype(np.int64), N_BINS - 1)
        counts, confidence, hits = (
            np.bincount(bins, w, N_BINS).astype(np.float64) for w in (np.ones(n), best, right)
        )
        return cls(
            n=n,
            log_loss=float(-np.log(np.maximum(own, _LEAST)).sum()),
            brier=float((chances * chances).sum() - 2.0 * own.sum() + n),
            in_top_k=float(((chances > own[:, None]).sum(axis=1) < TOP_K).sum()),
            bin_counts=counts,
            bin_confidence=confidence,
            bin_right=hits,
            second=[chances[:, 1].copy() if n_classes == 2 else np.empty(0)],
            is_second=[codes == 1 if n_classes == 2 else np.empty(0, bool)],
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums as arrays, single numbers as arrays of length 1."""
        return {
            name: np.concatenate(v) if isinstance(v, list) else np.atleast_1d(v)
            for name, v in vars(self).items()
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the result of `arrays`."""
        super().restore(arrays)
        self.second, self.is_second = [arrays["second"]], [arrays["is_second"]]

    def figures(self, n_classes: int) -> dict[str, object]:
        """Return the figures, with scikit-learn's names.

        ``log_loss`` and ``brier`` (the sum over the classes) are means over the samples;
        ``calibration_error`` is the mean difference between confidence and accuracy over bins
        of the confidence, weighted by their samples; ``top_5_accuracy`` is given for more than 5 classes,
        ``roc_auc`` for two.
        ``reliability`` has ``confidence``, ``accuracy`` and ``n_samples`` of every bin that is not empty.
        """
        if self.n == 0:
            return {}
        distance = np.abs(self.bin_confidence - self.bin_right).sum()
        figures: dict[str, object] = {
            "log_loss": max(self.log_loss, 0.0) / self.n,  # never -0.0
            "brier": self.brier / self.n,
            "calibration_error": float(distance) / self.n,
        }
        if n_classes > TOP_K:
            figures[f"top_{TOP_K}_accuracy"] = self.in_top_k / self.n
        if n_classes == 2:
            figures["roc_auc"] = _area(np.concatenate(self.second), np.concatenate(self.is_second))
        full = np.flatnonzero(self.bin_counts)
        return figures | {
            "reliability": [
                {
                    "confidence": float(self.bin_confidence[b] / self.bin_counts[b]),
                    "accuracy": float(self.bin_right[b] / self.bin_counts[b]),
                    "n_samples": int(self.bin_counts[b]),
                }
                for b in full.tolist()
            ]
        }


def _area(chances: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: how often a positive sample is ranked above a negative one."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    ordered = np.sort(chances)
    # Mean ranks of ties, from 1 on; importing scipy.stats for them takes 30 MB.
    ranks = 0.5 * (np.searchsorted(ordered, chances) + np.searchsorted(ordered, chances, side="right") + 1)
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))
