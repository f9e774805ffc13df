"""Result types of evaluation, prediction, inspection and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class LabelFigures(TypedDict):
    """Quality of the predictions of one label; `support` is its number of samples."""

    precision: float
    recall: float
    f1: float
    support: int


class Confusion(TypedDict):
    """Labels, and the counts of true (rows) and predicted (columns) labels."""

    labels: list[Any]
    matrix: list[list[int]]


class ByLabel(TypedDict):
    """Figures from the counts of true and predicted labels."""

    macro_f1: float
    n_unknown_labels: int
    per_class: NotRequired[Mapping[Any, LabelFigures]]


class Evaluation(ByLabel):
    """Figures of a model on labelled data; `bigmc.evaluate` describes them."""

    accuracy: float
    n_samples: int
    interval: NotRequired[list[float]]
    confusion: NotRequired[Confusion]
    micro_f1: NotRequired[float]
    ranking_loss: NotRequired[float]
    ranking_precision: NotRequired[float]
    propensities: NotRequired[str]
    log_loss: NotRequired[float | None]
    brier: NotRequired[float]
    calibration_error: NotRequired[float]
    trained_on_these_rows: NotRequired[bool]


class FeatureName(TypedDict):
    """A name of a feature; names of hashed features have a sign and a count."""

    name: str
    sign: int
    count: int | None


class WeightedFeature(TypedDict):
    """A feature and its weight for a class; several names are a known collision."""

    index: int
    weight: float
    names: list[FeatureName]


class ClassFeatures(TypedDict):
    """The features of a class, by decreasing absolute weight."""

    label: Any
    intercept: NotRequired[float]
    features: list[WeightedFeature]


class Inspection(TypedDict):
    """The strongest features of a model."""

    n_features: int
    n_nonzero_features: int
    classes: list[ClassFeatures]


class PredictResult(TypedDict):
    """The file of the predictions, number of rows, time and memory."""

    predictions: str
    n_samples: int
    n_quarantined: int
    n_odd_values: NotRequired[int]
    seconds: float
    peak_memory_bytes: int


class ReportResult(TypedDict):
    """Where the page is, its size, and the quality of the model where it was measured."""

    report: str
    bytes: int
    accuracy: NotRequired[float]
    macro_f1: NotRequired[float]
    n_samples: NotRequired[int]
