"""Choose C by samples held out of the training."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.progress import Progress, ProgressCallback
from bigmc.solvers.boosting.options import BoostingOptions
from bigmc.solvers.boosting.solve import solve
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.loop import RunContext
from bigmc.store.dataset import Dataset

#: Values of the trials, from the range 10² to 10⁵ of Lin et al. (2012), and maximum rounds of a trial: with
#: pools of learners the errors hardly change after them.
GRID = (1e5, 3e4, 1e4, 3e3, 1e3, 3e2, 1e2)
_ROUNDS = 10
#: Successive trials with more errors than the best one after which no smaller C is tried.
_WORSE = 2


class Trials:
    """The finished trials of one training, saved in its checkpoint with the state of the trial under way.

    `errors` has the share of wrong samples among those held out, by trial.
    """

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint
        saved = checkpoint.load() if checkpoint is not None else None
        self.errors: list[float] = saved[0].get("trials", []) if saved else []

    def save(self, meta: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the saved state of the trial under way."""
        if self._checkpoint is not None:
            self._checkpoint.save({**meta, "trials": self.errors}, arrays)

    def load(self) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
        """Return the saved state of the trial under way, if there is one."""
        saved = self._checkpoint.load() if self._checkpoint is not None else None
        if saved is None or saved[0].get("trials", []) != self.errors:
            return None
        return {name: value for name, value in saved[0].items() if name != "trials"}, saved[1]


def choose_C(
    dataset: Dataset,
    options: BoostingOptions,
    memory_limit: int,
    context: RunContext,
    sample_weight: NDArray[np.float64] | None = None,
) -> float:
    """Return the C of `GRID` with the smallest error on samples held out; of equal ones the smallest C.

    It goes down the grid, and ends after `_WORSE` values in a row that do worse than the best one. The
    time limit in `options` is for all trials together. The checkpoint of `context` is a `Trials`, in
    which the finished trials remain. `DataError` if no sample was held out; other errors as in `solve`.
    """
    trials = context.checkpoint
    assert isinstance(trials, Trials)
    end = None if options.time_limit is None else time.monotonic() + options.time_limit
    while len(trials.errors) < len(GRID) and _best(trials.errors) > len(trials.errors) - 1 - _WORSE:
        C = GRID[len(trials.errors)]
        trial = replace(
            options,
            C=C,
            n_rounds=min(options.n_rounds, _ROUNDS),
            time_limit=None if end is None else max(end - time.monotonic(), 0.0),
        )
        shown = replace(context, progress=_reporter(context.progress, C))
        error = solve(dataset, trial, memory_limit, shown, sample_weight).history[-1]["held_error"]
        if math.isnan(error):
            raise DataError("no sample was held out to choose C by", "give C")
        trials.errors = [*trials.errors, error]
    return GRID[_best(trials.errors)]


def _reporter(progress: ProgressCallback, C: float) -> ProgressCallback:
    """Return a callback that reports the rounds of a trial with its C."""
    return lambda p: progress(Progress(f"trial C={C:g}", p.done, p.total, p.unit, p.facts))


def _best(errors: list[float]) -> int:
    """Return the place of the smallest error, the last of equal ones; -1 for none."""
    return len(errors) - 1 - int(np.argmin(errors[::-1])) if errors else -1
