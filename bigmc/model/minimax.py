"""The model of a minimax risk classifier: a linear model with the probabilities of its randomised rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.linear import LinearModel
from bigmc.store.files.npy import ArraySize

STOPS = {
    "tol": "Training ended because the bounds were as close as asked for.",
    "k_max": "Training ended after the most iterations it was allowed, k_max.",
    "time_limit": "Training ended because its time was over.",
    "rounding": "Training ended because nothing violates the bounds by more than rounding errors.",
}
"""Reasons for training to stop, and their messages."""


@dataclass(frozen=True, eq=False)
class MinimaxModel(LinearModel):
    """A minimax risk classifier; see `LinearModel` for the other fields.

    Attributes
    ----------
    phi : float
        φ(μ), the largest ``(Σ_{y in C} Φ(x, y)ᵀμ − 1) / |C|`` over the training samples and label subsets.
    stopped : str
        Why training ended, a key of `STOPS`; empty if it is not known.
    lambda0 : float
        The regularisation used; NaN if it is not known.
    """

    objective_name: ClassVar[str] = "worst-case error probability"
    gap_is_relative: ClassVar[bool] = False

    phi: float = math.nan
    stopped: str = ""
    lambda0: float = math.nan

    def validate(self) -> None:
        """Raise `ModelError` for a φ that is not finite, or an unknown reason to stop."""
        super().validate()
        if not math.isfinite(self.phi):
            raise ModelError(f"φ of the model is {self.phi}", "train again")
        if self.stopped and self.stopped not in STOPS:
            raise ModelError(f"training of the model ended for an unknown reason, {self.stopped!r}")

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return features, weights, intercepts, φ, lambda0 and the number of the reason to stop."""
        return super().to_arrays() | self._bound_arrays()

    def _sizes(self) -> dict[str, ArraySize]:
        own = {name: ArraySize.of(array) for name, array in self._bound_arrays().items()}
        return super()._sizes() | own

    def _bound_arrays(self) -> dict[str, NDArray[Any]]:
        """Return φ, lambda0 and the number of the reason to stop."""
        arrays = {"phi": np.array([self.phi])}
        if not math.isnan(self.lambda0):
            arrays["lambda0"] = np.array([self.lambda0])
        if self.stopped:
            arrays["stopped"] = np.array([list(STOPS).index(self.stopped)], np.int8)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], **record: Any) -> Self:
        """Return the model of `to_arrays` and the fields that all kinds have."""
        code = int(arrays["stopped"][0]) if "stopped" in arrays else None
        if code is not None and not 0 <= code < len(STOPS):
            raise ModelError(f"training of the model ended for an unknown reason, {code}")
        stopped = "" if code is None else list(STOPS)[code]
        lambda0 = float(arrays["lambda0"][0]) if "lambda0" in arrays else _given_lambda0(record)
        phi = float(arrays["phi"][0])
        return super().from_arrays(arrays, **record, phi=phi, stopped=stopped, lambda0=lambda0)

    def figures(self) -> dict[str, float]:
        """Return the regularisation used, if it is known."""
        return super().figures() | ({} if math.isnan(self.lambda0) else {"lambda0": self.lambda0})

    def certificate_notes(self) -> tuple[str, ...]:
        """Return why training ended, and what the upper bound holds for."""
        ended = (STOPS[self.stopped],) if self.stopped else ()
        upper = self.certificate.get("upper", math.nan)
        if not upper < 1:
            return (*ended, "The upper bound is no bound of the error that says anything: it is not below 1.")
        return (
            *ended,
            f"The randomised rule, which draws its answer from the model's probabilities, errs with a "
            f"probability of at most {upper:.4g}; the deterministic rule, which answers the class with the "
            f"largest score, with at most twice that, {min(1.0, 2 * upper):.4g}.",
            "Both hold for every distribution over the training samples and the labels whose expected "
            "features differ from the samples' means by at most lambda0 standard deviations. Whether new "
            "samples come from such a distribution is not certified.",
            "With lambda0 of 2 / sqrt(samples), the default, the randomised rule's mean error on other rows, "
            "over 100 splits each of several small tables, was below the bound; with 0.01 it often was not.",
            "A feature that a class has in few training samples, or in none, has next to no slack, and new "
            "samples leave the set: on hashed text the bound mostly does not hold.",
        )

    @property
    def has_probabilities(self) -> bool:
        """True: the rule answers at random, with known probabilities."""
        return True

    @property
    def calibration_of_scores(self) -> None:
        """None: the rule is no function of the calibrations' form."""

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each class under the randomised minimax rule.

        ``h(y|x) ∝ max(Φ(x, y)ᵀμ − φ, 0)``, all classes equal if all are 0. On the training samples
        the sum of these is at most 1 by the definition of φ, so that ``h(y|x) ≥ Φ(x, y)ᵀμ − φ``, on
        which the bound of the error rests.
        """
        above = np.maximum(scores - self.phi, 0.0)
        total = above.sum(axis=1, keepdims=True)
        alike = np.full_like(above, 1.0 / scores.shape[1])
        rule: NDArray[np.float64] = np.divide(above, total, out=alike, where=total > 0)
        return rule


def _given_lambda0(record: Mapping[str, Any]) -> float:
    """Return the regularisation among the training parameters of an older model, if it has one."""
    lambda0 = (record.get("params") or {}).get("lambda0")
    return float(lambda0) if isinstance(lambda0, int | float) else math.nan
