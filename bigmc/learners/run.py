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
from bigmc.store.label_source import LabelSource
from bigmc.store.weighting import Weighting


class Record(TypedDict):
    """The fields of a model that do not depend on the learner, except for its classes.

    Those are read from the dataset when the solver has finished: the labels may take more memory than its
    plan has, which refuses too many classes by their number.
    """

    kind: str
    n_features: int
    weighting: Weighting
    feature_spec: dict[str, Any]
    label_source: LabelSource | None
    params: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training: the arguments of a learner besides samples and options.

    The memory limit of `resources` is what training may add to the process. `scratch` is a folder for
    data that does not fit into memory; by default the system's for temporary files. Without `weights` all
    are 1.
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
        """The solver's environment."""
        return RunContext(
            self.resources.engine, self.checkpoint, self.resources.progress, self.scratch, self.resources.ends
        )
