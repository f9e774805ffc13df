"""What the functions return, key by key."""

from __future__ import annotations

from typing import NotRequired, TypedDict


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


class WarmResult(TypedDict):
    """How long compiling took, and the learners that were used."""

    seconds: float
    learners: list[str]
