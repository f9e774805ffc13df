"""Result types of trainings and of the choice among models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class TrainResult(TypedDict):
    """The result of a training; `bigmc.api.train` describes it."""

    model: str
    objective: float
    certificate: dict[str, float]
    converged: bool
    tol: float
    n_iter: int
    n_passes: float
    n_nonzero_features: int
    seconds: float
    peak_memory_bytes: int
    memory_limit_bytes: int
    file_bytes_read: int
    notes: list[str]


class PathRow(TypedDict):
    """A model of a path: its penalty, its training, and its quality on the validation rows."""

    alpha: float
    n_nonzero_features: int
    objective: float
    n_passes: float
    gap: float
    accuracy: float
    macro_f1: float
    micro_f1: NotRequired[float]
    model: str
    seconds: NotRequired[float | None]


class PathResult(TypedDict):
    """A path of models, and the best one."""

    asked: Mapping[str, Any]
    table: list[PathRow]
    best: PathRow
    at_edge: bool
    best_model: NotRequired[str]


class EvaluatedModel(TypedDict):
    """An evaluated model, from a file of ``bigmc evaluate --to``."""

    accuracy: float
    macro_f1: float
    micro_f1: NotRequired[float]
    model: str
    model_sha256: str
    dataset: str
    split: str
    n_nonzero_features: int


class PublishResult(TypedDict):
    """The published model, and those it was compared with."""

    published: str
    best: EvaluatedModel
    table: list[EvaluatedModel]


class TrialFigures(TypedDict):
    """Quality of some settings on held-out rows."""

    settings: str
    quality: float
    log_loss: float
    n_nonzero_features: int
    seconds: float


class SizeFigures(TypedDict):
    """Quality of a number of features on held-out rows."""

    n_features: int
    quality: float
    log_loss: float


class Measured(TypedDict):
    """Figures on the test rows and, if computed, of simple models on them."""

    test: Mapping[str, Any] | None
    baselines: NotRequired[Mapping[str, float]]


class FitResult(Measured):
    """The result of a fit; `bigmc.api.fit` describes it."""

    model: str
    learner: str
    settings: str
    trials: list[TrialFigures]
    sizes: list[SizeFigures]
    ended: str
    n_search_rows: int
    n_held_out: int
    objective: float | None
    certificate: Mapping[str, float | None]
    n_nonzero_features: int
    n_classes: int
    rivals: Mapping[str, float]
    seconds: NotRequired[float]
    time_limit: NotRequired[float]
    peak_memory_bytes: NotRequired[int]
    report: NotRequired[str]
    columns: dict[str, list[str]]
    value_formats: NotRequired[dict[str, list[str]]]
    notes: list[str]
    n_quarantined: NotRequired[int]
