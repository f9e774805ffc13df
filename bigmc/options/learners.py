"""Parameters of the learners and their defaults; the classifiers document them in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bigmc.errors import DataError
from bigmc.options.declare import check_names, check_types, number_or_auto, option, seconds_of, values_of

ClassWeight = Mapping[Any, float] | str | None


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """Options of a learner; `DataError` if one has another type than its field."""

    learner: ClassVar[str]

    def __post_init__(self) -> None:
        check_types(type(self), values_of(type(self), self))

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the classifier."""
        return values_of(OPTIONS[self.learner], self)


@dataclass(frozen=True, kw_only=True)
class SparseOptions(LearnerOptions):
    """Parameters of `bigmc.SparseClassifier`."""

    learner = "sparse"
    factorises: ClassVar[bool] = False

    alpha: float | str = option(
        "auto",
        "Strength of the penalty; larger selects fewer features. auto: no penalty, a ridge for accuracy.",
        parse=number_or_auto,
    )
    loss: str | None = option(
        None,
        "squared_hinge, multitask_squared_hinge, huber_hinge, log_loss, or multilabel_ranking for sets; by "
        "default multitask_squared_hinge, or squared_hinge if --alpha is a number.",
    )
    penalty: str = option("l1/l2", "Penalty: l1/l2, l1, l1/linf or sparse_group.")
    l1_ratio: float | None = option(None, "Share of the l1 norm in the sparse_group penalty.")
    ridge: float | None = option(
        None,
        "Strength of the squared norm; by default 1 / samples (log_loss: a tenth of that), or 0 if "
        "--alpha is a number.",
    )
    fit_intercept: bool | None = option(
        None,
        "Fit an unpenalised intercept; the default unless --alpha is a number.",
        "--fit-intercept/--no-fit-intercept",
    )
    class_weight: ClassWeight = option(None, "balanced: weight classes by inverse frequency.", parse=str)
    tol: float | None = option(
        None, "Stop at this relative duality gap; by default 0.1, or 0.001 if --alpha is a number."
    )
    max_passes: int = option(100, "Stop after this many passes over the data.")
    step: str = option("line_search", "Step sizes: line_search or constant.")
    random_state: int = option(0, "Seed of the order of the coordinates.", "--seed")


@dataclass(frozen=True, kw_only=True)
class FitSparseOptions(SparseOptions):
    """The same for the trainings of `bigmc.fit`, which start from descent on a dense matrix of any width.

    The objective is the same, and so is the meaning of the gap, but not the bits of the weights: with fewer
    than a thousand features those of `bigmc.SparseClassifier` stay as they were.
    """

    factorises = True


@dataclass(frozen=True, kw_only=True)
class MinimaxOptions(LearnerOptions):
    """Parameters of `bigmc.MinimaxRiskClassifier`."""

    learner = "mrc"

    lambda0: float | str = option(
        "auto", "Width of the uncertainty set; auto: 2 / sqrt(rows).", parse=number_or_auto
    )
    fit_intercept: bool = option(True, "Fit an intercept: a feature that is always 1.")
    eps1: float = option(1e-2, "Add constraints violated by more than this.")
    eps2: float = option(1e-5, "Add components violated by more than this.")
    n_max: int = option(400, "Most constraints added per iteration.")
    m_max: int = option(400, "Most components added per iteration.")
    k_max: int = option(1000, "Most iterations.")
    tol: float = option(1e-3, "Stop when the bounds differ by less than this.")
    time_limit: float | None = option(
        None,
        "Stop after this time, like 90s or 5m, with the best model so far.",
        "--time",
        "--time-limit",
        metavar="TIME",
        parse=seconds_of,
    )
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
        "Weight of the loss; larger fits more closely. auto: choose on held-out rows.",
        "--C",
        parse=number_or_auto,
    )
    n_rounds: int = option(100, "Maximum number of rounds.", "--rounds")
    max_depth: int | None = option(None, "Depth of a weak learner, 1 to 6; by default 4, on sparse data 1.")
    family: str = option(
        "auto", "Learners of depth 1: stump (-1 or 1), ray (0 or 1), auto (ray on sparse data)."
    )
    learners: str = option(
        "class", "class: each class uses its own weak learners; shared: all classes share them."
    )
    loss: str = option(
        "exponential",
        "exponential, or log_loss: less influence of rows that are labelled wrongly.",
    )
    label_noise: float = option(
        0.0, "Share of labels that are drawn at random, for trees with log_loss; at least 0, below 1."
    )
    pool: int | None = option(None, "Weak learners added per class in a pass; by default 40, for trees 20.")
    learning_rate: float | None = option(None, "Factor of each update's step; by default 1, for trees 0.3.")
    class_weight: ClassWeight = option(None, "balanced: weight classes by inverse frequency.", parse=str)
    tol: float = option(1e-3, "Stop at this relative duality gap.")
    validation_fraction: float = option(0.0, "Share of the rows to hold out.")
    patience: int = option(10, "Stop after this many rounds without gain on held-out rows.")
    time_limit: float | None = option(
        None,
        "Start no further round after this time, like 90s or 5m.",
        "--time",
        "--time-limit",
        metavar="TIME",
        parse=seconds_of,
    )
    random_state: int = option(0, "Seed of the updates and of the held-out rows.", "--seed")
    max_sweeps: int | None = None
    inner_rounds: int | None = None
    max_bins: int = 255
    column_share: float = option(
        1.0, "Share of the columns that the trees of a round may split on, drawn anew for each round."
    )
    best_cuts: int | None = option(
        None, "Trees split only on the columns of so many best first cuts of each class; by default on all."
    )
    n_models: int = option(1, "Number of models to average, each with its own random columns.", "--models")
    min_frequency: float = option(
        0.0, "Trees split only on features that at least this share of the rows have."
    )


OPTIONS: dict[str, type[LearnerOptions]] = {
    kind.learner: kind for kind in (SparseOptions, MinimaxOptions, BoostOptions)
}
"""The options of each learner by its name."""


def learner_options(learner: str, given: Mapping[str, Any], also: Iterable[str] = ()) -> LearnerOptions:
    """Return the options of a learner, updated with those given.

    `DataError` if there is no such learner, or it has no such option (`check_names`).
    """
    if learner not in OPTIONS:
        raise DataError(f"no learner is called {learner!r}", f"use one of {', '.join(OPTIONS)}")
    check_names(OPTIONS[learner], given, f"training {learner}", also)
    return OPTIONS[learner](**given)
