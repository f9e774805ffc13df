"""Result types of evaluation, prediction, inspection and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class LabelFigures(TypedDict):
    """How good the predictions of one label are; `support` counts the samples that have it."""

    precision: float
    recall: float
    f1: float
    support: int


class Confusion(TypedDict):
    """Labels that occur, and how often each, by rows, was predicted as each, by columns."""

    labels: list[Any]
    matrix: list[list[int]]


class ByLabel(TypedDict):
    """Figures that come from how often each label occurs and is predicted."""

    macro_f1: float
    n_unknown_labels: int
    per_class: NotRequired[Mapping[Any, LabelFigures]]


class Evaluation(ByLabel):
    """Figures of a model on labelled data; `bigmc.inference.evaluate.evaluate` describes them."""

    accuracy: float
    n_samples: int
    confusion: NotRequired[Confusion]
    micro_f1: NotRequired[float]
    ranking_loss: NotRequired[float]
    ranking_precision: NotRequired[float]
    propensities: NotRequired[str]
    log_loss: NotRequired[float | None]
    brier: NotRequired[float]
    calibration_error: NotRequired[float]


class FeatureName(TypedDict):
    """A name of a feature: a hashed one counts with a sign, and so many times."""

    name: str
    sign: int
    count: int | None


class WeightedFeature(TypedDict):
    """A feature that weighs for a class; several names are a known collision."""

    index: int
    weight: float
    names: list[FeatureName]


class ClassFeatures(TypedDict):
    """The features that weigh most for a class, by falling absolute weight."""

    label: Any
    intercept: NotRequired[float]
    features: list[WeightedFeature]


class Inspection(TypedDict):
    """What a model looks at."""

    n_features: int
    n_nonzero_features: int
    classes: list[ClassFeatures]


class PredictResult(TypedDict):
    """Where the predictions are, of how many rows, and what they cost."""

    predictions: str
    n_samples: int
    n_quarantined: int
    seconds: float
    peak_memory_bytes: int


class ReportResult(TypedDict):
    """Where the page is, its size, and the quality of the model where it was measured."""

    report: str
    bytes: int
    accuracy: NotRequired[float]
    macro_f1: NotRequired[float]
    n_samples: NotRequired[int]
