"""Linear models as pipelines of scikit-learn's own classes, which predict without bigmc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from bigmc.errors import ModelError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.model import LinearModel, Model

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

_CURE = "predict with bigmc itself"


def to_sklearn(model: Model) -> Pipeline:
    """Return a fitted pipeline with the same decisions.

    A model of one text column becomes ``HashingVectorizer``, ``TfidfTransformer`` or ``Normalizer``, and
    ``LogisticRegression``, and takes a list of texts; a model of arrays or dense columns leaves out the
    vectoriser. ``predict`` and ``decision_function`` are those of the model, the latter in double precision
    and, with two classes, the second score less the first; ``predict_proba`` is the model's only where its
    loss is the log loss and it was not calibrated.

    Raises
    ------
    ModelError
        If scikit-learn has no equal: trees, sets of labels, several or categorical columns, mapped features,
        binary weighting of columns.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    linear = linear_model(model)
    steps = [*_vectorizer(linear), *_weighting(linear)]
    weights, intercept = linear.weights().astype(np.float64), linear.intercept
    if linear.n_classes == 2:
        weights, intercept = weights[[1]] - weights[[0]], intercept[[1]] - intercept[[0]]
    classifier = LogisticRegression()
    classifier.classes_ = np.asarray(linear.classes)
    classifier.coef_ = scipy.sparse.csr_matrix(weights)  # scikit-learn's own sparse form of weights
    classifier.intercept_ = intercept
    classifier.n_features_in_ = linear.n_features
    classifier.n_iter_ = np.array([linear.n_iter])
    return Pipeline([*steps, ("classifier", classifier)])


def linear_model(model: Model) -> LinearModel:
    """Return a linear model with one label per sample and unmapped features; `ModelError` for another."""
    if not isinstance(model, LinearModel):
        raise ModelError(f"a model of kind {model.kind} is not linear", _CURE)
    if model.label_threshold is not None:
        raise ModelError("the labels of this model are sets", _CURE)
    if "map" in model.feature_spec:
        raise ModelError("the features of this model are standardised or Fourier features", _CURE)
    filling = model.feature_spec.get("filling") or {"flagged": (), "deviations": ()}
    if model.feature_spec.get("one_hot") or filling["flagged"] or filling["deviations"]:
        raise ModelError("the model has one-hot columns, or marks or scales missing numbers", _CURE)
    return model


def _vectorizer(model: LinearModel) -> list[tuple[str, Any]]:
    """Return the step that hashes texts, if the model was trained on texts."""
    from sklearn.feature_extraction.text import HashingVectorizer

    if not model.feature_spec:
        return []
    spec = FeatureSpec.from_dict(model.feature_spec)
    if spec.hasher is None:
        return []
    if len(spec.text) != 1 or spec.categorical or spec.numeric or spec.numbers:
        raise ModelError("the model needs several columns, or columns that are not text", _CURE)
    hasher = HashingVectorizer(
        analyzer=spec.hasher.analyzer,
        ngram_range=spec.hasher.ngrams,
        n_features=spec.hasher.n_features,
        lowercase=spec.hasher.lowercase,
        norm=None,
    )
    return [("vectorizer", hasher)]


def _weighting(model: LinearModel) -> list[tuple[str, Any]]:
    """Return the step that weights values, if they are weighted."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import Normalizer, StandardScaler

    if model.weighting.binary:
        raise ModelError("the model applies binary weighting after hashing, scikit-learn before it", _CURE)
    if model.weighting.scaled:
        scaler = StandardScaler(with_mean=False)
        scaler.n_features_in_ = model.n_features
        scaler.mean_ = None
        scaler.scale_ = 1.0 / np.asarray(model.column_scale, np.float64)
        scaler.var_ = np.square(scaler.scale_)
        return [("weighting", scaler)]
    if model.column_scale is not None:
        step = TfidfTransformer(norm="l2" if model.weighting.l2 else None)
        step.n_features_in_ = model.n_features
        step.idf_ = np.asarray(model.column_scale, np.float64)
        return [("weighting", step)]
    return [("weighting", Normalizer())] if model.weighting.l2 else []
