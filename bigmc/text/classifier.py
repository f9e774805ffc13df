"""A classifier of texts that searches for its settings."""

from __future__ import annotations

import os
import reprlib
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bigmc.budget import resolve_limit
from bigmc.engine import EngineLike, opened
from bigmc.errors import DataError
from bigmc.estimators import SparseClassifier
from bigmc.inference.explain import Explanation
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import Analyzer, TextHasher
from bigmc.ingestion.sources.mixed_values import only_unicode
from bigmc.ingestion.writing.splits import row_fractions
from bigmc.model import Model
from bigmc.options.declare import time_limit_of
from bigmc.store.dataset import Dataset
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.plain_labels import plain_labels
from bigmc.store.weighting import Weighting
from bigmc.training.pilot import choose_for_texts
from bigmc.training.pilot_rows import PILOT_ROWS, PilotRows
from bigmc.training.search.best_model import best_model
from bigmc.training.search.limits import Limits
from bigmc.training.search.trials import SearchResult

_COLUMN = "text"
_SEED = 0x9170

_SETS = (list, tuple, set, frozenset, np.ndarray)
"""Types of labels that are sets of labels."""


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of texts in memory, with the search of `bigmc.fit`.

    `fit` tries n-grams, weightings, losses and strengths of the ridge on held-out rows, trains the
    best settings on all rows, and calibrates the probabilities. It is a scikit-learn estimator of
    texts, for `Pipeline`, `GridSearchCV`, `cross_val_score` and `clone`.

    Parameters
    ----------
    analyzer : {"auto", "word", "char_wb", "char"}, default="auto"
        Kind of n-grams; ``"auto"`` tries words, pairs of words and, for short texts, characters.
    ngrams : (int, int), default=(1, 2)
        Shortest and longest n-gram, if `analyzer` is not auto.
    hash_bits : int, optional
        Features are hashed to ``2**hash_bits`` buckets; by default 18, or 20 for many rows.
    time_limit : float or str, optional
        Seconds, or a text such as ``"5m"``, after which no further settings are tried.
    max_features : int, optional
        Maximum number of features; by default the fewest without loss of accuracy.
    memory_limit : int, str or None, default=None
        Bytes, or a text such as ``"2GB"``, for training; None is half of the memory.
    engine : Engine, str or None, default=None
        Runs the parts; None is one thread per processor. Texts are in memory and stay in this process.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    course_ : SearchResult
        The trials of the search, and the best one.
    classifier_ : SparseClassifier
        The fitted model; `save` writes it.

    Examples
    --------
    >>> texts = ["good film", "bad film", "good plot", "bad plot"] * 5
    >>> TextClassifier(analyzer="word").fit(texts, ["+", "-", "+", "-"] * 5).predict(["good"]).tolist()
    ['+']
    """

    def __init__(
        self,
        *,
        analyzer: str = "auto",
        ngrams: tuple[int, int] = (1, 2),
        hash_bits: int | None = None,
        time_limit: float | str | None = None,
        max_features: int | None = None,
        memory_limit: int | str | None = None,
        engine: EngineLike = None,
    ) -> None:
        self.analyzer = analyzer
        self.ngrams = ngrams
        self.hash_bits = hash_bits
        self.time_limit = time_limit
        self.max_features = max_features
        self.memory_limit = memory_limit
        self.engine = engine

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Find the best settings and train them on all texts.

        Parameters
        ----------
        X : sequence of str
        y : array-like of shape (n_samples,)

        Raises
        ------
        DataError
            If the samples are not texts, or the labels are missing, sets, or of fewer than two classes.
        """
        check_consistent_length(X, y)
        labels = _labels(y)
        texts = _texts(X)
        if len(np.unique(labels)) < 2:
            raise DataError(f"{len(labels):,} texts of fewer than 2 classes", "check the labels")
        with opened(self.engine) as engine:
            memory = resolve_limit(self.memory_limit, engine.process_memory)
            data = self._dataset(texts, labels, memory)
            limits = Limits(memory, time_limit_of(self.time_limit), self.max_features)
            self.course_: SearchResult
            self.course_, model = best_model(data, limits, engine)
        self.classifier_ = SparseClassifier.from_model(model)
        self.classes_ = self.classifier_.classes_
        return self

    @property
    def model_(self) -> Model:
        """The fitted model, as the other classifiers name it."""
        model: Model = self.classifier_.model_
        return model

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each text."""
        check_is_fitted(self)
        return self.classifier_.predict(_texts(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, shape (n_samples, n_classes)."""
        check_is_fitted(self)
        probabilities: NDArray[np.float64] = self.classifier_.predict_proba(_texts(X))
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy."""
        return float(super().score(X, plain_labels(y), sample_weight))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of each text: of every class, or for two classes the second minus the first."""
        check_is_fitted(self)
        return self.classifier_.decision_function(_texts(X))

    def explain(self, text: str, *, top: int = 10) -> Explanation:
        """Return which words of a text speak for which class."""
        check_is_fitted(self)
        return self.classifier_.explain(text, top=top)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into one file, for `bigmc.load_model` and ``bigmc predict``."""
        check_is_fitted(self)
        self.classifier_.save(path)

    def _dataset(self, texts: pa.Array, labels: NDArray[Any], memory: int) -> Dataset:
        """Return the hashed texts."""
        hasher = self._hasher(texts, labels, memory)
        spec = FeatureSpec(text=(_COLUMN,), hasher=hasher)
        rows = spec.transform(pa.record_batch([texts], [_COLUMN]))
        assert isinstance(rows, Rows)
        weighting = Weighting(l2=True, idf=True)
        return Dataset.from_arrays(rows.matrix, labels, weighting=weighting, features=spec.to_dict())

    def _hasher(self, texts: pa.Array, labels: NDArray[Any], memory: int) -> TextHasher:
        analyzer: Any = self.analyzer
        if analyzer != "auto":
            return TextHasher(analyzer, self.ngrams, self.hash_bits or 18)
        usual = TextHasher("word", self.ngrams, self.hash_bits or 18)
        rows = np.arange(len(texts))
        chosen = np.flatnonzero(row_fractions(rows, _SEED) < PILOT_ROWS / max(len(texts), 1))
        sample = pa.table({_COLUMN: texts.take(pa.array(chosen))})
        drawn = PilotRows(sample, labels[chosen].astype(str))
        pilot = choose_for_texts(drawn, len(texts), memory, self.hash_bits)
        if pilot is None:
            return usual
        named: Analyzer = pilot.hashing.analyzer
        return TextHasher(named, pilot.hashing.ngrams, pilot.hash_bits)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _texts(X: Any) -> pa.Array:
    """Return texts as an Arrow array; `DataError` for a single text, a table, or a row that is not a text."""
    if isinstance(X, str):
        raise DataError("the samples are a single text", "give a list of texts")
    if hasattr(X, "columns") or len(getattr(X, "shape", ())) > 1:
        raise DataError("the samples are a table, not texts", "give one of its columns, such as X['text']")
    if isinstance(X, pa.ChunkedArray):
        X = X.combine_chunks()
    if not (isinstance(X, pa.Array) and _is_of_texts(X.type)):
        X = X.tolist() if hasattr(X, "tolist") else list(X)
        try:
            with only_unicode("the samples"):
                return pa.array(X, pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            row = next((i for i, text in enumerate(X) if not isinstance(text, str)), 0)
            raise DataError(
                f"row {row} is {reprlib.repr(X[row])}, not a text",
                "give a list of str, without missing texts",
            ) from None
    return X


def _is_of_texts(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type, or of its dictionary, are texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _labels(y: Any) -> NDArray[Any]:
    """Return labels as an array; `DataError` if one is missing, or is a set of labels."""
    y = plain_labels(y)
    _refuse_sets(y)
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    return labels


def _refuse_sets(y: Any) -> None:
    """Raise an error for label sets: lists of labels, or columns of 0 and 1."""
    cure = "give one label for each text, or to bigmc.fit a table with a column of lists of labels"
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] != 1:
        raise DataError(f"labels in {shape[1]} columns, not one for each text", cure)
    labels = y if isinstance(y, list | tuple) else np.asarray(y).ravel()
    if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
        return
    sets = [row for row, label in enumerate(labels) if isinstance(label, _SETS)]
    column = isinstance(y, list | tuple) and len(sets) == len(y) and all(len(label) == 1 for label in y)
    if sets and not column:  # which scikit-learn takes
        label = labels[sets[0]]
        named = reprlib.repr(label.tolist() if isinstance(label, np.ndarray) else label)
        raise DataError(f"row {sets[0]}: the label {named} is a set of labels", cure)
