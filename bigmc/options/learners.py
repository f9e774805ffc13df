"""Parameters of the learners, with the defaults of their classifiers; those describe them in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from bigmc.errors import BigmcError, DataError
from bigmc.options.declare import number_or_auto, option, values_of

ClassWeight = Mapping[Any, float] | str | None


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """What all learners have in common.

    Attributes
    ----------
    learner : str
        Name of the learner (class attribute).
    """

    learner: ClassVar[str]

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the classifier."""
        return values_of(OPTIONS[self.learner], self)


@dataclass(frozen=True, kw_only=True)
class SparseOptions(LearnerOptions):
    """Parameters of `bigmc.SparseClassifier`."""

    learner = "sparse"

    alpha: float | str = option(
        "auto",
        "Strength of the penalty, larger selects fewer features; auto: none, a ridge for accuracy.",
        parse=number_or_auto,
    )
    loss: str | None = option(
        None,
        "squared_hinge, multitask_squared_hinge, huber_hinge, log_loss, or multilabel_ranking for sets; by "
        "default the second, with a number for --alpha the first.",
    )
    penalty: str = option("l1/l2", "l1/l2, l1, l1/linf or sparse_group.")
    l1_ratio: float | None = option(None, "Share of the l1 norm in sparse_group.")
    ridge: float | None = option(
        None,
        "Strength of the squared norm beside the penalty; by default 1 / samples (log_loss: a tenth), with a "
        "number for --alpha 0.",
    )
    fit_intercept: bool | None = option(
        None,
        "Fit an intercept, which is not penalised; by default unless --alpha is a number.",
        "--fit-intercept/--no-fit-intercept",
    )
    class_weight: ClassWeight = option(None, "balanced, or nothing.", parse=str)
    tol: float | None = option(
        None, "Stop at this relative duality gap; by default 0.1, with a number for --alpha 0.001."
    )
    max_passes: int = option(100, "Stop after reading the data this often.")
    step: str = option("line_search", "line_search or constant.")
    random_state: int = option(0, "Seed of the order of the coordinates.", "--seed")


@dataclass(frozen=True, kw_only=True)
class MinimaxOptions(LearnerOptions):
    """Parameters of `bigmc.MinimaxRiskClassifier`."""

    learner = "mrc"

    lambda0: float | str = option("auto", "Regularisation; auto: 2 / sqrt(rows).", parse=number_or_auto)
    fit_intercept: bool = option(True, "Add a feature that is always 1.")
    eps1: float = option(1e-2, "Add constraints that are violated by more than this.")
    eps2: float = option(1e-5, "Add components that are violated by more than this.")
    n_max: int = option(400, "Most constraints added at once.")
    m_max: int = option(400, "Most components added at once.")
    k_max: int = option(1000, "Most iterations.")
    tol: float = option(1e-3, "Stop at this difference of the bounds.")
    time_limit: float | None = option(None, "Seconds; then the best model so far.")
    random_state: int = option(0, "Seed of the first working set.", "--seed")
    standardize: bool = False
    fourier: int = 0
    gamma: float | None = None
    deterministic: bool = True


@dataclass(frozen=True, kw_only=True)
class BoostOptions(LearnerOptions):
    """Parameters of `bigmc.MultiBoostClassifier`."""

    learner = "boost"

    C: float | str = option(
        1e5,
        "Weight of the loss, larger fits closer; auto: by held-out rows.",
        "--C",
        parse=number_or_auto,
    )
    n_rounds: int = option(100, "Most rounds.", "--rounds")
    max_depth: int | None = option(None, "Levels of a weak learner, 1 to 4; by default 4, on sparse data 1.")
    family: str = option("auto", "auto, stump or ray.")
    learners: str = option(
        "class", "class: each class uses the weak learners found for it; shared: all use those of any."
    )
    pool: int | None = option(
        None, "Weak learners that a pass adds for every class; by default 40, for trees 20."
    )
    learning_rate: float | None = option(
        None, "Share of each update's step that is made; by default 1, for trees 0.3."
    )
    class_weight: ClassWeight = option(None, "balanced, or nothing.", parse=str)
    tol: float = option(1e-3, "Stop at this relative duality gap.")
    validation_fraction: float = option(0.0, "Share of the rows to hold out.")
    patience: int = option(10, "Rounds without gain on held-out rows before it stops.")
    time_limit: float | None = option(None, "Begin no round after so many seconds.")
    random_state: int = option(0, "Seed of the updates and of the held-out rows.", "--seed")
    max_sweeps: int | None = None
    inner_rounds: int | None = None
    max_bins: int = 255
    column_share: float = option(
        1.0, "Share of the columns that the trees of a round may ask, drawn for every round."
    )
    n_models: int = option(1, "Models with columns of their own, whose mean answers.", "--models")
    min_frequency: float = option(0.0, "Share of the rows that must have a feature for trees to ask it.")


OPTIONS: dict[str, type[LearnerOptions]] = {
    kind.learner: kind for kind in (SparseOptions, MinimaxOptions, BoostOptions)
}
"""The options of each learner by its name."""


def learner_options(learner: str, given: Mapping[str, Any]) -> LearnerOptions:
    """Return the options of a learner with those that are given.

    Raises
    ------
    DataError
        If there is no such learner.
    BigmcError
        If it has no such option.
    """
    if learner not in OPTIONS:
        raise DataError(f"no learner is called {learner!r}", f"use one of {', '.join(OPTIONS)}")
    known = [item.name for item in fields(OPTIONS[learner])]
    for name in given:
        if name not in known:
            raise BigmcError(f"training {learner} has no option {name!r}", f"use {', '.join(known)}")
    return OPTIONS[learner](**given)
