"""Classifier around a sum of models, which `bigmc.fit` makes."""

from __future__ import annotations

from typing import Any, Self

from bigmc.engine import EngineLike
from bigmc.errors import ModelError
from bigmc.estimators.base import Classifier
from bigmc.learners.sparse import SparseLearner
from bigmc.model import Model, SumModel


class SumClassifier(Classifier):
    """Classifier around a sum of models, made by `bigmc.fit`; `model_.parts` are the models."""

    model_: SumModel

    learner_type = SparseLearner  # all parts take its samples, which have no missing values

    def __init__(self, *, memory_limit: int | str | None = None, engine: EngineLike = None) -> None:
        self.memory_limit = memory_limit
        self.engine = engine

    def fit(self, X: Any, y: Any = None) -> Self:
        """Raise an error: only `bigmc.fit` chooses the models of a sum and their weights."""
        raise ModelError("a sum of models cannot be trained directly", "make one with bigmc.fit")

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Return a fitted classifier around a model."""
        return cls()._take(model)
