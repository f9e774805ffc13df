"""The sparse linear learner: check and complete its options, and call its solver."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError
from bigmc.errors import BigmcError
from bigmc.learners.base import COUNT, NOT_NEGATIVE, Learner, Trained
from bigmc.learners.feature_scales import far_from_zero, unequal_scales
from bigmc.learners.run import Run
from bigmc.learners.thresholds import best_threshold
from bigmc.model import LinearModel, Model
from bigmc.objectives import LOSSES, objective
from bigmc.options.label_kind import LabelKind
from bigmc.options.learners import SparseOptions
from bigmc.solvers.loop import Limits, RunContext
from bigmc.solvers.sparse import Descent, SparseRun, Start, Task, solve
from bigmc.store.dataset import Dataset

AUTO_TOL, GIVEN_TOL = 0.1, 1e-3
"""Gaps to reach: the first loses no accuracy, the second makes objectives comparable."""

RIDGE_OF_LOSS = {"log_loss": 0.1}
"""The ridge times the number of samples, if it is not 1: the logistic loss is best with a smaller one."""


class Settings(NamedTuple):
    """All parameters of one training; see `bigmc.SparseClassifier`."""

    alpha: float
    loss: str
    ridge: float
    fit_intercept: bool
    tol: float


class SparseLearner(Learner):
    """Trains a `LinearModel`; `bigmc.SparseClassifier` describes its options."""

    options_type = SparseOptions
    kind = SparseOptions.learner
    limits = ("max_passes",)
    warm_starts = True
    options: SparseOptions

    def check(self) -> None:
        """Raise an error for an invalid option; see `Learner.check`."""
        options = self.options
        self._check_given(NOT_NEGATIVE, "ridge")
        if isinstance(options.alpha, str) and options.alpha != "auto":
            raise BigmcError(f"alpha is {options.alpha!r}", 'give a number or "auto"')
        if not isinstance(options.alpha, str):
            self._check(NOT_NEGATIVE, "alpha")
        used = self.settings(1.0)
        if not used.alpha + used.ridge > 0:
            raise BigmcError(f"alpha is {options.alpha!r}", "give a finite number above 0, or 0 with a ridge")
        self._check(COUNT, "max_passes")
        if options.step not in ("line_search", "constant"):
            raise BigmcError(f"step is {options.step!r}", 'use "line_search" or "constant"')
        super().check()
        self._check_given(NOT_NEGATIVE, "l1_ratio")
        objective(used.loss, options.penalty, options.l1_ratio, used.ridge)

    @property
    def tolerance(self) -> float:
        """The relative gap to reach, given or not."""
        return self.settings(1.0).tol

    @property
    def loss_name(self) -> str:
        """The loss, given or chosen."""
        default = "multitask_squared_hinge" if self.options.alpha == "auto" else "squared_hinge"
        return self.options.loss or default

    @property
    def fits_intercept(self) -> bool:
        """Whether an intercept is fitted, as given or by default."""
        fits = self.options.fit_intercept
        return self.options.alpha == "auto" if fits is None else bool(fits)

    def settings(self, weight_sum: float) -> Settings:
        """Return the parameters of the training, for samples of this total weight."""
        auto = self.options.alpha == "auto"
        alpha = 0.0 if isinstance(self.options.alpha, str) else float(self.options.alpha)
        loss = self.loss_name
        ridge = RIDGE_OF_LOSS.get(loss, 1.0) / weight_sum if auto else 0.0
        return Settings(
            alpha,
            loss,
            ridge if self.options.ridge is None else float(self.options.ridge),
            self.fits_intercept,
            (AUTO_TOL if auto else GIVEN_TOL) if self.options.tol is None else float(self.options.tol),
        )

    def solver_run(
        self, dataset: Dataset, weights: NDArray[np.float64] | None, memory: int, context: RunContext
    ) -> SparseRun:
        """Return the solver's arguments, for samples of these weights and at most `memory` bytes."""
        options = self.options
        used = self.settings(float(dataset.n_samples if weights is None else weights.sum()))
        minimised = objective(used.loss, options.penalty, options.l1_ratio, used.ridge, sets=dataset.has_sets)
        return SparseRun(
            Task(dataset, weights, minimised, used.alpha),
            Limits(used.tol, int(options.max_passes), memory),
            Descent(options.step, used.fit_intercept, int(options.random_state)),
            context,
            options.factorises,
        )

    def _solve(self, dataset: Dataset, run: Run) -> Trained:
        start = None if run.start is None else _start(run.start, dataset)
        asked = self.solver_run(dataset, run.weights, run.resources.memory_limit, run.context)
        try:
            solution = solve(asked, start)
        except MemoryLimitError as error:
            if asked.task.alpha > 0:
                raise
            # Without a penalty every feature has weights.
            cure = "select features with an alpha, or ingest into fewer features (--hash-bits)"
            raise MemoryLimitError(error.message, f"{error.cure}, {cure}") from None
        model = LinearModel(
            **run.record,
            classes=dataset.classes,
            features=solution.features,
            # Weights are no more accurate than the scores they were computed with.
            coef=solution.coef.astype(solution.score_dtype, copy=False),
            intercept=solution.intercept,
            gradient_norms=solution.norms,
            column_scale=solution.column_scale,
            certificate=asdict(solution.certificate),
            objective=solution.objective,
            n_iter=max(1, solution.n_iter),
            n_passes=solution.n_passes,
            # A resumed run reads columns again that it had in memory; the model is the same.
            history=[{k: v for k, v in entry.items() if k != "bytes_read"} for entry in solution.history],
        )
        if not dataset.has_sets:
            return Trained(model)
        if LOSSES[self.loss_name].takes_labels:  # every class against the rest: its margin is measured from 0
            return Trained(replace(model, label_threshold=0.0))
        engine, limit = run.resources.engine, run.resources.memory_limit
        threshold = best_threshold(model, dataset, run.weights, engine, limit)
        return Trained(replace(model, label_threshold=threshold))

    def doubts(self, dataset: Dataset, model: Model) -> tuple[str, ...]:
        """Return a warning if no feature has a weight, or units are so different that only some are used."""
        converged = model.certificate["gap"] <= self.tolerance
        said = unequal_scales(dataset, converged=converged)
        if not (converged or self.settings(1.0).fit_intercept):
            said += far_from_zero(dataset)
        if len(model.used_features) or self.settings(1.0).alpha == 0 or not converged:
            return said
        largest = model.history[0].get("largest_norm", 0.0)
        less = f"less than {largest:.3g}, " if largest > 0 else "a smaller one "
        return (f"no feature has a weight: alpha is {self.options.alpha}; give {less}or alpha=auto", *said)

    def check_labels(self, kind: LabelKind) -> None:
        """Raise an error for labels of another kind than the loss takes; see `Learner.check_labels`."""
        objective(self.loss_name, self.options.penalty, self.options.l1_ratio, sets=kind is LabelKind.SET)


def _start(model: Model, dataset: Dataset) -> Start:
    """Return the weights of a linear model for the classes of a dataset; new classes start at zero."""
    assert isinstance(model, LinearModel)
    codes = model.codes_of(dataset.classes)
    own = np.flatnonzero(codes >= 0)
    other = codes[own]
    coef = np.zeros((len(model.features), dataset.n_classes))
    intercept = np.zeros(dataset.n_classes)
    coef[:, own], intercept[own] = model.coef[:, other], model.intercept[other]
    same = len(own) == dataset.n_classes == model.n_classes
    return Start(model.features, coef, intercept, model.gradient_norms if same else None)
