"""Ridge models of a search, each warm-started from the model whose settings it changes.

The start of a model depends only on the candidates. After a kill, earlier models are trained again
if they are needed, so the search repeats the same numbers.
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.engine.processes import trim
from bigmc.solvers.sparse import DualDescent
from bigmc.store.dataset import Dataset
from bigmc.training.search.trials import Candidate, weighted

TOL, MOST_EPOCHS = 0.01, 30
"""Gap at which the training of a trial ends, and its maximum number of epochs. A training that starts from
another model has a small gap after a pass or two, before it has learned from rows that this one had not: with
a gap of 0.05 in trials and final trainings, 53.1 % of the test rows of the survey's fortunes were right, with
0.01 54.5 %."""


class Ridges:
    """Dual descent on the rows of a search.

    Parameters
    ----------
    samples : Dataset
        In memory.
    weights : float64 array of shape (n_samples,)
        0 for the rows held out.
    """

    def __init__(self, samples: Dataset, weights: NDArray[np.float64], engine: Engine) -> None:
        self._samples, self._weights, self._engine = samples, weights, engine
        self._problem: tuple[str | None, DualDescent] | None = None
        self._origins: dict[Candidate, Candidate | None] = {}
        self._duals: dict[Candidate, NDArray[np.float32]] = {}

    @staticmethod
    def memory(samples: Dataset) -> int:
        """Return the bytes of trials on these samples, including the dual variables of two more models."""
        return DualDescent.memory(samples) + 2 * DualDescent.memory_of_duals(samples)

    def enter(self, candidate: Candidate, origin: Candidate | None) -> None:
        """Record the start of a candidate, even if its trial is already known."""
        self._origins.setdefault(candidate, origin)

    def train(self, candidate: Candidate, seconds: float = math.inf) -> DualDescent:
        """Train a candidate; the next call overwrites the returned object.

        Descent takes so many seconds at most, besides what is made ready for it.
        """
        origin = self._origins.get(candidate)
        start = None if origin is None else self.duals(origin, seconds)
        problem = self._weighted_as(candidate)
        problem.reset()
        if start is not None:
            problem.start_from(start)
        ends = time.monotonic() + seconds
        problem.descend(candidate.ridge / float(self._weights.sum()), TOL, MOST_EPOCHS, ends)
        self._duals = {known: duals for known, duals in self._duals.items() if known == origin}
        self._duals[candidate] = problem.duals()
        return problem

    def duals(self, candidate: Candidate, seconds: float = math.inf) -> NDArray[np.float32]:
        """Return the dual variables of a candidate, training it again, as `train` does, if they are gone."""
        if candidate not in self._duals:
            self.train(candidate, seconds)
        return self._duals[candidate]

    def release(self) -> None:
        """Free the memory that only further trials need."""
        self._problem = None
        trim()

    def _weighted_as(self, candidate: Candidate) -> DualDescent:
        """Return the problem of a weighting, whose candidates share the rows."""
        if self._problem is None or self._problem[0] != candidate.weighting:
            self._problem = None  # free the memory before allocating the next
            problem = DualDescent(
                weighted(self._samples, candidate), self._engine, sample_weight=self._weights
            )
            self._problem = candidate.weighting, problem
        return self._problem[1]
