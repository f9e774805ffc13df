"""Options of the training commands, except those of the learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import BigmcError
from bigmc.model import ModelSource
from bigmc.model.calibration import MOST_ROWS
from bigmc.options.learners import LearnerOptions
from bigmc.store.dataset import Dataset
from bigmc.store.files.outputs import IfExists
from bigmc.store.sample import draw_groups

_CALIBRATION_SEED = 0x5CA1


class HeldOut(NamedTuple):
    """Rows held out of training: whole groups, if the dataset has groups.

    Attributes
    ----------
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

    `BigmcError` if the share is not between 0 and 1.
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
    start : ModelSource, optional
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
    start: ModelSource | None = None
    keep_norms: bool = False
    held_out: HeldOut | None = None
    calibration: HeldOut | None = None
    if_exists: IfExists = IfExists.REFUSE
