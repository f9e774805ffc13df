"""The scikit-learn face of a sum of models: it predicts, and `bigmc.fit` makes it."""

from __future__ import annotations

from typing import Any, Self

from bigmc.engine import EngineLike
from bigmc.errors import ModelError
from bigmc.estimators.base import Classifier
from bigmc.learners.sparse import SparseLearner
from bigmc.model import Model, SumModel


class SumClassifier(Classifier):
    """A sum of models that `bigmc.fit` has made, ready to predict.

    Parameters
    ----------
    memory_limit : int or str, optional
        Bytes that predicting a dataset may add to the process.
    engine : engine, optional

    Attributes
    ----------
    model_ : SumModel
        What `save` writes; its ``parts`` are the models.
    """

    model_: SumModel

    learner_type = SparseLearner  # whose samples, without missing values, all parts take

    def __init__(self, *, memory_limit: int | str | None = None, engine: EngineLike = None) -> None:
        self.memory_limit = memory_limit
        self.engine = engine

    def fit(self, X: Any, y: Any = None) -> Self:
        """Refuse: which models to add up, and their weights, is what `bigmc.fit` finds out."""
        raise ModelError("a sum of models is not trained by itself", "make one with bigmc.fit")

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Return a fitted classifier around a model."""
        return cls()._take(model)
