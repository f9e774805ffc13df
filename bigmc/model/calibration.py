"""Probabilities from scores: temperature scaling; `bigmc.model.fit_calibration` fits it.

Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017, section 4.2: one
factor of all scores before the softmax, with the least log loss on held-out rows. It leaves the order of the
classes as it is. Where labels are sets, every class is a yes or no of its own, and Platt's sigmoid (1999),
shared by all classes, takes the place of the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from bigmc.errors import ModelError

MOST_ROWS = 20_000
"""Rows that calibration uses at most: one or two numbers need no more."""


@dataclass(frozen=True)
class Calibration:
    """The map from scores to probabilities.

    Attributes
    ----------
    scale : float
        Factor of the scores, above 0.
    offset : float
        Added to them where labels are sets; else 0.
    """

    scale: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite([self.scale, self.offset]).all() and self.scale > 0):
            raise ModelError(f"a calibration of scale {self.scale} and offset {self.offset}", "train again")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Calibration | None:
        """Return the calibration of `to_dict`; None of None."""
        return None if fields is None else cls(float(fields["scale"]), float(fields["offset"]))

    def to_dict(self) -> dict[str, float]:
        """Return the fields for JSON."""
        return asdict(self)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is the label; a row adds up to 1."""
        found: NDArray[np.float64] = softmax(self.scale * scores, axis=1)
        return found

    def memberships(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each class is among the labels."""
        found: NDArray[np.float64] = expit(self.scale * scores + self.offset)
        return found
