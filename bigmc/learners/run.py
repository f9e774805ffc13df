"""Common arguments from learners to solvers, besides samples and options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Resources
from bigmc.model import Model
from bigmc.solvers import Checkpoint
from bigmc.solvers.loop import RunContext
from bigmc.store.weighting import Weighting


class Record(TypedDict):
    """The fields of a model that do not depend on the learner, but for its classes.

    Those are read from the dataset when the solver has ended: their labels may take more than its plan, which
    refuses too many classes by their number.
    """

    kind: str
    n_features: int
    weighting: Weighting
    feature_spec: dict[str, Any]
    params: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training, as a learner sees it.

    Attributes
    ----------
    seed : int
        From ``random_state``.
    resources : Resources
        Its memory limit is what training may add to the process.
    scratch : Path or None
        Folder for what does not fit into memory; by default the system's for temporary files.
    weights : float64 array of shape (n_samples,) or None
        Weight of every sample; None if all are 1.
    start : Model or None
        A model to start from.
    """

    seed: int
    resources: Resources
    checkpoint: Checkpoint | None
    scratch: Path | None
    weights: NDArray[np.float64] | None
    start: Model | None
    record: Record

    @property
    def context(self) -> RunContext:
        """Where the solver works, and who watches it."""
        return RunContext(
            self.resources.engine, self.checkpoint, self.resources.progress, self.scratch, self.resources.ends
        )
