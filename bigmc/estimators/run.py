"""What a learner hands its solver beside the samples and its own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.model import Model
from bigmc.progress import ProgressCallback
from bigmc.solvers import Checkpoint


@dataclass(frozen=True)
class Run:
    """One training, as a learner sees it.

    Attributes
    ----------
    seed : int
        From ``random_state``.
    memory_limit : int
        Bytes that training may add to the process.
    engine : Engine
    checkpoint : Checkpoint or None
    progress : callable
    scratch : Path or None
        Folder for what does not fit into memory; by default the system's for temporary files.
    weights : float64 array of shape (n_samples,) or None
        Weight of every sample; None if all are 1.
    start : Model or None
        A model to start from.
    record : dict
        The fields of the model that do not depend on the learner: ``kind``, ``classes``, ``n_features``,
        ``weighting``, ``feature_spec`` and ``params``.
    """

    seed: int
    memory_limit: int
    engine: Engine
    checkpoint: Checkpoint | None
    progress: ProgressCallback
    scratch: Path | None
    weights: NDArray[np.float64] | None
    start: Model | None
    record: Mapping[str, Any]
