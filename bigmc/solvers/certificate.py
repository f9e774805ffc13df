"""Bounds on the optimum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """Proof of how good a solution is: ``lower <= optimum <= upper``.

    `lower` is the best dual value so far, `upper` the objective of the solution, and `gap` is ``(upper -
    lower) / upper``, not below 0.
    """

    lower: float
    upper: float
    gap: float

    @classmethod
    def of(cls, lower: float, upper: float) -> Certificate:
        """Return the certificate of two bounds."""
        return cls(lower, upper, max(0.0, (upper - lower) / upper) if upper > 0 else 0.0)
