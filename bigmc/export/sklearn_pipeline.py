"""Linear models as pipelines of scikit-learn's own classes, which predict without bigmc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.model import LinearModel, Model
from bigmc.model.calibration import SOFTMAX, Calibration

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

_CURE = "predict with bigmc itself"


def to_sklearn(model: Model) -> Pipeline:
    """Return a fitted pipeline with the same labels and probabilities.

    A model of one text column becomes ``HashingVectorizer``, ``TfidfTransformer`` or ``Normalizer``, and
    ``LogisticRegression``, and takes a list of texts; a model of arrays or dense columns leaves out the
    vectoriser. ``predict`` and ``predict_proba`` are those of the model, in double precision. A model whose
    probabilities are no softmax of its scores has further steps before the last, which compute them.

    ``decision_function`` is that of the model if it was not calibrated, and otherwise the logarithm of the
    probabilities but for a constant of each row; with two classes, the second less the first. A model
    without probabilities, or with those of the minimax rule, ends in ``LinearSVC``, which has no
    ``predict_proba``.

    Raises
    ------
    ModelError
        If scikit-learn has no equal: trees, sets of labels, several or categorical columns, mapped features,
        binary weighting of columns.
    """
    from sklearn.pipeline import Pipeline

    linear = linear_model(model)
    return Pipeline([*_vectorizer(linear), *_weighting(linear), *_scoring(linear)])


def _scoring(model: LinearModel) -> list[tuple[str, Any]]:
    """Return the steps from features to labels and probabilities."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    calibration = model.calibration_of_scores
    scale = 1.0 if calibration is None else calibration.scale
    weights, intercept = model.weights().astype(np.float64) * scale, model.intercept * scale
    if calibration is None:
        return [("classifier", _linear(LinearSVC(), model, weights, intercept))]
    if calibration.link == SOFTMAX and not calibration.label_noise:
        return [("classifier", _linear(LogisticRegression(), model, weights, intercept))]
    # The softmax of logarithms of probabilities is these probabilities.
    identity, zeros = scipy.sparse.csr_array(np.eye(model.n_classes)), np.zeros(model.n_classes)
    last = ("classifier", _linear(LogisticRegression(), model, identity, zeros))
    offset = 0.0 if calibration.link == SOFTMAX else calibration.offset
    return [*_scores(weights, intercept + offset), *_log_probabilities(calibration, model.n_classes), last]


def _linear(classifier: Any, model: LinearModel, weights: Any, intercept: NDArray[np.float64]) -> Any:
    """Return a linear classifier of scikit-learn with weights of shape (n_classes, n_inputs)."""
    if model.n_classes == 2:  # one row of weights, for the second class
        weights, intercept = weights[[1]] - weights[[0]], intercept[[1]] - intercept[[0]]
    classifier.classes_ = np.asarray(model.classes)
    classifier.coef_ = scipy.sparse.csr_matrix(weights)  # scikit-learn's own sparse form of weights
    classifier.intercept_ = intercept
    classifier.n_features_in_ = weights.shape[1]
    classifier.n_iter_ = np.array([model.n_iter])
    return classifier


def _scores(weights: Any, intercept: NDArray[np.float64]) -> list[tuple[str, Any]]:
    """Return the steps from features to the score of every class.

    Of the transformers that multiply by a matrix, only that of random projections takes a sparse one.
    """
    from sklearn.random_projection import SparseRandomProjection

    product = SparseRandomProjection(n_components=weights.shape[0], dense_output=True)
    product.components_ = scipy.sparse.csr_matrix(weights)
    product.n_components_, product.n_features_in_ = weights.shape
    return [("scores", product), ("intercept", _affine(np.ones_like(intercept), intercept))]


def _log_probabilities(calibration: Calibration, n_classes: int) -> list[tuple[str, Any]]:
    """Return the steps from scaled scores to logarithms of probabilities, as `Calibration.probabilities`.

    The logarithms may lack a constant of each row.
    """
    from scipy.special import log_expit, softmax
    from sklearn.preprocessing import FunctionTransformer

    steps: list[tuple[str, Any]] = []
    ones = np.ones(n_classes)
    if calibration.link != SOFTMAX:
        steps += [("sigmoid", FunctionTransformer(log_expit))]
        if calibration.power != 1.0:
            steps += [("power", _affine(calibration.power * ones))]
    if calibration.label_noise:
        clean, uniform = 1.0 - calibration.label_noise, calibration.label_noise / n_classes
        steps += [
            ("softmax", FunctionTransformer(softmax, kw_args={"axis": 1})),
            ("label_noise", _affine(clean * ones, uniform * ones)),
            ("logarithm", FunctionTransformer(np.log)),
        ]
    return steps


def _affine(factor: NDArray[np.float64], offset: NDArray[np.float64] | None = None) -> Any:
    """Return the transformer that multiplies columns by factors and adds offsets."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=offset is not None)
    scaler.n_features_in_ = len(factor)
    scaler.mean_ = None if offset is None else -offset / factor
    scaler.scale_ = 1.0 / factor
    scaler.var_ = np.square(scaler.scale_)
    return scaler


def linear_model(model: Model) -> LinearModel:
    """Return a linear model with one label per sample and unmapped features; `ModelError` for another."""
    if not isinstance(model, LinearModel):
        raise ModelError(f"a model of kind {model.kind} is not linear", _CURE)
    if model.label_threshold is not None:
        raise ModelError("the labels of this model are sets", _CURE)
    if "map" in model.feature_spec:
        raise ModelError("the features of this model are standardised or Fourier features", _CURE)
    if (model.feature_spec.get("hasher") or {}).get("by_column"):
        raise ModelError(
            "the model tells apart the same word in several columns",
            f"{_CURE}, or fit with --no-words-by-column",
        )
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
        binary=model.weighting.binary,  # set after hashing, as bigmc does
    )
    return [("vectorizer", hasher)]


def _weighting(model: LinearModel) -> list[tuple[str, Any]]:
    """Return the step that weights values, if they are weighted."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import Normalizer

    if model.weighting.binary and not model.feature_spec.get("hasher"):
        raise ModelError("scikit-learn has no binary weighting of columns like that of this model", _CURE)
    if model.weighting.scaled:
        return [("weighting", _affine(np.asarray(model.column_scale, np.float64)))]
    if model.column_scale is not None:
        step = TfidfTransformer(norm="l2" if model.weighting.l2 else None)
        step.n_features_in_ = model.n_features
        step.idf_ = np.asarray(model.column_scale, np.float64)
        return [("weighting", step)]
    return [("weighting", Normalizer())] if model.weighting.l2 else []
