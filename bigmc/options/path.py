"""Options of a path of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from bigmc.errors import BigmcError
from bigmc.options.declare import check_types, option, values_of
from bigmc.options.learners import ClassWeight, SparseOptions

VALID = "valid"
"""Split that chooses among models; if it is missing, rows of the training split do."""

_OF_THE_PATH = ("split", "validation", "n_alphas", "alpha_ratio", "alphas")


class PathKeywords(TypedDict, total=False):
    """Options given to a path."""

    split: str
    validation: str
    n_alphas: int
    alpha_ratio: float
    alphas: Sequence[float] | None
    loss: str
    penalty: str
    l1_ratio: float | None
    ridge: float
    fit_intercept: bool
    class_weight: ClassWeight
    tol: float
    max_passes: int
    random_state: int


@dataclass(frozen=True, kw_only=True)
class PathOptions:
    """Options of `bigmc path`; `bigmc.sparse_path` describes them.

    `BigmcError` if the penalties are not positive numbers, or there is none.
    """

    split: str = option("train", "Split to train on.")
    validation: str = option(VALID, "Validation split; if there is no valid, a fifth of the training rows.")
    n_alphas: int = option(10, "Number of penalties, from the largest with non-zero weights.", "--alphas")
    alpha_ratio: float = option(1e-2, "Smallest penalty relative to the largest.")
    alphas: Sequence[float] | None = None
    loss: str = option("multitask_squared_hinge", "Loss, as in train sparse.")
    penalty: str = option("l1/l2", "Penalty, as in train sparse.")
    l1_ratio: float | None = option(None, "Share of the l1 norm in the sparse_group penalty.")
    ridge: float = option(1e-5, "Strength of the squared norm.")
    fit_intercept: bool = option(False, "Fit an unpenalised intercept.")
    class_weight: ClassWeight = option(None, "balanced: weight classes by inverse frequency.", parse=str)
    tol: float = option(1e-1, "Stop each training at this relative duality gap.")
    max_passes: int = option(100, "Stop each training after so many passes.")
    random_state: int = option(0, "Seed of the order of the coordinates.", "--seed")

    def __post_init__(self) -> None:
        check_types(PathOptions, values_of(PathOptions, self))
        if self.alphas is None:
            if self.n_alphas < 1 or not 0 < self.alpha_ratio < 1:
                raise BigmcError(
                    f"n_alphas is {self.n_alphas} and alpha_ratio {self.alpha_ratio}",
                    "give at least 1 alpha, and a ratio below 1",
                )
            return
        object.__setattr__(self, "alphas", tuple(float(alpha) for alpha in self.alphas))
        if not self.alphas or not all(0 < alpha < math.inf for alpha in self.alphas):
            raise BigmcError(f"the alphas are {list(self.alphas)}", "give numbers above 0")

    def learner(self, alpha: float) -> SparseOptions:
        """Return the options of the learner for one penalty."""
        own = values_of(PathOptions, self)
        return SparseOptions(alpha=alpha, **{name: own[name] for name in own if name not in _OF_THE_PATH})

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the options that determine the models, as JSON data."""
        return asdict(self)
