"""Probabilities of a classifier, from its model or calibrated on other rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bigmc.errors import DataError
from bigmc.learners import Learner
from bigmc.model import Model
from bigmc.model.fit_calibration import fit_sigmoid, fit_temperature
from bigmc.store.dataset import Dataset


class ProbabilityMixin:
    """`predict_proba` and `calibrate` of a classifier whose ``model_`` gives scores."""

    learner_type: ClassVar[type[Learner]]
    model_: Any
    classes_: Any
    _scores: Any
    _take: Any

    def _can_tell_probabilities(self) -> bool:
        """Tell scikit-learn whether there is `predict_proba`; the error says how to get it."""
        model: Model | None = getattr(self, "model_", None)
        if model is None:  # the method raises the error that it is not fitted
            return self.learner_type.kind == "mrc" or getattr(self, "loss", None) == "log_loss"
        model.check_probabilities()
        return True

    @available_if(_can_tell_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, shape (n_samples, n_classes).

        For calibrated models, the logistic loss, and the minimax learner, whose randomised rule answers with
        these. For label sets, the probability that the class is in the set.

        Parameters
        ----------
        X : as for `predict`
        """
        check_is_fitted(self)
        probabilities: NDArray[np.float64] = self.model_.probabilities(self._scores(X))
        return probabilities

    def calibrate(self, X: Any, y: Any = None) -> Self:
        """Calibrate probabilities on rows that were not trained on: arrays or texts and labels, or a dataset.

        `DataError` if no label is a class of the model, or labels do not fit the rows.
        """
        check_is_fitted(self)
        scores = self._scores(X)
        if not isinstance(X, Dataset):
            self._check_labels_of(scores, y)
        if self.model_.label_threshold is not None:
            calibration = fit_sigmoid(scores, self._label_indicator(X, y))
        else:
            labels = X.classes[X.labels()] if isinstance(X, Dataset) else np.asarray(y)
            codes = self.model_.codes_of(labels)
            calibration = fit_temperature(scores[codes >= 0], codes[codes >= 0])
        self._take(replace(self.model_, calibration=calibration))
        return self

    def _check_labels_of(self, scores: NDArray[np.float64], y: Any) -> None:
        """Raise `DataError` for labels that are not one for each row; for label sets, one for each score."""
        if y is None:
            raise DataError("there are no labels to calibrate with", "give them as y, or a dataset")
        sets = self.model_.label_threshold is not None
        wanted = scores.shape if sets else scores.shape[:1]
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
        if shape != wanted:
            cure = "give 0 or 1 for every row and class" if sets else "give one label for every row"
            raise DataError(f"the labels have the shape {shape}, but need {wanted}", cure)

    def _label_indicator(self, X: Any, y: Any) -> NDArray[np.bool_]:
        """Return whether each class is in the label set of each row, shape (n_samples, n_classes)."""
        if not isinstance(X, Dataset):
            return np.asarray(y.toarray() if hasattr(y, "toarray") else y, bool)
        sets = X.label_sets()
        own = self.model_.codes_of(X.classes)
        rows, places = np.nonzero(sets >= 0)
        codes = own[sets[rows, places]]
        indicator = np.zeros((len(sets), len(self.classes_)), bool)
        indicator[rows[codes >= 0], codes[codes >= 0]] = True
        return indicator
