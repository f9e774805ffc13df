"""The minimax learner: check and complete its options, and call its solver."""

from __future__ import annotations

import math
from dataclasses import asdict
from numbers import Real
from typing import Any

from bigmc.errors import BigmcError
from bigmc.learners.base import COUNT, POSITIVE, Learner, Trained
from bigmc.learners.feature_scales import wide_slack
from bigmc.learners.run import Run
from bigmc.model import MinimaxModel, Model
from bigmc.options.learners import MinimaxOptions
from bigmc.solvers.minimax import MinimaxParameters, default_lambda0, solve_minimax
from bigmc.store.dataset import Dataset
from bigmc.store.feature_map import check_fourier


class MinimaxLearner(Learner):
    """Trains a `MinimaxModel`; `bigmc.MinimaxRiskClassifier` describes its options."""

    options_type = MinimaxOptions
    takes_weights = False
    kind = MinimaxOptions.learner
    limits = ("k_max", "time_limit")
    options: MinimaxOptions

    def check(self) -> None:
        """Raise an error for an invalid option; see `Learner.check`."""
        super().check()
        self._check(POSITIVE, "eps1", "eps2")
        self._check(COUNT, "n_max", "m_max", "k_max")
        lambda0: Any = self.options.lambda0
        if lambda0 != "auto" and not (isinstance(lambda0, Real) and 0 <= float(lambda0) < math.inf):
            raise BigmcError(f"lambda0 is {lambda0!r}", "give auto or a finite number of at least 0")
        self._check_given(POSITIVE, "time_limit")
        check_fourier(self.options.fourier, self.options.gamma)

    def _solve(self, dataset: Dataset, run: Run) -> Trained:
        lambda0 = (
            default_lambda0(dataset.n_samples)
            if self.options.lambda0 == "auto"
            else float(self.options.lambda0)
        )
        parameters = MinimaxParameters(
            lambda0=lambda0,
            fit_intercept=bool(self.options.fit_intercept),
            tol=self.tolerance,
            eps1=float(self.options.eps1),
            eps2=float(self.options.eps2),
            n_max=int(self.options.n_max),
            m_max=int(self.options.m_max),
            k_max=int(self.options.k_max),
            time_limit=None if self.options.time_limit is None else float(self.options.time_limit),
            seed=run.seed,
        )
        solution = solve_minimax(dataset, parameters, run.resources.memory_limit, run.context)
        weights = solution.weights
        model = MinimaxModel(
            **run.record,
            classes=dataset.classes[solution.classes],
            features=weights.features,
            coef=weights.coef,
            intercept=weights.intercept,
            column_scale=dataset.column_scale(),
            certificate=asdict(solution.certificate),
            objective=solution.certificate.upper,
            n_iter=max(1, solution.n_iter),
            n_passes=solution.n_scans,
            history=solution.history,
            phi=solution.phi,
            stopped=solution.stopped,
            lambda0=lambda0,
        )
        return Trained(model)

    def doubts(self, dataset: Dataset, model: Model) -> tuple[str, ...]:
        """Return a warning of a column so far from 0 that the uncertainty set hides what it tells."""
        assert isinstance(model, MinimaxModel)
        return wide_slack(dataset, model.lambda0)

    def _above_tolerance(self, model: Model) -> tuple[str, ...]:
        """Return that the gap is above the tolerance, and what helps."""
        said = super()._above_tolerance(model)
        if not said or not isinstance(model, MinimaxModel) or model.stopped != "rounding":
            return said
        return (
            f"stopped with a gap of {model.certificate['gap']:.3g}, above tol={self.tolerance:g}, because "
            "nothing violates the bounds by more than rounding errors; scale the features, or raise tol",
        )
