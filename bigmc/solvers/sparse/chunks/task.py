"""What is minimised by going through chunks of samples, and its scores as a sum over chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse.coefficients import Coefficients, slabs_of_weights
from bigmc.solvers.sparse.margins import Margins
from bigmc.solvers.sparse.problem import Problem, check_labels
from bigmc.solvers.sparse.run import Task
from bigmc.solvers.sparse.scratch.chunk import Chunk, Samples
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.steps.descent import Descent


@dataclass(frozen=True)
class ChunkTask(Task):
    """What is minimised, and how chunks of its samples are worked on.

    Attributes
    ----------
    tol : float
        Relative gap to reach.
    descent : Descent
    dtype : numpy.dtype
        Of the scores.
    context : RunContext
        With threads of this process.
    """

    tol: float
    descent: Descent
    dtype: np.dtype[Any]
    context: RunContext

    @property
    def engine(self) -> Engine:
        """Threads of this process."""
        return self.context.engine

    @property
    def is_late(self) -> bool:
        """Whether the time to end has come."""
        return time.monotonic() >= self.context.ends

    @property
    def fit_intercept(self) -> bool:
        """Whether there is an intercept."""
        return self.descent.fit_intercept

    @property
    def seed(self) -> int:
        """Of every order that is drawn."""
        return self.descent.seed

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.dataset.n_classes

    def problem(self, chunk: Chunk) -> Problem:
        """Return the problem of the samples of a chunk."""
        return self.problem_of(chunk.samples)

    def problem_of(self, samples: Samples, engine: Engine | None = None) -> Problem:
        """Return the problem of some samples."""
        return Problem(
            samples, self.objective, self.alpha, samples.weights, self.dtype, engine or self.engine
        )

    def upper(self, margins: Margins, coef: Coefficients) -> float:
        """Return the objective, given the margins of all samples.

        Raises
        ------
        DataError
            If it is not finite.
        """
        upper = margins.total_loss / self.weight_sum
        for some in slabs_of_weights(*coef.rows.shape):
            rows = coef.rows[some].astype(np.float64, copy=False)
            upper += self.objective.regulariser(self.alpha, rows)
        if not np.isfinite(upper):
            raise DataError("the objective is not finite", "look for huge or non-finite values in the data")
        return upper


class ConstantScores:
    """All samples while no feature has weights, for `bigmc.solvers.sparse.steps.intercept.improve_intercept`.

    Samples of one class have the same loss then: one of them, with the weight of all, stands for them. Label
    sets are gone through chunk by chunk, as there may be as many different ones as samples.

    Parameters
    ----------
    task : ChunkTask
    spill : Spill
    intercept : float64 array of shape (n_classes,)
        The scores of every sample.
    """

    def __init__(self, task: ChunkTask, spill: Spill, intercept: NDArray[np.float64]) -> None:
        self.objective, self.dtype, self.width = task.objective, task.dtype, task.width
        self.weight_sum = task.weight_sum
        self._task, self._spill, self._scores = task, spill, intercept.copy()
        self._classes = None if task.dataset.has_sets else self._one_of_each_class()

    @property
    def two_over_n(self) -> float:
        """Factor of the gradient, ``2 / n``."""
        return 2.0 / self.weight_sum

    def margins(self) -> Margins:
        """Add up the margins of all samples."""
        sums = Margins.empty(self._task.n_classes)
        for problem in self._problems():
            sums += problem.margins().stacked
        return Margins.of(self.objective.loss, sums)

    def intercept_product(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half the Hessian of the sum of losses by an intercept times a direction, (n_classes,)."""
        total = np.zeros(self._task.n_classes)
        for problem in self._problems():
            total += problem.intercept_product(direction)
        return total

    def _one_of_each_class(self) -> Problem:
        """Return a sample of each class that occurs, with the weight of all of them."""
        totals = np.zeros(self._task.n_classes)
        for chunk in self._spill.chunks():
            check_labels(chunk.samples)
            labels, weights = chunk.samples.label_sets()[:, 0], chunk.samples.weights
            totals += np.bincount(labels, weights, self._task.n_classes)
        codes = np.flatnonzero(totals).astype(np.int32)
        ones = np.ones(len(codes), np.float32)
        samples = Samples(self._task.dataset, codes[:, None], ones, totals[codes], None)
        return self._task.problem_of(samples)

    def _problems(self) -> Iterator[Problem]:
        one_each = self._classes
        for problem in [one_each] if one_each else map(self._task.problem, self._spill.chunks()):
            problem.rebuild_scores(Coefficients.zeros(self.width), self._scores, [])
            yield problem

    def shift(self, step: NDArray[np.float64]) -> None:
        """Add the step of the intercept to all scores."""
        self._scores += step
