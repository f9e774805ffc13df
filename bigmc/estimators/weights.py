"""Learners that take weights of samples and of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from numpy.typing import ArrayLike

from bigmc.estimators.base import Classifier
from bigmc.model import Model


class WeightedClassifier(Classifier):
    """A learner whose loss has a factor for every sample, and a parameter ``class_weight``."""

    class_weight: Mapping[Any, float] | str | None

    @classmethod
    def params_of(cls, model: Model) -> dict[str, Any]:
        """Return the parameters of the learner that a model was made with."""
        params = super().params_of(model)
        if isinstance(params.get("class_weight"), list):
            params["class_weight"] = dict(params["class_weight"])
        return params

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train on arrays, or on a dataset, which has its labels inside.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            A dask array is computed chunk by chunk of its rows and kept in memory in the form of a
            dataset; for more data than memory, ingest it.
        y : array-like of shape (n_samples,) or (n_samples, n_classes)
            Labels of one type, or for a loss that takes sets of labels 1 where a sample has the label of
            the column, also as a sparse matrix; left out for a dataset.
        sample_weight : array-like of shape (n_samples,), optional
            At least 0; the same as repeating or leaving out samples.

        Raises
        ------
        ValueError
            If there are fewer than 2 classes, or the data or the parameters cannot be used.
        MemoryLimitError
            If the memory limit is too small.
        """
        return self.fit_dataset(self._labelled(X, y), sample_weight=sample_weight)
