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
        """Train on arrays and labels, or on a dataset, which contains its labels.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            A dask array is computed by chunks of its rows and kept in memory as a dataset; if it is
            larger than memory, ingest it first.
        y : array-like of shape (n_samples,) or (n_samples, n_classes)
            Labels of one type, or, for a loss that takes label sets, a 0/1 indicator array or sparse
            matrix; omitted for a dataset.
        sample_weight : array-like of shape (n_samples,), optional
            Numbers of at least 0, equivalent to repeating or omitting samples.

        Raises
        ------
        ValueError
            If there are fewer than 2 classes, or the data or parameters are invalid.
        MemoryLimitError
            If the memory limit is too small.
        """
        return self.fit_dataset(self._labelled(X, y), sample_weight=sample_weight)
