"""Options of the descent: size of the steps, intercept, and seed of the orders."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = ("line_search", "constant")


@dataclass(frozen=True)
class Descent:
    """Options of the descent.

    Attributes
    ----------
    step : str
        One of `STEPS`.
    seed : int
        Of the order of blocks and columns.
    """

    step: str
    fit_intercept: bool
    seed: int

    @property
    def line_search(self) -> bool:
        """Steps go to the minimum of a local model and are checked by a line search."""
        return self.step == STEPS[0]
