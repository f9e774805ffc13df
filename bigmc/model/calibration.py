"""Calibration: probabilities from scores, by one to four parameters that `bigmc.model.fit_calibration` fits.

Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017, section 4.2: one
factor of all scores before the softmax, with the least log loss on held-out rows. Where each class was
trained against the rest, a sigmoid of every score, divided by their sum, fits better (Zadrozny and Elkan,
"Transforming classifier scores into accurate multiclass probability estimates", KDD 2002); the softmax is its
limit for very negative offsets. A power of these sigmoids (the generalised logistic curve of Richards, "A
flexible growth function for empirical use", 1959) bends the middle of the curve independently of its ends:
without it, probabilities are overconfident where the largest score is neither low nor high. Where a share of
the labels is drawn at random, no label is as sure as these curves become for large scores, and the uniform
distribution is mixed in with that share: symmetric label noise (Patrini, Rozza, Menon, Nock and Qu, "Making
deep neural networks robust to label noise", CVPR 2017). For label sets, each class is a binary problem, and
all classes share one sigmoid (Platt 1999) instead. Calibration keeps the order of the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError

SOFTMAX, SIGMOID, POWER = "softmax", "sigmoid", "power of a sigmoid"

MOST_ROWS = 20_000
"""Maximum rows for calibration: a few parameters need no more."""


@dataclass(frozen=True)
class Calibration:
    """The map from scores to probabilities.

    Scores are multiplied by `scale`, above 0; before a sigmoid, `offset` is added, and `power`, above 0,
    is its exponent. The link is "softmax", "sigmoid" or "power of a sigmoid". `label_noise` is the share of
    labels that are drawn at random, at least 0 and below 1.
    """

    scale: float = 1.0
    offset: float = 0.0
    link: str = SOFTMAX
    power: float = 1.0
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        numbers = np.array([self.scale, self.offset, self.power])
        if not (np.isfinite(numbers).all() and self.scale > 0 and self.power > 0):
            said = f"a calibration of scale {self.scale}, offset {self.offset} and power {self.power}"
            raise ModelError(said, "train again")
        if not 0.0 <= self.label_noise < 1.0:
            raise ModelError(f"a calibration of label noise {self.label_noise}", "train again")
        if self.link not in (SOFTMAX, SIGMOID, POWER):
            raise ModelError(
                f"the calibration {self.link!r} is unknown", "train again, or install the latest bigmc"
            )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Calibration | None:
        """Return the calibration of `to_dict`; None of None."""
        if fields is None:
            return None
        link, power = str(fields.get("link", SOFTMAX)), float(fields.get("power", 1.0))
        noise = float(fields.get("label_noise", 0.0))
        return cls(float(fields["scale"]), float(fields["offset"]), link, power, noise)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        fields = asdict(self)
        if self.label_noise == 0.0:  # as before there was noise
            del fields["label_noise"]
        return fields

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is the label; a row adds up to 1."""
        logits = self.scale * scores
        if self.link != SOFTMAX:
            logits = -self.power * np.logaddexp(0.0, -(logits + self.offset))
        probabilities: NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        if self.label_noise:
            probabilities *= 1.0 - self.label_noise
            probabilities += self.label_noise / scores.shape[1]
        return probabilities

    def memberships(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is among the labels."""
        logits = self.scale * scores + self.offset
        return np.asarray(np.exp(-np.logaddexp(0.0, -logits)))
