"""Common parts of all learners' scikit-learn interfaces: arrays and datasets in, labels and scores out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from bigmc.budget import resolve_limit
from bigmc.engine import EngineLike, Resources, opened
from bigmc.errors import DataError, ModelError
from bigmc.estimators.arrays import chunk_shards, is_lazy, row_batches, row_chunks
from bigmc.estimators.probabilities import ProbabilityMixin
from bigmc.inference.explain import Explanation, explain
from bigmc.inference.samples import SampleReader
from bigmc.inference.text_scores import score_batches
from bigmc.learners import Learner
from bigmc.model import Model
from bigmc.options.label_kind import LabelKind
from bigmc.progress import ProgressCallback, silent
from bigmc.solvers import Certificate, Checkpoint
from bigmc.store.dataset import Dataset
from bigmc.store.shards.label_sets import SETS, column_of_indicator, pairs_of, right_sets
from bigmc.store.shards.memory_shard import refuse_unsound
from bigmc.store.shards.plain_labels import plain_labels
from bigmc.store.weighting import Weighting

#: Parameters that say how a model is computed, not which; models do not record them.
_HOW = ("memory_limit", "engine")


class Classifier(ProbabilityMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A learner with scikit-learn's interface.

    The ``__init__`` of a subclass takes the options of its learner, by the same names, ``memory_limit`` and
    ``engine``. A subclass with weights of samples and classes derives from
    `bigmc.estimators.weights.WeightedClassifier`, a linear one also from
    `bigmc.estimators.linear.LinearMixin`.

    Attributes
    ----------
    learner_type : type
        The learner that trains (class attribute).
    takes_sparse : bool
        Whether scipy sparse matrices are accepted (class attribute).
    classes_ : array of shape (n_classes,)
    objective_ : float
    certificate_ : Certificate
        ``lower <= optimum <= upper`` and their ``gap``.
    n_iter_ : int
    n_passes_ : float
        Passes over the data: entries read divided by all entries.
    history_ : list of dict
        Figures of every pass.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,)
        Only if the data was a frame whose column names are all strings.
    model_ : Model
        The model that `save` writes.
    """

    learner_type: ClassVar[type[Learner]]
    takes_sparse: ClassVar[bool] = True

    random_state: int | np.random.RandomState | None
    memory_limit: int | str | None
    engine: EngineLike

    def learner(self, random_state: int = 0) -> Learner:
        """Return the learner with the current parameters, of which only types are checked, and a seed.

        To make a seed of the parameter `random_state` may change it, so that is left to the training.
        """
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in _HOW}
        return self.learner_type(self.learner_type.options_type(**params | {"random_state": random_state}))

    def check_params(self) -> None:
        """Check the parameters, as `fit` does before it reads the data.

        `BigmcError` if a parameter is invalid; the message names it and the valid values.
        """
        self.learner().check()

    @classmethod
    def params_of(cls, model: Model) -> dict[str, Any]:
        """Return the learner's parameters that a model was trained with."""
        own = set(cls._get_param_names()) - set(_HOW)
        return {name: value for name, value in model.params.items() if name in own}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on arrays and labels, or on a dataset, which contains its labels.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            A dask array is computed by chunks of its rows and kept in memory as a dataset; if it is
            larger than memory, ingest it first.
        y : array-like of shape (n_samples,)
            Labels of one type; omitted for a dataset.

        Raises
        ------
        ValueError
            If there are fewer than 2 classes, or the data or parameters are invalid.
        MemoryLimitError
            If the memory limit is too small.
        """
        return self.fit_dataset(self._labelled(X, y))

    def fit_dataset(
        self,
        dataset: Dataset,
        *,
        sample_weight: ArrayLike | None = None,
        checkpoint: Checkpoint | None = None,
        progress: ProgressCallback = silent,
    ) -> Self:
        """Train on a dataset, with options for long runs.

        Parameters
        ----------
        dataset : Dataset
            Labelled samples.
        sample_weight : array-like of shape (n_samples,), optional
            Numbers of at least 0, as if samples were repeated or omitted; for learners that take weights.
        checkpoint : Checkpoint, optional
            Where the state is saved during training, and read at the start.
        progress : callable, optional
            Called with a `Progress` after every pass.
        """
        learner = self.learner(random_state=self._seed())
        with opened(self.engine) as engine:
            trained = learner.train(
                dataset,
                Resources(engine, resolve_limit(self.memory_limit, engine.process_memory), progress),
                sample_weight=sample_weight,
                checkpoint=checkpoint,
            )
        for note in trained.notes + learner.doubts(dataset, trained.model):
            warnings.warn(note, ConvergenceWarning, stacklevel=3)
        return self._take(trained.model)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each sample: the class with the largest score, the first among equals.

        For label sets, return a 0/1 indicator array of shape (n_samples, n_classes) instead: 1 for the
        classes whose score is above the model's threshold.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            Arrays hold raw values; the weighting of the training data is applied to them. Datasets and
            dask arrays are read part by part. A model trained on columns of files takes these columns: a
            list of dicts, a data frame, an Arrow table, a path, pattern or address of files, or a list of
            `pathlib.Path`; for a single text column also a list of texts.

        Raises
        ------
        ModelError
            If the features of a dataset differ from those of the training data.
        """
        check_is_fitted(self)
        if self.model_.label_threshold is not None:
            return self._indicator(X)
        if isinstance(X, Dataset):
            return self._labels(self._codes(X))
        return self._labels(np.concatenate([np.argmax(s, axis=1) for s in self._score_batches(X)]))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of each sample.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            As for `predict`.

        Returns
        -------
        float64 array of shape (n_samples, n_classes), or (n_samples,) for two classes
            For two classes, the score of the second minus that of the first, unless labels are sets.
        """
        scores = self._scores(X)
        if len(self.classes_) != 2 or self.model_.label_threshold is not None:
            return scores
        return scores[:, 1] - scores[:, 0]

    def explain(self, sample: str | Mapping[str, Any], *, top: int = 10) -> Explanation:
        """Return which words, or other named features, of a sample speak for which class.

        Parameters
        ----------
        sample : str or dict
            A text, or the columns of the training data.
        top : int, default=10
            Maximum number of words per class.

        Raises
        ------
        DataError
            If the model was trained on arrays, whose features have no names.
        """
        check_is_fitted(self)
        return explain(self.model_, self._reader, sample, top)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy on arrays and labels, or on a dataset, which contains its labels.

        A sample whose label was not in the training data counts as an error. For label sets, only exact
        matches count as right.
        """
        if not isinstance(X, Dataset):
            return float(super().score(X, plain_labels(y), sample_weight))
        check_is_fitted(self)
        if y is not None:
            raise DataError("a dataset already has labels", "call score(dataset) without y")
        own = self.model_.codes_of(X.classes)
        if self.model_.label_threshold is None:
            right = (own[X.labels()] == self._codes(X)).astype(np.float64)
        else:
            right = right_sets(X.label_sets(), own, self._indicator(X)).astype(np.float64)
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        return float(np.average(right, weights=weights))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into one file, for `bigmc.load_model`."""
        check_is_fitted(self)
        self.model_.save(path)

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Return a fitted classifier around a model; `ModelError` if the model has another kind."""
        if model.kind != cls.learner_type.kind:
            said = f"a model of kind {model.kind!r} cannot become a {cls.__name__}"
            raise ModelError(said, "load it with bigmc.load_model")
        return cls(**cls.params_of(model))._take(model)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        tags.input_tags.allow_nan = self.learner_type.takes_missing
        return tags

    def _take(self, model: Model) -> Self:
        """Set the fitted attributes from a model."""
        self.model_ = model
        self._reader = SampleReader.of(model)
        self.classes_ = model.classes
        self.objective_ = model.objective
        self.certificate_ = Certificate(**model.certificate)
        self.n_iter_ = model.n_iter
        self.n_passes_ = model.n_passes
        self.history_ = list(model.history)
        self.n_features_in_ = model.n_features
        if "columns" in model.feature_spec:
            self.feature_names_in_ = np.array(model.feature_spec["columns"], object)
        return self

    def _labelled(self, X: Any, y: Any) -> Dataset:
        """Return the input of `fit` as a dataset."""
        if not isinstance(X, Dataset):
            refuse_unsound(X, "X")
            return self._dataset(X, plain_labels(y))
        if y is not None:
            raise DataError("a dataset already has labels", "call fit(dataset) without y")
        self.__dict__.pop("feature_names_in_", None)
        return X

    def _dataset(self, X: Any, y: Any) -> Dataset:
        """Return a dataset of arrays, after scikit-learn's checks."""
        if hasattr(y, "dtype") and not is_lazy(y):
            assert_all_finite(y, input_name="y")  # type_of_target casts it to int
        sets = y is not None and not is_lazy(y) and type_of_target(y) == "multilabel-indicator"
        self.learner().check_labels(LabelKind.SET if sets else LabelKind.ONE)
        if not is_lazy(X):
            X, y = validate_data(self, X, y, **self._accepted(), multi_output=sets)
            check_classification_targets(y)
            return Dataset.from_arrays(X, y, features=self._columns())
        codes: Any
        if sets:
            classes, codes = np.arange(np.shape(y)[1]), column_of_indicator(y)
        else:
            labels = column_or_1d(plain_labels(y.compute()) if is_lazy(y) else y, warn=True)
            check_classification_targets(labels)
            classes, numbers = np.unique(labels, return_inverse=True)
            codes = numbers.astype(np.int32)
        shards = list(chunk_shards(self._training_chunks(X), codes))
        return Dataset(shards, classes, self.n_features_in_, Weighting(), self._columns())

    def _training_chunks(self, X: Any) -> Iterator[Any]:
        """Yield checked chunks; the first determines the number and names of the features."""
        for number, chunk in enumerate(row_chunks(X)):
            yield validate_data(self, chunk, **self._accepted(), reset=number == 0)

    def _checked_chunks(self, X: Any) -> Iterator[Any]:
        """Yield chunks, checked to have the features of the training data."""
        for chunk in row_chunks(X):
            yield validate_data(self, chunk, **self._accepted(), reset=False)

    def _columns(self) -> Mapping[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {} if names is None else {"columns": names.tolist()}

    def _score_batches(self, X: Any) -> Iterator[NDArray[np.float64]]:
        if self._reader.takes(X):
            yield self._no_scores()
            yield from score_batches(self.model_, self._reader, X)
            return
        for chunk in self._checked_chunks(X):
            for rows in row_batches(chunk):
                yield self.model_.scores(rows)

    def _no_scores(self) -> NDArray[np.float64]:
        return np.empty((0, len(self.classes_)))

    def _accepted(self) -> Mapping[str, Any]:
        """Return the options of scikit-learn's checks of arrays."""
        return {
            "accept_sparse": "csr" if self.takes_sparse else False,
            "ensure_all_finite": "allow-nan" if self.learner_type.takes_missing else True,
        }

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Return the score of every class, shape (n_samples, n_classes)."""
        check_is_fitted(self)
        if not isinstance(X, Dataset):
            return np.concatenate(list(self._score_batches(X)))
        return np.concatenate([self._no_scores(), *self._each_shard("shard_scores", X)])

    def _codes(self, dataset: Dataset) -> NDArray[np.integer[Any]]:
        return np.concatenate([np.empty(0, np.int32), *self._each_shard("shard_codes", dataset)])

    def _each_shard(self, method: str, dataset: Dataset) -> list[Any]:
        """Return the results of a method of the model for all shards."""
        self.model_.check_features(dataset)
        shards = range(dataset.n_shards)
        with opened(self.engine) as engine:
            own = dataset.seen_by(engine)
            return [part for _, part in own.map(_answer, shards, dataset, self.model_, method)]

    def _indicator(self, X: Any) -> NDArray[np.int64]:
        """Return 1 for every label in the predicted sets, shape (n_samples, n_classes)."""
        if isinstance(X, Dataset):
            sets = self._each_shard("shard_sets", X)
        else:
            sets = [self.model_.sets(scores) for scores in self._score_batches(X)]
        rows, codes = pairs_of(pa.chunked_array(sets, SETS))
        indicator = np.zeros((sum(map(len, sets)), len(self.classes_)), np.int64)
        indicator[rows, codes] = 1
        return indicator

    def _labels(self, codes: NDArray[np.integer[Any]]) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[codes]
        return labels

    def _seed(self) -> int:
        state: Any = self.random_state
        if isinstance(state, Integral):
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))


def _answer(shard: int, dataset: Dataset, model: Model, method: str) -> Any:
    return getattr(model, method)(dataset, shard)
