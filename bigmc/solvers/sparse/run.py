"""A run of the sparse learner: its problem, limits and context."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.errors import BigmcError, DataError
from bigmc.kernels.linear.parallel.simd import padded_classes
from bigmc.objectives import PENALTIES, Objective
from bigmc.objectives.losses import LogLoss, MultitaskSquaredHinge
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Fingerprint, Limits, RunContext
from bigmc.solvers.sparse.memory_plan import SINGLE_PRECISION_TOL, Size
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.state import State
from bigmc.solvers.sparse.steps.chunk_parts import is_frequent
from bigmc.solvers.sparse.steps.descent import STEPS, Descent
from bigmc.solvers.sparse.steps.model_sweeps import sweeper_of
from bigmc.solvers.sparse.steps.sweeps import Sweeper
from bigmc.store.centred import CentredDataset
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows

#: Features that occur from which on dual coordinates are worth it: with fewer Newton steps are quick.
MANY_FEATURES = 1000
#: Entries looked at between two passes at most: a pass costs as much as looking at all entries once.
VISITS_PER_PASS = 5
_SMALL_VISITS = 20_000_000


@dataclass(frozen=True)
class Task:
    """What is minimised: the objective over weighted samples.

    Attributes
    ----------
    sample_weight : float64 array of shape (n_samples,) or None
    alpha : float
        Weight of the penalty.
    """

    dataset: Dataset
    sample_weight: NDArray[np.float64] | None
    objective: Objective
    alpha: float

    @cached_property
    def weight_sum(self) -> float:
        """N of the objective."""
        return float(self.dataset.n_samples if self.sample_weight is None else self.sample_weight.sum())

    @property
    def width(self) -> int:
        """Classes, padded to whole vectors."""
        return padded_classes(self.dataset.n_classes)

    def size(self, tol: float) -> Size:
        """Return the sizes on which a memory plan depends."""
        dataset = self.dataset
        column_nnz = dataset.column_nnz()
        return Size(
            n_samples=dataset.n_samples,
            n_features=dataset.n_features,
            n_classes=dataset.n_classes,
            nnz=dataset.nnz,
            n_shards=dataset.n_shards,
            width=self.width,
            itemsize=dataset.dtype.itemsize,
            tol=tol,
            most_labels=dataset.most_labels(),
            weighted=self.sample_weight is not None,
            column_scaled=dataset.weighting.scales_columns,
            n_certain=0 if self.alpha > 0 else int(np.count_nonzero(column_nnz)),
            largest_shard=max(shard.nnz for shard in dataset.shards),
            n_frequent=int(np.count_nonzero(is_frequent(column_nnz, dataset.n_samples))),
            n_kept=self.objective.loss.n_kept(dataset.n_classes),
            n_beside=self.objective.residuals_beside(dataset.n_classes, self.width),
        )


@dataclass(frozen=True)
class SparseRun:
    """Arguments of `bigmc.solvers.sparse.solve.solve`.

    Attributes
    ----------
    task : Task
        Labelled samples of at least two classes; with a ridge `Task.alpha` may be 0.
    limits : Limits
        Of the relative gap between objective and lower bound, passes, and memory.
    factorises : bool, optional
        Start from the weights of `ridge.dense_descent` where columns are dense, however few.

    Raises
    ------
    BigmcError
        If a number or a name cannot be used.
    """

    task: Task
    limits: Limits
    descent: Descent
    context: RunContext
    factorises: bool = False

    def __post_init__(self) -> None:
        task, step = self.task, self.descent.step
        if task.dataset.n_classes < 2:
            raise DataError("there is only one class", "train on labels of at least two classes")
        if not (np.isfinite(task.alpha) and task.alpha >= 0 and task.alpha + task.objective.ridge > 0):
            raise BigmcError(f"alpha is {task.alpha}", "give a positive number, or 0 with a ridge")
        if not self.limits.tol > 0:
            raise BigmcError(f"tol is {self.limits.tol}", "give a positive number")
        if step not in STEPS:
            raise BigmcError(f"no step is called {step!r}", f"use one of {', '.join(STEPS)}")

    @property
    def fingerprint(self) -> Fingerprint:
        """Facts in which a checkpoint must agree with the run that resumes it."""
        task, descent = self.task, self.descent
        minimised, dataset = task.objective, task.dataset
        return {
            "alpha": task.alpha,
            "loss": minimised.loss.name,
            "penalty": minimised.penalty.name,
            "l1_ratio": None if minimised.penalty in PENALTIES.values() else minimised.penalty.l1_ratio,
            "ridge": minimised.ridge,
            "fit_intercept": descent.fit_intercept,
            "seed": descent.seed,
            "step": descent.step,
            "memory_limit": self.limits.memory,
            "n_samples": dataset.n_samples,
            "n_features": dataset.n_features,
            "n_classes": dataset.n_classes,
            "nnz": dataset.nnz,
            "weight_sum": task.weight_sum,
            # intercept and scaled weights belong to centred columns; None is also what is not there
            "centred": dataset.centring if isinstance(dataset, CentredDataset) else None,
        }

    @property
    def is_ridge_hinge(self) -> bool:
        """Whether there is a ridge alone, and classes are problems of their own."""
        task = self.task
        is_hinge = task.objective.loss.name == MultitaskSquaredHinge.name
        return task.alpha == 0.0 and is_hinge and self.descent.line_search

    @property
    def is_ridge_log(self) -> bool:
        """Whether there is a ridge alone, and the log loss of single labels."""
        task = self.task
        is_log = task.objective.loss.name == LogLoss.name and not task.dataset.has_sets
        return task.alpha == 0.0 and is_log and self.descent.line_search

    @property
    def is_ridge(self) -> bool:
        """Whether it is either: a problem that descent on a dense matrix can solve."""
        return self.is_ridge_hinge or self.is_ridge_log

    @property
    def takes_duals(self) -> bool:
        """Whether dual coordinates solve it: a ridge alone, classes apart, and many features that occur."""
        task = self.task
        return (
            self.is_ridge_hinge
            and self.limits.max_passes > 1
            and int(np.count_nonzero(task.dataset.column_nnz())) >= MANY_FEATURES
        )

    @property
    def score_dtype(self) -> np.dtype[Any]:
        """Type of the scores where they are no small matrix."""
        return np.dtype(np.float32 if self.limits.tol >= SINGLE_PRECISION_TOL else np.float64)

    @property
    def size(self) -> Size:
        """The sizes on which a memory plan depends: columns are centred beside an intercept only."""
        size = self.task.size(self.limits.tol)
        return size if self.descent.fit_intercept else replace(size, n_frequent=0)

    @property
    def shard_rows(self) -> int:
        """Rows of the largest shard."""
        return max(shard.n_rows for shard in self.task.dataset.shards)

    def scores(self, task: Task, dtype: np.dtype[Any]) -> Problem:
        """Return the samples of a task and their scores."""
        return Problem(
            task.dataset, task.objective, task.alpha, task.sample_weight, dtype, self.context.local_engine
        )

    def sweeper(self, problem: Problem, nnz: int, newton_bytes: int) -> Sweeper:
        """Return what sweeps over samples with so many entries."""
        most_visits = max(_SMALL_VISITS, VISITS_PER_PASS * nnz)
        return sweeper_of(problem, self.descent, most_visits, newton_bytes, self.context.ends)

    def draw(self, share: float, engine: Engine) -> Task | None:
        """Return the task of a share of the samples, in memory; None if all of them have no weight."""
        task = self.task
        drawn, positions = draw_rows(task.dataset, share, self.descent.seed, engine)
        weights = None if task.sample_weight is None else task.sample_weight[positions]
        if weights is not None and not weights.any():
            return None
        return replace(task, dataset=drawn, sample_weight=weights)


class Trained(NamedTuple):
    """Where the rounds of a run ended, and the scale of the columns its weights belong to."""

    state: State
    certificate: Certificate
    column_scale: NDArray[np.float32] | None
