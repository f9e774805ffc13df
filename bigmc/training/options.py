"""Options of the training commands, except those of the learners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import BigmcError
from bigmc.learners import learner_of
from bigmc.model.calibration import MOST_ROWS
from bigmc.options.learners import LearnerOptions, learner_options
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import sha256
from bigmc.store.files.outputs import IfExists
from bigmc.store.sample import draw_groups

VALID = "valid"
"""Split that chooses among models; if it is missing, rows of the training split do."""
_CALIBRATION_SEED = 0x5CA1


class HeldOut(NamedTuple):
    """Rows held out of training: whole groups, if the dataset has groups.

    Attributes
    ----------
    share : float
    seed : int
        Seed of the hash of row ids or groups that chooses them.
    """

    share: float
    seed: int

    def rows(self, samples: Dataset, engine: Engine) -> tuple[Dataset, NDArray[np.int64]]:
        """Return these rows of some samples, in memory, and their positions."""
        return draw_groups(samples, self.share, self.seed, engine)


def calibration_rows(share: float, n_samples: int) -> HeldOut:
    """Return which of `n_samples` rows calibrate: a share of them, up to the useful maximum.

    Raises
    ------
    BigmcError
        If the share is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise BigmcError(f"the share of rows to calibrate on is {share:g}", "give a number between 0 and 1")
    return HeldOut(min(share, MOST_ROWS / max(n_samples, 1)), _CALIBRATION_SEED)


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training.

    Attributes
    ----------
    learner : LearnerOptions
        The learner and its parameters.
    split : str
        Split to train on.
    start : Path, optional
        Saved model to start from.
    keep_norms : bool
        Keep the norms of the gradients in a file beside the model, which saves a pass in trainings that start
        from it.
    held_out : HeldOut, optional
        Rows held out of training.
    calibration : HeldOut, optional
        Rows held out of training to calibrate probabilities on.
    if_exists : IfExists
        What to do with another file in place of the model.
    """

    learner: LearnerOptions
    split: str = "train"
    start: Path | None = None
    keep_norms: bool = False
    held_out: HeldOut | None = None
    calibration: HeldOut | None = None
    if_exists: IfExists = IfExists.REFUSE


@dataclass(frozen=True)
class PathOptions:
    """Options of `bigmc path`.

    Attributes
    ----------
    n_alphas : int
        Number of penalties, evenly spaced in their logarithm, from the largest with non-zero weights.
    alpha_ratio : float
        The smallest penalty relative to the largest.
    alphas : tuple of float, optional
        The penalties, instead of the two options above.
    split, validation : str
        Training and validation splits.
    parameters : mapping
        Parameters of the sparse classifier other than ``alpha``.
    if_exists : IfExists
        What to do with another path in the same folder.
    start : Path, optional
        Saved model to start the training with the largest penalty from.
    """

    n_alphas: int = 10
    alpha_ratio: float = 1e-2
    alphas: tuple[float, ...] | None = None
    split: str = "train"
    validation: str = VALID
    parameters: Mapping[str, Any] = field(default_factory=dict)
    if_exists: IfExists = IfExists.REFUSE
    start: Path | None = None

    def __post_init__(self) -> None:
        if "alpha" in self.parameters:
            raise BigmcError("alpha is not an option of a path", "give alphas, or n_alphas and alpha_ratio")
        learner_of(learner_options("sparse", self.parameters))
        if self.alphas is None:
            if self.n_alphas < 1 or not 0 < self.alpha_ratio < 1:
                raise BigmcError(
                    f"n_alphas is {self.n_alphas} and alpha_ratio {self.alpha_ratio}",
                    "give at least 1 alpha, and a ratio below 1",
                )
        elif not self.alphas or not all(0 < alpha < math.inf for alpha in self.alphas):
            raise BigmcError(f"the alphas are {list(self.alphas)}", "give numbers above 0")

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the options that determine the models, as JSON data."""
        start = {} if self.start is None else {"warm_start": sha256(self.start)}
        return {
            **start,
            "split": self.split,
            "validation": self.validation,
            "n_alphas": self.n_alphas,
            "alpha_ratio": self.alpha_ratio,
            "alphas": self.alphas,
            **self.parameters,
        }
