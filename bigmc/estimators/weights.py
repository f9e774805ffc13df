"""Classifiers that take weights of samples and classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from numpy.typing import ArrayLike

from bigmc.estimators.base import Classifier
from bigmc.model import Model


class WeightedClassifier(Classifier):
    """A classifier with sample weights and a parameter ``class_weight``."""

    class_weight: Mapping[Any, float] | str | None

    @classmethod
    def params_of(cls, model: Model) -> dict[str, Any]:
        """Return the learner's parameters that a model was trained with."""
        params = super().params_of(model)
        if isinstance(params.get("class_weight"), list):
            params["class_weight"] = dict(params["class_weight"])
        return params

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train as `Classifier.fit`, with sample weights.

        For a loss that takes label sets, `y` is a 0/1 indicator of shape (n_samples, n_classes), as
        an array or sparse matrix. `sample_weight` has numbers of at least 0, equivalent to repeating
        or omitting samples.
        """
        return self.fit_dataset(self._labelled(X, y), sample_weight=sample_weight)
